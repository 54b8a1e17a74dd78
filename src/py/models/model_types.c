/* Models of builtins about the class of an object: isinstance, issubclass, type, str of a class, callable. */
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

/* Who answers isinstance() and issubclass(): type itself; abc, from its registry; the metaclass of nn.Parameter or nn.Buffer, which looks for
 * a flag on tensors; the C code behind torch.FloatTensor and its like, which looks at dtype and device; that of protocols, which asks the class before
 * the object; or code that is not known. */
typedef enum { CHECK_PLAIN, CHECK_ABC, CHECK_FLAG, CHECK_LEGACY, CHECK_PROTOCOL, CHECK_OWN } check_kind;

/* `method`: __instancecheck__ or __subclasscheck__. */
static check_kind
check_kind_of(PyTypeObject *cls, PyObject *method)
{
    PyTypeObject *meta = Py_TYPE(cls);
    PyObject *own = _PyType_Lookup(meta, method);
    if (own == NULL || own == _PyType_Lookup(&PyType_Type, method))
        return CHECK_PLAIN;
    if (kin_is_from_module(own, "abc"))
        return CHECK_ABC;
    if (kin_is_from_module(own, "torch.nn.parameter"))
        return CHECK_FLAG;
    if (kin_is_from_module(own, "typing"))
        return CHECK_PROTOCOL;
    if (Py_TYPE(own) == &PyMethodDescr_Type && strcmp(meta->tp_name, "torch.tensortype") == 0)
        return CHECK_LEGACY;
    return CHECK_OWN;
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
    PyObject *value = kin_import_once(&token, "abc", "get_cache_token") ? PyObject_CallNoArgs(token) : NULL;
    uint32_t *seen = rec_map_at(r->facts_seen, rec_epoch(r), 0xABC, 0, 0);
    PyObject *fact = value && seen && *seen == 0 ? PyTuple_Pack(2, token, value) : NULL;
    if (fact != NULL) {
        *seen = 1;
        rec_fact(r, KIN_FACT_CALL_IS, 0, fact, 0);
    }
    Py_XDECREF(fact);
    Py_XDECREF(value);
    PyErr_Clear();
}

/* The step that computes A | B here; NULL: another value. */
static const kin_step *
step_of_union(const rec *r, kin_vid vid)
{
    const kin_val *val = &r->t->vals.at[vid];
    const kin_step *s = val->kind == KIN_VAL_STEP && val->step < r->t->steps.len ? &r->t->steps.at[val->step] : NULL;
    return s != NULL && s->kind == KIN_STEP_BINARY && s->out == vid && s->imm == KIN_BINARY_OR ? s : NULL;
}

/* Does the union hold it? What it does not hold may be gone, as the unions in between are. */
static bool
holds(PyObject *members, const PyObject *obj)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(members); i++)
        if (PyTuple_GET_ITEM(members, i) == obj)
            return true;
    return false;
}

/* The operands of A | B | C, whose classes are `held`, behind the first n. UINT32_MAX: not known, or too many. */
static uint32_t
operands_of_union(rec *r, const kin_step *s, PyObject *held, kin_vid *members, uint32_t n, uint32_t most)
{
    for (uint32_t i = 0; i < 2 && n <= most; i++) {
        kin_vid vid = r->t->vids.at[s->args + i];
        const kin_step *inner = step_of_union(r, vid);
        if (inner != NULL)
            n = operands_of_union(r, inner, held, members, n, most);
        else if (n < most && (rec_is_const(r, vid) || holds(held, O(r, vid))))
            members[n++] = vid;
        else
            n = UINT32_MAX;
    }
    return n;
}

/* The classes of A | B: written here, or an object that stays. 0: not known. */
static uint32_t
members_of_union(rec *r, kin_vid vid, kin_vid *members, uint32_t most)
{
    PyObject *obj = O(r, vid);
    const kin_step *s = step_of_union(r, vid);
    if (!kin_heap_type_is(Py_TYPE(obj), "types.UnionType") && !kin_heap_type_is(Py_TYPE(obj), "typing.Union")) /* 3.14 */
        return 0;
    PyObject *args = PyObject_GetAttrString(obj, "__args__");
    PyErr_Clear();
    uint32_t n = args == NULL || !PyTuple_CheckExact(args) ? UINT32_MAX : s != NULL ? operands_of_union(r, s, args, members, 0, most) : (uint32_t)PyTuple_GET_SIZE(args);
    if (n > most || (s == NULL && (r->t->vals.at[vid].kind == KIN_VAL_STEP || rec_is_dynamic(r, vid)))) {
        Py_XDECREF(args);
        return 0;
    }
    if (s == NULL && !rec_is_const(r, vid))
        rec_fact(r, KIN_FACT_ID, vid, obj, 0);
    for (uint32_t i = 0; s == NULL && i < n; i++)
        members[i] = rec_const(r, PyTuple_GET_ITEM(args, (Py_ssize_t)i));
    Py_DECREF(args); /* the union holds it */
    return n;
}

/* Collects classes from a class, a tuple of them or a union, in their order. False when one has a check of its own; where `own` is given, when two have. */
static bool
collect_classes(rec *r, kin_vid vid, PyObject *method, PyObject **list, int *n, PyObject **own)
{
    enum { MOST = 32 };
    PyObject *obj = O(r, vid);
    rec_virtual *f = VIRTUAL(r, vid);
    kin_vid *items = NULL, members[MOST];
    if (obj != NULL && PyType_Check(obj)) {
        bool asked = check_kind_of((PyTypeObject *)obj, method) == CHECK_OWN;
        if (*n >= MOST || (asked && (own == NULL || *own != NULL)) || rec_need_const(r, vid) == 0)
            return false;
        if (asked)
            *own = obj;
        list[(*n)++] = obj;
        return true;
    }
    uint32_t count = obj != NULL && f == NULL ? members_of_union(r, vid, members, MOST) : 0;
    bool ok = count != 0;
    if (!ok && ((obj != NULL && PyTuple_CheckExact(obj)) || f != NULL))
        ok = rec_items_of(r, vid, &items, &count);
    for (uint32_t i = 0; ok && i < count; i++)
        ok = collect_classes(r, items != NULL ? items[i] : members[i], method, list, n, own);
    free(items);
    return ok;
}

/* The flag that makes any tensor a Parameter or a Buffer. -1: not known without asking again. */
static int
has_flag(rec *r, kin_vid vid, PyTypeObject *cls)
{
    static PyObject *parameter_class, *buffer_class;
    bool parameter = kin_import_once(&parameter_class, "torch.nn.parameter", "Parameter") == (PyObject *)cls;
    bool buffer = kin_import_once(&buffer_class, "torch.nn.parameter", "Buffer") == (PyObject *)cls;
    attr_result at;
    if (!kin_is_tensor(O(r, vid)) || (!parameter && !buffer)) /* their subclasses are asked the plain way */
        return 0;
    rec_attr_find(r, vid, parameter ? REC_STR("_is_param") : REC_STR("_is_buffer"), &at);
    if (at.kind == ATTR_ABSENT)
        return 0;
    return at.kind == ATTR_VALUE ? rec_truth(r, at.value) : -1;
}

/* A legacy class of tensors asks for dtype and device. Of other kinds than strided ones, it is asked again. */
static int
is_of_legacy(rec *r, kin_vid vid, PyTypeObject *cls)
{
    PyObject *obj = O(r, vid);
    if (kin_is_tensor(obj) && !rec_meta(r, vid, KIN_META_DTYPE | KIN_META_DEVICE | KIN_META_KEYS))
        return -1;
    return PyObject_IsInstance(obj, (PyObject *)cls);
}

/* Is the object one of the class? Its type is fixed. -1: not known without asking again. */
static int
is_instance(rec *r, kin_vid vid, PyTypeObject *cls)
{
    PyObject *obj = O(r, vid);
    check_kind kind = check_kind_of(cls, REC_STR("__instancecheck__"));
    rec_need_metaclass(r, cls);
    if (Py_IS_TYPE(obj, cls))
        return 1;
    if (kind == CHECK_LEGACY)
        return is_of_legacy(r, vid, cls);
    if (kind == CHECK_ABC) {
        rec_abc_fact(r);
        return PyObject_IsInstance(obj, (PyObject *)cls);
    }
    if (kind == CHECK_PROTOCOL) { /* a class without the members may have objects with them; one with members that are no methods refuses to tell */
        rec_abc_fact(r);
        return PyObject_IsSubclass((PyObject *)Py_TYPE(obj), (PyObject *)cls) == 1 ? 1 : -1;
    }
    int flag = kind == CHECK_FLAG ? has_flag(r, vid, cls) : 0;
    return flag != 0 ? flag : PyType_IsSubtype(Py_TYPE(obj), cls);
}

/* Asking again runs no Python code where this is all that answers. */
static bool
are_answered_by_c(PyObject *const *classes, int n)
{
    bool c = true;
    for (int i = 0; i < n; i++) {
        check_kind kind = check_kind_of((PyTypeObject *)classes[i], REC_STR("__instancecheck__"));
        c = c && (kind == CHECK_PLAIN || kind == CHECK_LEGACY);
    }
    return c;
}

/* A class whose metaclass answers in Python: its method is inlined. */
static bool
asks_metaclass(rec *r, const rec_args *a, PyTypeObject *cls)
{
    PyObject *name = REC_STR("__instancecheck__");
    PyTypeObject *meta = Py_TYPE(cls);
    PyObject *method = _PyType_Lookup(meta, name);
    if (!PyFunction_Check(method) || !rec_can_inline(r, method))
        return false;
    rec_need_attrs(r, a->args[0]); /* an object of this very class is not asked about */
    rec_need_metaclass(r, cls);
    rec_lookup(r, meta, name);
    kin_vid args[2] = {rec_const(r, (PyObject *)cls), a->args[0]};
    return rec_inline(r, &(rec_args){.callee = rec_found(r, meta, name, method), .args = args, .npos = 2, .ndrop = a->ndrop}, NULL, 0, KIN_RESUME_TRUTH, 0);
}

/* The only class that is asked about, where its metaclass answers; NULL: another question (or a union that is not made). */
static PyTypeObject *
only_own_class(rec *r, const rec_args *a)
{
    PyObject *cls = O(r, a->args[1]);
    bool own = cls != NULL && PyType_Check(cls) && !Py_IS_TYPE(O(r, a->args[0]), (PyTypeObject *)cls) &&
               check_kind_of((PyTypeObject *)cls, REC_STR("__instancecheck__")) == CHECK_OWN;
    return own && rec_need_const(r, a->args[1]) != 0 ? (PyTypeObject *)cls : NULL;
}

/* Is the object one of the classes, of which `own` is answered for by its metaclass? -1: not known without asking again; -2: that decides. */
static int
is_one_of(rec *r, kin_vid vid, PyObject *const *classes, int n, const PyObject *own)
{
    bool asks = false;
    for (int i = 0; i < n; i++) {
        if (classes[i] == own && !Py_IS_TYPE(O(r, vid), (PyTypeObject *)own)) {
            asks = true;
            continue;
        }
        int answer = is_instance(r, vid, (PyTypeObject *)classes[i]);
        if (answer != 0)
            return asks ? -1 : answer;
    }
    return asks ? -2 : 0;
}

static bool
model_isinstance(rec *r, const rec_args *a)
{
    PyObject *classes[32];
    int n = 0, answer;
    if (a->npos != 2 || a->nkw)
        return false;
    PyTypeObject *only = only_own_class(r, a);
    if (only != NULL && asks_metaclass(r, a, only))
        return true;
    PyObject *obj = O(r, a->args[0]), *own = NULL;
    PyObject *cls = _PyType_Lookup(Py_TYPE(obj), REC_STR("__class__"));
    PyObject *asked = _PyType_Lookup(Py_TYPE(obj), REC_STR("__getattribute__")); /* in Python it may give any __class__ */
    if (cls == NULL || Py_TYPE(cls) != &PyGetSetDescr_Type || asked == NULL || PyFunction_Check(asked) ||
        !collect_classes(r, a->args[1], REC_STR("__instancecheck__"), classes, &n, &own))
        return false;
    PyTypeObject *tp = rec_need_attrs(r, a->args[0]);
    rec_lookup(r, tp, REC_STR("__class__"));
    rec_lookup(r, tp, REC_STR("__getattribute__"));
    rec_bases_of(r, tp);
    answer = is_one_of(r, a->args[0], classes, n, own);
    if (answer == -2)
        return asks_metaclass(r, a, (PyTypeObject *)own);
    if (answer < 0) {
        PyErr_Clear();
        if (!are_answered_by_c(classes, n))
            return false;
        rec_model_step(r, a, 0);
        return true;
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
        !collect_classes(r, a->args[1], REC_STR("__subclasscheck__"), classes, &n, NULL))
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

const rec_method_row rec_type_rows[] = {
    {"isinstance", model_isinstance}, {"issubclass", model_issubclass}, {"type", model_type},
    {"callable", model_callable}, {"str", model_str}, {NULL, NULL}};
