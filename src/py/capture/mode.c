/* The dispatch mode of a capture: a heap type whose __torch_dispatch__ notes each operator in the graph and learns what
 * it returns by calling it on the twins of its arguments. torch takes the mode off while the method runs.
 */
#include <stddef.h>

#include "py/capture/capture_priv.h"

#define T kin_capture_torch

typedef struct {
    PyObject_HEAD
    capturing *c; /* NULL: the capture is over */
} mode_object;

/* -- operators -------------------------------------------------------------------------------------------------- */

/* Does the operator change an argument without returning it? Such a change would not be seen in the graph. */
static int
changes_silently(PyObject *func, const char *name)
{
    PyObject *schema = PyObject_GetAttrString(func, "_schema");
    PyObject *is_mutable = schema == NULL ? NULL : PyObject_GetAttrString(schema, "is_mutable");
    int mutable = is_mutable == NULL ? -1 : PyObject_IsTrue(is_mutable);
    Py_XDECREF(schema);
    Py_XDECREF(is_mutable);
    if (mutable <= 0)
        return mutable;
    const char *dot = strrchr(name, '.');
    bool in_place = dot != NULL && dot > name && dot[-1] == '_';
    return !(in_place || strstr(name, ".out") != NULL || strstr(name, "_out") != NULL);
}

/* (C function, name, changes silently): borrowed, made once for each overload. */
static PyObject *
find_row(PyObject *func)
{
    PyObject *row = PyDict_GetItemWithError(T.op_rows, func);
    if (row != NULL || PyErr_Occurred())
        return row;
    PyObject *op = PyObject_GetAttrString(func, "_op"), *name = op == NULL ? NULL : PyObject_Str(func);
    const char *text = name == NULL ? NULL : PyUnicode_AsUTF8(name);
    int silent = text == NULL ? -1 : changes_silently(func, text);
    if (silent >= 0)
        row = Py_BuildValue("(OOO)", op, name, silent ? Py_True : Py_False);
    Py_XDECREF(op);
    Py_XDECREF(name);
    if (row != NULL && PyDict_SetItem(T.op_rows, func, row) < 0)
        Py_CLEAR(row);
    Py_XDECREF(row);
    return row; /* the dict keeps it */
}

/* -- arguments -------------------------------------------------------------------------------------------------- */

static PyObject *convert(capturing *c, PyObject *obj, const char *keyword);

static PyObject *
refused(capturing *c, const char *format, const char *what)
{
    kin_capture_refuse(c, format, what);
    PyErr_SetString(PyExc_RuntimeError, "kintsugi: this cannot be captured");
    return NULL;
}

static PyObject *
convert_sequence(capturing *c, PyObject *obj, const char *keyword)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    kin_aten_arg arg = {.kind = KIN_ATEN_LIST, .list = {.count = (uint32_t)n}};
    kin_aten_add_arg(c->out->graph, arg, keyword, NULL);
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = convert(c, PySequence_Fast_GET_ITEM(obj, i), NULL);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    if (list != NULL && PyTuple_Check(obj))
        Py_SETREF(list, PyList_AsTuple(list));
    return list;
}

static PyObject *
convert_word(capturing *c, PyObject *obj, const char *keyword)
{
    PyObject *text = PyObject_Str(obj);
    const char *chars = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    if (chars != NULL)
        kin_aten_add_arg(c->out->graph, (kin_aten_arg){.kind = KIN_ATEN_WORD}, keyword, chars);
    Py_XDECREF(text);
    return chars == NULL ? NULL : Py_NewRef(obj);
}

static PyObject *
convert_number(capturing *c, PyObject *obj, const char *keyword)
{
    kin_aten_arg arg = {.kind = KIN_ATEN_FLOAT};
    if (PyFloat_Check(obj))
        arg.f = PyFloat_AS_DOUBLE(obj);
    else {
        arg.kind = PyBool_Check(obj) ? KIN_ATEN_BOOL : KIN_ATEN_INT;
        arg.i = PyLong_AsLongLong(obj);
        if (arg.i == -1 && PyErr_Occurred())
            return NULL;
    }
    kin_aten_add_arg(c->out->graph, arg, keyword, NULL);
    return Py_NewRef(obj);
}

/* dtype, device, layout, memory format; NULL without an exception when it is none of them. */
static PyObject *
convert_torch(capturing *c, PyObject *obj, const char *keyword)
{
    if (Py_IS_TYPE(obj, T.dtype)) {
        for (int i = 0; i < KIN_DTYPE__COUNT; i++)
            if (obj == T.dtypes[i]) {
                kin_aten_add_arg(c->out->graph, (kin_aten_arg){.kind = KIN_ATEN_DTYPE, .i = i}, keyword, NULL);
                return Py_NewRef(obj);
            }
        return refused(c, "%s", "a dtype that graphs do not know");
    }
    if (Py_IS_TYPE(obj, T.device)) {
        int same = PyObject_RichCompareBool(obj, T.cpu, Py_EQ);
        PyObject *word = same == 1 ? convert_word(c, obj, keyword) : NULL;
        Py_XDECREF(word);
        return word != NULL ? Py_NewRef(T.meta) : same < 0 ? NULL : refused(c, "%s", "another device than the CPU");
    }
    if (Py_IS_TYPE(obj, T.layout) && obj != T.strided)
        return refused(c, "%s", "another layout than strided");
    if (Py_IS_TYPE(obj, T.layout) || Py_IS_TYPE(obj, T.memory_format))
        return convert_word(c, obj, keyword);
    return NULL;
}

/* Adds the argument to the newest call; returns what the twins' call gets for it. */
static PyObject *
convert(capturing *c, PyObject *obj, const char *keyword)
{
    uint32_t number = kin_capture_number(obj);
    if (number < c->entries.len) {
        const capture_entry *e = &c->entries.at[number];
        kin_aten_add_arg(c->out->graph, (kin_aten_arg){.kind = KIN_ATEN_VALUE, .value = e->val}, keyword, NULL);
        return Py_NewRef(e->twin);
    }
    if (obj == Py_None) {
        kin_aten_add_arg(c->out->graph, (kin_aten_arg){.kind = KIN_ATEN_NONE}, keyword, NULL);
        return Py_NewRef(obj);
    }
    if (PyFloat_Check(obj) || PyLong_Check(obj))
        return convert_number(c, obj, keyword);
    if (PyUnicode_Check(obj)) {
        kin_aten_add_arg(c->out->graph, (kin_aten_arg){.kind = KIN_ATEN_STR}, keyword, PyUnicode_AsUTF8(obj));
        return PyErr_Occurred() ? NULL : Py_NewRef(obj);
    }
    if (PyTuple_Check(obj) || PyList_Check(obj))
        return convert_sequence(c, obj, keyword);
    if (PyComplex_CheckExact(obj))
        return convert_word(c, obj, keyword);
    PyObject *made = convert_torch(c, obj, keyword);
    if (made != NULL || PyErr_Occurred())
        return made;
    if (kin_is_tensor(obj))
        return refused(c, "%s", "it uses a tensor that is not among its inputs");
    return refused(c, "an argument is a %s", Py_TYPE(obj)->tp_name);
}

static PyObject *
convert_args(capturing *c, PyObject *args)
{
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
        PyObject *item = convert(c, PyTuple_GET_ITEM(args, i), NULL);
        if (item == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

static PyObject *
convert_kwargs(capturing *c, PyObject *kwargs)
{
    PyObject *dict = PyDict_New(), *key, *value;
    Py_ssize_t pos = 0;
    while (dict != NULL && kwargs != NULL && PyDict_Next(kwargs, &pos, &key, &value)) {
        const char *name = PyUnicode_AsUTF8(key);
        PyObject *item = name == NULL ? NULL : convert(c, value, name);
        if (item == NULL || PyDict_SetItem(dict, key, item) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(item);
    }
    return dict;
}

/* -- results ---------------------------------------------------------------------------------------------------- */

/* The stand-in whose twin this is, among the arguments; borrowed or NULL. Operators that write return their argument. */
static PyObject *
find_argument(capturing *c, PyObject *obj, PyObject *twin, uint32_t *number)
{
    uint32_t n = kin_capture_number(obj);
    if (n < c->entries.len) {
        *number = n;
        return c->entries.at[n].twin == twin ? obj : NULL;
    }
    PyObject *found = NULL;
    if (PyTuple_Check(obj) || PyList_Check(obj))
        for (Py_ssize_t i = 0; found == NULL && i < PySequence_Fast_GET_SIZE(obj); i++)
            found = find_argument(c, PySequence_Fast_GET_ITEM(obj, i), twin, number);
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    if (PyDict_Check(obj))
        while (found == NULL && PyDict_Next(obj, &pos, &key, &value))
            found = find_argument(c, value, twin, number);
    return found;
}

static bool
has_same_layout(PyObject *a, PyObject *b)
{
    size_t row = (size_t)kin_tensor_dim(a) * sizeof(int64_t);
    return kin_tensor_offset(a) == kin_tensor_offset(b) &&
           (row == 0 || (memcmp(kin_tensor_sizes(a), kin_tensor_sizes(b), row) == 0 &&
                         memcmp(kin_tensor_strides(a), kin_tensor_strides(b), row) == 0));
}

static PyObject *
wrap_tensor(capturing *c, const kin_capture_call *call, PyObject *twin)
{
    kin_dtype dtype;
    if (!kin_tensor_is_dense(twin, true) || !kin_tensor_dtype(twin, &dtype))
        return refused(c, "%s", "a result of a kind that graphs do not know");
    kin_aten_val val = kin_aten_add_result(c->out->graph, dtype, (unsigned)kin_tensor_dim(twin), kin_tensor_sizes(twin),
                                           kin_tensor_strides(twin), kin_stand_in_storage(c, twin), kin_tensor_offset(twin));
    uint32_t number;
    PyObject *same = find_argument(c, call->args, twin, &number);
    if (same == NULL && call->kwargs != NULL)
        same = find_argument(c, call->kwargs, twin, &number);
    if (same == NULL)
        return kin_stand_in_new(c, twin, kin_tensor_offset(twin), false, val);
    if (kin_tensor_dim(same) != kin_tensor_dim(twin) || !has_same_layout(same, twin))
        return refused(c, "%s", "an operator changes the sizes of its argument");
    c->entries.at[number].val = val;
    return Py_NewRef(same);
}

/* What the program gets for a result of the twins' call. */
static PyObject *
wrap_result(capturing *c, const kin_capture_call *call, PyObject *result)
{
    if (kin_is_tensor(result))
        return wrap_tensor(c, call, result);
    if (!PyTuple_CheckExact(result) && !PyList_CheckExact(result))
        return result == Py_None ? Py_NewRef(result) : refused(c, "a result is a %s", Py_TYPE(result)->tp_name);
    bool is_list = PyList_CheckExact(result);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(result);
    PyObject *made = is_list ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; made != NULL && i < n; i++) {
        PyObject *item = wrap_result(c, call, PySequence_Fast_GET_ITEM(result, i));
        if (item == NULL)
            Py_CLEAR(made);
        else if (is_list)
            PyList_SET_ITEM(made, i, item);
        else
            PyTuple_SET_ITEM(made, i, item);
    }
    return made;
}

/* -- one operator ----------------------------------------------------------------------------------------------- */

/* Operators without tensor arguments make their results where they are told to; not told, on the default device. */
static bool
place_on_meta(const capturing *c, PyObject *kwargs)
{
    const kin_aten *g = c->out->graph;
    const kin_aten_call *call = &g->calls.at[g->calls.len - 1];
    for (uint32_t i = call->args; i < g->args.len; i++)
        if (g->args.at[i].kind == KIN_ATEN_VALUE)
            return true;
    return PyDict_GetItem(kwargs, T.s_device) != NULL || PyDict_SetItem(kwargs, T.s_device, T.meta) == 0;
}

static PyObject *
note_call(capturing *c, PyObject *func, PyObject *args, PyObject *kwargs)
{
    PyObject *row = find_row(func);
    if (row == NULL)
        return NULL;
    const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(row, 1));
    if (PyTuple_GET_ITEM(row, 2) == Py_True)
        return refused(c, "%s changes an argument that it does not return", name);
    uint32_t before = c->out->graph->values.len;
    kin_capture_call call = {PyTuple_GET_ITEM(row, 0), args, kwargs != NULL && PyDict_GET_SIZE(kwargs) ? kwargs : NULL};
    kin_aten_add_call(c->out->graph, name);
    if (kin_vec_push(&c->out->calls, call) != KIN_OK)
        return PyErr_NoMemory();
    Py_INCREF(call.op);
    Py_INCREF(call.args);
    Py_XINCREF(call.kwargs);
    PyObject *twins = convert_args(c, args), *twin_kwargs = twins == NULL ? NULL : convert_kwargs(c, kwargs);
    PyObject *result = NULL, *made = NULL;
    if (twin_kwargs != NULL && place_on_meta(c, twin_kwargs))
        result = PyObject_Call(call.op, twins, twin_kwargs);
    if (result != NULL)
        made = wrap_result(c, &call, result);
    if (made != NULL && c->out->graph->values.len == before) {
        Py_CLEAR(made);
        refused(c, "%s gives no tensor", name);
    }
    if (made == NULL)
        kin_capture_refuse(c, "%s cannot be captured", name);
    Py_XDECREF(result);
    Py_XDECREF(twins);
    Py_XDECREF(twin_kwargs);
    return made;
}

/* __torch_dispatch__(self, func, types, args=(), kwargs=None) */
static PyObject *
dispatch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    capturing *c = ((mode_object *)self)->c;
    if (c == NULL || nargs < 2 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0)) {
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: an operator came to a capture that is over");
        return NULL;
    }
    PyObject *positional = nargs > 2 ? Py_NewRef(args[2]) : PyTuple_New(0);
    PyObject *keywords = nargs > 3 && args[3] != Py_None ? args[3] : NULL, *made = NULL;
    if (positional != NULL && PyTuple_Check(positional) && (keywords == NULL || PyDict_Check(keywords)))
        made = note_call(c, args[0], positional, keywords);
    else if (positional != NULL)
        refused(c, "%s", "an operator was called in an unknown way");
    Py_XDECREF(positional);
    return made;
}

/* -- the type --------------------------------------------------------------------------------------------------- */

static PyObject *
answer_true(PyObject *cls, PyObject *unused)
{
    Py_RETURN_TRUE;
}

static PyMethodDef mode_methods[] = {
    {"__torch_dispatch__", (PyCFunction)(void (*)(void))dispatch, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"is_infra_mode", answer_true, METH_NOARGS | METH_CLASS, NULL},
    {"ignore_compile_internals", answer_true, METH_NOARGS | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static void
dealloc_mode(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot mode_slots[] = {
    {Py_tp_methods, mode_methods},
    {Py_tp_dealloc, dealloc_mode},
    {0, NULL},
};

static PyType_Spec mode_spec = {
    .name = "kintsugi._kintsugi.CaptureMode",
    .basicsize = sizeof(mode_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = mode_slots,
};

kin_status
kin_mode_init(void)
{
    T.mode = (PyTypeObject *)PyType_FromSpec(&mode_spec);
    /* torch asks modes whether they take higher order operators; not said, it is an error. */
    if (T.mode == NULL || PyObject_SetAttrString((PyObject *)T.mode, "supports_higher_order_operators", Py_False) < 0)
        return KIN_BREAK;
    return KIN_OK;
}

PyObject *
kin_mode_new(capturing *c)
{
    mode_object *mode = (mode_object *)T.mode->tp_alloc(T.mode, 0);
    if (mode != NULL)
        mode->c = c;
    return (PyObject *)mode;
}

void
kin_mode_end(PyObject *mode)
{
    ((mode_object *)mode)->c = NULL;
}
