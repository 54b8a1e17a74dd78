/* enumerate and zip objects over generators of the recording: `for i, p in enumerate(walk())`, `zip(a.parameters(), b.parameters())`.
 *
 * Such an object asks its sources one after another each time it is asked for an item. It is a virtual object (VIRTUAL_ZIP: its
 * sources are generators, and iterators over known items that only it can reach). Asking it is a region (region.c), at whose end
 * the states of its sources are written, and the counter of an enumerate object (ENUMERATE_AT).
 */
#include "py/iterators/consume.h"

enum { MOST_SOURCES = 8 };

static bool
is_enumerate(rec *r, kin_vid vid)
{
    return r->info.at[vid].type == &PyEnum_Type;
}

static bool
is_generator(rec *r, kin_vid vid)
{
    return VIRTUAL(r, vid) != NULL && VIRTUAL(r, vid)->kind == VIRTUAL_GENERATOR;
}

/* What zip makes of its argument. 0: not known. */
static kin_vid
source_of(rec *r, kin_vid arg)
{
    rec_virtual *f = VIRTUAL(r, arg);
    kin_vid *items = NULL;
    uint32_t n = 0;
    if (is_generator(r, arg))
        return rec_usable_generator(r, arg) != NULL ? arg : 0;
    if (f != NULL && f->kind == VIRTUAL_ITER)
        return f->known && !f->escaped ? arg : 0;
    if (O(r, arg) == NULL || kin_is_tensor(O(r, arg)) || !rec_iterated(r, &arg, &items, &n))
        return 0;
    kin_vid it = rec_step_out(r, KIN_STEP_ITER, KIN_STEP_PURE, &arg, 1);
    f = rec_make_virtual(r, it, VIRTUAL_ITER, items, n, true);
    free(items);
    if (f != NULL) {
        f->of = VIRTUAL(r, arg) && VIRTUAL(r, arg)->kind == VIRTUAL_VIEW ? VIRTUAL(r, arg)->items[0] : arg;
        if (kin_vec_push(&r->iters, it) != KIN_OK)
            r->status = KIN_NOMEM;
    }
    return it;
}

/* The number that enumerate starts with; -1: not known, or out of bounds. */
static long
first_number(rec *r, const kin_vid *args, uint32_t npos, uint32_t nkw)
{
    if (npos + nkw == 1)
        return 0;
    PyObject *obj = O(r, args[1]);
    if (!PyLong_CheckExact(obj) || rec_need_const(r, args[1]) == 0)
        return -1;
    long start = PyLong_AsLong(obj);
    PyErr_Clear();
    return start >= 0 && start < 1000000 ? start : -1;
}

static kin_vid
hidden_or_itself(rec *r, kin_vid arg)
{
    kin_vid hidden = rec_hidden_generator(r, arg);
    return hidden ? hidden : arg;
}

/* enumerate(generator), zip(generator, ...): made without a look at the sources. */
bool
rec_zip_call(rec *r, const rec_args *a)
{
    PyTypeObject *tp = (PyTypeObject *)O(r, a->callee);
    bool enumerates = tp == &PyEnum_Type, generator = false, named = a->nkw == 0;
    uint32_t n = enumerates ? 1 : a->npos;
    kin_vid all[MOST_SOURCES + 2] = {a->callee}, sources[MOST_SOURCES];
    if ((!enumerates && tp != &PyZip_Type) || a->npos < 1 || a->npos > MOST_SOURCES)
        return false;
    if (enumerates)
        named = a->npos + a->nkw <= 2 && (a->nkw == 0 || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(a->kwnames, 0), "start") == 0);
    for (uint32_t i = 0; i < n; i++) {
        sources[i] = is_generator(r, a->args[i]) ? a->args[i] : hidden_or_itself(r, a->args[i]);
        generator = generator || is_generator(r, sources[i]);
    }
    long start = generator && named && enumerates ? first_number(r, a->args, a->npos, a->nkw) : 0;
    if (!generator || !named || start < 0)
        return false;
    uint32_t written = r->t->steps.len;
    for (uint32_t i = 0; i < n; i++)
        if ((all[i + 1] = source_of(r, sources[i])) == 0) {
            rec_truncate(r, written);
            return false;
        }
    if (enumerates && a->npos + a->nkw == 2)
        all[2] = rec_as_const(r, a->args[1]);
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, all, enumerates ? 1 + a->npos + a->nkw : 1 + n);
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_ZIP, all + 1, n, true);
    if (f != NULL)
        f->pos = (uint32_t)start;
    r->info.at[out].type = tp;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* Asks the sources from c->next on, up to a generator that has to run, or to the end. */
static void
go_on(rec *r, rec_consumer *c)
{
    rec_virtual *f = VIRTUAL(r, c->zip);
    c->wants = false;
    c->gen = NULL;
    for (; c->next < f->n && !c->ended && !r->refused; c->next++) {
        kin_vid source = f->items[c->next];
        rec_virtual *it = VIRTUAL(r, source);
        if (it != NULL && it->kind == VIRTUAL_ITER) {
            c->ended = !it->known || it->pos >= it->n;
            if (!it->known)
                rec_refuse(r);
            if (c->ended)
                return;
            rec_take_item(r, c, it->items[it->pos++]);
            rec_step(r, KIN_STEP_NEXT, KIN_STEP_MUTATES, &source, 1);
            continue;
        }
        c->gen = rec_usable_generator(r, source);
        if (c->gen == NULL)
            rec_refuse(r);
        else if (c->gen->state == GEN_DONE)
            c->ended = true;
        else
            c->wants = true;
        return;
    }
}

/* A generator has yielded: its item is there. */
void
rec_zip_went_on(rec *r, rec_consumer *c)
{
    c->next++;
    go_on(r, c);
}

static bool
can_go_on(rec *r, kin_vid zip)
{
    rec_virtual *f = VIRTUAL(r, zip);
    if (f == NULL || f->kind != VIRTUAL_ZIP || !f->known || f->escaped)
        return false;
    for (uint32_t i = 0; i < f->n; i++) {
        rec_virtual *source = VIRTUAL(r, f->items[i]);
        if (source == NULL || (source->kind == VIRTUAL_ITER ? !source->known || source->escaped : rec_usable_generator(r, f->items[i]) == NULL))
            return false;
    }
    return true;
}

bool
rec_consume_zip(rec *r, kin_vid zip)
{
    int row = -1;
    if (!can_go_on(r, zip))
        return false;
    for (uint32_t i = 0; row < 0 && i < VIRTUAL(r, zip)->n; i++)
        if (is_generator(r, VIRTUAL(r, zip)->items[i]))
            row = rec_iter_row(r, VIRTUAL(r, zip)->items[i]);
    rec_consumer *c = rec_begin_consumer(r, NULL);
    if (c == NULL)
        return false;
    c->zip = zip;
    c->opaque_row = row;
    c->ended = false;
    go_on(r, c);
    return true;
}

/* The tuple of what the sources gave. */
kin_vid
rec_zip_item(rec *r, rec_consumer *c)
{
    rec_virtual *f = VIRTUAL(r, c->zip);
    if (!is_enumerate(r, c->zip))
        return rec_build_tuple(r, c->items, c->n, NULL);
    PyObject *number = PyLong_FromLong((long)f->pos);
    kin_vid pair[2] = {rec_const(r, number), c->items[0]};
    Py_XDECREF(number);
    return rec_build_tuple(r, pair, 2, NULL);
}

bool
rec_zip_writes(rec *r, const rec_consumer *c)
{
    return c->zip != 0 && !c->ended && is_enumerate(r, c->zip);
}

/* The region is put down: so is the number of the enumerate object. */
void
rec_zip_write(rec *r, rec_consumer *c)
{
    PyObject *number = PyLong_FromLong((long)++VIRTUAL(r, c->zip)->pos);
    kin_vid args[2] = {c->zip, rec_const(r, number)};
    Py_XDECREF(number);
    uint32_t s = rec_step(r, KIN_STEP_ENUMERATE_AT, KIN_STEP_MUTATES, args, 2);
    r->t->steps.at[s].snap = 0;
}
