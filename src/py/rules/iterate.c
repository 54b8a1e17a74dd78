/* Iteration and unpacking: over known contents without a step that runs, over anything else by asking the iterator. */
#include "py/recorder/rec.h"

#include "core/diag/breaks.h"
#include "py/compat/generator.h"

/* -- contents of a sequence -------------------------------------------------------------------------------------------- */

static bool
copy_items(const kin_vid *from, uint32_t count, uint32_t stride, uint32_t first, kin_vid **items, uint32_t *n)
{
    *items = malloc((count + 1) * sizeof **items);
    if (*items == NULL)
        return false;
    *n = 0;
    for (uint32_t i = first; i < count; i += stride)
        (*items)[(*n)++] = from[i];
    return true;
}

static bool
const_items(rec *r, PyObject *tuple, kin_vid **items, uint32_t *n)
{
    Py_ssize_t size = PyTuple_GET_SIZE(tuple);
    *items = malloc(((size_t)size + 1) * sizeof **items);
    if (*items == NULL)
        return false;
    for (Py_ssize_t i = 0; i < size; i++)
        (*items)[i] = rec_const(r, PyTuple_GET_ITEM(tuple, i));
    *n = (uint32_t)size;
    return true;
}

static bool
path_items(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    PyObject *obj = O(r, vid);
    bool list = PyList_CheckExact(obj);
    Py_ssize_t size = list ? PyList_GET_SIZE(obj) : PyTuple_GET_SIZE(obj);
    if (size > 2000)
        return false;
    *items = malloc(((size_t)size + 1) * sizeof **items);
    if (*items == NULL)
        return false;
    rec_root(r, vid);
    if (list || PyTuple_CheckExact(obj))
        rec_need_type(r, vid);
    else
        rec_need_version(r, vid);
    rec_need_len(r, vid, size);
    for (Py_ssize_t i = 0; i < size; i++)
        (*items)[i] = rec_src(r, vid, list ? KIN_ACCESS_LIST_ITEM : KIN_ACCESS_TUPLE_ITEM, (uint32_t)i,
                              list ? PyList_GET_ITEM(obj, i) : PyTuple_GET_ITEM(obj, i));
    *n = (uint32_t)size;
    return true;
}

/* Keys, values or (key, value) tuples of a dict in its order. */
static bool
dict_items(rec *r, kin_vid dict, char which, kin_vid **items, uint32_t *n)
{
    PyObject *obj = O(r, dict), *key, *value;
    rec_fresh *f = FRESH(r, dict);
    Py_ssize_t pos = 0, size = PyDict_GET_SIZE(obj), i = 0;
    if (f != NULL) {
        f = rec_mapping(r, dict);
        if (f == NULL || (Py_ssize_t)f->n != 2 * size)
            return false;
    }
    if (f == NULL && (!PyDict_CheckExact(obj) || size > 2000))
        return false;
    *items = malloc(((size_t)size + 1) * sizeof **items);
    if (*items == NULL)
        return false;
    *n = 0;
    if (f == NULL) {
        while (PyDict_Next(obj, &pos, &key, &value))
            if (!kin_is_exact_immutable(key)) {
                free(*items);
                *items = NULL;
                return false;
            }
        rec_root(r, dict);
        rec_need_type(r, dict);
        PyObject *keys = PyTuple_New(size);
        if (keys == NULL) {
            PyErr_Clear();
            return false;
        }
        for (pos = 0; PyDict_Next(obj, &pos, &key, &value);)
            PyTuple_SET_ITEM(keys, i++, Py_NewRef(key));
        rec_fact(r, KIN_FACT_DICT_KEYS, dict, keys, 0);
        rec_ref(r, keys);
        Py_DECREF(keys);
    }
    for (i = 0, pos = 0; PyDict_Next(obj, &pos, &key, &value); i++) {
        kin_vid k = f ? f->items[2 * i] : rec_const(r, key);
        kin_vid v = f ? f->items[2 * i + 1] : which == 'k' ? 0 : rec_dict_item(r, dict, key, value);
        kin_vid pair[2] = {k, v};
        (*items)[(*n)++] = which == 'k' ? k : which == 'v' ? v : rec_build_tuple(r, pair, 2, NULL);
    }
    return true;
}

/* An item of a tuple or list made by a step, which has that many. */
static kin_vid
step_item(rec *r, kin_vid vid, Py_ssize_t i)
{
    PyObject *obj = O(r, vid), *index = PyLong_FromSsize_t(i);
    kin_vid pair[2] = {vid, rec_const(r, index)};
    Py_XDECREF(index);
    kin_vid item = rec_step_out(r, KIN_STEP_SUBSCR, r->info.at[vid].graph ? KIN_STEP_TORCH : 0, pair, 2);
    rec_set_obj(r, item, PyTuple_Check(obj) ? PyTuple_GET_ITEM(obj, i) : PyList_GET_ITEM(obj, i));
    return item;
}

/* Items of an exact tuple or list made by a step: its length is checked, then each is read. */
static bool
step_items(rec *r, kin_vid vid, int n, kin_vid *items)
{
    PyObject *obj = O(r, vid);
    bool tuple = PyTuple_Check(obj), list = PyList_CheckExact(obj);
    if ((!tuple && !list) || (tuple ? PyTuple_GET_SIZE(obj) : PyList_GET_SIZE(obj)) != n)
        return false;
    rec_need_type(r, vid);
    rec_need_len(r, vid, n);
    for (int i = 0; i < n; i++)
        items[i] = step_item(r, vid, i);
    return true;
}

static bool
is_step(rec *r, kin_vid vid)
{
    return r->t->vals.at[vid].kind == KIN_VAL_STEP && FRESH(r, vid) == NULL && !rec_is_const(r, vid) && O(r, vid) != NULL;
}

bool
rec_is_step_tuple(rec *r, kin_vid vid)
{
    return is_step(r, vid) && PyTuple_CheckExact(O(r, vid));
}

/* A tuple that a torch call gave: what is read from it is a node of the graph as well. */
bool
rec_is_graph_tuple(rec *r, kin_vid vid)
{
    return rec_is_step_tuple(r, vid) && r->info.at[vid].graph;
}

kin_vid
rec_graph_item(rec *r, kin_vid tuple, Py_ssize_t i)
{
    rec_need_len(r, tuple, PyTuple_GET_SIZE(O(r, tuple)));
    return step_item(r, tuple, i);
}

static bool
step_tuple_items(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    Py_ssize_t size = PyTuple_GET_SIZE(O(r, vid));
    *items = size <= 2000 ? malloc(((size_t)size + 1) * sizeof **items) : NULL;
    *n = (uint32_t)size;
    return *items != NULL && step_items(r, vid, (int)size, *items);
}

bool
rec_items_of(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    PyObject *obj = O(r, vid);
    rec_fresh *f = FRESH(r, vid);
    *items = NULL;
    *n = 0;
    if (f != NULL) {
        if (!f->known)
            return false;
        switch (f->kind) {
        case FRESH_TUPLE: case FRESH_LIST:
            return copy_items(f->items, f->n, 1, 0, items, n);
        case FRESH_NAMED:
            return rec_named_items(r, vid) != NULL && copy_items(f->items, f->n, 1, 0, items, n);
        case FRESH_ATTRS:
            return dict_items(r, vid, 'k', items, n);
        case FRESH_ITER: /* used up by who asks, so nobody may see afterwards how far it got */
            return (f->given || (obj != NULL && Py_REFCNT(obj) == 1)) &&
                   copy_items(f->items, f->n, 1, f->pos, items, n);
        case FRESH_DICT:
            return copy_items(f->items, f->n, 2, 0, items, n);
        case FRESH_VIEW:
            return dict_items(r, f->items[0], (char)f->pos, items, n);
        default:
            return false;
        }
    }
    if (obj == NULL)
        return false;
    if (rec_is_step_tuple(r, vid))
        return step_tuple_items(r, vid, items, n);
    if (rec_is_const(r, vid) && PyTuple_Check(obj))
        return const_items(r, obj, items, n);
    if (PyList_CheckExact(obj) || PyTuple_CheckExact(obj))
        return path_items(r, vid, items, n);
    if (PyDict_CheckExact(obj))
        return dict_items(r, vid, 'k', items, n);
    if (PyTuple_Check(obj) && rec_reads_as_tuple(Py_TYPE(obj)) && !rec_is_const(r, vid))
        return is_step(r, vid) ? step_tuple_items(r, vid, items, n) : path_items(r, vid, items, n);
    return false;
}

/* Numbers of a range that is a constant. */
static bool
range_items(rec *r, PyObject *range, kin_vid **items, uint32_t *n)
{
    enum { MOST = 5000 };
    Py_ssize_t size = PyObject_Size(range);
    *items = size >= 0 && size <= MOST ? malloc(((size_t)size + 1) * sizeof **items) : NULL;
    for (*n = 0; *items != NULL && *n < size; (*n)++) {
        PyObject *item = PySequence_GetItem(range, *n);
        (*items)[*n] = item == NULL ? 0 : rec_const(r, item);
        if (item == NULL) {
            free(*items);
            *items = NULL;
        }
        Py_XDECREF(item);
    }
    PyErr_Clear();
    return *items != NULL;
}

bool
rec_use_up(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    rec_fresh *f = FRESH(r, vid);
    bool iterator = f != NULL && f->kind == FRESH_ITER, given = iterator && f->given;
    if (iterator)
        f->given = true;
    bool ok = rec_items_of(r, vid, items, n);
    if (iterator)
        f->given = given;
    if (iterator && ok)
        f->pos = f->n;
    return ok;
}

/* -- iter() ---------------------------------------------------------------------------------------------------------------- */

/* Rows of a tensor: x.unbind(0), then one item each. */
static bool
tensor_rows(rec *r, kin_vid vid, kin_vid **items, uint32_t *n, kin_vid *tuple)
{
    PyObject *obj = O(r, vid);
    if (!kin_is_plain_strided(obj) || kin_tensor_dim(obj) < 1 || kin_tensor_sizes(obj)[0] > 2000)
        return false;
    rec_need_type(r, vid);
    if (!rec_meta(r, vid, KIN_META_SIZES))
        return false;
    if (rec_open_sizes(r, vid) & 1) { /* as many as there are now; other numbers are other side traces */
        PyObject *record = rec_size_record(r, vid, KIN_META_SIZES, rec_open_sizes(r, vid) & ~UINT64_C(1));
        if (record == NULL)
            return false;
        rec_check(r, KIN_CHECK_META, vid, record, 0);
        Py_DECREF(record);
    }
    PyObject *unbind = _PyType_Lookup(Py_TYPE(obj), REC_STR("unbind"));
    if (unbind == NULL || Py_TYPE(unbind) != &PyMethodDescr_Type)
        return false;
    *n = (uint32_t)kin_tensor_sizes(obj)[0];
    *items = malloc((*n + 1) * sizeof **items);
    if (*items == NULL)
        return false;
    kin_vid args[2] = {rec_const(r, unbind), vid};
    kin_vid rows = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_TORCH, args, 2);
    for (uint32_t i = 0; i < *n; i++) {
        PyObject *index = PyLong_FromLong((long)i);
        kin_vid pair[2] = {rows, rec_const(r, index)};
        Py_XDECREF(index);
        (*items)[i] = rec_step_out(r, KIN_STEP_SUBSCR, KIN_STEP_TORCH, pair, 2);
        r->info.at[(*items)[i]].type = NULL;
    }
    *tuple = rows;
    return true;
}

static bool
letter_items(rec *r, PyObject *text, kin_vid **items, uint32_t *n)
{
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    *items = size <= 2000 ? malloc(((size_t)size + 1) * sizeof **items) : NULL;
    for (*n = 0; *items != NULL && *n < size;) {
        PyObject *letter = PyUnicode_Substring(text, *n, *n + 1);
        (*items)[(*n)++] = rec_const(r, letter);
        Py_XDECREF(letter);
    }
    return *items != NULL;
}

bool
rec_iterated(rec *r, kin_vid *vid, kin_vid **items, uint32_t *n)
{
    PyObject *obj = O(r, *vid);
    *items = NULL;
    if (obj != NULL && FRESH(r, *vid) == NULL) {
        if (kin_is_tensor(obj)) {
            r->skip_expected = true; /* Tensor.__iter__ */
            return tensor_rows(r, *vid, items, n, vid);
        }
        if (Py_TYPE(obj) == &PyRange_Type && rec_is_const(r, *vid))
            return range_items(r, obj, items, n);
        if (PyUnicode_CheckExact(obj) && rec_need_const(r, *vid) != 0)
            return letter_items(r, obj, items, n);
    }
    return rec_items_of(r, *vid, items, n);
}

static bool
push_known_iter(rec *r, kin_vid vid, int ndrop)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    PyObject *obj = O(r, vid);
    bool tensor = FRESH(r, vid) == NULL && kin_is_tensor(obj);
    if (!rec_iterated(r, &vid, &items, &n))
        return false;
    kin_vid out = rec_step_out(r, KIN_STEP_ITER, KIN_STEP_PURE, &vid, 1);
    rec_fresh *f = rec_make_fresh(r, out, FRESH_ITER, items, n, true);
    if (f != NULL && !tensor && !PyTuple_Check(obj) && !PyUnicode_Check(obj)) {
        f->of = FRESH(r, vid) && FRESH(r, vid)->kind == FRESH_VIEW ? FRESH(r, vid)->items[0] : vid;
        if (kin_vec_push(&r->iters, out) != KIN_OK)
            r->status = KIN_NOMEM;
    }
    free(items);
    rec_drop(r, ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

static bool
push_range_iter(rec *r, kin_vid vid, int ndrop)
{
    PyObject *obj = O(r, vid);
    kin_vid *items;
    uint32_t n;
    if (Py_TYPE(obj) != &PyRange_Type || !rec_is_const(r, vid) || !range_items(r, obj, &items, &n))
        return false;
    kin_vid out = rec_step_out(r, KIN_STEP_ITER, KIN_STEP_PURE, &vid, 1);
    rec_make_fresh(r, out, FRESH_ITER, items, n, true);
    free(items);
    rec_drop(r, ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

bool
rec_iter_of(rec *r, kin_vid vid, int ndrop)
{
    PyObject *obj = O(r, vid);
    rec_fresh *f = FRESH(r, vid);
    if ((f != NULL && (f->kind == FRESH_ITER || f->kind == FRESH_ZIP)) || PyGen_CheckExact(obj)) {
        rec_drop(r, ndrop);
        rec_push(r, vid);
        return true;
    }
    return push_range_iter(r, vid, ndrop) || push_known_iter(r, vid, ndrop);
}

void
rec_op_get_iter(rec *r)
{
    kin_vid vid = rec_peek(r, 0);
    if (rec_iter_of(r, vid, 1) || r->stopped)
        return;
    PyObject *obj = O(r, vid);
    PyTypeObject *tp = rec_need_attrs(r, vid);
    PyObject *func = tp->tp_flags & Py_TPFLAGS_HEAPTYPE ? rec_lookup(r, tp, REC_STR("__iter__")) : NULL;
    if (r->stopped)
        return;
    kin_vid iter = func != NULL && PyFunction_Check(func) ? rec_found(r, tp, REC_STR("__iter__"), func) : 0;
    if (iter != 0 && (rec_generator_call(r, &(rec_args){.callee = iter, .args = &vid, .npos = 1, .ndrop = 1}) ||
                      (rec_can_inline(r, func) && rec_inline(r, &(rec_args){.callee = iter, .args = &vid, .npos = 1, .ndrop = 1}, NULL, 0, KIN_RESUME_PUSH, 0))))
        return;
    if (r->stopped)
        return;
    bool quiet = !(tp->tp_flags & Py_TPFLAGS_HEAPTYPE) && !kin_is_tensor(obj);
    kin_vid out = rec_step_out(r, KIN_STEP_ITER, quiet ? 0 : KIN_STEP_OPAQUE, &vid, 1);
    uint32_t s = r->t->vals.at[out].step;
    if (!quiet) {
        rec_forget_contents(r);
        r->skip_expected = true;
    }
    rec_drop(r, 1);
    rec_await_result(r, out, s);
}

/* -- the next item of a for loop ------------------------------------------------------------------------------------------ */

/* Iterators whose next() cannot reach user code. */
static bool
is_quiet_iterator(PyObject *obj)
{
    const char *name = Py_TYPE(obj)->tp_name;
    static const char *const quiet[] = {"list_iterator", "tuple_iterator", "range_iterator", "str_iterator",
        "str_ascii_iterator", "dict_keyiterator", "dict_valueiterator", "dict_itemiterator", "set_iterator",
        "bytes_iterator", "list_reverseiterator", "itertools.count", "itertools.repeat", "longrange_iterator",
        "odict_iterator", "_collections._deque_iterator", NULL};
    for (int i = 0; quiet[i]; i++)
        if (strcmp(quiet[i], name) == 0)
            return true;
    return false;
}

void
rec_op_for_iter(rec *r)
{
    rec_frame *f = r->top;
    kin_vid it = rec_peek(r, 0);
    rec_fresh *fresh = FRESH(r, it);
    if (rec_consume_for(r, it))
        return;
    if (fresh != NULL && fresh->kind == FRESH_ITER && fresh->known) {
        if (fresh->pos >= fresh->n) {
            rec_drop(r, 1);
            f->next = f->jump;
            f->jump = UINT32_MAX;
            return;
        }
        kin_vid item = fresh->items[fresh->pos++];
        rec_step(r, KIN_STEP_NEXT, KIN_STEP_MUTATES, &it, 1);
        f->jump = UINT32_MAX;
        if (O(r, item) != NULL)
            rec_push(r, item);
        else
            rec_await_result(r, item, 0);
        return;
    }
    rec_ask_iter(r, it, rec_iter_row(r, it));
}

/* -- yield from --------------------------------------------------------------------------------------------------------------- */

void
rec_op_yield_from(rec *r)
{
    if (!PyGen_CheckExact(O(r, rec_peek(r, 0))))
        rec_op_get_iter(r);
}

/* Asks what a generator delegates to for its next item, or for what it returns. */
void
rec_op_send(rec *r)
{
    rec_frame *f = r->top;
    kin_vid it = rec_peek(r, 1);
    rec_fresh *fresh = FRESH(r, it);
    if (O(r, rec_peek(r, 0)) != Py_None || r->region == NULL) {
        rec_stop(r, "a value is sent into a generator");
    } else if (fresh != NULL && fresh->kind == FRESH_ITER && fresh->known) {
        bool ended = fresh->pos >= fresh->n;
        kin_vid item = ended ? rec_const(r, Py_None) : fresh->items[fresh->pos++];
        if (!ended)
            rec_step(r, KIN_STEP_NEXT, KIN_STEP_MUTATES, &it, 1);
        rec_drop(r, ended ? 2 : 1);
        if (ended)
            f->next = f->jump;
        f->jump = UINT32_MAX;
        if (O(r, item) != NULL)
            rec_push(r, item);
        else
            rec_await_result(r, item, 0);
    } else if (!rec_consume_send(r, it)) {
        rec_stop(r, "unsupported yield from");
    }
}

static bool
is_tensor_or_cell(PyObject *obj)
{
    if (obj != NULL && PyCell_Check(obj))
        obj = PyCell_GET(obj);
    return obj != NULL && kin_is_tensor(obj);
}

/* Has a suspended generator that is not ours a tensor at hand? One that delegates to another counts as having. */
static bool
frame_has_tensor(PyObject *gen)
{
    struct _PyInterpreterFrame *frame = kin_generator_frame(gen);
    PyObject *inner = PyObject_GetAttrString(gen, "gi_yieldfrom"), *code = PyObject_GetAttrString(gen, "gi_code");
    bool found = frame == NULL || inner != Py_None || code == NULL;
    for (int i = 0; !found && i < ((PyCodeObject *)code)->co_nlocalsplus; i++)
        found = is_tensor_or_cell(kin_watch_localsplus(frame)[i]);
    Py_XDECREF(inner);
    Py_XDECREF(code);
    PyErr_Clear();
    return found;
}

/* Is a tensor in the cells of a closure made here? What its objects hold in their attributes is not at hand. */
static bool
fresh_closure_has_tensor(rec *r, const rec_fresh *fn)
{
    enum { CLOSURE = 2 }; /* as in call.c */
    rec_fresh *cells = fn->n > CLOSURE && fn->items[CLOSURE] ? FRESH(r, fn->items[CLOSURE]) : NULL;
    if (cells == NULL)
        return fn->n <= CLOSURE || fn->items[CLOSURE] != 0;
    for (uint32_t i = 0; i < cells->n; i++) {
        rec_fresh *cell = FRESH(r, cells->items[i]);
        kin_vid held = cell != NULL && cell->kind == FRESH_CELL && cell->known && cell->n ? cell->items[0] : 0;
        if (cell == NULL ? is_tensor_or_cell(O(r, cells->items[i])) : !cell->known)
            return true;
        if (held != 0 && !(FRESH(r, held) && FRESH(r, held)->kind == FRESH_OBJECT) && rec_any_tensor(r, &held, 1))
            return true;
    }
    return false;
}

/* ... one of ours: in its parameters or its closure. */
static bool
ours_has_tensor(rec *r, kin_vid gen)
{
    if (rec_generator_is_done(r, gen))
        return false;
    kin_vid func = FRESH(r, gen)->n ? FRESH(r, gen)->items[0] : 0;
    rec_fresh *made = func ? FRESH(r, func) : NULL;
    if (func == 0 || rec_any_tensor(r, &gen, 1))
        return true;
    if (made != NULL)
        return made->kind != FRESH_FUNCTION || fresh_closure_has_tensor(r, made);
    PyObject *fn = O(r, func), *closure = fn && PyFunction_Check(fn) ? ((PyFunctionObject *)fn)->func_closure : NULL;
    for (Py_ssize_t i = 0; closure != NULL && i < PyTuple_GET_SIZE(closure); i++)
        if (is_tensor_or_cell(PyTuple_GET_ITEM(closure, i)))
            return true;
    return fn == NULL || !PyFunction_Check(fn);
}

bool
rec_generator_has_tensor(rec *r, kin_vid gen)
{
    return FRESH(r, gen) != NULL ? ours_has_tensor(r, gen) : frame_has_tensor(O(r, gen));
}

int
rec_iter_row(rec *r, kin_vid it)
{
    rec_fresh *fresh = FRESH(r, it);
    bool generator = fresh ? fresh->kind == FRESH_GENERATOR : PyGen_CheckExact(O(r, it));
    return generator && rec_generator_has_tensor(r, it) ? KIN_ROW_GENERATOR : -1;
}

/* A generator that has tensors (`row`), or gives some (rec_finish_iter), ends the graph. */
void
rec_ask_iter(rec *r, kin_vid it, int row)
{
    rec_frame *f = r->top;
    rec_fresh *fresh = FRESH(r, it);
    /* One of ours may be gone already when its region is undone. */
    bool ours = fresh != NULL && fresh->kind == FRESH_GENERATOR;
    bool generator = ours || PyGen_CheckExact(O(r, it)), quiet = !generator && is_quiet_iterator(O(r, it));
    if (quiet && fresh == NULL)
        rec_need_type(r, it);
    kin_vid out = rec_step_out(r, KIN_STEP_NEXT, quiet ? 0 : KIN_STEP_OPAQUE, &it, 1);
    if (row >= 0)
        rec_break(r, r->t->vals.at[out].step, row);
    if (!quiet) {
        rec_forget_contents(r);
        r->skip_expected = true;
    }
    f->await = AWAIT_ITER;
    f->await_vid = out;
}

/* The iterator has answered: the value (or its end) was one of two outcomes; the check leaves to the other one. */
void
rec_finish_iter(rec *r, rec_frame *f, bool exhausted, PyObject **stack)
{
    kin_vid out = f->await_vid;
    int sp = f->sp;
    uint32_t other;
    if (exhausted) {
        f->slots[f->nlocals + f->sp++] = out;
        other = rec_snapshot_of(r, f, f->next, f->sp);
        f->sp = sp - 1;
    } else {
        other = rec_snapshot_of(r, f, f->jump, sp - 1);
        rec_set_obj(r, out, stack[sp]);
        f->slots[f->nlocals + f->sp++] = out;
        uint32_t s = r->t->vals.at[out].step;
        kin_vid it = r->t->vids.at[r->t->steps.at[s].args];
        bool generator = FRESH(r, it) ? FRESH(r, it)->kind == FRESH_GENERATOR : PyGen_CheckExact(stack[sp - 1]);
        if (generator && !(r->t->steps.at[s].flags & KIN_STEP_BREAK) && rec_any_tensor(r, &out, 1))
            rec_break(r, s, KIN_ROW_GENERATOR);
    }
    kin_step check = {.kind = KIN_STEP_CHECK, .imm = exhausted ? KIN_CHECK_NULL : KIN_CHECK_NOTNULL, .nargs = 1,
                      .snap = other, .args = r->t->vids.len};
    if (kin_vec_push(&r->t->vids, out) != KIN_OK || kin_vec_push(&r->t->steps, check) != KIN_OK)
        r->status = KIN_NOMEM;
}

/* -- unpacking ----------------------------------------------------------------------------------------------------------------- */

/* Containers that run no code of anybody's when one goes over them, once or twice. */
static bool
is_quiet_container(PyObject *obj)
{
    PyTypeObject *tp = Py_TYPE(obj);
    return tp == &PyUnicode_Type || tp == &PyBytes_Type || tp == &PyByteArray_Type || tp == &PyDict_Type || tp == &PySet_Type ||
           tp == &PyFrozenSet_Type || tp == &PyRange_Type || tp == &PyDictKeys_Type || tp == &PyDictItems_Type ||
           tp == &PyDictValues_Type || strcmp(tp->tp_name, "numpy.ndarray") == 0 || strcmp(tp->tp_name, "collections.deque") == 0;
}

/* The elements of what is unpacked into `n` names, or into `least` of them and a starred one. False: stopped. */
static bool
unpacked_items(rec *r, kin_vid vid, int least, bool starred, kin_vid *local, uint32_t *count)
{
    kin_vid *items = NULL;
    PyObject *obj = O(r, vid);
    bool tensor = FRESH(r, vid) == NULL && kin_is_tensor(obj);
    bool made_here = r->t->vals.at[vid].kind == KIN_VAL_STEP && FRESH(r, vid) == NULL && !rec_is_const(r, vid);
    int n = least;
    if (starred && made_here && (PyTuple_Check(obj) || PyList_CheckExact(obj)))
        n = PyTuple_Check(obj) ? (int)PyTuple_GET_SIZE(obj) : (int)PyList_GET_SIZE(obj);
    bool iterator = FRESH(r, vid) != NULL && FRESH(r, vid)->kind == FRESH_ITER;
    kin_vid rows;
    if (tensor ? tensor_rows(r, vid, &items, count, &rows) : !made_here && rec_use_up(r, vid, &items, count)) {
        if (starred ? *count < (uint32_t)least || *count > 250 : *count != (uint32_t)least) {
            free(items);
            rec_stop_row(r, KIN_ROW_EXCEPTION_ESCAPED, "unpacking raises");
            return false;
        }
        memcpy(local, items, *count * sizeof *items);
        free(items);
        for (uint32_t i = 0; iterator && i < *count; i++)
            rec_step(r, KIN_STEP_NEXT, KIN_STEP_MUTATES, &vid, 1);
        r->skip_expected = tensor;
    } else if ((!made_here || n < least || n > 250 || !step_items(r, vid, n, local))) {
        rec_stop(r, "unpacking an iterable whose items are not known");
        return false;
    } else {
        *count = (uint32_t)n;
    }
    return true;
}

/* In place of the top of the stack: the items; after < 0: none of them goes into a list. */
void
rec_push_unpacked(rec *r, const kin_vid *items, uint32_t count, int before, int after)
{
    uint32_t starred = after >= 0, middle = starred ? count - (uint32_t)(before + after) : 0;
    kin_vid rest = 0;
    if (starred) {
        rest = rec_step_out(r, KIN_STEP_BUILD_LIST, KIN_STEP_PURE, items + before, middle);
        rec_make_fresh(r, rest, FRESH_LIST, items + before, middle, true);
        r->info.at[rest].type = &PyList_Type;
    }
    rec_drop(r, 1);
    for (int i = after; i-- > 0;)
        rec_push(r, items[(uint32_t)before + middle + (uint32_t)i]);
    if (starred)
        rec_push(r, rest);
    for (int i = before; i-- > 0;)
        rec_push(r, items[i]);
}

/* Objects that the instruction has put on the real stack. */
static void
note_unpacked(rec *r, int base, const kin_vid *items, uint32_t count, int before, int after)
{
    rec_frame *f = r->top;
    PyObject **stack = kin_watch_localsplus(f->f) + f->nlocals + base;
    int top = before + (after < 0 ? 0 : after + 1) - 1;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from_end = count - i;
        PyObject *obj = NULL;
        if (i < (uint32_t)before)
            obj = stack[top - (int)i];
        else if (from_end <= (uint32_t)after)
            obj = stack[from_end - 1];
        else if (PyList_CheckExact(stack[after]) && PyList_GET_SIZE(stack[after]) > (Py_ssize_t)i - before)
            obj = PyList_GET_ITEM(stack[after], (Py_ssize_t)i - before);
        if (obj != NULL && O(r, items[i]) == NULL)
            rec_set_obj(r, items[i], obj);
    }
}

bool
rec_unpack_iterator(rec *r, kin_vid it, int before, int after)
{
    kin_vid *items = NULL;
    uint32_t count = 0, least = (uint32_t)(before + (after > 0 ? after : 0));
    bool ok = rec_use_up(r, it, &items, &count) && count <= 250 && (after < 0 ? count == least : count >= least);
    if (ok) {
        note_unpacked(r, r->top->sp - 1, items, count, before, after);
        rec_push_unpacked(r, items, count, before, after);
    }
    free(items);
    return ok;
}

static kin_vid
item_of(rec *r, kin_vid all, PyObject *key)
{
    kin_vid pair[2] = {all, rec_const(r, key)};
    Py_XDECREF(key);
    return rec_step_out(r, KIN_STEP_SUBSCR, 0, pair, 2);
}

/* Contents that nothing is known of: tuple(thing) goes over them as the unpacking does. */
static bool
unpack_tuple_of(rec *r, kin_vid vid, int before, int after)
{
    PyObject *obj = O(r, vid);
    bool known = (FRESH(r, vid) != NULL && (FRESH(r, vid)->known || FRESH(r, vid)->kind != FRESH_OTHER)) || (PyDict_CheckExact(obj) && r->t->vals.at[vid].kind != KIN_VAL_STEP);
    Py_ssize_t n = !known && is_quiet_container(obj) ? PyObject_Size(obj) : -1;
    int tail = after > 0 ? after : 0;
    if (n < 0 || n > UINT32_MAX || (after < 0 ? n != before : n < before + tail)) {
        PyErr_Clear();
        return false;
    }
    if (FRESH(r, vid) == NULL)
        rec_need_type(r, vid);
    kin_vid call[2] = {rec_const(r, (PyObject *)&PyTuple_Type), vid}, all = rec_step_out(r, KIN_STEP_CALL, 0, call, 2), items[256];
    rec_check(r, KIN_CHECK_LEN, all, NULL, (uint32_t)n);
    for (int i = 0; i < before + tail; i++)
        items[i] = item_of(r, all, PyLong_FromSsize_t(i < before ? i : n - tail + i - before));
    rec_drop(r, 1);
    for (int i = tail; i-- > 0;)
        rec_push(r, items[before + i]);
    if (after >= 0) {
        PyObject *from = PyLong_FromLong(before), *to = PyLong_FromSsize_t(n - tail);
        kin_vid list[2] = {rec_const(r, (PyObject *)&PyList_Type), item_of(r, all, PySlice_New(from, to, NULL))};
        rec_push(r, rec_step_out(r, KIN_STEP_CALL, 0, list, 2));
        Py_XDECREF(from);
        Py_XDECREF(to);
    }
    for (int i = before; i-- > 0;)
        rec_push(r, items[i]);
    return true;
}

static void
unpack(rec *r, int before, int after)
{
    kin_vid local[256], vid = rec_peek(r, 0);
    uint32_t count = 0;
    int least = before + (after > 0 ? after : 0);
    if (least > 250)
        rec_stop(r, "unpacking too many values");
    else if (!rec_consume_unpack(r, vid, before, after) && !rec_consume_unpacking(r, vid, before, after) &&
             !rec_consume_unpack_lazy(r, vid, before, after) && !unpack_tuple_of(r, vid, before, after) &&
             unpacked_items(r, vid, least, after >= 0, local, &count))
        rec_push_unpacked(r, local, count, before, after);
}

void
rec_op_unpack(rec *r, int n)
{
    unpack(r, n, -1);
}

/* a, *b, c = ...: the starred name gets a new list. */
void
rec_op_unpack_ex(rec *r, int before, int after)
{
    unpack(r, before, after);
}
