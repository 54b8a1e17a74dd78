/* Programs: the memory they own, places of temporary buffers, their text. */
#include "core/program/make.h"
#include "core/tier/threads.h"

typedef struct {
    KIN_VEC(void *) blocks;
} owned;

kin_program *
kin_program_new(void)
{
    kin_program *p = calloc(1, sizeof *p);
    if (p)
        p->owner = calloc(1, sizeof(owned));
    if (p && p->owner == NULL) {
        free(p);
        p = NULL;
    }
    return p;
}

void *
kin_program_alloc(kin_program *p, size_t bytes)
{
    owned *o = p->owner;
    void *block = calloc(1, bytes ? bytes : 1);
    if (block == NULL || kin_vec_push(&o->blocks, block) != KIN_OK) {
        free(block);
        return NULL;
    }
    return block;
}

void
kin_program_free(kin_program *p)
{
    if (p == NULL)
        return;
    owned *o = p->owner;
    for (uint32_t i = 0; i < o->blocks.len; i++)
        free(o->blocks.at[i]);
    kin_vec_deinit(&o->blocks);
    free(o);
    kin_vec_deinit(&p->buffers);
    kin_vec_deinit(&p->ops);
    kin_vec_deinit(&p->kernels);
    kin_vec_deinit(&p->externs);
    kin_vec_deinit(&p->undos);
    kin_vec_deinit(&p->asked);
    free(p);
}

void
kin_kernel_spread(kin_kernel *k)
{
    const kin_kernel_work *w = &k->work;
    k->range = w->rows * ((w->along + w->lanes - 1) / w->lanes);
    k->cost = w->each * (double)w->elements;
    k->grain = k->cost > 0 ? (int64_t)(KIN_TIER_THREAD_KERNEL_NS * (double)k->range / k->cost) : k->range;
    k->grain = k->grain < 1 ? 1 : k->grain;
    if (w->linear)
        k->grain = (k->grain + KIN_TIER_THREAD_LINEAR - 1) / KIN_TIER_THREAD_LINEAR * KIN_TIER_THREAD_LINEAR;
}

/* -- lifetimes and places ---------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t buffer, first, last;
} life;

static void
touch(life *lives, uint32_t buffer, uint32_t op)
{
    life *l = &lives[buffer];
    if (l->first == UINT32_MAX)
        l->first = op;
    l->last = op;
}

static void
find_lives(const kin_program *p, life *lives)
{
    for (uint32_t b = 0; b < p->buffers.len; b++)
        lives[b] = (life){.buffer = b, .first = UINT32_MAX};
    for (uint32_t i = 0; i < p->ops.len; i++) {
        const kin_program_op *op = &p->ops.at[i];
        if (!op->is_extern) {
            const kin_kernel *k = &p->kernels.at[op->index];
            for (uint32_t b = 0; b < k->nbuffers; b++)
                touch(lives, k->buffers[b], i);
            continue;
        }
        const kin_extern_call *c = &p->externs.at[op->index];
        const kin_kernel *k = c->epilogue ? &p->kernels.at[c->epilogue - 1] : NULL;
        for (uint32_t a = 0; a < c->nargs; a++)
            touch(lives, c->args[a].buffer, i);
        for (uint32_t b = 0; k && b < k->nbuffers; b++)
            touch(lives, k->buffers[b], i);
        for (uint32_t r = 0; r < c->nresults; r++)
            if (c->results[r] != UINT32_MAX)
                touch(lives, c->results[r], i);
    }
    for (uint32_t u = 0; u < p->undos.len; u++) { /* to the end */
        const kin_kernel *k = &p->kernels.at[p->undos.at[u].kernel];
        for (uint32_t b = 0; b < k->nbuffers; b++)
            touch(lives, k->buffers[b], p->ops.len);
    }
}

/* Where one kernel reads a buffer for the last time and writes another in the same places, they are one: [b] is the buffer that b
 * lies on, or b itself. */
static void
find_shared(const kin_program *p, life *lives, uint32_t *on)
{
    for (uint32_t b = 0; b < p->buffers.len; b++)
        on[b] = b;
    for (uint32_t i = 0; i < p->ops.len; i++) {
        const kin_kernel *k = p->ops.at[i].is_extern ? NULL : &p->kernels.at[p->ops.at[i].index];
        for (uint32_t n = 0; k && n < k->nover; n++) {
            uint32_t from = on[k->over[n]], to = k->writes;
            if (p->buffers.at[k->over[n]].kind != KIN_BUF_TEMP || p->buffers.at[to].kind != KIN_BUF_TEMP || on[to] != to || from == to ||
                lives[to].first != i || lives[from].last != i || p->buffers.at[from].bytes < p->buffers.at[to].bytes)
                continue;
            on[to] = from;
            lives[from].last = lives[to].last;
            break;
        }
    }
}

/* The lowest gap among the buffers placed so far that live at the same time. */
static size_t
lowest_gap(const kin_program *p, const life *lives, const uint32_t *placed, uint32_t nplaced, const life *mine, size_t bytes)
{
    size_t at = 0;
    for (uint32_t i = 0; i < nplaced; i++) { /* placed is in order of offsets */
        const life *l = &lives[placed[i]];
        const kin_buf *b = &p->buffers.at[placed[i]];
        if (l->last < mine->first || l->first > mine->last)
            continue;
        if (b->offset >= at + bytes)
            break;
        size_t end = b->offset + (b->bytes + 63) / 64 * 64;
        at = end > at ? end : at;
    }
    return at;
}

static void
place_temp(kin_program *p, const life *lives, uint32_t *placed, uint32_t n, uint32_t b)
{
    kin_buf *buf = &p->buffers.at[b];
    size_t bytes = (buf->bytes + 63) / 64 * 64;
    buf->offset = lowest_gap(p, lives, placed, n, &lives[b], bytes);
    p->arena = buf->offset + bytes > p->arena ? buf->offset + bytes : p->arena;
    uint32_t i = n;
    for (; i > 0 && p->buffers.at[placed[i - 1]].offset > buf->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = b;
}

/* Large ones first: small ones fit into what is left between them. */
static void
place_temps(kin_program *p, const life *lives, const uint32_t *on, uint32_t *placed)
{
    uint32_t n = 0, count = 0;
    bool *done = calloc(p->buffers.len + 1, sizeof *done); /* without memory: in their own order */
    for (uint32_t b = 0; b < p->buffers.len; b++)
        count += p->buffers.at[b].kind == KIN_BUF_TEMP && lives[b].first != UINT32_MAX && on[b] == b;
    for (uint32_t next = 0; n < count; n++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t b = done ? 0 : next; b < p->buffers.len; b++) {
            if (p->buffers.at[b].kind != KIN_BUF_TEMP || lives[b].first == UINT32_MAX || on[b] != b || (done && done[b]))
                continue;
            if (best == UINT32_MAX || p->buffers.at[b].bytes > p->buffers.at[best].bytes)
                best = b;
            if (done == NULL)
                break;
        }
        next = best + 1;
        if (done)
            done[best] = true;
        place_temp(p, lives, placed, n, best);
    }
    free(done);
    for (uint32_t b = 0; b < p->buffers.len; b++)
        p->buffers.at[b].offset = p->buffers.at[on[b]].offset;
}

kin_status
kin_program_plan(kin_program *p)
{
    life *lives = malloc((p->buffers.len + 1) * sizeof *lives);
    uint32_t *placed = malloc((p->buffers.len + 1) * sizeof *placed), *on = malloc((p->buffers.len + 1) * sizeof *on);
    p->last_use = kin_program_alloc(p, (p->buffers.len + 1) * sizeof *p->last_use);
    if (lives && placed && on && p->last_use) {
        find_lives(p, lives);
        for (uint32_t b = 0; b < p->buffers.len; b++)
            p->last_use[b] = lives[b].last;
        find_shared(p, lives, on);
        place_temps(p, lives, on, placed);
        for (uint32_t i = 0; i < p->noutputs; i++)
            p->last_use[p->outputs[i]] = UINT32_MAX;
    }
    kin_status s = lives && placed && on && p->last_use ? KIN_OK : KIN_NOMEM;
    free(lives);
    free(placed);
    free(on);
    return s;
}

/* -- text -------------------------------------------------------------------------------------------------------- */

static void
print_ints(kin_text *out, const int64_t *at, unsigned n, const char *open, const char *close)
{
    kin_text_add(out, open);
    for (unsigned d = 0; d < n; d++)
        kin_text_addf(out, d ? ", %lld" : "%lld", (long long)at[d]);
    kin_text_add(out, close);
}

static void
print_buffer(const kin_program *p, uint32_t n, kin_text *out)
{
    static const char *const kinds[] = {"input", "output", "temp", "extern", "const"};
    const kin_buf *b = &p->buffers.at[n];
    kin_text_addf(out, "b%u: %s", n, kinds[b->kind]);
    if (b->kind == KIN_BUF_TEMP)
        kin_text_addf(out, " @%zu", b->offset);
    else
        kin_text_addf(out, " %u", b->index);
    kin_text_addf(out, " %s", kin_dtype_name(b->dtype));
    print_ints(out, b->sizes, b->ndim, "[", "]");
    print_ints(out, b->strides, b->ndim, "{", "}\n");
}

static void
print_kernel(const kin_kernel *k, kin_text *out)
{
    kin_text_addf(out, "kernel %s(", k->name);
    for (uint32_t b = 0; b < k->nbuffers; b++)
        kin_text_addf(out, b ? ", b%u" : "b%u", k->buffers[b]);
    kin_text_addf(out, ") range %lld grain %lld\n", (long long)k->range, (long long)k->grain);
}

static void
print_extern(const kin_program *p, const kin_extern_call *c, kin_text *out)
{
    kin_text_addf(out, "extern %u %s(", c->number, c->name);
    for (uint32_t a = 0; a < c->nargs; a++) {
        const kin_extern_arg *x = &c->args[a];
        kin_text_addf(out, a ? ", b%u" : "b%u", x->buffer);
        if (!x->whole) {
            kin_text_addf(out, "+%lld", (long long)x->offset);
            print_ints(out, x->sizes, x->ndim, "[", "]");
            print_ints(out, x->strides, x->ndim, "{", "}");
        }
    }
    kin_text_add(out, ") ->");
    for (uint32_t r = 0; r < c->nresults; r++)
        kin_text_addf(out, c->results[r] == UINT32_MAX ? " -" : " b%u", c->results[r]);
    if (c->epilogue) {
        kin_text_addf(out, ", on %lld columns ", (long long)c->columns);
        print_kernel(&p->kernels.at[c->epilogue - 1], out);
    } else {
        kin_text_add(out, "\n");
    }
}

bool
kin_program_print(const kin_program *p, kin_text *out)
{
    for (uint32_t b = 0; b < p->buffers.len; b++)
        print_buffer(p, b, out);
    for (uint32_t i = 0; i < p->ops.len; i++) {
        if (p->ops.at[i].is_extern) {
            print_extern(p, &p->externs.at[p->ops.at[i].index], out);
            continue;
        }
        print_kernel(&p->kernels.at[p->ops.at[i].index], out);
    }
    for (uint32_t u = 0; u < p->undos.len; u++) {
        kin_text_addf(out, "undo op %u: ", p->undos.at[u].op);
        print_kernel(&p->kernels.at[p->undos.at[u].kernel], out);
    }
    kin_text_add(out, "return");
    for (uint32_t i = 0; i < p->noutputs; i++)
        kin_text_addf(out, " b%u", p->outputs[i]);
    kin_text_addf(out, "\narena %zu\n", p->arena);
    return !out->failed;
}
