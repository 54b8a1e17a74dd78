/* Verifies the places of temporary buffers (kin_program_plan), from the operations alone. */
#include "core/program/make.h"

typedef struct {
    uint32_t first, last; /* operations; first UINT32_MAX: it is not used */
} span;

static void
touch(span *spans, uint32_t buffer, uint32_t op)
{
    span *s = &spans[buffer];
    if (s->first == UINT32_MAX)
        s->first = op;
    s->last = op;
}

static void
touch_kernel(const kin_program *p, uint32_t kernel, span *spans, uint32_t op)
{
    const kin_kernel *k = &p->kernels.at[kernel];
    for (uint32_t b = 0; b < k->nbuffers; b++)
        touch(spans, k->buffers[b], op);
}

static void
find_spans(const kin_program *p, span *spans)
{
    for (uint32_t b = 0; b < p->buffers.len; b++)
        spans[b].first = UINT32_MAX;
    for (uint32_t i = 0; i < p->ops.len; i++) {
        if (!p->ops.at[i].is_extern) {
            touch_kernel(p, p->ops.at[i].index, spans, i);
            continue;
        }
        const kin_extern_call *c = &p->externs.at[p->ops.at[i].index];
        for (uint32_t a = 0; a < c->nargs; a++)
            touch(spans, c->args[a].buffer, i);
        for (uint32_t r = 0; r < c->nresults; r++)
            if (c->results[r] != UINT32_MAX)
                touch(spans, c->results[r], i);
        if (c->epilogue)
            touch_kernel(p, c->epilogue - 1, spans, i);
    }
    for (uint32_t u = 0; u < p->undos.len; u++)
        touch_kernel(p, p->undos.at[u].kernel, spans, p->ops.len);
}

/* May `later` lie on `earlier`, which the kernel of operation op reads only where it writes `later`? */
static bool
may_lie_on(const kin_program *p, uint32_t op, uint32_t earlier, uint32_t later)
{
    if (op >= p->ops.len || p->ops.at[op].is_extern)
        return false;
    const kin_kernel *k = &p->kernels.at[p->ops.at[op].index];
    for (uint32_t n = 0; n < k->nover; n++)
        if (k->over[n] == earlier && k->writes == later)
            return true;
    return false;
}

static bool
collide(const kin_program *p, const span *spans, uint32_t a, uint32_t b)
{
    const kin_buf *x = &p->buffers.at[a], *y = &p->buffers.at[b];
    bool in_time = spans[a].first <= spans[b].last && spans[b].first <= spans[a].last;
    bool in_place = x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
    if (!in_time || !in_place)
        return false;
    return !(spans[a].last == spans[b].first && may_lie_on(p, spans[a].last, a, b)) &&
           !(spans[b].last == spans[a].first && may_lie_on(p, spans[b].last, b, a));
}

static bool
check_places(const kin_program *p, const span *spans, kin_text *why)
{
    for (uint32_t a = 0; a < p->buffers.len; a++) {
        const kin_buf *x = &p->buffers.at[a];
        if (x->kind != KIN_BUF_TEMP || spans[a].first == UINT32_MAX)
            continue;
        if (x->offset % 64 != 0 || x->offset + x->bytes > p->arena) {
            kin_text_addf(why, "buffer %u lies outside of the arena", a);
            return false;
        }
        for (uint32_t b = a + 1; b < p->buffers.len; b++)
            if (p->buffers.at[b].kind == KIN_BUF_TEMP && spans[b].first != UINT32_MAX && collide(p, spans, a, b)) {
                kin_text_addf(why, "buffers %u and %u lie on each other while both are needed", a, b);
                return false;
            }
    }
    return true;
}

bool
kin_program_verify(const kin_program *p, kin_text *why)
{
    span *spans = calloc(p->buffers.len + 1u, sizeof *spans);
    if (spans == NULL)
        return true; /* without memory nothing is found */
    find_spans(p, spans);
    bool ok = check_places(p, spans, why);
    free(spans);
    return ok;
}
