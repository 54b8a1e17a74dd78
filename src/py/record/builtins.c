/* Models of C callables: what they do to shadows, so that they need no step, a quiet step, or a change of a fresh
 * object. Found by identity of the callable (rule 89). A callable without a model is opaque.
 */
#include "py/record/rec.h"

#include "core/diag/breaks.h"
#include "py/record/models.h"

typedef bool (*model_fn)(rec *r, const rec_args *a);

typedef struct {
    const char *name; /* "len", "dict.get", "math.sqrt" */
    model_fn fn;
} model_row;

/* -- helpers ------------------------------------------------------------------------------------------------------------ */

bool
rec_model_value(rec *r, const rec_args *a, kin_vid value)
{
    rec_drop(r, a->ndrop);
    if (O(r, value) != NULL)
        rec_push(r, value);
    else
        rec_await_result(r, value, 0);
    return true;
}

bool
rec_model_bool(rec *r, const rec_args *a, bool value)
{
    return rec_model_value(r, a, rec_const(r, value ? Py_True : Py_False));
}

/* Leaves the call as a step that runs no Python code. */
kin_vid
rec_model_step(rec *r, const rec_args *a, unsigned flags)
{
    kin_vid all[256];
    all[0] = a->callee;
    memcpy(all + 1, a->args, (a->npos + a->nkw) * sizeof *all);
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, flags, all, a->npos + a->nkw + 1);
    uint32_t s = r->t->vals.at[out].step;
    kin_ref ref = a->nkw ? rec_ref(r, a->kwnames) : 0;
    r->t->steps.at[s].ref = ref;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, s);
    return out;
}

/* A call that stores `value` into its first argument, at the place if one is given, and does nothing else. */
void
rec_model_store(rec *r, const rec_args *a, kin_vid value, rec_place *place)
{
    rec_fresh *f = FRESH(r, a->args[0]);
    bool inside = f != NULL && !f->escaped, followed = f == NULL && place != NULL && rec_begin_write(r, place);
    r->keep_inside = inside;
    rec_model_step(r, a, KIN_STEP_EFFECT);
    r->keep_inside = false;
    if (inside) {
        if (f->kind != FRESH_OBJECT || !f->known) { /* reachable through it from now on */
            if (!rec_fresh_push(f, value))
                r->status = KIN_NOMEM;
        }
    } else if (f != NULL) {
        rec_changed(r, a->args[0]);
    } else if (followed) {
        rec_end_write(r, place, value);
    } else {
        rec_forget_contents(r);
    }
}

static bool
all_const(rec *r, const rec_args *a)
{
    for (uint32_t i = 0; i < a->npos + a->nkw; i++)
        if (!rec_can_const(r, a->args[i]) || !rec_is_value(O(r, a->args[i])))
            return false;
    for (uint32_t i = 0; i < a->npos + a->nkw; i++)
        rec_need_const(r, a->args[i]);
    return true;
}

/* Pure on constants; else asked again at replay when every operand is a builtin value. Tensors in a container are
 * computed with (sum, max): not asked. */
bool
rec_model_pure(rec *r, const rec_args *a)
{
    if (all_const(r, a)) {
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    if (rec_any_tensor(r, a->args, a->npos + a->nkw))
        return false;
    for (uint32_t i = 0; i < a->npos + a->nkw; i++) {
        if (!rec_is_plain_value(O(r, a->args[i])) || !rec_need_quiet(r, a->args[i], true))
            return false;
        if (FRESH(r, a->args[i]) == NULL)
            rec_need_type(r, a->args[i]);
    }
    rec_model_step(r, a, 0);
    return true;
}

/* abs() and pow() of plain tensors: an operator of theirs, part of the graph. */
static bool
model_number(rec *r, const rec_args *a)
{
    bool tensor = false, plain = a->nkw == 0;
    for (uint32_t i = 0; plain && i < a->npos; i++) {
        PyObject *obj = O(r, a->args[i]);
        tensor = tensor || kin_is_tensor(obj);
        plain = kin_is_tensor(obj) ? kin_is_plain_tensor(obj) : rec_can_const(r, a->args[i]) && rec_is_value(obj);
    }
    if (!tensor || !plain)
        return rec_model_pure(r, a);
    for (uint32_t i = 0; i < a->npos; i++)
        if (kin_is_tensor(O(r, a->args[i])))
            rec_need_type(r, a->args[i]);
        else
            rec_need_const(r, a->args[i]);
    rec_model_step(r, a, KIN_STEP_TORCH);
    r->skip_expected = true;
    return true;
}

/* Like rec_model_pure, but the result is a new mutable object each time. */
static bool
model_fresh(rec *r, const rec_args *a)
{
    if (!all_const(r, a))
        return false;
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_fresh(r, out, FRESH_OTHER, NULL, 0, false);
    return true;
}

/* -- types ------------------------------------------------------------------------------------------------------------------ */

enum { CHECK_PLAIN, CHECK_ABC, CHECK_TORCH, CHECK_OWN };

static int
instance_check_kind(PyTypeObject *cls)
{
    PyTypeObject *meta = Py_TYPE(cls);
    PyObject *own = _PyType_Lookup(meta, REC_STR("__instancecheck__"));
    if (own == NULL || !PyFunction_Check(own))
        return CHECK_PLAIN;
    const char *name = meta->tp_name;
    if (strcmp(name, "ABCMeta") == 0)
        return CHECK_ABC;
    PyObject *mod = ((PyFunctionObject *)own)->func_module;
    const char *text = mod && PyUnicode_Check(mod) ? PyUnicode_AsUTF8(mod) : "";
    if (strcmp(text, "abc") == 0)
        return CHECK_ABC;
    return strncmp(text, "torch.", 6) == 0 ? CHECK_TORCH : CHECK_OWN;
}

/* The metaclass answers isinstance and issubclass: which one it is, and that it gains no answer of its own. */
void
rec_need_metaclass(rec *r, PyTypeObject *cls)
{
    PyTypeObject *meta = Py_TYPE(cls);
    if (meta->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)
        return;
    rec_fact(r, KIN_FACT_TYPE, rec_const(r, (PyObject *)cls), (PyObject *)meta, 0);
    rec_class_version(r, meta);
}

/* Registration with an ABC changes answers: its token is a fact. */
void
rec_abc_fact(rec *r)
{
    static PyObject *token;
    if (token == NULL) {
        PyObject *abc = PyImport_ImportModule("abc");
        token = abc ? PyObject_GetAttrString(abc, "get_cache_token") : NULL;
        Py_XDECREF(abc);
    }
    PyObject *value = token ? PyObject_CallNoArgs(token) : NULL;
    uint32_t *seen = rec_map_at(r->facts_seen, rec_seg(r), 0xABC, 0, 0);
    PyObject *fact = value && seen && *seen == 0 ? PyTuple_Pack(2, token, value) : NULL;
    if (fact != NULL) {
        rec_fact(r, KIN_FACT_CALL_IS, 0, fact, 0);
        *seen = 1;
    }
    Py_XDECREF(fact);
    Py_XDECREF(value);
    PyErr_Clear();
}

/* Collects classes from a class, a tuple of them or a union; false when one has a check of its own. */
static bool
collect_classes(rec *r, kin_vid vid, PyObject **list, int *n)
{
    PyObject *obj = O(r, vid);
    rec_fresh *f = FRESH(r, vid);
    if (PyType_Check(obj)) {
        if (*n >= 32 || instance_check_kind((PyTypeObject *)obj) == CHECK_OWN || rec_need_const(r, vid) == 0)
            return false;
        list[(*n)++] = obj;
        return true;
    }
    if (!PyTuple_CheckExact(obj) && f == NULL)
        return false;
    kin_vid *items = NULL;
    uint32_t count;
    bool ok = rec_items_of(r, vid, &items, &count);
    for (uint32_t i = 0; ok && i < count; i++)
        ok = collect_classes(r, items[i], list, n);
    free(items);
    return ok;
}

static bool
model_isinstance(rec *r, const rec_args *a)
{
    PyObject *classes[32];
    int n = 0, answer = 0;
    if (a->npos != 2 || a->nkw)
        return false;
    PyObject *obj = O(r, a->args[0]);
    PyObject *cls = _PyType_Lookup(Py_TYPE(obj), REC_STR("__class__"));
    if (cls == NULL || Py_TYPE(cls) != &PyGetSetDescr_Type || !collect_classes(r, a->args[1], classes, &n))
        return false;
    PyTypeObject *tp = rec_need_attrs(r, a->args[0]);
    rec_lookup(r, tp, REC_STR("__class__"));
    rec_bases_of(r, tp);
    for (int i = 0; i < n; i++) {
        int kind = instance_check_kind((PyTypeObject *)classes[i]);
        if (kind == CHECK_TORCH && kin_is_tensor(obj) && !kin_is_plain_tensor(obj))
            return false;
        rec_need_metaclass(r, (PyTypeObject *)classes[i]);
        if (kind == CHECK_ABC)
            rec_abc_fact(r);
    }
    for (int i = 0; i < n && !answer; i++)
        answer = PyObject_IsInstance(obj, classes[i]);
    if (answer < 0) {
        PyErr_Clear();
        return false;
    }
    r->skip_expected = true;
    return rec_model_bool(r, a, answer);
}

static bool
model_issubclass(rec *r, const rec_args *a)
{
    PyObject *classes[32];
    int n = 0, answer = 0;
    if (a->npos != 2 || a->nkw || !PyType_Check(O(r, a->args[0])) || rec_need_const(r, a->args[0]) == 0 ||
        !collect_classes(r, a->args[1], classes, &n))
        return false;
    rec_class_version(r, (PyTypeObject *)O(r, a->args[0]));
    rec_abc_fact(r);
    for (int i = 0; i < n; i++)
        rec_need_metaclass(r, (PyTypeObject *)classes[i]);
    for (int i = 0; i < n && !answer; i++)
        answer = PyObject_IsSubclass(O(r, a->args[0]), classes[i]);
    if (answer < 0) {
        PyErr_Clear();
        return false;
    }
    r->skip_expected = true;
    return rec_model_bool(r, a, answer);
}

static bool
model_type(rec *r, const rec_args *a)
{
    if (a->npos != 1 || a->nkw)
        return false;
    return rec_model_value(r, a, rec_const(r, (PyObject *)rec_need_type(r, a->args[0])));
}

/* str() of a class whose metaclass leaves it to type: asked again, since names of classes can change. */
static bool
model_str(rec *r, const rec_args *a)
{
    PyObject *obj = a->npos == 1 && a->nkw == 0 ? O(r, a->args[0]) : NULL;
    if (obj == NULL || !PyType_Check(obj) || Py_TYPE(obj)->tp_repr != PyType_Type.tp_repr ||
        Py_TYPE(obj)->tp_str != PyType_Type.tp_str || rec_need_const(r, a->args[0]) == 0)
        return rec_model_pure(r, a);
    rec_model_step(r, a, 0);
    return true;
}

static bool
model_callable(rec *r, const rec_args *a)
{
    if (a->npos != 1)
        return false;
    PyTypeObject *tp = rec_need_attrs(r, a->args[0]);
    rec_lookup(r, tp, REC_STR("__call__"));
    return rec_model_bool(r, a, tp->tp_call != NULL);
}

/* -- attributes ------------------------------------------------------------------------------------------------------------- */

static bool
push_attribute(rec *r, const rec_args *a, const attr_result *at)
{
    if (at->kind == ATTR_VALUE)
        return rec_model_value(r, a, at->value);
    if (at->kind == ATTR_METHOD) {
        kin_vid parts[2] = {at->value, at->self};
        kin_vid out = rec_step_out(r, KIN_STEP_BUILD_METHOD, KIN_STEP_PURE, parts, 2);
        rec_make_fresh(r, out, FRESH_METHOD, parts, 2, true);
        rec_drop(r, a->ndrop);
        rec_await_result(r, out, r->t->vals.at[out].step);
        return true;
    }
    if (at->kind == ATTR_AWAIT_CONST) {
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    return false;
}

/* Hands the reference over to the recording's table. */
static PyObject *
keep_const(rec *r, PyObject *obj)
{
    kin_vid vid = rec_const(r, obj);
    Py_DECREF(obj);
    return O(r, vid);
}

static bool
get_attribute(rec *r, const rec_args *a, bool generic)
{
    attr_result at;
    PyObject *name = a->npos >= 2 ? O(r, a->args[1]) : NULL;
    if (a->npos < 2 || a->nkw || !PyUnicode_CheckExact(name) || rec_need_const(r, a->args[1]) == 0)
        return false;
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name); /* attribute names are compared by identity in dicts */
    name = keep_const(r, name);
    if (generic)
        rec_attr_generic(r, a->args[0], name, &at);
    else
        rec_attr_find(r, a->args[0], name, &at);
    if (r->stopped || push_attribute(r, a, &at))
        return true;
    if (at.kind == ATTR_ABSENT && a->npos == 3)
        return rec_model_value(r, a, a->args[2]);
    kin_vid extra = at.kind == ATTR_CALL && at.fallback && a->npos == 2 ? rec_fallback(r, a->args[0], name) : 0;
    if (at.kind == ATTR_CALL && a->npos == 2 && at.fallback == (extra != 0) && rec_can_inline(r, O(r, at.func)))
        return rec_inline(r, at.func, at.args, at.nargs, 0, NULL, a->ndrop, NULL, 0,
                          extra ? KIN_RESUME_FALLBACK : KIN_RESUME_PUSH, extra);
    if (at.kind == ATTR_CALL && a->npos == 3 && !at.fallback && rec_can_inline(r, O(r, at.func)))
        return rec_inline(r, at.func, at.args, at.nargs, 0, NULL, a->ndrop, NULL, 0, KIN_RESUME_DEFAULT, a->args[2]);
    if (at.kind == ATTR_STEP && !(at.flags & KIN_STEP_OPAQUE)) {
        rec_model_step(r, a, at.flags);
        return true;
    }
    if (at.kind == ATTR_ABSENT) {
        rec_model_step(r, a, 0); /* raises */
        return true;
    }
    return false;
}

/* vars(obj) */
static bool
model_vars(rec *r, const rec_args *a)
{
    attr_result at;
    if (a->npos != 1 || a->nkw)
        return false;
    rec_attr_find(r, a->args[0], REC_STR("__dict__"), &at);
    return r->stopped || (at.kind == ATTR_VALUE && rec_model_value(r, a, at.value));
}

static bool
model_getattr(rec *r, const rec_args *a)
{
    return get_attribute(r, a, false);
}

/* setattr(obj, "name", value), delattr(obj, "name") */
static bool
model_setattr(rec *r, const rec_args *a)
{
    PyObject *name = a->npos >= 2 ? O(r, a->args[1]) : NULL;
    if (name == NULL || a->npos > 3 || a->nkw || !PyUnicode_CheckExact(name) || PyType_Check(O(r, a->args[0])) ||
        PyModule_Check(O(r, a->args[0])) || rec_need_const(r, a->args[1]) == 0)
        return false;
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    name = keep_const(r, name);
    rec_set_attribute(r, a->args[0], name, a->npos == 3 ? a->args[2] : 0, a->ndrop);
    return true;
}

static bool
model_setattr_three(rec *r, const rec_args *a)
{
    return a->npos == 3 && model_setattr(r, a);
}

static bool
model_delattr(rec *r, const rec_args *a)
{
    return a->npos == 2 && model_setattr(r, a);
}

static bool
model_object_getattribute(rec *r, const rec_args *a)
{
    return get_attribute(r, a, true);
}

static bool
model_hasattr(rec *r, const rec_args *a)
{
    attr_result at;
    PyObject *name = a->npos == 2 ? O(r, a->args[1]) : NULL;
    if (a->npos != 2 || a->nkw || !PyUnicode_CheckExact(name) || rec_need_const(r, a->args[1]) == 0)
        return false;
    rec_attr_find(r, a->args[0], name, &at);
    if (r->stopped)
        return true;
    if (at.kind == ATTR_VALUE || at.kind == ATTR_METHOD || at.kind == ATTR_AWAIT_CONST)
        return rec_model_bool(r, a, true);
    if (at.kind == ATTR_CALL && !at.fallback && rec_can_inline(r, O(r, at.func)))
        return rec_inline(r, at.func, at.args, at.nargs, 0, NULL, a->ndrop, NULL, 0, KIN_RESUME_HASATTR, 0);
    return at.kind == ATTR_ABSENT && rec_model_bool(r, a, false);
}

/* super() and super(cls, self) */
static kin_vid
frame_class(rec *r)
{
    rec_frame *f = r->top;
    for (int i = 0; i < f->nlocals; i++) {
        PyObject *name = PyTuple_GET_ITEM(f->code->co_localsplusnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "__class__") != 0)
            continue;
        PyObject *cell = kin_watch_localsplus(f->f)[i], *cls = cell && PyCell_Check(cell) ? PyCell_GET(cell) : NULL;
        rec_fresh *fresh = FRESH(r, f->slots[i]);
        if (cls == NULL || fresh != NULL)
            return 0;
        rec_root(r, f->slots[i]);
        return rec_need_const(r, rec_src(r, f->slots[i], KIN_ACCESS_CELL, 0, cls));
    }
    return 0;
}

static bool
model_super(rec *r, const rec_args *a)
{
    rec_frame *f = r->top;
    kin_vid cls, self;
    if (a->npos == 0) {
        self = f->slots[0];
        cls = frame_class(r);
        if (self && FRESH(r, self) && FRESH(r, self)->kind == FRESH_CELL && FRESH(r, self)->known)
            self = FRESH(r, self)->items[0];
    } else if (a->npos == 2) {
        cls = rec_need_const(r, a->args[0]);
        self = a->args[1];
    } else {
        return false;
    }
    if (cls == 0 || self == 0 || (FRESH(r, self) && FRESH(r, self)->kind == FRESH_CELL))
        return false;
    kin_vid parts[2] = {cls, self}, call[3] = {a->callee, cls, self};
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, call, 3);
    rec_make_fresh(r, out, FRESH_SUPER, parts, 2, true);
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* object.__init__(self) without arguments does nothing. */
static bool
model_object_init(rec *r, const rec_args *a)
{
    return a->npos == 1 && a->nkw == 0 && rec_model_value(r, a, rec_const(r, Py_None));
}

static bool
model_object_setattr(rec *r, const rec_args *a)
{
    PyObject *name = a->npos == 3 ? O(r, a->args[1]) : NULL;
    if (name == NULL || !PyUnicode_CheckExact(name) || rec_need_const(r, a->args[1]) == 0)
        return false;
    PyTypeObject *tp = rec_need_attrs(r, a->args[0]);
    PyObject *descr = rec_lookup(r, tp, name);
    if (r->stopped || (descr != NULL && Py_TYPE(descr)->tp_descr_set != NULL))
        return false;
    rec_place place;
    rec_model_store(r, a, a->args[2], rec_attr_place(r, a->args[0], name, descr, &place) ? &place : NULL);
    rec_fresh *f = FRESH(r, a->args[0]);
    if (f != NULL && f->kind == FRESH_OBJECT && f->known)
        rec_pairs_put(r, f, rec_const(r, name), a->args[2]);
    return true;
}

static bool
model_object_delattr(rec *r, const rec_args *a)
{
    PyObject *name = a->npos == 2 && a->nkw == 0 ? O(r, a->args[1]) : NULL;
    if (name == NULL || !PyUnicode_CheckExact(name) || rec_need_const(r, a->args[1]) == 0)
        return false;
    PyTypeObject *tp = rec_need_attrs(r, a->args[0]);
    PyObject *descr = rec_lookup(r, tp, name);
    if (r->stopped || (descr != NULL && Py_TYPE(descr)->tp_descr_set != NULL))
        return false;
    rec_fresh *f = FRESH(r, a->args[0]);
    rec_model_step(r, a, KIN_STEP_EFFECT);
    if (f != NULL)
        f->known = false;
    rec_forget_contents(r);
    return true;
}

/* OrderedDict.__setitem__(self, key, value), dict.__setitem__: with a builtin key no user code runs. */
static bool
model_dict_setitem(rec *r, const rec_args *a)
{
    if (a->npos != 3 || a->nkw || !kin_is_exact_immutable(O(r, a->args[1])))
        return false;
    if (!rec_is_const(r, a->args[1]))
        rec_need_type(r, a->args[1]);
    if (FRESH(r, a->args[0]) == NULL)
        rec_need_type(r, a->args[0]);
    rec_fresh *f = FRESH(r, a->args[0]), *map = rec_mapping(r, a->args[0]);
    rec_place place = {.kind = KIN_PLACE_ITEM, .base = a->args[0], .key = O(r, a->args[1])};
    bool dict = PyDict_CheckExact(O(r, a->args[0])) && rec_is_const(r, a->args[1]);
    rec_model_store(r, a, a->args[2], dict ? &place : NULL);
    if (map != NULL && rec_is_const(r, a->args[1]) && PyUnicode_CheckExact(O(r, a->args[1]))) {
        rec_pairs_put(r, map, rec_as_const(r, a->args[1]), a->args[2]);
    } else if (map != NULL) {
        map->known = false;
    }
    if (f != NULL && f->kind != FRESH_OBJECT && f->kind != FRESH_DICT)
        f->known = false;
    return true;
}

/* -- sizes and iteration ------------------------------------------------------------------------------------------------------ */

static bool
model_len(rec *r, const rec_args *a)
{
    if (a->npos != 1 || a->nkw)
        return false;
    kin_vid v = a->args[0];
    PyObject *obj = O(r, v);
    rec_fresh *f = FRESH(r, v);
    if ((f != NULL && f->known && (f->kind == FRESH_TUPLE || f->kind == FRESH_LIST || f->kind == FRESH_DICT)) ||
        rec_named_items(r, v) != NULL ||
        (rec_mapping(r, v) != NULL && Py_TYPE(obj)->tp_as_mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length)) {
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    if (kin_is_plain_tensor(obj)) {
        rec_need_type(r, v);
        if (!rec_meta(r, v, KIN_META_SIZES))
            return false;
        r->skip_expected = true;
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    if (rec_can_const(r, v) && rec_is_plain_value(obj)) {
        rec_need_const(r, v);
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    PyTypeObject *tp = Py_TYPE(obj);
    bool path = tp == &PyList_Type || tp == &PyTuple_Type || tp == &PyDict_Type || tp == &PySet_Type ||
                tp == &PyFrozenSet_Type;
    if (f == NULL && path && !rec_is_unstable(r, v)) {
        rec_root(r, v);
        rec_need_type(r, v);
        rec_need_len(r, v, PyObject_Size(obj));
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    PyObject *own = tp->tp_flags & Py_TPFLAGS_HEAPTYPE ? _PyType_Lookup(tp, REC_STR("__len__")) : NULL;
    if (own != NULL && PyFunction_Check(own) && rec_can_inline(r, own)) {
        rec_need_attrs(r, v);
        rec_lookup(r, tp, REC_STR("__len__"));
        return !r->stopped && rec_inline(r, rec_found(r, tp, REC_STR("__len__"), own), &v, 1, 0, NULL, a->ndrop, NULL, 0, KIN_RESUME_PUSH, 0);
    }
    if (own != NULL && PyFunction_Check(own))
        return false;
    if (f == NULL)
        rec_need_type(r, v);
    rec_model_step(r, a, 0);
    return true;
}

/* Frame objects follow their frame as it runs: the rest of such a call is CPython's. */
static bool
model_frame(rec *r, const rec_args *a)
{
    (void)a;
    rec_stop_row(r, KIN_ROW_FRAME_INSPECTION, "the program looks at its own frames");
    return true;
}

static bool
model_iter(rec *r, const rec_args *a)
{
    return a->npos == 1 && rec_iter_of(r, a->args[0], a->ndrop);
}

static bool
model_next(rec *r, const rec_args *a)
{
    rec_fresh *f = a->npos ? FRESH(r, a->args[0]) : NULL;
    if (f == NULL || f->kind != FRESH_ITER || !f->known)
        return false;
    if (f->pos >= f->n)
        return a->npos == 2 && rec_model_value(r, a, a->args[1]);
    kin_vid item = f->items[f->pos++];
    rec_step(r, KIN_STEP_NEXT, KIN_STEP_MUTATES, a->args, 1);
    return rec_model_value(r, a, item);
}

static bool
fresh_iterator(rec *r, const rec_args *a, const kin_vid *items, uint32_t n)
{
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_fresh(r, out, FRESH_ITER, items, n, true);
    if (kin_vec_push(&r->iters, out) != KIN_OK) /* over one or several containers: any change ends its use */
        r->status = KIN_NOMEM;
    return true;
}

/* The value of the one keyword `name`, constant and of this type; NULL: the call has others. */
static PyObject *
only_keyword(rec *r, const rec_args *a, const char *name, PyTypeObject *tp)
{
    if (a->nkw != 1 || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(a->kwnames, 0), name) != 0)
        return NULL;
    kin_vid value = a->args[a->npos];
    return Py_TYPE(O(r, value)) == tp && rec_need_const(r, value) != 0 ? O(r, value) : NULL;
}

static bool
model_enumerate(rec *r, const rec_args *a)
{
    kin_vid *items = NULL;
    uint32_t n;
    long start = 0;
    if (a->nkw != 0 || a->npos == 2) {
        PyObject *first = a->nkw ? only_keyword(r, a, "start", &PyLong_Type) : O(r, a->args[1]);
        if (first == NULL || !PyLong_CheckExact(first) || (a->npos == 2 && rec_need_const(r, a->args[1]) == 0))
            return false;
        start = PyLong_AsLong(first);
        PyErr_Clear();
        if (start < -1000000 || start > 1000000) /* errors included */
            return false;
    }
    if (a->npos + a->nkw > 2 || a->npos < 1 || !rec_items_of(r, a->args[0], &items, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        PyObject *number = PyLong_FromLong(start + (long)i);
        kin_vid pair[2] = {rec_const(r, number), items[i]};
        Py_XDECREF(number);
        items[i] = rec_build_tuple(r, pair, 2, NULL);
    }
    fresh_iterator(r, a, items, n);
    free(items);
    return true;
}

static bool
model_zip(rec *r, const rec_args *a)
{
    kin_vid *lists[8] = {0};
    uint32_t n = UINT32_MAX, count, k = 0;
    PyObject *strict = a->nkw ? only_keyword(r, a, "strict", &PyBool_Type) : Py_False;
    bool ok = a->npos > 0 && a->npos <= 8 && strict != NULL;
    for (; ok && k < a->npos; k++) {
        ok = rec_items_of(r, a->args[k], &lists[k], &count) && (strict == Py_False || k == 0 || count == n);
        n = ok && count < n ? count : n;
    }
    for (uint32_t i = 0; ok && i < n; i++) {
        kin_vid row[8];
        for (uint32_t j = 0; j < a->npos; j++)
            row[j] = lists[j][i];
        lists[0][i] = rec_build_tuple(r, row, a->npos, NULL);
    }
    if (ok)
        fresh_iterator(r, a, lists[0], n);
    for (uint32_t j = 0; j < 8; j++)
        free(lists[j]);
    return ok;
}

static bool
model_reversed(rec *r, const rec_args *a)
{
    kin_vid *items = NULL;
    uint32_t n;
    PyObject *obj = a->npos == 1 ? O(r, a->args[0]) : NULL;
    if (obj == NULL || (!PyList_CheckExact(obj) && !PyTuple_CheckExact(obj)) || !rec_items_of(r, a->args[0], &items, &n))
        return false;
    for (uint32_t i = 0; i < n / 2; i++) {
        kin_vid t = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = t;
    }
    fresh_iterator(r, a, items, n);
    free(items);
    return true;
}

static bool
model_all_any(rec *r, const rec_args *a, bool all)
{
    kin_vid *items = NULL;
    uint32_t n;
    if (a->npos != 1 || a->nkw || FRESH(r, a->args[0]) == NULL || !rec_items_of(r, a->args[0], &items, &n))
        return false;
    bool answer = all, known = true;
    for (uint32_t i = 0; known && i < n && answer == all; i++) {
        int truth = O(r, items[i]) ? rec_truth(r, items[i]) : -1;
        known = truth >= 0;
        answer = truth > 0;
    }
    free(items);
    return known && rec_model_bool(r, a, answer);
}

static bool
model_all(rec *r, const rec_args *a)
{
    return model_all_any(r, a, true);
}

static bool
model_any(rec *r, const rec_args *a)
{
    return model_all_any(r, a, false);
}

/* sum() of tensors: the additions it makes are nodes of the graph. */
static bool
model_sum(rec *r, const rec_args *a)
{
    kin_vid *items = NULL;
    uint32_t n;
    if (rec_model_pure(r, a))
        return true;
    if (a->npos < 1 || a->npos > 2 || a->nkw || !rec_items_of(r, a->args[0], &items, &n) || n == 0 || n > 500) {
        free(items);
        return false;
    }
    bool ok = true;
    for (uint32_t i = 0; i < n; i++)
        ok = ok && O(r, items[i]) && kin_is_plain_tensor(O(r, items[i]));
    PyObject *zero = PyLong_FromLong(0);
    kin_vid acc = a->npos == 2 ? a->args[1] : rec_const(r, zero);
    Py_XDECREF(zero);
    ok = ok && (rec_can_const(r, acc) || kin_is_plain_tensor(O(r, acc)));
    for (uint32_t i = 0; ok && i < n; i++) {
        rec_need_type(r, items[i]);
        kin_vid pair[2] = {acc, items[i]};
        acc = rec_step_out(r, KIN_STEP_BINARY, KIN_STEP_TORCH, pair, 2);
    }
    free(items);
    if (!ok)
        return false;
    r->skip_expected = true;
    rec_drop(r, a->ndrop);
    rec_await_result(r, acc, r->t->vals.at[acc].step);
    return true;
}

/* -- constructors ------------------------------------------------------------------------------------------------------------------ */

static bool
model_sequence(rec *r, const rec_args *a, fresh_kind kind, PyTypeObject *tp)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    if (a->npos > 1 || a->nkw)
        return false;
    if (a->npos == 1 && Py_TYPE(O(r, a->args[0])) == &PyTuple_Type && kind == FRESH_TUPLE) {
        rec_need_type(r, a->args[0]);
        return rec_model_value(r, a, a->args[0]);
    }
    if (a->npos == 1 && !rec_use_up(r, a->args[0], &items, &n)) {
        if (!rec_is_plain_value(O(r, a->args[0])))
            return false;
        if (FRESH(r, a->args[0]) == NULL)
            rec_need_type(r, a->args[0]);
        kin_vid out = rec_model_step(r, a, 0);
        rec_make_fresh(r, out, kind, NULL, 0, false);
        r->info.at[out].type = tp;
        return true;
    }
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_fresh(r, out, kind, items, n, true);
    r->info.at[out].type = tp;
    free(items);
    return true;
}

static bool
model_tuple(rec *r, const rec_args *a)
{
    return model_sequence(r, a, FRESH_TUPLE, &PyTuple_Type);
}

static bool
model_list(rec *r, const rec_args *a)
{
    return model_sequence(r, a, FRESH_LIST, &PyList_Type);
}

/* dict(mapping) and dict(mapping.items()) of known pairs. */
static bool
copy_mapping(rec *r, const rec_args *a)
{
    rec_fresh *f = FRESH(r, a->args[0]);
    kin_vid from = f != NULL && f->kind == FRESH_VIEW && f->pos == 'i' ? f->items[0] : a->args[0], *pairs;
    rec_fresh *map = rec_mapping(r, from);
    uint32_t n = map ? map->n : 0;
    if (map == NULL && !rec_pairs_of(r, from, &pairs, &n))
        return false;
    if (map != NULL) {
        pairs = malloc((n + 1) * sizeof *pairs);
        if (pairs == NULL)
            return false;
        memcpy(pairs, map->items, n * sizeof *pairs);
    }
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_fresh(r, out, FRESH_DICT, pairs, n, true);
    r->info.at[out].type = &PyDict_Type;
    free(pairs);
    return true;
}

/* OrderedDict() */
static bool
model_ordered_dict(rec *r, const rec_args *a)
{
    if (a->npos || a->nkw)
        return false;
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_fresh(r, out, FRESH_OTHER, NULL, 0, false);
    r->info.at[out].type = &PyODict_Type;
    return true;
}

static bool
model_dict(rec *r, const rec_args *a)
{
    if (a->npos == 1 && a->nkw == 0)
        return copy_mapping(r, a);
    if (a->npos != 0 || a->nkw > 100)
        return false;
    kin_vid pairs[200];
    for (uint32_t i = 0; i < a->nkw; i++) {
        pairs[2 * i] = rec_const(r, PyTuple_GET_ITEM(a->kwnames, i));
        pairs[2 * i + 1] = a->args[i];
    }
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_MAP, KIN_STEP_PURE, pairs, 2 * a->nkw);
    rec_make_fresh(r, out, FRESH_DICT, pairs, 2 * a->nkw, true);
    r->info.at[out].type = &PyDict_Type;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

static bool
model_set(rec *r, const rec_args *a)
{
    if (a->npos > 1 || a->nkw)
        return false;
    if (a->npos == 1) {
        if (!rec_is_plain_value(O(r, a->args[0])) || !rec_need_quiet(r, a->args[0], false))
            return false;
        if (FRESH(r, a->args[0]) == NULL)
            rec_need_type(r, a->args[0]);
    }
    kin_vid out = rec_model_step(r, a, 0);
    rec_make_fresh(r, out, FRESH_SET, NULL, 0, false);
    r->info.at[out].type = &PySet_Type;
    return true;
}

static bool
model_bool(rec *r, const rec_args *a)
{
    if (a->npos != 1 || a->nkw)
        return false;
    int truth = rec_truth(r, a->args[0]);
    return truth >= 0 && rec_model_bool(r, a, truth);
}

static bool
model_exception(rec *r, const rec_args *a)
{
    rec_model_step(r, a, KIN_STEP_PURE);
    return true;
}

/* functools.partial(f, ...). One of a partial object joins the two, and the class of f may change between calls. */
static bool
model_partial(rec *r, const rec_args *a)
{
    PyObject *func = a->npos ? O(r, a->args[0]) : NULL;
    if (func == NULL || Py_TYPE(func) == (PyTypeObject *)O(r, a->callee) || a->npos + a->nkw > 32 ||
        (!PyFunction_Check(func) && Py_TYPE(func) != &PyMethod_Type && !PyCFunction_Check(func) && !PyType_Check(func)))
        return false;
    if (FRESH(r, a->args[0]) == NULL)
        rec_need_type(r, a->args[0]); /* that it can be called */
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_fresh *f = rec_make_fresh(r, out, FRESH_PARTIAL, a->args, a->npos + a->nkw, true);
    if (f != NULL && a->nkw)
        f->aux = a->kwnames;
    if (a->nkw)
        rec_ref(r, a->kwnames); /* as long as the recording */
    return true;
}

/* -- table ---------------------------------------------------------------------------------------------------------------------------- */

static const model_row builtin_rows[] = {
    {"isinstance", model_isinstance}, {"issubclass", model_issubclass}, {"type", model_type},
    {"callable", model_callable}, {"vars", model_vars}, {"setattr", model_setattr_three},
    {"delattr", model_delattr}, {"getattr", model_getattr}, {"hasattr", model_hasattr}, {"super", model_super},
    {"len", model_len}, {"iter", model_iter}, {"next", model_next}, {"enumerate", model_enumerate},
    {"zip", model_zip}, {"reversed", model_reversed}, {"all", model_all}, {"any", model_any}, {"sum", model_sum},
    {"tuple", model_tuple}, {"list", model_list}, {"dict", model_dict}, {"set", model_set}, {"bool", model_bool},
    {"abs", model_number}, {"min", rec_model_pure}, {"max", rec_model_pure}, {"round", rec_model_pure}, {"divmod", rec_model_pure},
    {"pow", model_number}, {"ord", rec_model_pure}, {"chr", rec_model_pure}, {"int", rec_model_pure}, {"float", rec_model_pure},
    {"str", model_str}, {"complex", rec_model_pure}, {"range", rec_model_pure}, {"slice", rec_model_pure}, {"hex", rec_model_pure},
    {"bin", rec_model_pure}, {"oct", rec_model_pure}, {"repr", rec_model_pure}, {"format", rec_model_pure}, {"ascii", rec_model_pure},
    {"frozenset", rec_model_pure}, {"bytes", rec_model_pure}, {"sorted", model_fresh}, {"id", rec_model_id}, {"hash", rec_model_hash},
    {"object.__init__", model_object_init}, {"object.__getattribute__", model_object_getattribute},
    {"object.__setattr__", model_object_setattr}, {"object.__delattr__", model_object_delattr}, {"dict.__setitem__", model_dict_setitem},
    {"type.__call__", rec_model_type_call}, {NULL, NULL}};

static const char *const pure_modules[] = {"math", "cmath", "_operator", NULL};
static const char *const ask_modules[] = {"time", "posix", NULL};
static PyObject *models; /* dict: id of callable -> row number */
static model_fn functions[512];
static int nfunctions;

static void
add_model(PyObject *callable, model_fn fn)
{
    PyObject *key = PyLong_FromVoidPtr(callable), *value = PyLong_FromLong(nfunctions);
    if (key != NULL && value != NULL && nfunctions < 512 && PyDict_SetItem(models, key, value) == 0) {
        Py_INCREF(callable); /* its address must stay its own */
        functions[nfunctions++] = fn;
    }
    Py_XDECREF(key);
    Py_XDECREF(value);
}

static void
add_path(PyObject *builtins, const char *path, model_fn fn)
{
    const char *dot = strchr(path, '.');
    char head[64];
    snprintf(head, sizeof head, "%.*s", (int)(dot ? dot - path : (long)strlen(path)), path);
    PyObject *obj = PyObject_GetAttrString(builtins, head);
    if (obj != NULL && dot != NULL)
        Py_SETREF(obj, PyType_Check(obj) ? Py_XNewRef(PyDict_GetItemString(((PyTypeObject *)obj)->tp_dict, dot + 1))
                                         : PyObject_GetAttrString(obj, dot + 1));
    if (obj != NULL)
        add_model(obj, fn);
    Py_XDECREF(obj);
    PyErr_Clear();
}

static void
add_module(const char *name, model_fn fn)
{
    PyObject *mod = PyImport_ImportModule(name), *key, *value;
    Py_ssize_t pos = 0;
    while (mod != NULL && PyDict_Next(PyModule_GetDict(mod), &pos, &key, &value))
        if (PyCFunction_Check(value))
            add_model(value, fn);
    Py_XDECREF(mod);
    PyErr_Clear();
}

static void
add_random(void)
{
    PyObject *module = PyImport_ImportModule("_random"), *cls = module ? PyObject_GetAttrString(module, "Random") : NULL;
    PyObject *dict = cls != NULL && PyType_Check(cls) ? ((PyTypeObject *)cls)->tp_dict : NULL;
    static const char *const names[] = {"random", "getrandbits"};
    for (int i = 0; i < 2 && dict != NULL; i++)
        if (PyDict_GetItemString(dict, names[i]) != NULL)
            add_model(PyDict_GetItemString(dict, names[i]), rec_model_random);
    Py_XDECREF(cls);
    Py_XDECREF(module);
    PyErr_Clear();
}

static void
make_models(void)
{
    models = PyDict_New();
    PyObject *builtins = PyImport_ImportModule("builtins");
    if (models == NULL || builtins == NULL) {
        PyErr_Clear();
        return;
    }
    for (const model_row *m = builtin_rows; m->name; m++)
        add_path(builtins, m->name, m->fn);
    for (const rec_method_row *m = rec_method_rows; m->name; m++)
        add_path(builtins, m->name, m->fn);
    PyObject *setitem = PyDict_GetItemString(PyODict_Type.tp_dict, "__setitem__");
    if (setitem != NULL)
        add_model(setitem, model_dict_setitem);
    add_model((PyObject *)&PyODict_Type, model_ordered_dict);
    for (const rec_method_row *m = rec_ordered_rows; m->name; m++) {
        PyObject *method = PyDict_GetItemString(PyODict_Type.tp_dict, m->name);
        if (method != NULL)
            add_model(method, m->fn);
    }
    PyObject *functools = PyImport_ImportModule("functools");
    PyObject *partial = functools ? PyObject_GetAttrString(functools, "partial") : NULL;
    if (partial != NULL)
        add_model(partial, model_partial);
    Py_XDECREF(functools);
    Py_XDECREF(partial);
    PyErr_Clear();
    add_random();
    PyObject *frame = PySys_GetObject("_getframe"); /* borrowed */
    if (frame != NULL)
        add_model(frame, model_frame);
    PyObject *limit = PySys_GetObject("getrecursionlimit");
    if (limit != NULL)
        add_model(limit, rec_model_ask);
    for (int i = 0; pure_modules[i]; i++)
        add_module(pure_modules[i], rec_model_pure);
    for (int i = 0; ask_modules[i]; i++)
        add_module(ask_modules[i], rec_model_ask);
    Py_DECREF(builtins);
}

static model_fn
find_model(PyObject *callable)
{
    if (models == NULL)
        make_models();
    PyObject *key = PyLong_FromVoidPtr(callable);
    PyObject *row = key && models ? PyDict_GetItemWithError(models, key) : NULL;
    Py_XDECREF(key);
    return row ? functions[PyLong_AsLong(row)] : NULL;
}

/* Methods of immutable builtins do not look at anything but their operands. */
static bool
is_immutable_method(PyObject *obj)
{
    PyObject *self = PyCFunction_Check(obj) ? PyCFunction_GET_SELF(obj) : NULL;
    if (self != NULL && kin_is_exact_immutable(self))
        return true;
    if (Py_TYPE(obj) != &PyMethodDescr_Type && Py_TYPE(obj) != &PyWrapperDescr_Type)
        return false;
    PyTypeObject *tp = PyDescr_TYPE(obj);
    return tp == &PyUnicode_Type || tp == &PyLong_Type || tp == &PyFloat_Type || tp == &PyBytes_Type ||
           tp == &PyTuple_Type || tp == &PyRange_Type || tp == &PyComplex_Type || tp == &PySlice_Type;
}

/* str.split and its like return new lists. */
static bool
returns_list(PyObject *obj)
{
    const char *name = rec_callable_name(obj);
    return strcmp(name, "split") == 0 || strcmp(name, "rsplit") == 0 || strcmp(name, "splitlines") == 0;
}

static bool
call_type(rec *r, const rec_args *a)
{
    PyTypeObject *tp = (PyTypeObject *)O(r, a->callee);
    static const char *const value_types[] = {"torch.device", "torch.finfo", "torch.iinfo", "torch.Size", NULL};
    for (int i = 0; value_types[i]; i++)
        if (strcmp(tp->tp_name, value_types[i]) == 0)
            return rec_model_pure(r, a);
    if (rec_model_new_object(r, a, tp))
        return true;
    if (PyExceptionClass_Check(tp) && !(tp->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return model_exception(r, a);
    return false;
}

bool
rec_call_builtin(rec *r, kin_vid callee, const kin_vid *args, uint32_t npos, uint32_t nkw, PyObject *kwnames, int ndrop)
{
    rec_args a = {.callee = callee, .args = args, .npos = npos, .nkw = nkw, .kwnames = kwnames, .ndrop = ndrop};
    PyObject *obj = O(r, callee);
    if (npos + nkw > 250)
        return false;
    model_fn fn = find_model(obj);
    if (fn != NULL)
        return fn(r, &a);
    if (PyType_Check(obj))
        return call_type(r, &a);
    if (rec_call_new(r, &a))
        return true;
    if (is_immutable_method(obj)) {
        if (returns_list(obj))
            return model_fresh(r, &a);
        return rec_model_pure(r, &a);
    }
    return false;
}
