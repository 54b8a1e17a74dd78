/* The contents of containers, as far as they are known or can be read by path: items of sequences, pairs of dicts, and iterators over
 * them.
 */
#include "py/aten/modes.h"
#include "py/compat/frame.h"
#include "py/compat/heap.h"
#include "py/compat/kinds.h"
#include "py/recorder/rec.h"

bool
rec_counts_as_tuple(PyTypeObject *tp)
{
    return tp->tp_as_sequence->sq_length == PyTuple_Type.tp_as_sequence->sq_length &&
           tp->tp_as_mapping->mp_length == PyTuple_Type.tp_as_mapping->mp_length && (tp->tp_as_number == NULL || tp->tp_as_number->nb_bool == NULL);
}

/* Does the class leave reading of its items to tuple? What it does with them besides is its own affair. */
bool
rec_reads_as_tuple(PyTypeObject *tp)
{
    return tp->tp_iter == PyTuple_Type.tp_iter && tp->tp_as_mapping->mp_subscript == PyTuple_Type.tp_as_mapping->mp_subscript && rec_counts_as_tuple(tp);
}

rec_virtual *
rec_named_items(rec *r, kin_vid vid)
{
    rec_virtual *f = VIRTUAL(r, vid);
    PyTypeObject *tp = f != NULL && f->kind == VIRTUAL_NAMED && f->known ? r->info.at[vid].type : NULL;
    if (kin_is_size_type(tp))
        return f;
    if (tp == NULL || !rec_reads_as_tuple(tp))
        return NULL;
    rec_class_version(r, tp);
    return f;
}

kin_vid
rec_dict_item(rec *r, kin_vid dict, PyObject *key, PyObject *obj)
{
    if (rec_is_compiling_flag(O(r, dict), key))
        return rec_answer_compiling(r); /* the same for this asker on every path */
    rec_need_type(r, dict);
    return rec_src_key(r, dict, KIN_ACCESS_DICT_ITEM, key, obj);
}

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

/* The keys of a dict of any class, in its own order: a fact from now on. NULL: one of them is no constant. */
PyObject *
rec_known_keys(rec *r, kin_vid dict)
{
    PyObject *obj = O(r, dict), *key, *value;
    Py_ssize_t size = PyDict_GET_SIZE(obj), pos = 0, n = 0;
    const void *node = NULL;
    bool ordered = PyODict_Check(obj);
    if (!PyDict_Check(obj))
        return NULL;
    PyObject *keys = size <= 2000 ? PyTuple_New(size) : NULL;
    while (keys != NULL && n < size && (ordered ? kin_heap_ordered_next(obj, &node, &key) : PyDict_Next(obj, &pos, &key, &value)) && (kin_is_exact_immutable(key) || kin_is_enum_class(Py_TYPE(key))))
        PyTuple_SET_ITEM(keys, n++, Py_NewRef(key));
    if (keys == NULL || n != size) {
        Py_XDECREF(keys);
        PyErr_Clear();
        return NULL;
    }
    rec_root(r, dict);
    rec_need_type(r, dict);
    rec_fact(r, KIN_FACT_DICT_KEYS, dict, keys, 0);
    rec_ref(r, keys);
    return keys;
}

/* Keys, values or (key, value) tuples of a dict in its order. */
static bool
dict_items(rec *r, kin_vid dict, char which, kin_vid **items, uint32_t *n)
{
    PyObject *obj = O(r, dict), *keys = NULL;
    rec_virtual *f = VIRTUAL(r, dict);
    Py_ssize_t size = PyDict_GET_SIZE(obj);
    if (f != NULL) {
        f = rec_mapping(r, dict);
        if (f == NULL || (Py_ssize_t)f->n != 2 * size)
            return false;
    }
    if (f == NULL && (keys = rec_known_keys(r, dict)) == NULL)
        return false;
    *items = malloc(((size_t)size + 1) * sizeof **items);
    *n = 0;
    for (Py_ssize_t i = 0; *items != NULL && i < size; i++) {
        PyObject *key = f ? NULL : PyTuple_GET_ITEM(keys, i);
        kin_vid k = f ? f->items[2 * i] : rec_const(r, key);
        kin_vid v = f ? f->items[2 * i + 1] : which == 'k' ? 0 : rec_dict_item(r, dict, key, kin_exact_item(obj, key));
        kin_vid pair[2] = {k, v};
        (*items)[(*n)++] = which == 'k' ? k : which == 'v' ? v : rec_build_tuple(r, pair, 2, NULL);
    }
    Py_XDECREF(keys);
    return *items != NULL;
}

/* An item of a tuple or list made by a step, which has that many. */
static kin_vid
step_item(rec *r, kin_vid vid, Py_ssize_t i)
{
    PyObject *obj = O(r, vid), *index = PyLong_FromSsize_t(i);
    kin_vid pair[2] = {vid, rec_const(r, index)};
    Py_XDECREF(index);
    kin_vid item = rec_step_out(r, KIN_STEP_SUBSCR, r->info.at[vid].graph ? KIN_STEP_TORCH : 0, pair, 2);
    if (rec_data_of(r, vid) == REC_DATA_IN_GRAPH)
        rec_set_data(r, item, r->info.at[vid].data_row);
    rec_set_obj(r, item, PyTuple_Check(obj) ? PyTuple_GET_ITEM(obj, i) : PyList_GET_ITEM(obj, i));
    return item;
}

/* Items of an exact tuple or list made by a step: its length is checked, then each is read. */
bool
rec_step_items(rec *r, kin_vid vid, int n, kin_vid *items)
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
    return r->t->vals.at[vid].kind == KIN_VAL_STEP && VIRTUAL(r, vid) == NULL && !rec_is_const(r, vid) && O(r, vid) != NULL;
}

bool
rec_is_step_tuple(rec *r, kin_vid vid)
{
    return is_step(r, vid) && PyTuple_CheckExact(O(r, vid));
}

/* A tuple that a torch call returned: reading from it is a node of the graph as well. */
bool
rec_is_graph_tuple(rec *r, kin_vid vid)
{
    return rec_is_step_tuple(r, vid) && r->info.at[vid].graph;
}

kin_vid
rec_graph_item(rec *r, kin_vid tuple, Py_ssize_t i)
{
    rec_need_type(r, tuple);
    rec_need_len(r, tuple, PySequence_Fast_GET_SIZE(O(r, tuple)));
    return step_item(r, tuple, i);
}

static bool
step_sequence_items(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    Py_ssize_t size = PySequence_Fast_GET_SIZE(O(r, vid));
    *items = size <= 2000 ? malloc(((size_t)size + 1) * sizeof **items) : NULL;
    *n = (uint32_t)size;
    return *items != NULL && rec_step_items(r, vid, (int)size, *items);
}

rec_virtual *
rec_asked_dict(rec *r, kin_vid dict, PyObject *method)
{
    const rec_virtual *f = VIRTUAL(r, dict);
    if (f == NULL || f->kind != VIRTUAL_OBJECT || f->of == 0)
        return rec_exact_dict(r, rec_proxied(r, dict));
    PyTypeObject *tp = r->info.at[dict].type, *base = rec_dict_base(tp);
    if (O(r, dict) == NULL || _PyType_Lookup(tp, method) != _PyType_Lookup(base, method))
        return NULL;
    rec_need_attrs(r, dict);
    rec_lookup(r, tp, method);
    return rec_mapping(r, dict);
}

/* Items of something that the recording has made. */
static bool
virtual_items(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    const rec_virtual *f = VIRTUAL(r, vid), *pairs;
    if (!f->known)
        return false;
    switch (f->kind) {
    case VIRTUAL_TUPLE: case VIRTUAL_LIST:
        return copy_items(f->items, f->n, 1, 0, items, n);
    case VIRTUAL_NAMED:
        return rec_named_items(r, vid) != NULL && copy_items(f->items, f->n, 1, 0, items, n);
    case VIRTUAL_ATTRS:
        return dict_items(r, vid, 'k', items, n);
    case VIRTUAL_ITER: /* the caller exhausts it, so nothing may observe afterwards how far it got */
        return f->endless == ENDS && (f->given || (O(r, vid) != NULL && kin_reference_count(O(r, vid)) == 1)) &&
               copy_items(f->items, f->n, 1, f->pos, items, n);
    case VIRTUAL_DICT:
        return copy_items(f->items, f->n, 2, 0, items, n);
    case VIRTUAL_OBJECT:
        pairs = f->of != 0 ? rec_asked_dict(r, vid, REC_STR("__iter__")) : NULL;
        return pairs != NULL && copy_items(pairs->items, pairs->n, 2, 0, items, n);
    case VIRTUAL_VIEW:
        return dict_items(r, f->items[0], (char)f->pos, items, n);
    default:
        return false;
    }
}

static bool
is_list_from_data(rec *r, kin_vid vid)
{
    return is_step(r, vid) && rec_data_of(r, vid) == REC_DATA_IN_GRAPH && rec_is_list_of_numbers(O(r, vid));
}

/* A sequence: an item of a step's result is a step, one of an older object is read by its path. */
static bool
sequence_items(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    PyObject *obj = O(r, vid);
    bool exact = PyList_CheckExact(obj) || PyTuple_CheckExact(obj);
    if (rec_is_step_tuple(r, vid) || is_list_from_data(r, vid))
        return step_sequence_items(r, vid, items, n);
    if (rec_is_const(r, vid) && PyTuple_Check(obj))
        return const_items(r, obj, items, n);
    if (!exact && !(PyTuple_Check(obj) && rec_reads_as_tuple(Py_TYPE(obj))))
        return false;
    return !exact && is_step(r, vid) ? step_sequence_items(r, vid, items, n) : path_items(r, vid, items, n);
}

bool
rec_items_of(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    PyObject *obj = O(r, vid);
    *items = NULL;
    *n = 0;
    if (VIRTUAL(r, vid) != NULL)
        return virtual_items(r, vid, items, n);
    if (obj == NULL)
        return false;
    if (PyDict_CheckExact(obj))
        return dict_items(r, vid, 'k', items, n);
    if (PyODict_Check(obj) && Py_TYPE(obj)->tp_iter == PyODict_Type.tp_iter && !is_step(r, vid)) {
        rec_need_version(r, vid);
        return dict_items(r, vid, 'k', items, n);
    }
    return sequence_items(r, vid, items, n);
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
    rec_virtual *f = VIRTUAL(r, vid);
    bool iterator = f != NULL && f->kind == VIRTUAL_ITER, given = iterator && f->given;
    if (iterator)
        f->given = true;
    bool ok = rec_items_of(r, vid, items, n);
    if (iterator)
        f->given = given;
    if (iterator && ok)
        f->pos = f->n;
    return ok;
}

bool
rec_is_known_iter(rec *r, kin_vid vid)
{
    const rec_virtual *f = vid ? VIRTUAL(r, vid) : NULL;
    return f != NULL && f->kind == VIRTUAL_ITER && f->known;
}

/* The kind of a container that is gone over. */
static unsigned
container_kind(rec *r, kin_vid vid)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    PyObject *obj = O(r, vid);
    PyTypeObject *tp = r->info.at[vid].type != NULL ? r->info.at[vid].type : obj != NULL ? Py_TYPE(obj) : NULL;
    if (tp == &PyList_Type || (f != NULL && f->kind == VIRTUAL_LIST))
        return REC_OVER_LISTS;
    if (tp == &PyDict_Type || (f != NULL && f->kind == VIRTUAL_DICT))
        return REC_OVER_DICTS;
    bool fixed = (f != NULL && f->kind == VIRTUAL_TUPLE) || tp == &PyTuple_Type || tp == &PyRange_Type || (obj != NULL && (kin_is_exact_immutable(obj) || kin_is_tensor(obj)));
    return fixed ? REC_OVER_FIXED : REC_OVER_OTHERS;
}

/* What an iterator over these operands goes over (REC_OVER_...). */
unsigned
rec_kinds_gone_over(rec *r, const kin_vid *operands, uint32_t n)
{
    unsigned over = 0;
    for (uint32_t i = 0; i < n; i++) {
        const rec_virtual *f = VIRTUAL(r, operands[i]);
        bool iterator = f != NULL && f->kind == VIRTUAL_ITER, view = f != NULL && f->kind == VIRTUAL_VIEW;
        if (iterator && (f->of == 0 || f->endless != ENDS))
            over |= f->over != 0 ? f->over : REC_OVER_OTHERS;
        else
            over |= container_kind(r, iterator ? f->of : view ? f->items[0] : operands[i]);
    }
    return over;
}

/* One more item of an iterator without an end. */
static bool
add_endless(rec *r, rec_virtual *f)
{
    enum { MOST = 5000 };
    kin_vid item = f->n > 0 && f->n < MOST && f->endless == CYCLES ? f->items[f->n - f->period] : 0;
    if (f->endless == COUNTS && f->n < MOST) {
        PyObject *sum = f->n > 0 ? PyNumber_Add(O(r, f->items[f->n - 1]), O(r, f->of)) : NULL; /* both are constant */
        item = sum != NULL ? rec_const(r, sum) : 0;
        Py_XDECREF(sum);
        PyErr_Clear();
    }
    return item != 0 && rec_virtual_push(f, item);
}

/* An iterator that was asked at its end gives nothing ever after, also where its container grows. Others may ask it again. */
static bool
end_is_noticed(rec *r, kin_vid it, const rec_virtual *f)
{
    bool changes = f->of != 0 || (f->over & ~REC_OVER_FIXED) != 0;
    return changes && !f->given && (O(r, it) == NULL || kin_reference_count(O(r, it)) > 1);
}

bool
rec_next_item(rec *r, kin_vid it, kin_vid *item)
{
    rec_virtual *f = VIRTUAL(r, it);
    *item = 0;
    if (f->pos >= f->n && f->endless == ENDS) {
        if (end_is_noticed(r, it, f))
            rec_step(r, KIN_STEP_NEXT, KIN_STEP_MUTATES, &it, 1);
        return true;
    }
    if (f->pos >= f->n && !add_endless(r, f))
        return false;
    *item = f->items[f->pos++];
    rec_step(r, KIN_STEP_NEXT, KIN_STEP_MUTATES, &it, 1);
    return true;
}

/* -- iter() ---------------------------------------------------------------------------------------------------------------- */

/* Rows of a tensor: x.unbind(0), then one item each. */
bool
rec_tensor_rows(rec *r, kin_vid vid, kin_vid **items, uint32_t *n, kin_vid *tuple)
{
    PyObject *obj = O(r, vid);
    if (!kin_is_plain_strided(obj) || kin_foreign_modes() || kin_tensor_dim(obj) < 1 || kin_tensor_sizes(obj)[0] > 2000)
        return false;
    rec_need_type(r, vid);
    if (!rec_meta(r, vid, KIN_META_SIZES))
        return false;
    if (rec_dynamic_dims(r, vid) & 1 && r->info.at[vid].unbacked) { /* a number like others that data decides */
        kin_vid rows = rec_size(r, vid, 0);
        rec_check(r, KIN_CHECK_EQ, rows, O(r, rows), 0);
    } else if (rec_dynamic_dims(r, vid) & 1) { /* as many as there are now; other numbers are other side traces */
        PyObject *record = rec_size_record(r, vid, KIN_META_SIZES, rec_dynamic_dims(r, vid) & ~UINT64_C(1));
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
    if (obj != NULL && VIRTUAL(r, *vid) == NULL) {
        if (kin_is_tensor(obj)) {
            r->skip_expected = true; /* Tensor.__iter__ */
            return rec_tensor_rows(r, *vid, items, n, vid);
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
    bool tensor = VIRTUAL(r, vid) == NULL && kin_is_tensor(obj);
    if (rec_has_open_rows(r, vid) || !rec_iterated(r, &vid, &items, &n))
        return false;
    kin_vid out = rec_step_out(r, KIN_STEP_ITER, KIN_STEP_PURE, &vid, 1);
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_ITER, items, n, true);
    if (f != NULL && !tensor && !PyTuple_Check(obj) && !PyUnicode_Check(obj)) {
        f->of = VIRTUAL(r, vid) && VIRTUAL(r, vid)->kind == VIRTUAL_VIEW ? VIRTUAL(r, vid)->items[0] : vid;
        if (kin_vec_push(&r->iters, out) != KIN_OK)
            r->status = KIN_NOMEM;
    }
    free(items);
    rec_drop(r, ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* The numbers that a range goes by are checked. False: it is none, or data decides them. */
static bool
pin_range(rec *r, kin_vid range)
{
    static const char *const names[] = {"start", "stop", "step"};
    PyObject *obj = O(r, range);
    if (obj == NULL || Py_TYPE(obj) != &PyRange_Type || rec_is_const(r, range) || rec_data_of(r, range) != REC_NO_DATA)
        return false;
    rec_need_type(r, range);
    for (int i = 0; i < 3; i++) {
        PyObject *name = PyUnicode_InternFromString(names[i]), *number = name != NULL ? PyObject_GetAttr(obj, name) : NULL;
        kin_vid vid = number != NULL ? rec_step_out(r, KIN_STEP_GETATTR, 0, &range, 1) : 0;
        if (vid != 0) {
            r->t->steps.at[r->t->vals.at[vid].step].ref = rec_ref(r, name);
            rec_set_obj(r, vid, number);
            rec_check(r, KIN_CHECK_EQ, vid, number, 0);
        }
        Py_XDECREF(name);
        Py_XDECREF(number);
        if (vid == 0) {
            PyErr_Clear();
            return false;
        }
    }
    return true;
}

static bool
push_range_iter(rec *r, kin_vid vid, int ndrop, bool pinned)
{
    PyObject *obj = O(r, vid);
    kin_vid *items;
    uint32_t n;
    if (Py_TYPE(obj) != &PyRange_Type || (!pinned && !rec_is_const(r, vid)) || !range_items(r, obj, &items, &n))
        return false;
    kin_vid out = rec_step_out(r, KIN_STEP_ITER, KIN_STEP_PURE, &vid, 1);
    rec_make_virtual(r, out, VIRTUAL_ITER, items, n, true);
    free(items);
    rec_drop(r, ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

bool
rec_iter_of(rec *r, kin_vid vid, int ndrop)
{
    PyObject *obj = O(r, vid);
    rec_virtual *f = VIRTUAL(r, vid);
    if ((f != NULL && (f->kind == VIRTUAL_ITER || f->kind == VIRTUAL_LAZY)) || PyGen_CheckExact(obj)) {
        rec_drop(r, ndrop);
        rec_push(r, vid);
        return true;
    }
    return push_range_iter(r, vid, ndrop, false) || push_known_iter(r, vid, ndrop);
}

bool
rec_iter_of_pinned(rec *r, kin_vid range, int ndrop)
{
    return pin_range(r, range) && push_range_iter(r, range, ndrop, true);
}

/* In a side trace, what the steps before it made is read by path like any object: a change ends what was read. */
void
rec_end_if_read(rec *r, kin_vid changed)
{
    if (VIRTUAL(r, changed) == NULL)
        rec_end_epoch(r);
}
