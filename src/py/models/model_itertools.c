/* Models of itertools classes over iterables whose items are known: chain, islice, product, combinations, permutations,
 * pairwise, zip_longest, repeat, count, cycle, compress. Their results are made of those items, in an order that follows from how many there are.
 * They keep their iterables and ask them for nothing else, so the call itself is a pure step.
 */
#include "py/models/models.h"
#include "py/objects/objects.h"

enum { MOST_LISTS = 8, MOST_ARGS = 16, MOST_ITEMS = 2000 };

typedef struct {
    kin_vid args[MOST_ARGS];   /* of the call, with the rows of a tensor in its place */
    kin_vid *items[MOST_LISTS];
    uint32_t n[MOST_LISTS];
    uint32_t count;
    KIN_VEC(kin_vid) out;
    int endless;               /* what comes behind `out`, as in rec_virtual */
    kin_vid step;
    bool failed;
} lists;

static void
give(lists *l, kin_vid item)
{
    l->failed = l->failed || l->out.len >= MOST_ITEMS || kin_vec_push(&l->out, item) != KIN_OK;
}

static void
give_tuple(rec *r, lists *l, const kin_vid *items, uint32_t n)
{
    if (!l->failed && l->out.len < MOST_ITEMS)
        give(l, rec_build_tuple(r, items, n, NULL));
    else
        l->failed = true;
}

static bool
read_list(rec *r, kin_vid *vid, lists *l)
{
    if (l->count >= MOST_LISTS || !rec_iterated(r, vid, &l->items[l->count], &l->n[l->count]))
        return false;
    l->count++;
    return true;
}

static bool
read_lists(rec *r, const rec_args *a, uint32_t first, uint32_t n, lists *l)
{
    bool ok = a->npos + a->nkw <= MOST_ARGS;
    if (ok && l->count == 0)
        memcpy(l->args, a->args, (a->npos + a->nkw) * sizeof *l->args);
    for (uint32_t i = first; ok && i < first + n; i++)
        ok = read_list(r, &l->args[i], l);
    return ok;
}

/* The iterator, if all went well. */
static bool
finish(rec *r, const rec_args *a, lists *l, bool ok)
{
    ok = ok && !l->failed;
    if (ok) {
        rec_args changed = *a;
        if (l->count > 0)
            changed.args = l->args;
        unsigned over = rec_kinds_gone_over(r, changed.args, changed.npos);
        kin_vid it = rec_model_step(r, &changed, KIN_STEP_PURE);
        rec_virtual *f = rec_make_virtual(r, it, VIRTUAL_ITER, l->out.at, l->out.len, true);
        if (f != NULL)
            f->over = (uint8_t)over;
        if (f != NULL && l->out.len > 0) {
            f->endless = l->endless;
            f->period = l->out.len;
            f->of = l->step;
        }
        if (l->count > 0 && kin_vec_push(&r->iters, it) != KIN_OK) /* over one or several containers: a change of one of that kind ends its use */
            r->status = KIN_NOMEM;
    }
    for (uint32_t i = 0; i < MOST_LISTS; i++)
        free(l->items[i]);
    kin_vec_deinit(&l->out);
    return ok;
}

/* A small number that is constant; -1: None, -2: not one. */
static long
number(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    if ((obj != Py_None && !PyLong_CheckExact(obj)) || rec_need_const(r, vid) == 0)
        return -2;
    long value = obj == Py_None ? -1 : PyLong_AsLong(obj);
    PyErr_Clear();
    return obj != Py_None && (value < 0 || value > MOST_ITEMS) ? -2 : value;
}

static bool
model_chain(rec *r, const rec_args *a)
{
    lists l = {0};
    bool ok = a->nkw == 0 && read_lists(r, a, 0, a->npos, &l);
    for (uint32_t k = 0; ok && k < l.count; k++)
        for (uint32_t i = 0; i < l.n[k]; i++)
            give(&l, l.items[k][i]);
    return finish(r, a, &l, ok);
}

/* chain.from_iterable([a, b]): as chain(a, b), of a container that cannot change until the end. */
static bool
model_from_iterable(rec *r, const rec_args *a)
{
    lists l = {0};
    kin_vid *outer = NULL;
    uint32_t n = 0;
    bool ok = a->npos == 2 && a->nkw == 0 && rec_items_of(r, a->args[1], &outer, &n) && n <= MOST_LISTS;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = O(r, outer[i]) != NULL && !kin_is_tensor(O(r, outer[i])) && read_list(r, &outer[i], &l);
    for (uint32_t k = 0; ok && k < l.count; k++)
        for (uint32_t i = 0; i < l.n[k]; i++)
            give(&l, l.items[k][i]);
    free(outer);
    l.count = 0;
    return finish(r, a, &l, ok);
}

static bool
model_islice(rec *r, const rec_args *a)
{
    lists l = {0};
    long part[3] = {-1, -1, -1};
    bool ok = a->nkw == 0 && a->npos >= 2 && a->npos <= 4 && read_lists(r, a, 0, 1, &l);
    for (uint32_t i = 1; ok && i < a->npos; i++)
        ok = (part[a->npos == 2 ? 1 : i - 1] = number(r, a->args[i])) > -2;
    long start = part[0] < 0 ? 0 : part[0], step = part[2] < 0 ? 1 : part[2];
    ok = ok && step > 0;
    for (long i = start; ok && i < (long)l.n[0] && (part[1] < 0 || i < part[1]); i += step)
        give(&l, l.items[0][i]);
    return finish(r, a, &l, ok);
}

static bool
model_pairwise(rec *r, const rec_args *a)
{
    lists l = {0};
    bool ok = a->nkw == 0 && a->npos == 1 && read_lists(r, a, 0, 1, &l);
    for (uint32_t i = 0; ok && i + 1 < l.n[0]; i++)
        give_tuple(r, &l, l.items[0] + i, 2);
    return finish(r, a, &l, ok);
}

/* The last list's item changes fastest. */
static void
give_products(rec *r, lists *l)
{
    uint32_t at[MOST_LISTS] = {0}, k;
    for (k = 0; k < l->count; k++)
        if (l->n[k] == 0)
            return;
    do {
        kin_vid row[MOST_LISTS];
        for (k = 0; k < l->count; k++)
            row[k] = l->items[k][at[k]];
        give_tuple(r, l, row, l->count);
        for (k = l->count; k > 0 && ++at[k - 1] == l->n[k - 1]; k--)
            at[k - 1] = 0;
    } while (k > 0 && !l->failed);
}

static bool
model_product(rec *r, const rec_args *a)
{
    lists l = {0};
    long times = 1;
    bool ok = a->npos > 0 && a->nkw <= 1;
    if (ok && a->nkw)
        ok = rec_is_keyword(a, 0, "repeat") && (times = number(r, a->args[a->npos])) > 0;
    for (long t = 0; ok && t < times; t++)
        ok = (t == 0 || VIRTUAL(r, a->args[0]) == NULL || VIRTUAL(r, a->args[0])->kind != VIRTUAL_ITER) &&
             read_lists(r, a, 0, a->npos, &l);
    if (ok)
        give_products(r, &l);
    return finish(r, a, &l, ok);
}

/* Places of `size` out of n, in rising order or in every order. */
static void
give_choices(rec *r, lists *l, uint32_t size, bool ordered, uint32_t depth, uint32_t *at)
{
    if (depth == size) {
        kin_vid row[MOST_LISTS];
        for (uint32_t k = 0; k < size; k++)
            row[k] = l->items[0][at[k]];
        give_tuple(r, l, row, size);
        return;
    }
    for (uint32_t i = ordered && depth > 0 ? at[depth - 1] + 1 : 0; i < l->n[0] && !l->failed; i++) {
        bool used = false;
        for (uint32_t k = 0; k < depth; k++)
            used = used || at[k] == i;
        if (used)
            continue;
        at[depth] = i;
        give_choices(r, l, size, ordered, depth + 1, at);
    }
}

static bool
choose(rec *r, const rec_args *a, bool ordered)
{
    lists l = {0};
    uint32_t at[MOST_LISTS];
    long size = a->nkw == 0 && a->npos == 2 ? number(r, a->args[1]) : -2;
    bool ok = size >= 0 && size <= MOST_LISTS && read_lists(r, a, 0, 1, &l);
    if (ok)
        give_choices(r, &l, (uint32_t)size, ordered, 0, at);
    return finish(r, a, &l, ok);
}

static bool
model_combinations(rec *r, const rec_args *a)
{
    return choose(r, a, true);
}

static bool
model_permutations(rec *r, const rec_args *a)
{
    return choose(r, a, false);
}

static bool
model_zip_longest(rec *r, const rec_args *a)
{
    lists l = {0};
    bool fill = a->nkw == 1 && rec_is_keyword(a, 0, "fillvalue");
    bool ok = (a->nkw == 0 || fill) && read_lists(r, a, 0, a->npos, &l);
    kin_vid other = fill ? a->args[a->npos] : rec_const(r, Py_None);
    uint32_t longest = 0;
    for (uint32_t k = 0; k < l.count; k++)
        longest = l.n[k] > longest ? l.n[k] : longest;
    for (uint32_t i = 0; ok && i < longest; i++) {
        kin_vid row[MOST_LISTS];
        for (uint32_t k = 0; k < l.count; k++)
            row[k] = i < l.n[k] ? l.items[k][i] : other;
        give_tuple(r, &l, row, l.count);
    }
    return finish(r, a, &l, ok);
}

static bool
model_repeat(rec *r, const rec_args *a)
{
    lists l = {0};
    if (a->nkw == 0 && a->npos == 1) {
        give(&l, a->args[0]);
        l.endless = CYCLES;
        return finish(r, a, &l, true);
    }
    long times = a->nkw == 0 && a->npos == 2 ? number(r, a->args[1]) : -2;
    for (long i = 0; i < times; i++)
        give(&l, a->args[0]);
    return finish(r, a, &l, times >= 0);
}

static bool
model_compress(rec *r, const rec_args *a)
{
    lists l = {0};
    bool ok = a->nkw == 0 && a->npos == 2 && read_lists(r, a, 0, 2, &l);
    for (uint32_t i = 0; ok && i < l.n[0] && i < l.n[1]; i++) {
        int truth = O(r, l.items[1][i]) != NULL ? rec_truth(r, l.items[1][i]) : -1;
        ok = truth >= 0;
        if (truth > 0)
            give(&l, l.items[0][i]);
    }
    return finish(r, a, &l, ok);
}

static bool
model_cycle(rec *r, const rec_args *a)
{
    lists l = {.endless = CYCLES};
    bool ok = a->nkw == 0 && a->npos == 1 && read_lists(r, a, 0, 1, &l);
    for (uint32_t i = 0; ok && i < l.n[0]; i++)
        give(&l, l.items[0][i]);
    return finish(r, a, &l, ok);
}

static bool
is_plain_number(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    return (PyLong_CheckExact(obj) || PyFloat_CheckExact(obj)) && rec_need_const(r, vid) != 0;
}

/* count(start, step) of constants */
static bool
model_count(rec *r, const rec_args *a)
{
    lists l = {.endless = COUNTS};
    kin_vid part[2] = {0};
    bool ok = a->npos + a->nkw <= 2;
    for (uint32_t i = 0; ok && i < a->npos + a->nkw; i++) {
        PyObject *name = i >= a->npos ? PyTuple_GET_ITEM(a->kwnames, i - a->npos) : NULL;
        bool step = name != NULL ? PyUnicode_CompareWithASCIIString(name, "step") == 0 : i == 1;
        ok = (name == NULL || step || PyUnicode_CompareWithASCIIString(name, "start") == 0) && is_plain_number(r, a->args[i]);
        part[step] = ok ? rec_as_const(r, a->args[i]) : 0;
    }
    for (int i = 0; ok && i < 2; i++) {
        PyObject *number = PyLong_FromLong(i);
        part[i] = part[i] != 0 ? part[i] : rec_const(r, number);
        Py_XDECREF(number);
    }
    l.step = part[1];
    give(&l, part[0]);
    return finish(r, a, &l, ok);
}

/* tee(): iterators that do not know of each other. */
static bool
model_tee(rec *r, const rec_args *a)
{
    lists l = {0};
    kin_vid its[MOST_LISTS], all[3] = {a->callee};
    long copies = a->npos == 2 ? number(r, a->args[1]) : 2;
    bool ok = a->nkw == 0 && a->npos >= 1 && a->npos <= 2 && copies > 0 && copies <= MOST_LISTS && read_lists(r, a, 0, 1, &l);
    if (ok) {
        memcpy(all + 1, l.args, a->npos * sizeof *all);
        kin_vid made = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, all, 1 + a->npos);
        for (long i = 0; i < copies; i++) {
            PyObject *index = PyLong_FromLong(i);
            const kin_vid pair[2] = {made, rec_const(r, index)};
            Py_XDECREF(index);
            its[i] = rec_step_out(r, KIN_STEP_SUBSCR, KIN_STEP_PURE, pair, 2);
            rec_make_virtual(r, its[i], VIRTUAL_ITER, l.items[0], l.n[0], true);
            if (kin_vec_push(&r->iters, its[i]) != KIN_OK)
                r->status = KIN_NOMEM;
        }
        rec_make_virtual(r, made, VIRTUAL_TUPLE, its, (uint32_t)copies, true);
        r->info.at[made].type = &PyTuple_Type;
        rec_drop(r, a->ndrop);
        rec_await_result(r, made, r->t->vals.at[made].step);
    }
    for (uint32_t i = 0; i < MOST_LISTS; i++)
        free(l.items[i]);
    return ok;
}

const rec_method_row rec_itertools_rows[] = {
    {"chain", model_chain}, {"islice", model_islice}, {"pairwise", model_pairwise}, {"product", model_product},
    {"combinations", model_combinations}, {"permutations", model_permutations}, {"zip_longest", model_zip_longest},
    {"repeat", model_repeat}, {"count", model_count}, {"cycle", model_cycle}, {"compress", model_compress}, {"tee", model_tee},
    {"chain.from_iterable", model_from_iterable}, {NULL, NULL}};
