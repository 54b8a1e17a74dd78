/* Subscripts: items of known contents and of objects read by path, the program's __getitem__ and __class_getitem__, and stores of items. */
#include "core/diag/breaks.h"
#include "py/compat/heap.h"
#include "py/compat/kinds.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

kin_vid
rec_known_item(rec *r, kin_vid container, kin_vid key)
{
    PyObject *obj = O(r, container), *k = O(r, key);
    rec_virtual *f = VIRTUAL(r, container);
    if (!kin_is_exact_key(k) || !rec_can_const(r, key))
        return 0;
    if (f != NULL && f->known && PyLong_CheckExact(k) &&
        (f->kind == VIRTUAL_TUPLE || f->kind == VIRTUAL_LIST || rec_named_items(r, container) != NULL)) {
        Py_ssize_t i = PyLong_AsSsize_t(k);
        if (i < 0)
            i += f->n;
        if (i < 0 || i >= (Py_ssize_t)f->n)
            return 0;
        rec_need_const(r, key);
        return f->items[i];
    }
    rec_virtual *pairs = rec_asked_dict(r, container, REC_STR("__getitem__"));
    if (pairs != NULL && rec_is_pair_key(k)) {
        rec_need_const(r, key);
        kin_vid *found = rec_pairs_find(r, pairs, k);
        return found ? *found : 0;
    }
    if (f != NULL)
        return 0;
    bool list = PyList_CheckExact(obj), tuple = PyTuple_CheckExact(obj);
    if ((list || tuple) && PyLong_CheckExact(k)) {
        Py_ssize_t n = list ? PyList_GET_SIZE(obj) : PyTuple_GET_SIZE(obj), i = PyLong_AsSsize_t(k);
        bool negative = i < 0;
        if (negative)
            i += n;
        if (i >= n && r->region != NULL && !rec_is_dynamic(r, container)) { /* the end that an iteration by index finds */
            rec_root(r, container);
            rec_need_type(r, container);
            rec_need_len(r, container, n);
        }
        if (i < 0 || i >= n || (list && negative && r->info.at[container].made && rec_is_in_loop(r))) /* states[-1]: it grows by the round */
            return 0;
        rec_need_const(r, key);
        if (tuple ? rec_is_graph_tuple(r, container) : rec_data_of(r, container) == REC_DATA_IN_GRAPH && rec_is_list_of_numbers(obj))
            return rec_graph_item(r, container, i);
        rec_root(r, container);
        rec_need_type(r, container);
        if (negative)
            rec_need_len(r, container, n);
        return list ? rec_src(r, container, KIN_ACCESS_LIST_ITEM, (uint32_t)i, PyList_GET_ITEM(obj, i))
                    : rec_src(r, container, KIN_ACCESS_TUPLE_ITEM, (uint32_t)i, PyTuple_GET_ITEM(obj, i));
    }
    if (PyDict_CheckExact(obj)) {
        PyObject *value = kin_exact_item(obj, k);
        if (value == NULL)
            return 0;
        kin_vid c = rec_need_const(r, key);
        rec_root(r, container);
        return rec_dict_item(r, container, O(r, c), value);
    }
    return 0;
}

static kin_vid
slice_size(rec *r, const kin_vid *items, Py_ssize_t start, Py_ssize_t step, Py_ssize_t len)
{
    kin_vid part[64]; /* a tensor has no more */
    for (Py_ssize_t i = 0; i < len && i < 64; i++)
        part[i] = items[start + i * step];
    return rec_build_size(r, part, (uint32_t)(len < 64 ? len : 64));
}

/* A slice with constant bounds of a known list or tuple. That of a named tuple is a new plain one. */
static bool
slice_known(rec *r, kin_vid container, kin_vid key)
{
    PyObject *k = O(r, key), *obj = O(r, container);
    PyTypeObject *tp = Py_TYPE(obj);
    bool size = kin_is_size_type(tp) && VIRTUAL(r, container) != NULL;
    bool named = PyTuple_Check(obj) && tp != &PyTuple_Type && !kin_is_size_type(tp) && rec_reads_as_tuple(tp);
    if (!PySlice_Check(k) || !rec_is_const(r, key) || (tp != &PyTuple_Type && tp != &PyList_Type && !size && !named))
        return false;
    kin_vid *items = NULL;
    uint32_t n;
    Py_ssize_t start, stop, step;
    if (!rec_items_of(r, container, &items, &n) || (size && n > 64) || PySlice_Unpack(k, &start, &stop, &step) < 0) {
        PyErr_Clear();
        free(items);
        return false;
    }
    Py_ssize_t len = PySlice_AdjustIndices(n, &start, &stop, step);
    kin_vid args[2] = {container, key};
    if (size) {
        kin_vid part = slice_size(r, items, start, step, len);
        free(items);
        rec_drop(r, 2);
        rec_await_result(r, part, r->t->vals.at[part].step);
        return true;
    }
    kin_vid *part = malloc(((size_t)len + 1) * sizeof *part);
    if (part == NULL) {
        free(items);
        return false;
    }
    for (Py_ssize_t i = 0; i < len; i++)
        part[i] = items[start + i * step];
    if (named && VIRTUAL(r, container) == NULL)
        rec_need_version(r, container);
    kin_vid out = tp == &PyTuple_Type ? rec_step_out(r, KIN_STEP_SUBSCR, KIN_STEP_PURE, args, 2)
                                      : rec_step_out(r, named ? KIN_STEP_BUILD_TUPLE : KIN_STEP_BUILD_LIST, KIN_STEP_PURE, part, (uint32_t)len);
    rec_make_virtual(r, out, tp == &PyList_Type ? VIRTUAL_LIST : VIRTUAL_TUPLE, part, (uint32_t)len, true);
    free(part);
    r->info.at[out].type = named ? &PyTuple_Type : tp;
    free(items);
    rec_drop(r, 2);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

static bool
subscr_python(rec *r, kin_vid container, kin_vid key)
{
    PyTypeObject *tp = Py_TYPE(O(r, container));
    if (!(tp->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return false;
    PyObject *get = _PyType_Lookup(tp, REC_STR("__getitem__"));
    if (get == NULL || !PyFunction_Check(get) || !rec_can_inline(r, get))
        return false;
    rec_need_attrs(r, container);
    rec_lookup(r, tp, REC_STR("__getitem__"));
    kin_vid args[2] = {container, key};
    return rec_inline(r, &(rec_args){.callee = rec_found(r, tp, REC_STR("__getitem__"), get), .args = args, .npos = 2, .ndrop = 2}, NULL, 0, KIN_RESUME_PUSH, 0);
}

/* An element of a named tuple, such as what torch.max returns: part of the graph if the tuple is. */
static bool
subscr_tuple(rec *r, kin_vid container, kin_vid key)
{
    PyObject *obj = O(r, container);
    PyTypeObject *tp = Py_TYPE(obj);
    if (!PyTuple_Check(obj) || tp == &PyTuple_Type || VIRTUAL(r, container) != NULL || !PyLong_CheckExact(O(r, key)) ||
        tp->tp_as_mapping->mp_subscript != PyTuple_Type.tp_as_mapping->mp_subscript)
        return false;
    rec_need_version(r, container);
    if (!rec_is_const(r, key))
        rec_need_type(r, key);
    kin_vid args[2] = {container, key};
    kin_vid out = rec_step_out(r, KIN_STEP_SUBSCR, r->info.at[container].graph ? KIN_STEP_TORCH : 0, args, 2);
    rec_drop(r, 2);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* list[int]: a class made by C gives an alias, and asks nobody. */
static bool
subscr_class(rec *r, const kin_vid *args)
{
    PyObject *cls = O(r, args[0]);
    if (Py_TYPE(cls) != &PyType_Type || !kin_heap_type_is_static((PyTypeObject *)cls) || rec_need_const(r, args[0]) == 0)
        return false;
    PyObject *get = _PyType_Lookup((PyTypeObject *)cls, REC_STR("__class_getitem__"));
    if (get == NULL || Py_TYPE(get) != &PyClassMethodDescr_Type)
        return false;
    kin_vid out = rec_step_out(r, KIN_STEP_SUBSCR, KIN_STEP_PURE, args, 2);
    rec_drop(r, 2);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

static bool
is_in_module(PyTypeObject *tp, const char *name)
{
    PyObject *module = tp->tp_flags & Py_TPFLAGS_HEAPTYPE ? PyDict_GetItemString(kin_type_dict(tp), "__module__") : NULL;
    return kin_text_is(module, name);
}

/* Is it made by module typing, or a class that leaves hashing to type, or a list or tuple of such? */
static bool
names_types(rec *r, kin_vid vid, int depth)
{
    rec_virtual *f = VIRTUAL(r, vid);
    PyObject *obj = O(r, vid);
    bool ok = depth < 4 && obj != NULL;
    if (ok && f != NULL) {
        ok = f->known && (f->kind == VIRTUAL_LIST || f->kind == VIRTUAL_TUPLE);
        for (uint32_t i = 0; ok && i < f->n; i++)
            ok = names_types(r, f->items[i], depth + 1);
        return ok;
    }
    if (ok && is_in_module(Py_TYPE(obj), "typing"))
        return rec_need_version(r, vid) != NULL;
    return ok && rec_can_const(r, vid) && rec_need_const(r, vid) != 0 &&
           (obj == Py_None || obj == Py_Ellipsis || PyUnicode_CheckExact(obj) || (PyType_Check(obj) && Py_TYPE(obj)->tp_hash == PyType_Type.tp_hash));
}

/* Callable[[int], T], Optional[Tensor], with what typing and collections.abc have: their code makes an object that says so, as a rule for
 * an annotation. */
static bool
subscr_typing(rec *r, const kin_vid *args)
{
    PyObject *of = O(r, args[0]);
    bool alias = of != NULL && (PyType_Check(of) ? is_in_module((PyTypeObject *)of, "collections.abc") : is_in_module(Py_TYPE(of), "typing"));
    if (VIRTUAL(r, args[0]) != NULL || !alias || !names_types(r, args[0], 0) || !names_types(r, args[1], 0))
        return false;
    kin_vid out = rec_step_out(r, KIN_STEP_SUBSCR, KIN_STEP_PURE, args, 2);
    rec_drop(r, 2);
    rec_await_result(r, out, r->t->vals.at[out].step);
    r->skip_expected = true;
    return true;
}

/* A key that an instance of the program's dict class, made here, does not have: dict asks the class's __missing__. */
static bool
subscr_absent(rec *r, kin_vid container, kin_vid key)
{
    const rec_virtual *f = VIRTUAL(r, container), *pairs = NULL;
    if (f != NULL && f->kind == VIRTUAL_OBJECT && f->of != 0 && rec_is_known_key(r, key))
        pairs = rec_asked_dict(r, container, REC_STR("__getitem__"));
    if (pairs == NULL || rec_pairs_find(r, pairs, O(r, key)) != NULL)
        return false;
    PyTypeObject *tp = rec_need_attrs(r, container);
    PyObject *func = rec_lookup(r, tp, REC_STR("__missing__"));
    if (func == NULL || !PyFunction_Check(func) || !rec_can_inline(r, func))
        return false;
    const kin_vid args[2] = {container, rec_need_const(r, key)};
    return rec_inline(r, &(rec_args){.callee = rec_found(r, tp, REC_STR("__missing__"), func), .args = args, .npos = 2, .ndrop = 2}, NULL, 0, KIN_RESUME_PUSH, 0);
}

void
rec_op_subscr(rec *r)
{
    kin_vid args[2] = {rec_peek(r, 1), rec_peek(r, 0)};
    if (rec_has_tensor(r, args, 1) && rec_inline_override(r, &(rec_args){.args = args, .npos = 2, .ndrop = 2}, NULL, 0, KIN_RESUME_OVERRIDE))
        return;
    if (rec_has_tensor(r, args, 1)) {
        rec_torch_operator(r, KIN_STEP_SUBSCR, 0, args, 2, 2);
        return;
    }
    kin_vid item = rec_known_item(r, args[0], args[1]);
    if (item != 0) {
        bool known = O(r, item) != NULL;
        rec_drop(r, 2);
        if (known)
            rec_push(r, item);
        else
            rec_await_result(r, item, 0);
        return;
    }
    if (slice_known(r, args[0], args[1]))
        return;
    if (rec_can_fold(r, args[0]) && rec_can_fold(r, args[1]) && rec_is_plain_value(O(r, args[0])) &&
        !PyType_Check(O(r, args[0]))) {
        rec_need_const(r, args[0]);
        rec_need_const(r, args[1]);
        rec_drop(r, 2);
        rec_await_const(r);
        return;
    }
    if (rec_subscr_missing(r, args[0], args[1]) || subscr_absent(r, args[0], args[1]) || subscr_typing(r, args) || subscr_python(r, args[0], args[1]) ||
        subscr_tuple(r, args[0], args[1]) || subscr_class(r, args) || rec_keyed_item(r, args))
        return;
    rec_operator_step(r, KIN_STEP_SUBSCR, 0, args, 2, NULL);
}

/* Who gets hold of a container whose contents are not known gets hold of the value. */
static void
keep_reachable(rec *r, rec_virtual *f, kin_vid value)
{
    if (value != 0 && !rec_virtual_push(f, value))
        r->status = KIN_NOMEM;
}

static void
update_virtual(rec *r, rec_virtual *f, kin_vid key, kin_vid value, bool delete)
{
    PyObject *k = O(r, key);
    if (!f->known) {
        keep_reachable(r, f, value);
        return;
    }
    if (f->kind == VIRTUAL_DICT && rec_is_pair_key(k) && rec_is_const(r, key)) {
        if (delete)
            rec_pairs_drop(r, f, k);
        else
            rec_pairs_put(r, f, rec_as_const(r, key), value);
        return;
    }
    if (f->kind == VIRTUAL_LIST && !delete && PyLong_CheckExact(k) && rec_is_const(r, key)) {
        Py_ssize_t i = PyLong_AsSsize_t(k);
        i += i < 0 ? (Py_ssize_t)f->n : 0;
        if (i >= 0 && i < (Py_ssize_t)f->n) {
            f->items[i] = value;
            return;
        }
    }
    f->known = false;
    keep_reachable(r, f, value);
}

/* Where container[key] = value puts it: of an older dict or list, under a constant key. */
static bool
item_place(rec *r, kin_vid container, kin_vid key, bool delete, rec_place *p)
{
    PyObject *obj = O(r, container), *k = O(r, key);
    if (!rec_is_const(r, key) || (!PyDict_CheckExact(obj) && (!PyList_CheckExact(obj) || !PyLong_CheckExact(k) || delete)))
        return false;
    *p = (rec_place){.kind = PyDict_CheckExact(obj) ? KIN_PLACE_ITEM : KIN_PLACE_INDEX_OF_LIST, .base = container};
    if (p->kind == KIN_PLACE_ITEM) {
        p->key = k;
        return true;
    }
    Py_ssize_t i = PyLong_AsSsize_t(k), n = PyList_GET_SIZE(obj);
    PyErr_Clear();
    if (i < -n || i >= n || n > KIN_PLACE_INDEX)
        return false;
    if (i < 0)
        rec_need_len(r, container, n);
    p->index = (uint32_t)(i < 0 ? i + n : i);
    return true;
}

/* d[key] = value of a dict made here whose class does not say how. */
static bool
store_in_own_dict(rec *r, const kin_vid *args, bool delete)
{
    if (delete || rec_own_mapping(r, args[0]) == NULL || !rec_is_known_key(r, args[1]))
        return false;
    PyTypeObject *tp = Py_TYPE(O(r, args[0]));
    bool plain = tp->tp_as_mapping->mp_ass_subscript == rec_dict_base(tp)->tp_as_mapping->mp_ass_subscript;
    if (!plain && rec_asked_dict(r, args[0], REC_STR("__setitem__")) == NULL) /* it may have a __delitem__ of its own, as a Counter has */
        return false;
    rec_need_type(r, args[0]);
    rec_put_in_own_dict(r, args[0], (kin_vid[]){rec_need_const(r, args[1]), args[2]}, 2);
    return true;
}

void
rec_op_store_subscr(rec *r, bool delete)
{
    kin_vid key = rec_peek(r, 0), container = rec_peek(r, 1), value = delete ? 0 : rec_peek(r, 2);
    kin_vid args[3] = {container, key, value};
    int n = delete ? 2 : 3;
    kin_step_kind kind = delete ? KIN_STEP_DEL_SUBSCR : KIN_STEP_SET_SUBSCR;
    if (rec_has_tensor(r, args, 1) && !delete && rec_inline_override(r, &(rec_args){.args = args, .npos = 3, .ndrop = 3}, NULL, 0, KIN_RESUME_DROP))
        return;
    if (rec_has_tensor(r, args, 1) && !delete) {
        rec_torch_operator(r, kind, 0, args, 3, 3);
        r->inplace = true;
        return;
    }
    PyTypeObject *tp = Py_TYPE(O(r, container));
    PyObject *set = tp->tp_flags & Py_TPFLAGS_HEAPTYPE && !delete ? _PyType_Lookup(tp, REC_STR("__setitem__")) : NULL;
    if (set != NULL && PyFunction_Check(set) && rec_can_inline(r, set)) {
        rec_need_attrs(r, container);
        rec_lookup(r, tp, REC_STR("__setitem__"));
        if (rec_inline(r, &(rec_args){.callee = rec_found(r, tp, REC_STR("__setitem__"), set), .args = args, .npos = 3, .ndrop = 3}, NULL, 0, KIN_RESUME_DROP, 0))
            return;
    }
    if (store_in_own_dict(r, args, delete)) {
        rec_drop(r, n);
        return;
    }
    rec_virtual *f = VIRTUAL(r, container);
    PyObject *k = O(r, key);
    bool hashes = kin_is_exact_immutable(k) || kin_is_enum_class(Py_TYPE(k));
    if (f != NULL && rec_can_const(r, key) && hashes)
        rec_need_const(r, key);
    if (rec_list_store(r, container, key, value)) {
        rec_drop(r, n);
        return;
    }
    bool made = rec_exact_dict(r, container) != NULL; /* a defaultdict, too, takes what it is given */
    bool plays = f == NULL && rec_plays_builtin(O(r, container)) && !PySlice_Check(k);
    bool plain = (made || plays || rec_is_plain_value(O(r, container))) && hashes;
    if (plain && f == NULL) {
        if (plays)
            rec_need_played(r, container);
        else
            rec_need_type(r, container);
        if (!rec_is_const(r, key))
            rec_need_type(r, key);
    }
    bool virtual = f != NULL && (f->kind == VIRTUAL_DICT || f->kind == VIRTUAL_LIST || f->kind == VIRTUAL_OTHER) && plain;
    unsigned flags = virtual && !PySlice_Check(k) ? KIN_STEP_MUTATES /* a slice looks at what it is given */ : plain ? KIN_STEP_EFFECT : KIN_STEP_OPAQUE | KIN_STEP_EFFECT;
    rec_place place;
    bool followed = plain && f == NULL && item_place(r, container, key, delete, &place) && rec_begin_write(r, &place);
    r->may_wait = !delete;
    rec_step(r, kind, flags, args, (uint32_t)n);
    r->may_wait = false;
    if (virtual) {
        update_virtual(r, f, key, value, delete);
        rec_changed(r, container);
    } else if (followed) {
        rec_end_write(r, &place, value);
    } else {
        rec_forget_contents(r);
        r->skip_expected = !plain;
    }
    rec_drop(r, n);
}

/* -- container[from:to], from 3.12 on in one instruction ------------------------------------------------------------------ */

/* A slice in place of the two operands on top. Nobody gets hold of it before the instruction is over. */
static void
push_slice(rec *r)
{
    kin_vid ends[2] = {rec_peek(r, 1), rec_peek(r, 0)}, slice = 0;
    PyObject *obj = PySlice_New(O(r, ends[0]), O(r, ends[1]), NULL);
    if (obj == NULL) {
        PyErr_Clear();
        r->status = KIN_NOMEM;
        return;
    }
    rec_snapshot(r);
    bool known = true;
    for (int i = 0; i < 2; i++)
        known = known && kin_is_exact_immutable(O(r, ends[i])) && rec_can_const(r, ends[i]);
    if (known) {
        rec_need_const(r, ends[0]);
        rec_need_const(r, ends[1]);
        slice = rec_const(r, obj);
    } else {
        slice = rec_step_out(r, KIN_STEP_BUILD_SLICE, KIN_STEP_PURE, ends, 2);
        rec_make_virtual(r, slice, VIRTUAL_SLICE, ends, 2, true);
        r->info.at[slice].type = &PySlice_Type;
        rec_ref(r, obj); /* as long as the recording */
        rec_set_obj(r, slice, obj);
    }
    Py_DECREF(obj);
    rec_drop(r, 2);
    rec_push(r, slice);
}

void
rec_op_load_slice(rec *r)
{
    push_slice(r);
    if (r->status == KIN_OK)
        rec_op_subscr(r);
}

void
rec_op_store_slice(rec *r)
{
    push_slice(r);
    if (r->status == KIN_OK)
        rec_op_store_subscr(r, false);
}
