/* Steps that create objects, and steps that change the object in arg[0]. */
#include "py/compat/kinds.h"
#include "py/compat/super.h"
#include "py/replay/ops_priv.h"

#include "py/aten/sizes.h"

static PyObject *
none_unless(int failed)
{
    return failed < 0 ? NULL : Py_NewRef(Py_None);
}

/* -- new objects ------------------------------------------------------------------------------------------------ */

PyObject *
kin_op_build_tuple(const kin_op_args *o)
{
    PyObject *tuple = PyTuple_New(o->nargs);
    for (int i = 0; tuple != NULL && i < o->nargs; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(o->arg[i]));
    return tuple;
}

PyObject *
kin_op_build_size(const kin_op_args *o)
{
    return kin_size_new(o->arg, o->nargs);
}

PyObject *
kin_op_build_list(const kin_op_args *o)
{
    PyObject *list = PyList_New(o->nargs);
    for (int i = 0; list != NULL && i < o->nargs; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(o->arg[i]));
    return list;
}

PyObject *
kin_op_build_set(const kin_op_args *o)
{
    PyObject *set = PySet_New(NULL);
    for (int i = 0; set != NULL && i < o->nargs; i++)
        if (PySet_Add(set, o->arg[i]) < 0)
            Py_CLEAR(set);
    return set;
}

PyObject *
kin_op_build_map(const kin_op_args *o)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i + 1 < o->nargs; i += 2)
        if (PyDict_SetItem(dict, o->arg[i], o->arg[i + 1]) < 0)
            Py_CLEAR(dict);
    return dict;
}

PyObject *
kin_op_build_slice(const kin_op_args *o)
{
    return PySlice_New(o->arg[0], o->arg[1], o->nargs > 2 ? o->arg[2] : NULL);
}

PyObject *
kin_op_build_string(const kin_op_args *o)
{
    PyObject *parts = kin_op_build_tuple(o), *empty = PyUnicode_FromStringAndSize(NULL, 0);
    PyObject *text = parts && empty ? PyUnicode_Join(empty, parts) : NULL;
    Py_XDECREF(parts);
    Py_XDECREF(empty);
    return text;
}

/* Methods of C classes bind to builtin methods, not to method objects. */
PyObject *
kin_op_build_method(const kin_op_args *o)
{
    PyObject *func = o->arg[0], *self = o->arg[1];
    PyTypeObject *tp = Py_TYPE(func);
    if (tp == &PyMethodDescr_Type || tp == &PyWrapperDescr_Type)
        return tp->tp_descr_get(func, self, (PyObject *)Py_TYPE(self));
    return PyMethod_New(func, self);
}

PyObject *
kin_op_build_super(const kin_op_args *o)
{
    return kin_super_new((PyTypeObject *)o->arg[0], o->arg[1], (PyTypeObject *)o->arg[2]);
}

PyObject *
kin_op_build_cell(const kin_op_args *o)
{
    return PyCell_New(o->nargs > 0 ? o->arg[0] : NULL);
}

PyObject *
kin_op_list_to_tuple(const kin_op_args *o)
{
    return PyList_AsTuple(o->arg[0]);
}

/* MAKE_FUNCTION passes annotations as a flat tuple (name, value, ...); the setter wants a dict. */
static int
set_annotations(PyObject *func, PyObject *annotations)
{
    if (!PyTuple_CheckExact(annotations))
        return PyFunction_SetAnnotations(func, annotations);
    PyObject *dict = PyDict_New();
    int failed = dict == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; failed == 0 && i + 1 < PyTuple_GET_SIZE(annotations); i += 2)
        failed = PyDict_SetItem(dict, PyTuple_GET_ITEM(annotations, i), PyTuple_GET_ITEM(annotations, i + 1));
    if (failed == 0)
        failed = PyFunction_SetAnnotations(func, dict);
    Py_XDECREF(dict);
    return failed;
}

PyObject *
kin_op_build_function(const kin_op_args *o)
{
    PyObject *part[KIN_FUNCTION_PARTS] = {NULL};
    for (int i = 0; i < KIN_FUNCTION_PARTS && i < o->nargs; i++)
        part[i] = o->arg[i];
    PyObject *func = PyFunction_NewWithQualName(part[KIN_FUNCTION_CODE], part[KIN_FUNCTION_GLOBALS], o->ref);
    if (func == NULL)
        return NULL;
    PyObject *defaults = part[KIN_FUNCTION_DEFAULTS], *kwdefaults = part[KIN_FUNCTION_KWDEFAULTS], *annotations = part[KIN_FUNCTION_ANNOTATIONS];
    PyObject *closure = part[KIN_FUNCTION_CLOSURE], *annotate = part[KIN_FUNCTION_ANNOTATE];
    if ((defaults && PyFunction_SetDefaults(func, defaults) < 0) || (kwdefaults && PyFunction_SetKwDefaults(func, kwdefaults) < 0) ||
        (annotations && set_annotations(func, annotations) < 0) || (closure && PyFunction_SetClosure(func, closure) < 0) ||
        (annotate && PyObject_SetAttrString(func, "__annotate__", annotate) < 0))
        Py_CLEAR(func);
    return func;
}

/* As object.__new__(cls): also what it does for classes with abstract methods. */
PyObject *
kin_op_build_object(const kin_op_args *o)
{
    PyObject *none = PyTuple_New(0);
    PyObject *object = none ? PyBaseObject_Type.tp_new((PyTypeObject *)o->arg[0], none, NULL) : NULL;
    Py_XDECREF(none);
    return object;
}

/* -- cells ------------------------------------------------------------------------------------------------------ */

PyObject *
kin_op_cell_set(const kin_op_args *o)
{
    return none_unless(PyCell_Set(o->arg[0], o->nargs > 1 ? o->arg[1] : NULL));
}

/* A replay that meets an empty cell leaves before the instruction, and CPython raises with the right words. */
PyObject *
kin_op_cell_get(const kin_op_args *o)
{
    PyObject *value = PyCell_Get(o->arg[0]);
    if (value != NULL || PyErr_Occurred())
        return value;
    if (o->imm != 0)
        PyErr_Format(PyExc_NameError, "cannot access free variable '%S' where it is not associated with a value in "
                     "enclosing scope", o->ref ? o->ref : Py_None);
    else
        PyErr_Format(PyExc_UnboundLocalError, "cannot access local variable '%S' where it is not associated with a "
                     "value", o->ref ? o->ref : Py_None);
    return NULL;
}

/* -- lists and sets --------------------------------------------------------------------------------------------- */

static PyObject *
call_method(PyObject *obj, const char *name, PyObject *arg)
{
    return PyObject_CallMethod(obj, name, "(O)", arg);
}

PyObject *
kin_op_list_append(const kin_op_args *o)
{
    return none_unless(PyList_Append(o->arg[0], o->arg[1]));
}

PyObject *
kin_op_list_extend(const kin_op_args *o)
{
    PyObject *items = o->arg[1];
    PyObject *done = call_method(o->arg[0], "extend", items);
    if (done == NULL && PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(items)->tp_iter == NULL &&
        !PySequence_Check(items)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", Py_TYPE(items)->tp_name);
    }
    return done;
}

PyObject *
kin_op_set_add(const kin_op_args *o)
{
    return none_unless(PySet_Add(o->arg[0], o->arg[1]));
}

PyObject *
kin_op_set_update(const kin_op_args *o)
{
    return call_method(o->arg[0], "update", o->arg[1]);
}

/* -- dicts ------------------------------------------------------------------------------------------------------ */

PyObject *
kin_op_dict_update(const kin_op_args *o)
{
    int failed = PyDict_Update(o->arg[0], o->arg[1]);
    if (failed < 0 && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(o->arg[1])->tp_name);
    }
    return none_unless(failed);
}

/* "module.f()"; builtins go without their module. */
PyObject *
kin_op_callee_text(PyObject *callee)
{
    PyObject *name = PyObject_GetAttrString(callee, "__qualname__"), *text = NULL;
    if (name == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return NULL;
        PyErr_Clear();
        return PyObject_Str(callee);
    }
    PyObject *module = PyObject_GetAttrString(callee, "__module__");
    if (module == NULL)
        PyErr_Clear();
    if (module != NULL && module != Py_None &&
        !kin_text_is(module, "builtins"))
        text = PyUnicode_FromFormat("%S.%S()", module, name);
    else
        text = PyUnicode_FromFormat("%S()", name);
    Py_XDECREF(module);
    Py_DECREF(name);
    return text;
}

static int
refuse_duplicate(PyObject *key, PyObject *callee)
{
    PyObject *text = kin_op_callee_text(callee);
    if (text != NULL)
        PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", text, key);
    Py_XDECREF(text);
    return -1;
}

/* As C code merges a dict that has dict's own iteration: without its class's methods. */
static int
merge_entries(PyObject *dict, PyObject *from, PyObject *callee)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    int status = 0;
    while (status == 0 && PyDict_Next(from, &pos, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        status = PyDict_Contains(dict, key);
        if (status > 0)
            status = refuse_duplicate(key, callee);
        else if (status == 0)
            status = PyDict_SetItem(dict, key, value);
        Py_DECREF(key);
        Py_DECREF(value);
    }
    return status;
}

static int
merge_keys(PyObject *dict, PyObject *mapping, PyObject *keys, PyObject *callee)
{
    PyObject *iter = PyObject_GetIter(keys), *key;
    if (iter == NULL)
        return -1;
    int status = 0;
    while (status == 0 && (key = PyIter_Next(iter)) != NULL) {
        status = PyDict_Contains(dict, key);
        if (status > 0)
            status = refuse_duplicate(key, callee);
        PyObject *value = status == 0 ? PyObject_GetItem(mapping, key) : NULL;
        if (status == 0)
            status = value ? PyDict_SetItem(dict, key, value) : -1;
        Py_XDECREF(value);
        Py_DECREF(key);
    }
    Py_DECREF(iter);
    return status < 0 || PyErr_Occurred() ? -1 : 0;
}

PyObject *
kin_op_dict_merge(const kin_op_args *o)
{
    PyObject *mapping = o->arg[1], *callee = o->nargs > 2 && o->arg[2] ? o->arg[2] : Py_None;
    if (PyDict_Check(mapping) && Py_TYPE(mapping)->tp_iter == PyDict_Type.tp_iter)
        return none_unless(merge_entries(o->arg[0], mapping, callee));
    PyObject *keys = PyMapping_Check(mapping) || PyObject_HasAttrString(mapping, "keys") ? PyMapping_Keys(mapping) : NULL;
    if (keys == NULL && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_AttributeError))) {
        PyErr_Clear();
        PyObject *text = kin_op_callee_text(callee);
        if (text != NULL)
            PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", text,
                         Py_TYPE(mapping)->tp_name);
        Py_XDECREF(text);
    }
    int status = keys ? merge_keys(o->arg[0], mapping, keys, callee) : -1;
    Py_XDECREF(keys);
    return none_unless(status);
}

PyObject *
kin_op_update_wrapper(const kin_op_args *o)
{
    PyObject *const args[2] = {o->arg[0], o->arg[1]};
    return PyObject_Vectorcall(o->arg[2], args, 2, NULL);
}
