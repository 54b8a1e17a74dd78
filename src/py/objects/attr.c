/* Attribute reads: whether the instance, the class, the metaclass, a descriptor or __getattr__ provides the attribute, and which facts
 * guarantee that it does so again: about the one that provides it, and about the absence of the name in everything that is
 * searched before it.
 */
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"
#include <stddef.h>
#include <structmember.h>

/* -- pieces --------------------------------------------------------------------------------------------------- */

kin_vid
rec_instance_dict(rec *r, kin_vid base)
{
    PyObject *dict = kin_instance_dict(O(r, base));
    if (dict == NULL || !PyDict_CheckExact(dict))
        return 0;
    if (r->t->vals.at[base].kind == KIN_VAL_CONST && (PyModule_Check(O(r, base)) || PyFunction_Check(O(r, base))))
        return rec_const(r, dict);
    return rec_src(r, base, KIN_ACCESS_INSTDICT, 0, dict);
}

bool
rec_has_instance_dict(PyTypeObject *tp)
{
    return tp->tp_dictoffset != 0;
}

static kin_vid
virtual_attr(rec *r, kin_vid base, PyObject *name)
{
    kin_vid *found = rec_pairs_find(r, VIRTUAL(r, base), name);
    return found ? *found : 0;
}

/* A tensor that a step of the atomic region has found (p.grad): no fact can be tested there. */
static bool
is_new_tensor(rec *r, kin_vid base)
{
    return r->region != NULL && !rec_is_entry_value(r, base) && kin_is_plain_tensor(O(r, base));
}

kin_vid
rec_instance_item(rec *r, kin_vid base, PyObject *name)
{
    PyObject *obj = O(r, base);
    rec_virtual *f = VIRTUAL(r, base);
    if (f != NULL && f->kind == VIRTUAL_OBJECT && f->known)
        return virtual_attr(r, base, name);
    PyObject *found = kin_instance_attr(obj, name);
    if (found == NULL && f != NULL && f->kind == VIRTUAL_DICT && !f->escaped && r->t->vals.at[base].kind == KIN_VAL_STEP)
        return 0; /* an OrderedDict made here, which nobody else could have given an attribute */
    if (found == NULL && is_new_tensor(r, base)) {
        rec_check(r, KIN_CHECK_LACKS, base, name, 0);
        return 0;
    }
    rec_root(r, base);
    kin_vid dict = rec_instance_dict(r, base);
    if (dict != 0) {
        if (found != NULL)
            return rec_dict_item(r, dict, name, found);
        rec_need_type(r, dict);
        rec_fact(r, KIN_FACT_LACKS_KEY, dict, name, 0);
        return 0;
    }
    if (found != NULL)
        return rec_src_key(r, base, KIN_ACCESS_IATTR, name, found);
    rec_fact(r, KIN_FACT_LACKS_ATTR, base, name, 0);
    return 0;
}

static void
set_step(attr_result *out, unsigned flags)
{
    out->kind = ATTR_STEP;
    out->flags = flags;
}

static void
set_value(attr_result *out, kin_vid value)
{
    out->kind = ATTR_VALUE;
    out->value = value;
}

static void
set_method(attr_result *out, kin_vid func, kin_vid self)
{
    out->kind = ATTR_METHOD;
    out->value = func;
    out->self = self;
}

static void
set_call(attr_result *out, kin_vid func, kin_vid a0, kin_vid a1, kin_vid a2)
{
    out->kind = ATTR_CALL;
    out->func = func;
    out->args[0] = a0;
    out->args[1] = a1;
    out->args[2] = a2;
    out->nargs = a2 ? 3 : a1 ? 2 : 1;
}

/* The function in a property, classmethod or staticmethod, which its __init__ can replace in place without the class
 * getting a new version. It is the first word behind the object's head in all three.
 */
static kin_vid
wrapped_function(rec *r, kin_vid descr, PyObject *func)
{
    return rec_wrapped_function(r, descr, 0, func);
}

kin_vid
rec_wrapped_function(rec *r, kin_vid descr, uint32_t word, PyObject *func)
{
    kin_vid member = rec_src(r, descr, KIN_ACCESS_MEMBER, (uint32_t)(sizeof(PyObject) + word * sizeof(PyObject *)), func);
    if (PyFunction_Check(func) && rec_is_dynamic(r, member)) {
        rec_need_type(r, member);
        return member;
    }
    rec_fact(r, KIN_FACT_ID, member, func, 0);
    return rec_const(r, func);
}

/* Binds what `owner` gives for the name to `self`, of class tp. False: no binding, it is a plain value (whose class has no
 * __get__, which is a fact too). */
static bool
bind_descriptor(rec *r, PyTypeObject *owner, PyTypeObject *tp, PyObject *name, PyObject *descr, kin_vid self, attr_result *out)
{
    PyTypeObject *dt = Py_TYPE(descr);
    if (dt == &PyFunction_Type || dt == &PyMethodDescr_Type || dt == &PyWrapperDescr_Type) {
        set_method(out, rec_found(r, owner, name, descr), self);
        return true;
    }
    if (dt == &PyClassMethod_Type || dt == &PyStaticMethod_Type) {
        PyObject *func = PyObject_GetAttrString(descr, "__func__");
        if (func == NULL) {
            PyErr_Clear();
            set_step(out, KIN_STEP_OPAQUE);
            return true;
        }
        kin_vid f = wrapped_function(r, rec_found(r, owner, name, descr), func);
        Py_DECREF(func);
        if (!PyFunction_Check(O(r, f)) && !PyCFunction_Check(O(r, f)))
            set_step(out, KIN_STEP_OPAQUE);
        else if (dt == &PyStaticMethod_Type)
            set_value(out, f);
        else
            set_method(out, f, rec_const(r, (PyObject *)tp));
        return true;
    }
    if (dt->tp_descr_get == NULL)
        return false;
    if (dt == &PyInstanceMethod_Type && self != 0 && PyCFunction_Check(PyInstanceMethod_GET_FUNCTION(descr))) { /* pybind11's */
        set_method(out, wrapped_function(r, rec_found(r, owner, name, descr), PyInstanceMethod_GET_FUNCTION(descr)), self);
        return true;
    }
    if ((dt->tp_flags & Py_TPFLAGS_METHOD_DESCRIPTOR) && self != 0) { /* lru_cache wrappers and the like */
        set_method(out, rec_found_value(r, owner, name, descr), self);
        return true;
    }
    PyObject *get = dt->tp_flags & Py_TPFLAGS_HEAPTYPE ? _PyType_Lookup(dt, REC_STR("__get__")) : NULL;
    if (get != NULL && PyFunction_Check(get) && self != 0) {
        rec_class_version(r, dt);
        kin_vid d = rec_src_key(r, rec_const(r, (PyObject *)owner), KIN_ACCESS_TYPEATTR, name, descr);
        rec_need_type(r, d);
        set_call(out, rec_const(r, get), d, self, rec_const(r, (PyObject *)tp));
        return true;
    }
    set_step(out, KIN_STEP_OPAQUE);
    return true;
}

/* __dict__ of an object made here: what is known of the object is known of it. */
static bool
attributes_of(rec *r, kin_vid base, attr_result *out)
{
    rec_virtual *f = VIRTUAL(r, base);
    PyObject *dict = f != NULL && f->kind == VIRTUAL_OBJECT && f->known && rec_has_instance_dict(Py_TYPE(O(r, base)))
                         ? PyObject_GenericGetDict(O(r, base), NULL) : NULL;
    PyErr_Clear();
    if (dict == NULL)
        return false;
    kin_vid vid = rec_step_out(r, KIN_STEP_GETATTR, KIN_STEP_PURE, &base, 1);
    kin_ref ref = rec_ref(r, REC_STR("__dict__"));
    r->t->steps.at[r->t->vals.at[vid].step].ref = ref;
    rec_make_virtual(r, vid, VIRTUAL_ATTRS, &base, 1, true);
    r->info.at[vid].type = &PyDict_Type;
    rec_set_obj(r, vid, dict); /* the object keeps it */
    Py_DECREF(dict);
    set_value(out, vid);
    return true;
}

/* A field of a named tuple: the descriptor, which never changes, holds the number of the item. */
static bool
field_of_tuple(rec *r, kin_vid base, PyObject *descr, attr_result *out)
{
    PyObject *obj = O(r, base);
    rec_virtual *f = VIRTUAL(r, base);
    bool field = kin_heap_type_is(Py_TYPE(descr), "_collections._tuplegetter") || kin_heap_type_is(Py_TYPE(descr), "collections._tuplegetter");
    if (!field || !PyTuple_Check(obj))
        return false;
    Py_ssize_t i = ((struct { PyObject_HEAD Py_ssize_t index; } *)descr)->index;
    if (i < 0 || i >= PyTuple_GET_SIZE(obj) || (f != NULL && (f->kind != VIRTUAL_NAMED || !f->known || i >= (Py_ssize_t)f->n)))
        return false;
    if (f != NULL) {
        set_value(out, f->items[i]);
    } else {
        rec_root(r, base);
        set_value(out, rec_src(r, base, KIN_ACCESS_TUPLE_ITEM, (uint32_t)i, PyTuple_GET_ITEM(obj, i)));
    }
    return true;
}

/* A slot, or a field of a named result, which has no offset in the fixed part. */
static void
member_descriptor(rec *r, kin_vid base, PyObject *name, const struct PyMemberDef *m, attr_result *out)
{
    PyObject *obj = O(r, base);
    rec_virtual *virtual = VIRTUAL(r, base);
    if (PyTuple_Check(obj)) {
        set_step(out, r->info.at[base].graph ? KIN_STEP_TORCH : 0);
        return;
    }
    if (virtual != NULL && virtual->kind == VIRTUAL_OBJECT && virtual->known && m->type == T_OBJECT_EX) {
        kin_vid value = virtual_attr(r, base, name); /* a slot and an entry of __dict__ of one name: the slot always wins */
        if (value != 0) {
            set_value(out, value);
            return;
        }
    }
    bool fixed = virtual == NULL && (m->type == T_OBJECT_EX || m->type == T_OBJECT);
    PyObject *value = fixed ? *(PyObject **)((char *)obj + m->offset) : NULL;
    if (value == NULL) {
        set_step(out, 0);
        return;
    }
    rec_root(r, base);
    set_value(out, rec_src(r, base, KIN_ACCESS_MEMBER, (uint32_t)m->offset, value));
}

static void
getset_descriptor(rec *r, kin_vid base, PyObject *name, attr_result *out)
{
    if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0) {
        set_value(out, rec_const(r, (PyObject *)Py_TYPE(O(r, base))));
        return;
    }
    bool dict = PyUnicode_CompareWithASCIIString(name, "__dict__") == 0;
    if (dict && attributes_of(r, base, out))
        return;
    if (dict && VIRTUAL(r, base) == NULL) {
        rec_root(r, base);
        kin_vid value = rec_instance_dict(r, base);
        if (value != 0) {
            set_value(out, value);
            return;
        }
        out->makes_dict = true;
    }
    set_step(out, 0);
}

static void
data_descriptor(rec *r, kin_vid base, PyTypeObject *owner, PyObject *name, PyObject *descr, attr_result *out)
{
    PyTypeObject *dt = Py_TYPE(descr);
    PyObject *obj = O(r, base);
    if (kin_is_tensor(obj) && rec_tensor_attr(r, base, descr, name, out))
        return;
    if (dt == &PyProperty_Type) {
        PyObject *get = ((struct { PyObject_HEAD PyObject *get; } *)descr)->get;
        if (get != NULL && PyFunction_Check(get))
            set_call(out, wrapped_function(r, rec_found(r, owner, name, descr), get), base, 0, 0);
        else
            set_step(out, KIN_STEP_OPAQUE);
        return;
    }
    if (field_of_tuple(r, base, descr, out))
        return;
    rec_virtual *virtual = VIRTUAL(r, base);
    if (virtual != NULL && virtual->kind == VIRTUAL_PARTIAL && virtual->known && PyUnicode_CompareWithASCIIString(name, "func") == 0) {
        set_value(out, virtual->items[0]);
        return;
    }
    if (dt == &PyMemberDescr_Type) {
        member_descriptor(r, base, name, ((PyMemberDescrObject *)descr)->d_member, out);
        return;
    }
    if (dt == &PyGetSetDescr_Type) {
        getset_descriptor(r, base, name, out);
        return;
    }
    PyObject *get = dt->tp_flags & Py_TPFLAGS_HEAPTYPE ? _PyType_Lookup(dt, REC_STR("__get__")) : NULL;
    if (get == NULL || !bind_descriptor(r, owner, Py_TYPE(obj), name, descr, base, out))
        set_step(out, KIN_STEP_OPAQUE);
}

/* -- per kind of object ----------------------------------------------------------------------------------------- */

/* Does the type look attributes up the generic way, perhaps with a __getattr__ behind it? */
static bool
is_generic(rec *r, PyTypeObject *tp, PyObject **fallback)
{
    PyObject *basic = rec_lookup(r, tp, REC_STR("__getattribute__")), *hook = rec_lookup(r, tp, REC_STR("__getattr__"));
    *fallback = NULL;
    if (tp->tp_getattro == PyObject_GenericGetAttr || tp->tp_getattro == PyModule_Type.tp_getattro)
        return true;
    if (!(tp->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return false;
    if (basic == NULL || Py_TYPE(basic) != &PyWrapperDescr_Type)
        return false;
    void *wrapped = ((PyWrapperDescrObject *)basic)->d_wrapped;
    if (wrapped != (void *)PyObject_GenericGetAttr && wrapped != (void *)PyModule_Type.tp_getattro)
        return false;
    *fallback = hook;
    return hook != NULL && PyFunction_Check(hook);
}

static void generic_attr(rec *r, kin_vid base, PyObject *name, PyObject *fallback, attr_result *out);

/* Attributes of a bound method: its two parts, and everything that its class has not from its function. */
static bool
method_attr(rec *r, kin_vid base, PyObject *name, attr_result *out)
{
    rec_virtual *f = VIRTUAL(r, base);
    PyObject *obj = O(r, base);
    bool func = PyUnicode_CompareWithASCIIString(name, "__func__") == 0;
    bool self = PyUnicode_CompareWithASCIIString(name, "__self__") == 0;
    if (Py_TYPE(obj) != &PyMethod_Type || (f != NULL && f->kind != VIRTUAL_METHOD) ||
        (!func && !self && _PyType_Lookup(&PyMethod_Type, name) != NULL))
        return false;
    if (f == NULL) {
        rec_root(r, base);
        rec_need_type(r, base);
    }
    if (self)
        set_value(out, f ? f->items[1] : rec_src(r, base, KIN_ACCESS_METHOD_SELF, 0, PyMethod_GET_SELF(obj)));
    kin_vid inner = self ? 0 : f ? f->items[0] : rec_src(r, base, KIN_ACCESS_METHOD_FUNC, 0, PyMethod_GET_FUNCTION(obj));
    if (func)
        set_value(out, inner);
    else if (!self)
        rec_attr_find(r, inner, name, out);
    return true;
}

/* What a function is made of, and what a code object says: C attributes that are read by path, or are constant. */
static bool
function_attr(rec *r, kin_vid base, PyObject *name, attr_result *out)
{
    static const struct { const char *name; size_t offset; } parts[] = {
        {"__code__", offsetof(PyFunctionObject, func_code)}, {"__defaults__", offsetof(PyFunctionObject, func_defaults)},
        {"__kwdefaults__", offsetof(PyFunctionObject, func_kwdefaults)}, {"__name__", offsetof(PyFunctionObject, func_name)},
        {"__qualname__", offsetof(PyFunctionObject, func_qualname)}, {"__doc__", offsetof(PyFunctionObject, func_doc)} /* a plain member up to 3.13 */, {NULL, 0}};
    PyObject *obj = O(r, base);
    if (PyCode_Check(obj) && strncmp(kin_utf8(name), "co_", 3) == 0 && rec_need_const(r, base) != 0) {
        PyObject *value = PyObject_GenericGetAttr(obj, name);
        PyErr_Clear();
        bool constant = value != NULL && kin_is_exact_immutable(value);
        if (constant)
            set_value(out, rec_const(r, value));
        Py_XDECREF(value);
        return constant;
    }
    rec_virtual *made = VIRTUAL(r, base);
    if (made != NULL && made->kind == VIRTUAL_FUNCTION && PyUnicode_CompareWithASCIIString(name, "__code__") == 0) {
        set_value(out, rec_const(r, PyFunction_GET_CODE(obj)));
        return true;
    }
    if (made != NULL && made->kind == VIRTUAL_FUNCTION && made->of != 0 && PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0) {
        set_value(out, made->of);
        return true;
    }
    if (made != NULL && made->kind == VIRTUAL_FUNCTION && PyUnicode_CompareWithASCIIString(name, "__dict__") == 0)
        made->of = 0; /* it may be replaced there */
    for (int i = 0; PyFunction_Check(obj) && made == NULL && parts[i].name; i++) {
        PyObject *value = *(PyObject **)((char *)obj + parts[i].offset);
        if (value == NULL || PyUnicode_CompareWithASCIIString(name, parts[i].name) != 0)
            continue;
        rec_root(r, base);
        rec_need_type(r, base);
        set_value(out, rec_src(r, base, KIN_ACCESS_MEMBER, (uint32_t)parts[i].offset, value));
        return true;
    }
    return false;
}

static void
instance_attr(rec *r, kin_vid base, PyObject *name, attr_result *out)
{
    if (method_attr(r, base, name, out) || function_attr(r, base, name, out))
        return;
    PyObject *fallback;
    PyTypeObject *tp = rec_need_attrs(r, base);
    if (!is_generic(r, tp, &fallback)) {
        PyObject *own = tp->tp_flags & Py_TPFLAGS_HEAPTYPE ? _PyType_Lookup(tp, REC_STR("__getattribute__")) : NULL;
        if (own != NULL && PyFunction_Check(own))
            set_call(out, rec_found(r, tp, REC_STR("__getattribute__"), own), base, rec_const(r, name), 0);
        else
            set_step(out, KIN_STEP_OPAQUE);
        out->fallback = own != NULL && _PyType_Lookup(tp, REC_STR("__getattr__")) != NULL;
        return;
    }
    generic_attr(r, base, name, fallback, out);
}

/* A tensor that a call of a custom backend's graph gave, of a class that computes in a way of its own: its own attributes follow from the class and the call. A tensor
 * among them is a node of the graph, and none has the name of a method. */
static bool
attr_in_graph(rec *r, kin_vid base, PyObject *name, bool *bare, attr_result *out)
{
    PyObject *obj = O(r, base);
    bool own = r->opt->custom && r->info.at[base].graph && kin_is_tensor(obj) && !kin_heap_instance_is_bare(obj);
    rec_tensor_kind kind = own ? rec_kind_of_tensor(obj) : REC_TENSOR_PLAIN;
    if (kind != REC_TENSOR_DISPATCHES && kind != REC_TENSOR_SUBCLASS)
        return false;
    PyObject *item = kin_instance_attr(obj, name);
    *bare = item == NULL && _PyType_Lookup(Py_TYPE(obj), name) != NULL;
    if (item == NULL || !kin_is_tensor(item))
        return false;
    set_step(out, KIN_STEP_TORCH);
    return true;
}

/* What object.__getattribute__ does (and, with a fallback, __getattr__ behind it). */
static void
generic_attr(rec *r, kin_vid base, PyObject *name, PyObject *fallback, attr_result *out)
{
    PyTypeObject *tp = Py_TYPE(O(r, base));
    PyObject *descr = rec_lookup(r, tp, name);
    if (descr != NULL && (Py_TYPE(descr)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        rec_class_version(r, Py_TYPE(descr)); /* it may become a descriptor, and the class that holds it keeps its version then */
    if (descr != NULL && Py_TYPE(descr)->tp_descr_get != NULL && Py_TYPE(descr)->tp_descr_set != NULL) {
        data_descriptor(r, base, tp, name, descr, out);
        out->fallback = fallback != NULL;
        return;
    }
    PyObject *obj = O(r, base);
    bool bare = kin_is_tensor(obj) && r->info.at[base].graph && kin_heap_instance_is_bare(obj);
    if (attr_in_graph(r, base, name, &bare, out))
        return;
    if (rec_has_instance_dict(tp) && !bare) { /* results of torch calls have no attributes of their own */
        kin_vid item = rec_instance_item(r, base, name);
        if (item != 0) {
            set_value(out, item);
            return;
        }
    }
    if (descr != NULL) {
        if (!bind_descriptor(r, tp, tp, name, descr, base, out))
            set_value(out, rec_found_value(r, tp, name, descr));
        out->fallback = fallback != NULL;
    } else if (fallback != NULL) {
        set_call(out, rec_found(r, tp, REC_STR("__getattr__"), fallback), base, rec_const(r, name), 0);
    } else {
        out->kind = ATTR_ABSENT;
    }
}

static void
module_attr(rec *r, kin_vid base, PyObject *name, attr_result *out)
{
    kin_vid mod = rec_need_const(r, base);
    PyObject *dict = mod ? PyModule_GetDict(O(r, mod)) : NULL;
    PyObject *value = dict ? PyDict_GetItemWithError(dict, name) : NULL;
    PyObject *descr = _PyType_Lookup(&PyModule_Type, name);
    PyErr_Clear();
    if (dict == NULL || descr != NULL) {
        set_step(out, KIN_STEP_OPAQUE);
        return;
    }
    if (value == NULL) {
        kin_vid d = rec_const(r, dict);
        if (PyDict_GetItemWithError(dict, REC_STR("__getattr__")) != NULL) {
            set_step(out, KIN_STEP_OPAQUE);
            return;
        }
        rec_fact(r, KIN_FACT_LACKS_KEY, d, name, 0);
        rec_fact(r, KIN_FACT_LACKS_KEY, d, REC_STR("__getattr__"), 0);
        out->kind = ATTR_ABSENT;
        return;
    }
    set_value(out, rec_dict_item(r, rec_const(r, dict), name, value));
}

/* The metaclass of the classes that pybind11 makes in torch (SDPBackend). It looks up what type does, but for methods that come as they are. */
static bool
is_of_pybind(PyTypeObject *meta)
{
    static PyObject *example;
    PyObject *cls = kin_import_once(&example, "torch._C", "_SDPBackend");
    return cls != NULL && meta == Py_TYPE(cls) && meta != &PyType_Type;
}

/* Does the metaclass look attributes up as type does, perhaps with a __getattr__ in Python behind it? */
static bool
is_plain_metaclass(rec *r, PyTypeObject *meta, PyObject **fallback)
{
    PyObject *basic = rec_lookup(r, meta, REC_STR("__getattribute__")), *hook = rec_lookup(r, meta, REC_STR("__getattr__"));
    *fallback = NULL;
    if (meta->tp_getattro == PyType_Type.tp_getattro || is_of_pybind(meta))
        return true;
    *fallback = hook;
    return basic != NULL && Py_TYPE(basic) == &PyWrapperDescr_Type &&
           ((PyWrapperDescrObject *)basic)->d_wrapped == (void *)PyType_Type.tp_getattro && hook != NULL && PyFunction_Check(hook);
}

/* dict.fromkeys and the like: a new object bound to the class, whose parts are known. */
static void
class_method_of_c(rec *r, kin_vid cls, PyObject *name, kin_vid descr, attr_result *out)
{
    kin_vid parts[2] = {descr, cls}, bound = rec_step_out(r, KIN_STEP_GETATTR, KIN_STEP_PURE, &cls, 1);
    kin_ref ref = rec_ref(r, name);
    r->t->steps.at[r->t->vals.at[bound].step].ref = ref;
    rec_make_virtual(r, bound, VIRTUAL_METHOD, parts, 2, true);
    set_value(out, bound);
}

static void
class_attr(rec *r, kin_vid base, PyObject *name, attr_result *out)
{
    kin_vid cls = rec_need_const(r, base);
    if (cls == 0) { /* another one in each call: B.__mro__[n] */
        set_step(out, KIN_STEP_OPAQUE);
        return;
    }
    PyTypeObject *tp = (PyTypeObject *)O(r, cls), *meta = Py_TYPE(tp);
    PyObject *fallback;
    if (!(meta->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) /* it may be assigned, which from 3.13 on leaves the version of the class as it is */
        rec_fact(r, KIN_FACT_TYPE, cls, (PyObject *)meta, 0);
    rec_attrs_of(r, tp);
    rec_attrs_of(r, meta);
    if (!is_plain_metaclass(r, meta, &fallback)) {
        set_step(out, KIN_STEP_OPAQUE);
        return;
    }
    PyObject *meta_attr = rec_lookup(r, meta, name);
    if (meta_attr != NULL && (Py_TYPE(meta_attr)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        rec_class_version(r, Py_TYPE(meta_attr));
    if (meta_attr != NULL && Py_TYPE(meta_attr)->tp_descr_set != NULL) {
        set_step(out, Py_TYPE(meta_attr) == &PyGetSetDescr_Type || Py_TYPE(meta_attr) == &PyMemberDescr_Type
                          ? 0 : KIN_STEP_OPAQUE);
        return;
    }
    PyObject *attr = rec_lookup(r, tp, name);
    if (attr != NULL && Py_TYPE(attr) == &PyInstanceMethod_Type) {
        set_step(out, KIN_STEP_OPAQUE);
        return;
    }
    if (attr != NULL) {
        PyTypeObject *dt = Py_TYPE(attr);
        if (dt->tp_flags & Py_TPFLAGS_HEAPTYPE)
            rec_class_version(r, dt);
        if (dt == &PyClassMethod_Type || dt == &PyStaticMethod_Type)
            bind_descriptor(r, tp, tp, name, attr, cls, out);
        else if (dt == &PyClassMethodDescr_Type)
            class_method_of_c(r, cls, name, rec_found(r, tp, name, attr), out);
        else if (dt == &PyFunction_Type || dt == &PyMethodDescr_Type || dt == &PyWrapperDescr_Type ||
                 dt->tp_descr_get == NULL || dt == &PyGetSetDescr_Type || dt == &PyMemberDescr_Type ||
                 dt == &PyProperty_Type)
            set_value(out, rec_found_value(r, tp, name, attr));
        else
            set_step(out, KIN_STEP_OPAQUE);
        return;
    }
    if (meta_attr != NULL && (PyFunction_Check(meta_attr) || Py_TYPE(meta_attr) == &PyMethodDescr_Type))
        set_method(out, rec_found(r, meta, name, meta_attr), cls);
    else if (meta_attr != NULL && kin_is_exact_immutable(meta_attr))
        set_value(out, rec_found_value(r, meta, name, meta_attr));
    else if (meta_attr == NULL && fallback != NULL)
        set_call(out, rec_found(r, meta, REC_STR("__getattr__"), fallback), cls, rec_const(r, name), 0);
    else if (meta_attr == NULL)
        out->kind = ATTR_ABSENT;
    else
        set_step(out, KIN_STEP_OPAQUE);
}

/* super().name: items = class, object; found behind the class in the object's MRO. */
static void
super_attr(rec *r, kin_vid base, PyObject *name, attr_result *out)
{
    rec_virtual *f = VIRTUAL(r, base);
    kin_vid self = f->items[1];
    PyTypeObject *after = (PyTypeObject *)O(r, f->items[0]);
    PyObject *obj = O(r, self);
    bool on_class = PyType_Check(obj) && PyType_IsSubtype((PyTypeObject *)obj, after);
    PyTypeObject *tp = on_class ? (PyTypeObject *)obj : rec_need_type(r, self);
    if (on_class) {
        if (rec_need_const(r, self) == 0) {
            set_step(out, KIN_STEP_OPAQUE);
            return;
        }
    }
    rec_bases_of(r, tp);
    PyObject *mro = tp->tp_mro;
    Py_ssize_t i = 0, n = PyTuple_GET_SIZE(mro);
    while (i < n && PyTuple_GET_ITEM(mro, i) != (PyObject *)after)
        i++;
    for (i++; i < n; i++) {
        PyTypeObject *cls = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        if (rec_class_is_dynamic(r, tp))
            rec_class_version(r, cls); /* else the version of tp speaks for its bases */
        PyObject *attr = PyDict_GetItemWithError(kin_type_dict(cls), name);
        if (attr == NULL)
            continue;
        PyTypeObject *dt = Py_TYPE(attr);
        if (dt == &PyFunction_Type || dt == &PyMethodDescr_Type || dt == &PyWrapperDescr_Type) {
            set_method(out, rec_const(r, attr), self);
        } else if (dt == &PyStaticMethod_Type) {
            bind_descriptor(r, cls, cls, name, attr, self, out);
        } else if (dt == &PyClassMethod_Type) {
            bind_descriptor(r, cls, tp, name, attr, self, out);
        } else if (dt == &PyProperty_Type && !on_class) {
            data_descriptor(r, self, cls, name, attr, out);
        } else if (dt == &PyCFunction_Type) { /* __new__ of a class made by C */
            set_value(out, rec_const(r, attr));
        } else if (dt == &PyClassMethodDescr_Type) { /* a new bound method; runs no Python code */
            set_step(out, 0);
        } else {
            set_step(out, KIN_STEP_OPAQUE);
        }
        return;
    }
    PyErr_Clear();
    set_step(out, KIN_STEP_OPAQUE);
}

/* object.__getattribute__(base, name) called by name. */
void
rec_attr_generic(rec *r, kin_vid base, PyObject *name, attr_result *out)
{
    memset(out, 0, sizeof *out);
    rec_need_attrs(r, base);
    generic_attr(r, base, name, NULL, out);
}

void
rec_attr_find(rec *r, kin_vid base, PyObject *name, attr_result *out)
{
    memset(out, 0, sizeof *out);
    PyObject *obj = O(r, base);
    rec_virtual *f = VIRTUAL(r, base);
    if (f != NULL && f->kind == VIRTUAL_SUPER)
        super_attr(r, base, name, out);
    else if (PyType_Check(obj))
        class_attr(r, base, name, out);
    else if (Py_TYPE(obj) == &PyModule_Type)
        module_attr(r, base, name, out);
    else
        instance_attr(r, base, name, out);
}

/* An attribute that is read by path or follows from what is known, without a step that runs. */
kin_vid
rec_attribute(rec *r, kin_vid obj, PyObject *name)
{
    attr_result at;
    rec_attr_find(r, obj, name, &at);
    if (at.kind == ATTR_VALUE)
        return at.value;
    if (at.kind != ATTR_AWAIT_CONST)
        return 0;
    PyObject *value = PyObject_GetAttr(O(r, obj), name);
    kin_vid known = value != NULL ? rec_const(r, value) : 0;
    Py_XDECREF(value);
    PyErr_Clear();
    return known;
}

/* -- the instructions ------------------------------------------------------------------------------------------- */

static void
push_bound_method(rec *r, kin_vid func, kin_vid self, bool method)
{
    if (method) {
        rec_push(r, func);
        rec_push(r, self);
        return;
    }
    kin_vid args[2] = {func, self};
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_METHOD, KIN_STEP_PURE, args, 2);
    r->info.at[out].type = Py_TYPE(O(r, func)) == &PyFunction_Type ? &PyMethod_Type : NULL;
    rec_make_virtual(r, out, VIRTUAL_METHOD, args, 2, true);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

/* LOAD_METHOD of all versions pushes function and self only where the type looks attributes up in the generic way. */
static bool
is_method_pair(rec *r, kin_vid func, kin_vid self, kin_vid base)
{
    PyObject *obj = O(r, base); /* of a super object that is not made there is none */
    if (obj == NULL || Py_TYPE(obj)->tp_getattro != PyObject_GenericGetAttr)
        return false;
    if (self == base)
        return Py_TYPE(O(r, func))->tp_flags & Py_TPFLAGS_METHOD_DESCRIPTOR;
    return O(r, self) == (PyObject *)Py_TYPE(obj) && kin_class_methods_come_apart(); /* only a class method is bound to the class */
}

/* What is called when the Python code that looks for the attribute raises AttributeError. */
kin_vid
rec_fallback(rec *r, kin_vid base, PyObject *name)
{
    PyTypeObject *tp = Py_TYPE(O(r, base));
    PyObject *hook = rec_lookup(r, tp, REC_STR("__getattr__"));
    if (hook == NULL || !PyFunction_Check(hook))
        return 0;
    kin_vid parts[3] = {rec_found(r, tp, REC_STR("__getattr__"), hook), base, rec_const(r, name)};
    return rec_build_tuple(r, parts, 3, NULL);
}

void
rec_op_load_attr(rec *r, PyObject *name, bool method)
{
    kin_vid base = rec_peek(r, 0);
    const kin_vid null = 0;
    const bool empty_last = r->top->flags & KIN_DO_CALLABLE_FIRST; /* where the empty slot of a pair goes */
    attr_result a;
    if (rec_getset_override(r, base, name, method && !empty_last))
        return;
    rec_attr_find(r, base, name, &a);
    kin_vid extra = a.kind == ATTR_CALL && a.fallback ? rec_fallback(r, base, name) : 0;
    if (a.kind == ATTR_CALL && a.fallback == (extra != 0) && rec_can_inline(r, O(r, a.func)) &&
        rec_inline(r, &(rec_args){.callee = a.func, .args = a.args, .npos = a.nargs, .ndrop = 1}, &null, method && !empty_last ? 1 : 0, extra ? KIN_RESUME_FALLBACK : KIN_RESUME_PUSH, extra))
        return;
    bool pair = false;
    if (a.kind == ATTR_METHOD) {
        pair = method && is_method_pair(r, a.value, a.self, base);
    }
    kin_vid step = 0;
    if (a.kind == ATTR_CALL || a.kind == ATTR_STEP || a.kind == ATTR_ABSENT) {
        unsigned flags = a.kind == ATTR_STEP ? a.flags : a.kind == ATTR_ABSENT ? 0 : KIN_STEP_OPAQUE;
        step = rec_step_out(r, KIN_STEP_GETATTR, flags, &base, 1);
        kin_ref ref = rec_ref(r, name);
        r->t->steps.at[r->t->vals.at[step].step].ref = ref;
        if (flags & KIN_STEP_OPAQUE)
            rec_forget_contents(r);
        else if (a.makes_dict)
            rec_end_epoch(r);
        r->skip_expected = r->skip_expected || flags & KIN_STEP_OPAQUE;
    }
    rec_drop(r, 1);
    if (method && !pair && !empty_last)
        rec_push(r, 0);
    switch (a.kind) {
    case ATTR_VALUE:
        rec_push(r, a.value);
        break;
    case ATTR_METHOD:
        push_bound_method(r, a.value, a.self, pair);
        break;
    case ATTR_AWAIT_CONST:
        rec_await_const(r);
        break;
    case ATTR_CALL:
    case ATTR_STEP:
    case ATTR_ABSENT:
        rec_await_result(r, step, r->t->vals.at[step].step);
        break;
    }
    if (method && !pair && empty_last)
        rec_push(r, 0);
}
