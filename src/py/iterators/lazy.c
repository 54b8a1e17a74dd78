/* map, filter, starmap and accumulate objects that a consumer exhausts at once (consume.c), with functions that can be inlined or applied.
 * An object that is also held elsewhere is only consumed as a whole, so that no exit finds it half used (USE_UP).
 */
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

/* Rows of inputs for each call: item i of every iterable. */
static kin_vid *
zip_inputs(rec *r, const kin_vid *iterables, uint32_t width, uint32_t *n)
{
    kin_vid *lists[4] = {0}, *inputs = NULL;
    uint32_t count, shortest = UINT32_MAX;
    bool ok = width > 0 && width <= 4;
    for (uint32_t k = 0; ok && k < width; k++) {
        ok = rec_known_elements(r, iterables[k], &lists[k], &count);
        shortest = ok && count < shortest ? count : shortest;
    }
    if (ok && (inputs = malloc((shortest * width + 1) * sizeof *inputs)) != NULL)
        for (uint32_t i = 0; i < shortest * width; i++)
            inputs[i] = lists[i % width][i / width];
    for (uint32_t k = 0; k < 4; k++)
        free(lists[k]);
    *n = shortest * width;
    return inputs;
}

static PyTypeObject *
starmap_class(void)
{
    static PyObject *found;
    return (PyTypeObject *)kin_import_once(&found, "itertools", "starmap");
}

static PyTypeObject *
accumulate_class(void)
{
    static PyObject *found;
    return (PyTypeObject *)kin_import_once(&found, "itertools", "accumulate");
}

/* What accumulate() starts from, then what it adds. */
static kin_vid *
accumulate_inputs(rec *r, const rec_virtual *f, uint32_t *n)
{
    kin_vid *items = NULL, start = f->n > 3 ? f->items[3] : 0, *inputs = NULL;
    uint32_t count, more = start != 0;
    if (rec_known_elements(r, f->items[2], &items, &count) && count + more > 0 && (inputs = malloc((count + 1) * sizeof *inputs)) != NULL) {
        inputs[0] = start;
        memcpy(inputs + more, items, count * sizeof *items);
    }
    *n = inputs != NULL ? count + more : 0;
    free(items);
    return inputs;
}

/* The items of known tuples or lists of one length each, in a row; malloc'ed. */
static kin_vid *
starmap_inputs(rec *r, kin_vid iterable, uint32_t *n, uint32_t *width)
{
    kin_vid *rows = NULL, *row = NULL, *inputs = NULL;
    uint32_t count, length;
    bool ok = rec_known_elements(r, iterable, &rows, &count);
    *n = *width = 0;
    for (uint32_t i = 0; ok && i < count; i++) {
        rec_virtual *f = VIRTUAL(r, rows[i]);
        ok = (f == NULL ? O(r, rows[i]) != NULL && PyTuple_CheckExact(O(r, rows[i])) : f->kind == VIRTUAL_TUPLE) &&
             rec_items_of(r, rows[i], &row, &length) && length > 0 && length <= CONSUMER_ARGS && (i == 0 || length == *width);
        *width = ok ? length : 0;
        kin_vid *more = ok ? realloc(inputs, (*n + length) * sizeof *inputs) : NULL;
        if ((ok = more != NULL)) {
            inputs = more;
            memcpy(inputs + *n, row, length * sizeof *row);
            *n += length;
        }
        free(row);
        row = NULL;
    }
    free(rows);
    if (!ok) {
        free(inputs);
        inputs = NULL;
    }
    return inputs; /* NULL without rows, too */
}

/* What the callback of a map, filter or starmap object is called with. */
static kin_vid *
lazy_inputs(rec *r, kin_vid lazy, uint32_t *n, uint32_t *width)
{
    rec_virtual *f = VIRTUAL(r, lazy);
    if (r->info.at[lazy].type == starmap_class())
        return starmap_inputs(r, f->items[2], n, width);
    if (r->info.at[lazy].type == accumulate_class()) {
        *width = 1;
        return accumulate_inputs(r, f, n);
    }
    *width = f->n - 2;
    return zip_inputs(r, f->items + 2, *width, n);
}

/* A C function, or the None of a filter. */
static bool
applies(rec *r, PyObject *cls, kin_vid callback)
{
    return rec_can_apply(r, callback) || (cls == (PyObject *)&PyFilter_Type && O(r, callback) == Py_None && rec_need_const(r, callback) != 0);
}

/* The iterator of a dict's view keeps the dict alone: the view would be gone when its items are asked for. The recording holds it. */
static void
hold_view(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    if (obj == NULL || r->info.at[vid].held || !(PyDictItems_Check(obj) || PyDictKeys_Check(obj) || PyDictValues_Check(obj)))
        return;
    Py_INCREF(obj);
    r->info.at[vid].held = true;
}

/* A tensor is taken apart when the map object is made, as iter() of it does: it goes over the rows from then on. */
static bool
take_iterable(rec *r, kin_vid *iterable)
{
    kin_vid *items = NULL;
    uint32_t n;
    if (rec_is_step_tuple(r, *iterable))
        return true;
    PyObject *obj = O(r, *iterable);
    hold_view(r, *iterable);
    bool tensor = obj != NULL && VIRTUAL(r, *iterable) == NULL && kin_is_tensor(obj);
    bool known = tensor ? rec_iterated(r, iterable, &items, &n) : rec_known_elements(r, *iterable, &items, &n);
    if (known && tensor)
        rec_make_virtual(r, *iterable, VIRTUAL_TUPLE, items, n, true);
    free(items);
    return known;
}

/* map(f, xs), filter(f, xs): an iterator that has not begun. Its items are what it was made of. */
bool
rec_make_lazy(rec *r, const rec_args *a)
{
    PyObject *cls = O(r, a->callee);
    kin_vid func, self, all[6];
    uint32_t start = r->t->steps.len;
    bool star = cls != NULL && cls == (PyObject *)starmap_class();
    if ((cls != (PyObject *)&PyMap_Type && cls != (PyObject *)&PyFilter_Type && !star) || a->nkw != 0 || a->npos < 2 || a->npos > 5 ||
        ((star || cls == (PyObject *)&PyFilter_Type) && a->npos != 2) || (!rec_find_callback(r, a->args[0], &func, &self) && !applies(r, cls, a->args[0])))
        return false;
    all[0] = a->callee;
    memcpy(all + 1, a->args, a->npos * sizeof *a->args);
    for (uint32_t i = 1; i < a->npos; i++)
        if (!take_iterable(r, &all[i + 1])) {
            rec_truncate(r, start);
            r->skip_expected = false;
            return false;
        }
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, all, a->npos + 1);
    rec_make_virtual(r, out, VIRTUAL_OTHER, all, a->npos + 1, true);
    r->info.at[out].type = (PyTypeObject *)cls;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* The function and the start that accumulate() is called with; 0: none is given, or None, which says the same. */
static bool
accumulate_operands(rec *r, const rec_args *a, kin_vid *func, kin_vid *start)
{
    *func = a->npos == 2 ? a->args[1] : 0;
    *start = 0;
    for (uint32_t i = 0; i < a->nkw; i++) {
        PyObject *name = PyTuple_GET_ITEM(a->kwnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "initial") == 0)
            *start = a->args[a->npos + i];
        else if (PyUnicode_CompareWithASCIIString(name, "func") == 0 && a->npos == 1)
            *func = a->args[a->npos + i];
        else
            return false;
    }
    kin_vid *both[] = {func, start};
    for (int i = 0; i < 2; i++) {
        if (*both[i] == 0 || O(r, *both[i]) != Py_None)
            continue;
        if (rec_need_const(r, *both[i]) == 0)
            return false;
        *both[i] = 0;
    }
    return *start == 0 || O(r, *start) != NULL;
}

/* accumulate(xs), accumulate(xs, f, initial=a) */
bool
rec_make_accumulate(rec *r, const rec_args *a)
{
    static PyObject *add;
    kin_vid func, self, start, all[4] = {a->callee}, step[4] = {a->callee}, *items = NULL;
    uint32_t n;
    if (O(r, a->callee) != (PyObject *)accumulate_class() || O(r, a->callee) == NULL || a->npos < 1 || a->npos > 2 || a->npos + a->nkw > 3 ||
        !accumulate_operands(r, a, &all[1], &start))
        return false;
    kin_import_once(&add, "_operator", "add");
    if (all[1] == 0 && add != NULL)
        all[1] = rec_const(r, add);
    all[2] = a->args[0];
    all[3] = start;
    if (all[1] == 0 || (!rec_find_callback(r, all[1], &func, &self) && !rec_can_apply(r, all[1])) || !rec_known_elements(r, a->args[0], &items, &n))
        return false;
    free(items);
    hold_view(r, a->args[0]);
    memcpy(step + 1, a->args, (a->npos + a->nkw) * sizeof *a->args);
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, step, a->npos + a->nkw + 1);
    kin_ref ref = a->nkw ? rec_ref(r, a->kwnames) : 0;
    r->t->steps.at[r->t->vals.at[out].step].ref = ref;
    rec_make_virtual(r, out, VIRTUAL_OTHER, all, start ? 4 : 3, true);
    r->info.at[out].type = accumulate_class();
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* The class of a map or filter object that has not begun; NULL: it is none, or not known. */
static PyTypeObject *
lazy_class(rec *r, kin_vid lazy)
{
    rec_virtual *f = lazy ? VIRTUAL(r, lazy) : NULL;
    kin_vid func, self;
    if (f == NULL || f->kind != VIRTUAL_OTHER || !f->known || f->escaped || O(r, lazy) == NULL)
        return NULL;
    PyTypeObject *tp = r->info.at[lazy].type;
    bool is_lazy = tp == &PyMap_Type || tp == &PyFilter_Type || (tp != NULL && tp == starmap_class());
    if (tp != NULL && tp == accumulate_class()) /* of one that has a name nobody could tell how far it got */
        is_lazy = Py_REFCNT(O(r, lazy)) == 1;
    return is_lazy && (rec_find_callback(r, f->items[1], &func, &self) || applies(r, (PyObject *)tp, f->items[1]))
               ? tp
               : NULL;
}

/* Does the program hold it besides the instruction that uses it up? */
static bool
is_shared(rec *r, kin_vid lazy)
{
    return Py_REFCNT(O(r, lazy)) > 1;
}

/* All that a map or filter object gives has been taken. */
void
rec_lazy_used_up(rec *r, kin_vid lazy)
{
    uint32_t s = rec_step(r, KIN_STEP_USE_UP, KIN_STEP_MUTATES, &lazy, 1);
    if (s != 0)
        r->t->steps.at[s].snap = 0;
    VIRTUAL(r, lazy)->known = false;
}

static rec_consumer *
begin_lazy(rec *r, const consumer_row *row, kin_vid lazy)
{
    rec_virtual *f = VIRTUAL(r, lazy);
    uint32_t n, width;
    bool select = r->info.at[lazy].type == &PyFilter_Type;
    kin_vid callback = f->items[1], *inputs = lazy_inputs(r, lazy, &n, &width);
    rec_consumer *c = inputs ? rec_begin_callbacks(r, row, callback, inputs, n, width) : NULL;
    if (c != NULL) {
        c->source = lazy;
        c->lazy = is_shared(r, lazy) ? lazy : 0;
        c->fold = r->info.at[lazy].type == accumulate_class();
        if (c->fold)
            rec_take_item(r, c, c->inputs[c->next++]);
        c->select = select;
    }
    return c;
}

/* The items that filter() leaves, by the truth of the answers. False: not known. */
static bool
select_items(rec *r, const kin_vid *inputs, kin_vid *answers, uint32_t *n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++) {
        int truth = O(r, answers[i]) != NULL ? rec_truth(r, answers[i]) : -1;
        if (truth < 0)
            return false;
        if (truth > 0)
            answers[kept++] = inputs[i];
    }
    *n = kept;
    return true;
}

/* accumulate() of a C function: each answer is the next call's first argument. */
static bool
apply_in_turn(rec *r, kin_vid func, const kin_vid *inputs, uint32_t n, kin_vid *out)
{
    out[0] = inputs[0];
    for (uint32_t i = 1; i < n; i++) {
        const kin_vid pair[2] = {out[i - 1], inputs[i]};
        if ((out[i] = rec_apply(r, func, pair, 2)) == 0)
            return false;
    }
    r->skip_expected = true;
    return true;
}

/* What a map or filter object with a C function gives, all at once; malloc'ed. */
static bool
applied_items(rec *r, kin_vid lazy, kin_vid **items, uint32_t *n)
{
    rec_virtual *f = VIRTUAL(r, lazy);
    uint32_t width, total, start = r->t->steps.len;
    kin_vid *inputs = lazy_inputs(r, lazy, &total, &width);
    bool none = O(r, f->items[1]) == Py_None;
    *n = inputs != NULL ? total / width : 0;
    *items = inputs != NULL ? malloc((*n + 1) * sizeof **items) : NULL;
    bool ok = *items != NULL;
    if (ok && none)
        memcpy(*items, inputs, *n * sizeof **items);
    else if (ok && r->info.at[lazy].type == accumulate_class())
        ok = apply_in_turn(r, f->items[1], inputs, *n, *items);
    else if (ok)
        ok = rec_apply_each(r, f->items[1], inputs, *n, width, *items);
    if (ok && r->info.at[lazy].type == &PyFilter_Type && !select_items(r, inputs, *items, n)) {
        rec_truncate(r, start);
        ok = false;
    }
    free(inputs);
    if (!ok)
        free(*items);
    return ok;
}

/* A map object that others may have is used up by a step that runs; what it gives follows all the same, if no torch call is in it. */
bool
rec_lazy_for_real(rec *r, kin_vid lazy, kin_vid **items, uint32_t *n)
{
    rec_virtual *f = VIRTUAL(r, lazy);
    uint32_t start = r->t->steps.len;
    kin_vid func, self;
    *items = NULL;
    if (f == NULL || f->kind != VIRTUAL_OTHER || !f->known || f->escaped || r->region != NULL || r->info.at[lazy].type != &PyMap_Type ||
        rec_find_callback(r, f->items[1], &func, &self) || !applied_items(r, lazy, items, n))
        return false;
    rec_truncate(r, start);
    for (uint32_t i = 0; i < *n; i++)
        if (r->t->vals.at[(*items)[i]].kind == KIN_VAL_NONE) {
            free(*items);
            return false;
        }
    f->known = false;
    r->skip_expected = false;
    return true;
}

bool
rec_lazy_items(rec *r, kin_vid lazy, kin_vid **items, uint32_t *n, bool *shared)
{
    kin_vid func, self;
    if (lazy_class(r, lazy) == NULL)
        return false;
    *shared = is_shared(r, lazy);
    return !rec_find_callback(r, VIRTUAL(r, lazy)->items[1], &func, &self) &&
           applied_items(r, lazy, items, n);
}

static bool
consume_applied(rec *r, const consumer_row *row, const rec_args *a, kin_vid lazy)
{
    uint32_t start = r->t->steps.len;
    rec_consumer c = {.row = row, .call = *a, .source = lazy, .ended = true};
    memcpy(c.args, a->args, a->npos * sizeof *a->args);
    if (row->rule != TAKE_ALL || strcmp(row->name, "sorted") == 0 || !applied_items(r, lazy, &c.items, &c.n))
        return false;
    bool shared = is_shared(r, lazy), done = row->finish(r, &c);
    if (!done)
        rec_truncate(r, start);
    else if (row->written != NULL)
        row->written(r, &c);
    if (done && shared)
        rec_lazy_used_up(r, lazy);
    free(c.items);
    return done;
}

/* list(map(f, xs)) and the like. */
bool
rec_consume_lazy(rec *r, const rec_args *a)
{
    kin_vid lazy = a->npos && a->npos <= 2 && a->nkw == 0 ? a->args[a->npos - 1] : 0;
    const consumer_row *row = lazy_class(r, lazy) ? rec_consumer_row(O(r, a->callee)) : NULL;
    if (row == NULL || row->rule == TAKE_ONE || (a->npos == 2) != rec_consumes_second(row))
        return false;
    kin_vid func, self;
    if (!rec_find_callback(r, VIRTUAL(r, lazy)->items[1], &func, &self))
        return consume_applied(r, row, a, lazy);
    rec_consumer *c = begin_lazy(r, row, lazy);
    if (c == NULL)
        return false;
    rec_consume_as(r, c, a);
    rec_next_callback(r, c);
    return true;
}

/* a, b = map(f, xs) */
static bool
finish_unpack_lazy(rec *r, rec_consumer *c)
{
    return c->ended && rec_fits(c->before, c->after, c->n) && rec_hand_over(r, c, c->items, c->n, c->before, c->after);
}

/* How many items there are is known, so tuple(map) calls back as the unpacking does. A filter's number is not. */
static void
unpack_lazy_opaquely(rec *r, const rec_consumer *c)
{
    kin_vid lazy = c->source, call[2] = {rec_const(r, (PyObject *)&PyTuple_Type), lazy}, items[256];
    uint32_t n = c->width ? c->ninputs / c->width : 0;
    if (c->before < 0 || c->select || c->after >= 0 || n != (uint32_t)c->before || n > 250) {
        rec_refuse_unpacking(r, c);
        return;
    }
    kin_vid all = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, call, 2);
    rec_forget_contents(r);
    r->skip_expected = true;
    for (uint32_t i = 0; i < n; i++) {
        PyObject *index = PyLong_FromLong((long)i);
        kin_vid pair[2] = {all, rec_const(r, index)};
        Py_XDECREF(index);
        items[i] = rec_step_out(r, KIN_STEP_SUBSCR, 0, pair, 2);
    }
    rec_push_unpacked(r, items, n, c->before, c->after);
}

static const consumer_row unpack_lazy_row = {"", TAKE_ALL, finish_unpack_lazy, NULL, NULL, unpack_lazy_opaquely};

static bool
unpack_applied(rec *r, kin_vid lazy, int before, int after)
{
    kin_vid *items = NULL;
    uint32_t n, start = r->t->steps.len;
    if (before == INTO_CALL || !applied_items(r, lazy, &items, &n))
        return false;
    bool shared = is_shared(r, lazy), ok = rec_fits(before, after, n) && rec_hand_over(r, NULL, items, n, before, after);
    if (ok && shared)
        rec_lazy_used_up(r, lazy);
    else if (!ok)
        rec_truncate(r, start);
    free(items);
    return ok;
}

bool
rec_consume_unpack_lazy(rec *r, kin_vid lazy, int before, int after)
{
    kin_vid func, self;
    bool known = lazy_class(r, lazy) != NULL;
    if (known && !rec_find_callback(r, VIRTUAL(r, lazy)->items[1], &func, &self))
        return unpack_applied(r, lazy, before, after);
    rec_consumer *c = known ? begin_lazy(r, &unpack_lazy_row, lazy) : NULL;
    if (c == NULL)
        return false;
    rec_aim(r, c, before, after);
    if (c->ninputs == 0 && before == INTO_CALL)
        rec_refuse(r);
    rec_next_callback(r, c);
    rec_settle(r);
    return true;
}
