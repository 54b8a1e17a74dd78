/* C functions that call back: sorted, min and max with a key, functools.reduce, and map and filter used up at once by
 * a consumer (consume.c). The elements must be known and the callback a function that can be inlined; how often,
 * in which order and with what it is called then follows. The calls are a region (region.c): nothing of them can
 * be seen before the end, and an exit leaves before the whole C call.
 *
 * A map or filter object that others hold besides is consumed as a whole only, so no exit has to find it half used (USE_UP).
 */
#include "py/models/apply.h"
#include "py/iterators/consume.h"

/* -- elements ------------------------------------------------------------------------------------------------------- */

/* Elements of an iterable that a C function uses up; an iterator only if nobody sees afterwards how far it got. */
static bool
known_elements(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    rec_fresh *f = FRESH(r, vid);
    PyObject *obj = O(r, vid);
    *items = NULL;
    if (obj == NULL && f != NULL && f->kind == FRESH_TUPLE) /* rows of a tensor */
        return rec_items_of(r, vid, items, n);
    if (obj == NULL || (f != NULL && f->kind == FRESH_ITER && Py_REFCNT(obj) != 1))
        return false;
    return kin_is_tensor(obj) ? rec_items_of(r, vid, items, n) : rec_iterated(r, &vid, items, n);
}

/* -- calling back --------------------------------------------------------------------------------------------------- */

void
rec_await_callback(rec *r, kin_vid func)
{
    r->top->parent_for_call = rec_snapshot(r);
    r->call.active = true;
    r->call.func = O(r, func);
    r->call.func_vid = func;
}

/* Expects the next call, or ends. The consumer's frame is the top one. */
void
rec_next_callback(rec *r, rec_consumer *c)
{
    if (r->refused || !c->wants)
        return;
    if (c->next >= c->ninputs) {
        c->wants = false;
        c->ended = true;
        return;
    }
    kin_vid args[CONSUMER_ARGS + 16];
    rec_fresh *partial = c->partial ? FRESH(r, c->partial) : NULL;
    PyObject *names = partial != NULL ? partial->aux : NULL;
    uint32_t n = 0, nkw = names != NULL ? (uint32_t)PyTuple_GET_SIZE(names) : 0;
    for (uint32_t i = 1; partial != NULL && i + nkw < partial->n; i++)
        args[n++] = partial->items[i];
    if (c->self)
        args[n++] = c->self;
    if (c->fold)
        args[n++] = c->n ? c->items[c->n - 1] : c->inputs[c->next++];
    memcpy(args + n, c->inputs + c->next, c->width * sizeof *args);
    n += c->width;
    c->at = c->next;
    c->next += c->width;
    if (nkw != 0)
        memcpy(args + n, partial->items + partial->n - nkw, nkw * sizeof *args);
    rec_args call = {.callee = c->callback, .args = args, .npos = n, .nkw = nkw, .kwnames = names};
    if (!rec_bind(r, &call)) {
        rec_refuse(r);
        return;
    }
    rec_await_callback(r, call.callee);
}

/* A partial object made here. */
static bool
is_partial(const rec_fresh *f)
{
    return f != NULL && f->kind == FRESH_PARTIAL && f->known && f->n <= CONSUMER_ARGS;
}

/* A function, a bound method or a partial object of one, that can be inlined. */
static bool
find_callback(rec *r, kin_vid callback, kin_vid *func, kin_vid *self)
{
    rec_fresh *f = callback ? FRESH(r, callback) : NULL;
    *func = callback;
    *self = 0;
    if (callback == 0 || O(r, callback) == NULL)
        return false;
    if (f != NULL && f->kind == FRESH_METHOD) {
        *func = f->items[0];
        *self = f->items[1];
    } else if (is_partial(f)) {
        *func = f->items[0];
    }
    PyObject *obj = O(r, *func);
    return obj != NULL && PyFunction_Check(obj) && rec_can_inline(r, obj);
}

static rec_consumer *
begin(rec *r, const consumer_row *row, kin_vid callback, kin_vid *inputs, uint32_t n, uint32_t width)
{
    kin_vid func, self;
    rec_consumer *c = find_callback(r, callback, &func, &self) ? rec_begin_consumer(r, NULL) : NULL;
    if (c == NULL) {
        free(inputs);
        return NULL;
    }
    c->row = row;
    c->callback = func;
    c->self = self;
    c->partial = is_partial(FRESH(r, callback)) ? callback : 0;
    c->inputs = inputs;
    c->ninputs = n;
    c->width = width;
    return c;
}

/* What the instruction is when the region is refused. */
void
rec_consume_as(rec *r, rec_consumer *c, const rec_args *a)
{
    c->opaque_row = rec_opaque_row(r, a->callee, a->args, a->npos + a->nkw);
    memcpy(c->args, a->args, (a->npos + a->nkw) * sizeof *a->args);
    c->call = *a;
    c->call.args = c->args;
}

/* -- sorted, min, max with a key ------------------------------------------------------------------------------------ */

static PyObject *
real_result(rec *r, rec_consumer *c)
{
    rec_frame *f = r->top;
    return kin_watch_localsplus(f->f)[f->nlocals + f->sp - c->call.ndrop];
}

static bool
comes_before(rec *r, rec_consumer *c, uint32_t a, uint32_t b)
{
    if (c->reverse) {
        uint32_t t = a;
        a = b;
        b = t;
    }
    int less = PyObject_RichCompareBool(O(r, c->items[a]), O(r, c->items[b]), Py_LT);
    if (less < 0)
        PyErr_Clear();
    return less > 0;
}

/* The keys are constants, so the order is one. What really came out must be that order. */
/* The inputs in the order of their keys, in place of the keys. */
static bool
sort_inputs(rec *r, rec_consumer *c)
{
    uint32_t n = c->n, *order = malloc((n + 1) * sizeof *order);
    if (order == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k > 0 && comes_before(r, c, i, order[k - 1]); k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (uint32_t i = 0; i < n; i++)
        c->items[i] = c->inputs[order[i]];
    free(order);
    return true;
}

static bool
finish_sorted(rec *r, rec_consumer *c)
{
    PyObject *list = real_result(r, c);
    uint32_t n = c->n;
    if (!rec_items_constant(r, c) || n != c->ninputs || !PyList_CheckExact(list) || PyList_GET_SIZE(list) != (Py_ssize_t)n ||
        !sort_inputs(r, c))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (PyList_GET_ITEM(list, i) != O(r, c->items[i]))
            return false;
    return rec_finish_list(r, c);
}

/* list.sort(): the elements are put back in their order, as `rows[:] = sorted` would. */
static void
put_in_order(rec *r, rec_consumer *c)
{
    kin_vid list = c->args[0], args[3] = {list, 0, 0};
    PyObject *all = PySlice_New(NULL, NULL, NULL);
    if (all == NULL) {
        PyErr_Clear();
        r->status = KIN_NOMEM;
        return;
    }
    args[1] = rec_const(r, all);
    Py_DECREF(all);
    args[2] = rec_build_tuple(r, c->items, c->n, NULL);
    uint32_t s = rec_step(r, KIN_STEP_SET_SUBSCR, KIN_STEP_MUTATES, args, 3);
    r->t->steps.at[s].snap = 0;
    memcpy(FRESH(r, list)->items, c->items, c->n * sizeof *c->items);
    rec_changed(r, list);
}

static bool
finish_sort(rec *r, rec_consumer *c)
{
    rec_fresh *f = FRESH(r, c->args[0]);
    if (f == NULL || f->kind != FRESH_LIST || !f->known || f->n != c->n || c->n != c->ninputs || !rec_items_constant(r, c) || !sort_inputs(r, c))
        return false;
    rec_drop(r, c->call.ndrop);
    rec_push(r, rec_const(r, Py_None));
    return true;
}

/* The first of the inputs that no other one comes before. */
static uint32_t
find_extreme(rec *r, rec_consumer *c)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < c->n; i++)
        if (comes_before(r, c, i, best))
            best = i;
    return best;
}

static bool
finish_extreme(rec *r, rec_consumer *c)
{
    if (c->n == 0 || !rec_items_constant(r, c))
        return false;
    uint32_t best = find_extreme(r, c);
    if (O(r, c->inputs[best]) != real_result(r, c))
        return false;
    rec_drop(r, c->call.ndrop);
    rec_push(r, c->inputs[best]);
    return true;
}

static const consumer_row sort_row = {"sort", TAKE_ALL, finish_sort, NULL, put_in_order, NULL};
static const consumer_row key_rows[] = {{"sorted", TAKE_ALL, finish_sorted}, {"min", TAKE_ALL, finish_extreme},
                                        {"max", TAKE_ALL, finish_extreme}, {NULL, TAKE_ALL, NULL}};

static const consumer_row *
key_row(PyObject *callee)
{
    if (callee == PyDict_GetItemString(PyList_Type.tp_dict, "sort"))
        return &sort_row;
    const consumer_row *plain = rec_consumer_row(callee), *row = key_rows;
    while (plain != NULL && row->name != NULL && strcmp(row->name, plain->name) != 0)
        row++;
    return plain != NULL && row->name != NULL ? row : NULL;
}

/* `key` and, for sorted, a constant `reverse`. */
static bool
read_keywords(rec *r, const consumer_row *row, const kin_vid *values, uint32_t nkw, PyObject *kwnames, kin_vid *key,
              bool *reverse)
{
    *key = 0;
    *reverse = strcmp(row->name, "max") == 0;
    for (uint32_t i = 0; i < nkw; i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "key") == 0) {
            *key = values[i];
        } else if ((row->finish == finish_sorted || row == &sort_row) && PyUnicode_CompareWithASCIIString(name, "reverse") == 0 &&
                   PyBool_Check(O(r, values[i])) && rec_need_const(r, values[i]) != 0) {
            *reverse = O(r, values[i]) == Py_True;
        } else {
            return false;
        }
    }
    return *key != 0;
}

static bool
is_plain_list(rec *r, kin_vid vid)
{
    rec_fresh *f = FRESH(r, vid);
    return f != NULL && f->kind == FRESH_LIST && f->known;
}

/* The key is a C function: its answers are here before the call. */
static bool
sort_by_applied(rec *r, rec_consumer *c, kin_vid key)
{
    uint32_t start = r->t->steps.len;
    c->items = malloc((c->ninputs + 1) * sizeof *c->items);
    c->n = c->ninputs;
    bool ok = c->items != NULL && rec_apply_each(r, key, c->inputs, c->n, 1, c->items) && rec_items_constant(r, c);
    if (ok && c->row == &sort_row) {
        if ((ok = finish_sort(r, c)))
            put_in_order(r, c);
    } else if (ok && c->row->finish == finish_sorted) {
        ok = sort_inputs(r, c) && rec_finish_list(r, c);
    } else if (ok && (ok = c->n > 0)) {
        kin_vid best = c->inputs[find_extreme(r, c)];
                rec_model_value(r, &c->call, best);
    }
    if (!ok && !r->stopped)
        rec_truncate(r, start);
    free(c->items);
    return ok;
}

static bool
call_with_key(rec *r, const rec_args *a)
{
    const consumer_row *row = a->nkw && a->npos == 1 && a->nkw <= 2 ? key_row(O(r, a->callee)) : NULL;
    kin_vid key, func, self, *inputs = NULL;
    uint32_t n;
    bool reverse;
    if (row == NULL || !read_keywords(r, row, a->args + a->npos, a->nkw, a->kwnames, &key, &reverse))
        return false;
    bool called = find_callback(r, key, &func, &self);
    if ((!called && !rec_can_apply(r, key)) || (row == &sort_row && !is_plain_list(r, a->args[0])) || !known_elements(r, a->args[0], &inputs, &n))
        return false;
    if (!called) {
        rec_consumer key_of = {.row = row, .inputs = inputs, .ninputs = n, .reverse = reverse, .call = *a};
        memcpy(key_of.args, a->args, a->npos * sizeof *a->args);
        key_of.call.nkw = 0;
        bool done = sort_by_applied(r, &key_of, key);
        free(inputs);
        return done;
    }
    rec_consumer *c = begin(r, row, key, inputs, n, 1);
    if (c == NULL)
        return false;
    rec_consume_as(r, c, a);
    c->reverse = reverse;
    rec_next_callback(r, c);
    return true;
}

/* -- functools.reduce ------------------------------------------------------------------------------------------------- */

static bool
finish_reduce(rec *r, rec_consumer *c)
{
    if (c->n == 0)
        return false;
    rec_drop(r, c->call.ndrop);
    rec_push(r, c->items[c->n - 1]);
    return true;
}

static const consumer_row reduce_row = {"reduce", TAKE_ALL, finish_reduce};

static bool
is_reduce(PyObject *callee)
{
    static PyObject *reduce; /* kept for the life of the process */
    if (reduce == NULL) {
        PyObject *mod = PyImport_ImportModule("functools");
        reduce = mod ? PyObject_GetAttrString(mod, "reduce") : NULL;
        Py_XDECREF(mod);
        PyErr_Clear();
    }
    return callee == reduce;
}

/* reduce of a C function: one call on what the last one gave. */
static bool
fold_by_applied(rec *r, const rec_args *a, const kin_vid *inputs, uint32_t n)
{
    uint32_t start = r->t->steps.len;
    kin_vid acc = inputs[0];
    for (uint32_t i = 1; acc != 0 && i < n; i++) {
        const kin_vid pair[2] = {acc, inputs[i]};
        acc = rec_apply(r, a->args[0], pair, 2);
    }
    if (acc == 0 && !r->stopped)
        rec_truncate(r, start);
    r->skip_expected = acc != 0;
    return acc != 0 && rec_model_value(r, a, acc);
}

static bool
call_reduce(rec *r, const rec_args *a)
{
    kin_vid *items = NULL, *inputs, func, self;
    uint32_t n, ninit = a->npos == 3;
    bool called = a->npos >= 2 && find_callback(r, a->args[0], &func, &self);
    if (a->nkw != 0 || a->npos < 2 || a->npos > 3 || !is_reduce(O(r, a->callee)) || (!called && !rec_can_apply(r, a->args[0])) ||
        !known_elements(r, a->args[1], &items, &n))
        return false;
    inputs = n + ninit >= 2 ? malloc((n + ninit) * sizeof *inputs) : NULL;
    if (inputs != NULL) {
        inputs[0] = a->args[2 * ninit];
        memcpy(inputs + ninit, items, n * sizeof *items);
    }
    free(items);
    if (inputs != NULL && !called) {
        bool done = fold_by_applied(r, a, inputs, n + ninit);
        free(inputs);
        return done;
    }
    rec_consumer *c = inputs ? begin(r, &reduce_row, a->args[0], inputs, n + ninit, 1) : NULL;
    if (c == NULL)
        return false;
    rec_consume_as(r, c, a);
    c->fold = true;
    rec_next_callback(r, c);
    return true;
}

/* -- map and filter ------------------------------------------------------------------------------------------------------ */

/* Rows of inputs for each call: item i of every iterable. */
static kin_vid *
zip_inputs(rec *r, const kin_vid *iterables, uint32_t width, uint32_t *n)
{
    kin_vid *lists[4] = {0}, *inputs = NULL;
    uint32_t count, shortest = UINT32_MAX;
    bool ok = width > 0 && width <= 4;
    for (uint32_t k = 0; ok && k < width; k++) {
        ok = known_elements(r, iterables[k], &lists[k], &count);
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

/* What a module of the library has under the name; the caller keeps it for the life of the process. */
static PyObject *
library_object(const char *module, const char *name)
{
    PyObject *mod = PyImport_ImportModule(module), *obj = mod ? PyObject_GetAttrString(mod, name) : NULL;
    Py_XDECREF(mod);
    PyErr_Clear();
    return obj;
}

static PyTypeObject *
starmap_class(void)
{
    static PyObject *found;
    found = found ? found : library_object("itertools", "starmap");
    return (PyTypeObject *)found;
}

static PyTypeObject *
accumulate_class(void)
{
    static PyObject *found;
    found = found ? found : library_object("itertools", "accumulate");
    return (PyTypeObject *)found;
}

/* What accumulate() starts from, then what it adds. */
static kin_vid *
accumulate_inputs(rec *r, const rec_fresh *f, uint32_t *n)
{
    kin_vid *items = NULL, start = f->n > 3 ? f->items[3] : 0, *inputs = NULL;
    uint32_t count, more = start != 0;
    if (known_elements(r, f->items[2], &items, &count) && count + more > 0 && (inputs = malloc((count + 1) * sizeof *inputs)) != NULL) {
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
    bool ok = known_elements(r, iterable, &rows, &count);
    *n = *width = 0;
    for (uint32_t i = 0; ok && i < count; i++) {
        rec_fresh *f = FRESH(r, rows[i]);
        ok = (f == NULL ? O(r, rows[i]) != NULL && PyTuple_CheckExact(O(r, rows[i])) : f->kind == FRESH_TUPLE) &&
             rec_items_of(r, rows[i], &row, &length) && length > 0 && length <= CONSUMER_ARGS && (i == 0 || length == *width) && !r->stopped;
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
    rec_fresh *f = FRESH(r, lazy);
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

/* A tensor is taken apart when the map object is made, as iter() of it does: it goes over the rows from then on. */
static bool
take_iterable(rec *r, kin_vid *iterable)
{
    kin_vid *items = NULL;
    uint32_t n;
    if (rec_is_step_tuple(r, *iterable))
        return true;
    PyObject *obj = O(r, *iterable);
    bool tensor = obj != NULL && FRESH(r, *iterable) == NULL && kin_is_tensor(obj);
    bool known = tensor ? rec_iterated(r, iterable, &items, &n) : known_elements(r, *iterable, &items, &n);
    if (known && tensor)
        rec_make_fresh(r, *iterable, FRESH_TUPLE, items, n, true);
    free(items);
    return known && !r->stopped;
}

/* map(f, xs), filter(f, xs): an iterator that has not begun. Its items are what it was made of. */
static bool
make_lazy(rec *r, const rec_args *a)
{
    PyObject *cls = O(r, a->callee);
    kin_vid func, self, all[6];
    uint32_t start = r->t->steps.len;
    bool star = cls != NULL && cls == (PyObject *)starmap_class();
    if ((cls != (PyObject *)&PyMap_Type && cls != (PyObject *)&PyFilter_Type && !star) || a->nkw != 0 || a->npos < 2 || a->npos > 5 ||
        ((star || cls == (PyObject *)&PyFilter_Type) && a->npos != 2) || (!find_callback(r, a->args[0], &func, &self) && !applies(r, cls, a->args[0])))
        return false;
    all[0] = a->callee;
    memcpy(all + 1, a->args, a->npos * sizeof *a->args);
    for (uint32_t i = 1; i < a->npos; i++)
        if (!take_iterable(r, &all[i + 1])) {
            if (!r->stopped)
                rec_truncate(r, start);
            r->skip_expected = false;
            return false;
        }
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, all, a->npos + 1);
    rec_make_fresh(r, out, FRESH_OTHER, all, a->npos + 1, true);
    r->info.at[out].type = (PyTypeObject *)cls;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* accumulate(xs), accumulate(xs, f, initial=a) */
static bool
make_accumulate(rec *r, const rec_args *a)
{
    static PyObject *add;
    kin_vid func, self, all[4] = {a->callee}, step[4] = {a->callee}, *items = NULL;
    uint32_t n;
    bool initial = a->nkw == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(a->kwnames, 0), "initial") == 0;
    if (O(r, a->callee) != (PyObject *)accumulate_class() || O(r, a->callee) == NULL || a->npos < 1 || a->npos > 2 || (a->nkw && !initial) ||
        (initial && (O(r, a->args[a->npos]) == NULL || O(r, a->args[a->npos]) == Py_None)))
        return false;
    add = add ? add : library_object("_operator", "add");
    all[1] = a->npos == 2 ? a->args[1] : add != NULL ? rec_const(r, add) : 0;
    all[2] = a->args[0];
    all[3] = initial ? a->args[a->npos] : 0;
    if (all[1] == 0 || (!find_callback(r, all[1], &func, &self) && !rec_can_apply(r, all[1])) || !known_elements(r, a->args[0], &items, &n) || r->stopped)
        return r->stopped;
    free(items);
    memcpy(step + 1, a->args, (a->npos + a->nkw) * sizeof *a->args);
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, step, a->npos + a->nkw + 1);
    kin_ref ref = a->nkw ? rec_ref(r, a->kwnames) : 0;
    r->t->steps.at[r->t->vals.at[out].step].ref = ref;
    rec_make_fresh(r, out, FRESH_OTHER, all, initial ? 4 : 3, true);
    r->info.at[out].type = accumulate_class();
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* The class of a map or filter object that has not begun; NULL: it is none, or not known. */
static PyTypeObject *
lazy_class(rec *r, kin_vid lazy)
{
    rec_fresh *f = lazy ? FRESH(r, lazy) : NULL;
    kin_vid func, self;
    if (f == NULL || f->kind != FRESH_OTHER || !f->known || f->escaped || O(r, lazy) == NULL)
        return NULL;
    PyTypeObject *tp = r->info.at[lazy].type;
    bool is_lazy = tp == &PyMap_Type || tp == &PyFilter_Type || (tp != NULL && tp == starmap_class());
    if (tp != NULL && tp == accumulate_class()) /* of one that has a name nobody could tell how far it got */
        is_lazy = Py_REFCNT(O(r, lazy)) == 1;
    return is_lazy && (find_callback(r, f->items[1], &func, &self) || applies(r, (PyObject *)tp, f->items[1]))
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
    FRESH(r, lazy)->known = false;
}

static rec_consumer *
begin_lazy(rec *r, const consumer_row *row, kin_vid lazy)
{
    rec_fresh *f = FRESH(r, lazy);
    uint32_t n, width;
    bool select = r->info.at[lazy].type == &PyFilter_Type;
    kin_vid callback = f->items[1], *inputs = lazy_inputs(r, lazy, &n, &width);
    rec_consumer *c = inputs ? begin(r, row, callback, inputs, n, width) : NULL;
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
    rec_fresh *f = FRESH(r, lazy);
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
    rec_fresh *f = FRESH(r, lazy);
    uint32_t start = r->t->steps.len;
    kin_vid func, self;
    *items = NULL;
    if (f == NULL || f->kind != FRESH_OTHER || !f->known || f->escaped || r->region != NULL || r->info.at[lazy].type != &PyMap_Type ||
        find_callback(r, f->items[1], &func, &self) || !applied_items(r, lazy, items, n))
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

static bool
consume_applied(rec *r, const consumer_row *row, const rec_args *a, kin_vid lazy)
{
    uint32_t start = r->t->steps.len;
    rec_consumer c = {.row = row, .call = *a, .source = lazy, .ended = true};
    memcpy(c.args, a->args, a->npos * sizeof *a->args);
    if (row->rule != TAKE_ALL || strcmp(row->name, "sorted") == 0 || !applied_items(r, lazy, &c.items, &c.n))
        return false;
    bool shared = is_shared(r, lazy), done = row->finish(r, &c);
    if (!done && !r->stopped)
        rec_truncate(r, start);
    else if (done && shared)
        rec_lazy_used_up(r, lazy);
    free(c.items);
    return done;
}

/* list(map(f, xs)) and the like. */
static bool
consume_lazy(rec *r, const rec_args *a)
{
    kin_vid lazy = a->npos && a->npos <= 2 && a->nkw == 0 ? a->args[a->npos - 1] : 0;
    const consumer_row *row = lazy_class(r, lazy) ? rec_consumer_row(O(r, a->callee)) : NULL;
    if (row == NULL || row->rule == TAKE_ONE || (a->npos == 2) != (strcmp(row->name, "join") == 0))
        return false;
    kin_vid func, self;
    if (!find_callback(r, FRESH(r, lazy)->items[1], &func, &self))
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
    else if (!ok && !r->stopped)
        rec_truncate(r, start);
    free(items);
    return ok;
}

bool
rec_consume_unpack_lazy(rec *r, kin_vid lazy, int before, int after)
{
    kin_vid func, self;
    bool known = lazy_class(r, lazy) != NULL;
    if (known && !find_callback(r, FRESH(r, lazy)->items[1], &func, &self))
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

bool
rec_consume_callbacks(rec *r, const rec_args *a)
{
    return a->npos + a->nkw <= 5 && (call_with_key(r, a) ||
                               call_reduce(r, a) ||
                               make_lazy(r, a) ||
                               make_accumulate(r, a) ||
                               consume_lazy(r, a));
}
