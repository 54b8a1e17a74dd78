/* Walks over programs, and copies of them (numbers.h). */
#include "core/program/numbers.h"

#include <string.h>

#include "core/program/make.h"

/* -- walking ----------------------------------------------------------------------------------------------------------- */

int64_t
kin_walk_number(kin_walk *w, int64_t number)
{
    if (w->structure != NULL)
        w->failed |= kin_vec_push(&w->numbers, number) != KIN_OK || kin_vec_push(&w->dims, w->dim) != KIN_OK;
    else if (w->next < w->numbers.len)
        return w->numbers.at[w->next++];
    else
        w->failed = true;
    return number;
}

void
kin_walk_numbers(kin_walk *w, const int64_t *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        int64_t number = kin_walk_number(w, numbers[i]);
        if (w->structure == NULL)
            ((int64_t *)numbers)[i] = number; /* of a copy */
    }
}

void
kin_walk_sizes(kin_walk *w, const int64_t *sizes, uint32_t ndim)
{
    w->dim = true;
    kin_walk_numbers(w, sizes, ndim);
    w->dim = false;
}

void
kin_walk_deinit(kin_walk *w)
{
    kin_vec_deinit(&w->numbers);
    kin_vec_deinit(&w->dims);
    kin_vec_deinit(&w->asks);
}

void
kin_walk_say(kin_walk *w, const void *bytes, size_t n)
{
    if (w->structure != NULL && n > 0)
        kin_text_add_len(w->structure, bytes, (uint32_t)n);
}

void
kin_walk_word(kin_walk *w, uint64_t word)
{
    kin_walk_say(w, &word, sizeof word);
}

static void
walk_buffer(kin_walk *w, kin_buf *b)
{
    uint64_t words[] = {b->kind, b->dtype, b->ndim, b->index, b->data != NULL};
    kin_walk_say(w, words, sizeof words);
    kin_walk_sizes(w, b->sizes, b->ndim);
    kin_walk_numbers(w, b->strides, b->ndim);
    if (b->data != NULL) { /* what it holds */
        kin_walk_word(w, b->bytes);
        kin_walk_say(w, b->data, b->bytes);
        return;
    }
    int64_t bytes = kin_walk_number(w, (int64_t)b->bytes);
    if (w->structure == NULL)
        b->bytes = (size_t)bytes;
}

static void
walk_kernel(kin_walk *w, kin_kernel *k)
{
    uint64_t words[] = {k->nbuffers, k->nnumbers, k->writes, k->nover, k->streams, k->window, k->work.lanes, k->work.linear};
    kin_walk_say(w, words, sizeof words);
    kin_walk_say(w, &k->fn, sizeof k->fn);
    kin_walk_say(w, k->buffers, k->nbuffers * sizeof *k->buffers);
    kin_walk_say(w, k->over, k->nover * sizeof *k->over);
    kin_walk_say(w, &k->work.each, sizeof k->work.each);
    kin_walk_numbers(w, k->numbers, k->nnumbers);
    kin_walk_numbers(w, &k->work.rows, 1);
    kin_walk_numbers(w, &k->work.along, 1);
    kin_walk_numbers(w, &k->work.elements, 1);
    if (w->structure == NULL)
        kin_kernel_spread(k);
}

static void
walk_extern(kin_walk *w, kin_extern_call *c)
{
    uint64_t words[] = {c->number, c->nargs, c->nresults, c->epilogue};
    kin_walk_say(w, words, sizeof words);
    kin_walk_say(w, c->results, c->nresults * sizeof *c->results);
    for (uint32_t a = 0; a < c->nargs; a++) {
        uint64_t arg[] = {c->args[a].buffer, c->args[a].ndim, c->args[a].whole};
        kin_walk_say(w, arg, sizeof arg);
        if (!c->args[a].whole || c->args[a].sizes != NULL) {
            kin_walk_sizes(w, c->args[a].sizes, c->args[a].ndim);
            kin_walk_numbers(w, c->args[a].strides, c->args[a].ndim);
        }
        kin_walk_numbers(w, &c->args[a].offset, 1);
    }
    kin_walk_numbers(w, &c->columns, 1);
}

void
kin_walk_question_of(kin_walk *w, kin_sizes_question *asked)
{
    int64_t *of[] = {&asked->a, &asked->b, &asked->gives};
    kin_walk_word(w, asked->asks);
    if (w->structure != NULL)
        w->failed |= kin_vec_push(&w->asks, ((kin_walk_question){w->numbers.len, asked->asks})) != KIN_OK;
    for (unsigned i = 0; i < 3; i++)
        *of[i] = kin_walk_number(w, *of[i]);
}

void
kin_walk_program(kin_walk *w, kin_program *p)
{
    uint64_t words[] = {p->buffers.len, p->ops.len, p->kernels.len, p->externs.len, p->nwrite_backs, p->undos.len, p->noutputs};
    kin_walk_say(w, words, sizeof words);
    kin_walk_say(w, p->outputs, p->noutputs * sizeof *p->outputs);
    for (uint32_t i = 0; i < p->ops.len; i++)
        kin_walk_word(w, (uint64_t)p->ops.at[i].index << 1 | p->ops.at[i].is_extern);
    for (uint32_t i = 0; i < p->undos.len; i++)
        kin_walk_word(w, (uint64_t)p->undos.at[i].kernel << 32 | p->undos.at[i].op);
    for (uint32_t i = 0; i < p->buffers.len; i++)
        walk_buffer(w, &p->buffers.at[i]);
    for (uint32_t i = 0; i < p->kernels.len; i++)
        walk_kernel(w, &p->kernels.at[i]);
    for (uint32_t i = 0; i < p->externs.len; i++)
        walk_extern(w, &p->externs.at[i]);
    kin_walk_word(w, p->asked.len);
    for (uint32_t i = 0; i < p->asked.len; i++)
        kin_walk_question_of(w, &p->asked.at[i]);
    if (w->structure != NULL || w->failed)
        return;
    p->arena = 0;
    w->failed = kin_program_plan(p) != KIN_OK;
}

/* -- copies -------------------------------------------------------------------------------------------------------------- */

/* NULL for nothing; *failed without memory. */
static void *
keep(kin_program *p, const void *from, size_t bytes, bool *failed)
{
    void *copy = from == NULL ? NULL : kin_program_alloc(p, bytes);
    if (copy != NULL)
        memcpy(copy, from, bytes);
    *failed = *failed || (from != NULL && copy == NULL);
    return copy;
}

static void
copy_buffer(kin_program *p, kin_buf *b, bool *failed)
{
    b->sizes = keep(p, b->sizes, b->ndim * sizeof *b->sizes, failed);
    b->strides = keep(p, b->strides, b->ndim * sizeof *b->strides, failed);
    b->data = keep(p, b->data, b->bytes, failed);
}

static void
copy_kernel(kin_program *p, kin_kernel *k, bool *failed)
{
    k->buffers = keep(p, k->buffers, k->nbuffers * sizeof *k->buffers, failed);
    k->numbers = keep(p, k->numbers, k->nnumbers * sizeof *k->numbers, failed);
    k->over = keep(p, k->over, k->nover * sizeof *k->over, failed);
    k->name = keep(p, k->name, k->name == NULL ? 0 : strlen(k->name) + 1, failed);
}

static void
copy_extern(kin_program *p, kin_extern_call *c, bool *failed)
{
    c->args = keep(p, c->args, c->nargs * sizeof *c->args, failed);
    c->results = keep(p, c->results, c->nresults * sizeof *c->results, failed);
    c->name = keep(p, c->name, c->name == NULL ? 0 : strlen(c->name) + 1, failed);
    for (uint32_t a = 0; c->args != NULL && a < c->nargs; a++) {
        c->args[a].sizes = keep(p, c->args[a].sizes, c->args[a].ndim * sizeof(int64_t), failed);
        c->args[a].strides = keep(p, c->args[a].strides, c->args[a].ndim * sizeof(int64_t), failed);
    }
}

static bool
copy_lists(kin_program *c, const kin_program *p)
{
    if (kin_vec_reserve(&c->buffers, p->buffers.len + 1) != KIN_OK || kin_vec_reserve(&c->ops, p->ops.len + 1) != KIN_OK ||
        kin_vec_reserve(&c->kernels, p->kernels.len + 1) != KIN_OK || kin_vec_reserve(&c->externs, p->externs.len + 1) != KIN_OK ||
        kin_vec_reserve(&c->undos, p->undos.len + 1) != KIN_OK || kin_vec_reserve(&c->asked, p->asked.len + 1) != KIN_OK)
        return false;
    for (uint32_t i = 0; i < p->buffers.len; i++)
        c->buffers.at[c->buffers.len++] = p->buffers.at[i];
    for (uint32_t i = 0; i < p->ops.len; i++)
        c->ops.at[c->ops.len++] = p->ops.at[i];
    for (uint32_t i = 0; i < p->kernels.len; i++)
        c->kernels.at[c->kernels.len++] = p->kernels.at[i];
    for (uint32_t i = 0; i < p->externs.len; i++)
        c->externs.at[c->externs.len++] = p->externs.at[i];
    for (uint32_t i = 0; i < p->undos.len; i++)
        c->undos.at[c->undos.len++] = p->undos.at[i];
    for (uint32_t i = 0; i < p->asked.len; i++)
        c->asked.at[c->asked.len++] = p->asked.at[i];
    return true;
}

kin_program *
kin_program_copy(const kin_program *p)
{
    kin_program *c = kin_program_new();
    bool failed = c == NULL || !copy_lists(c, p);
    for (uint32_t i = 0; !failed && i < c->buffers.len; i++)
        copy_buffer(c, &c->buffers.at[i], &failed);
    for (uint32_t i = 0; !failed && i < c->kernels.len; i++)
        copy_kernel(c, &c->kernels.at[i], &failed);
    for (uint32_t i = 0; !failed && i < c->externs.len; i++)
        copy_extern(c, &c->externs.at[i], &failed);
    if (!failed) {
        c->nwrite_backs = p->nwrite_backs;
        c->noutputs = p->noutputs;
        c->arena = p->arena;
        c->outputs = keep(c, p->outputs, p->noutputs * sizeof *p->outputs, &failed);
        c->last_use = keep(c, p->last_use, p->buffers.len * sizeof *p->last_use, &failed);
    }
    if (failed) {
        kin_program_free(c);
        return NULL;
    }
    return c;
}
