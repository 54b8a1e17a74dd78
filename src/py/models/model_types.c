/* Models of builtins that ask what class an object is of: isinstance, issubclass, type, str of a class, callable. */
#include "py/models/models.h"

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

const rec_method_row rec_type_rows[] = {
    {"isinstance", model_isinstance}, {"issubclass", model_issubclass}, {"type", model_type},
    {"callable", model_callable}, {"str", model_str}, {NULL, NULL}};
