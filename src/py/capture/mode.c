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

/* Names of the arguments that the overload writes to, by the schema; a tuple of their places among all arguments and
 * their names alternate. NULL with an exception. */
static PyObject *
list_written(PyObject *func)
{
    PyObject *schema = PyObject_GetAttrString(func, "_schema");
    PyObject *args = schema == NULL ? NULL : PyObject_GetAttrString(schema, "arguments"), *list = PyList_New(0);
    for (Py_ssize_t i = 0; args != NULL && list != NULL && i < PySequence_Size(args); i++) {
        PyObject *arg = PySequence_GetItem(args, i), *info = arg == NULL ? NULL : PyObject_GetAttrString(arg, "alias_info");
        PyObject *write = info == NULL || info == Py_None ? Py_XNewRef(info) : PyObject_GetAttrString(info, "is_write");
        PyObject *name = write == Py_True ? PyObject_GetAttrString(arg, "name") : NULL;
        PyObject *place = name == NULL ? NULL : PyLong_FromSsize_t(i);
        bool ok = write != NULL && (write != Py_True || (place != NULL && PyList_Append(list, place) == 0 &&
                                                         PyList_Append(list, name) == 0));
        Py_XDECREF(place);
        Py_XDECREF(name);
        Py_XDECREF(write);
        Py_XDECREF(info);
        Py_XDECREF(arg);
        if (!ok)
            Py_CLEAR(list);
    }
    PyObject *tuple = args == NULL || list == NULL ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    Py_XDECREF(args);
    Py_XDECREF(schema);
    return tuple;
}

/* (C function, name, written arguments): borrowed, made once for each overload. */
static PyObject *
find_row(PyObject *func)
{
    PyObject *row = PyDict_GetItemWithError(T.op_rows, func);
    if (row != NULL || PyErr_Occurred())
        return row;
    PyObject *op = PyObject_GetAttrString(func, "_op"), *name = op == NULL ? NULL : PyObject_Str(func);
    PyObject *written = name == NULL ? NULL : list_written(func);
    if (written != NULL)
        row = PyTuple_Pack(3, op, name, written);
    Py_XDECREF(op);
    Py_XDECREF(name);
    Py_XDECREF(written);
    if (row != NULL && PyDict_SetItem(T.op_rows, func, row) < 0)
        Py_CLEAR(row);
    Py_XDECREF(row);
    return row; /* the dict keeps it */
}

/* Is the argument at this place, or of this name, written to? */
static bool
is_written(PyObject *written, Py_ssize_t place, PyObject *name)
{
    for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(written); i += 2)
        if (name == NULL ? PyLong_AsSsize_t(PyTuple_GET_ITEM(written, i)) == place
                         : PyUnicode_Compare(PyTuple_GET_ITEM(written, i + 1), name) == 0)
            return true;
    return false;
}

/* Operators that change arguments without a word in their schema: batch norm in training writes the running statistics. */
static bool
writes_secretly(const char *name, PyObject *args)
{
    return strncmp(name, "aten.native_batch_norm.", 23) == 0 && PyTuple_GET_SIZE(args) > 5 &&
           PyTuple_GET_ITEM(args, 3) != Py_None && PyTuple_GET_ITEM(args, 5) == Py_True;
}

/* Does the operator take a generator of random numbers? */
static bool
is_random(PyObject *func)
{
    PyObject *schema = PyObject_GetAttrString(func, "_schema"), *text = schema == NULL ? NULL : PyObject_Str(schema);
    const char *chars = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    bool random = chars == NULL || strstr(chars, "Generator?") != NULL;
    Py_XDECREF(text);
    Py_XDECREF(schema);
    if (chars == NULL)
        PyErr_Clear();
    return random;
}

/* -- arguments -------------------------------------------------------------------------------------------------- */

static PyObject *convert(capturing *c, PyObject *obj, const char *keyword, bool written);

static PyObject *
refused(capturing *c, const char *format, const char *what)
{
    kin_capture_refuse(c, format, what);
    PyErr_SetString(PyExc_RuntimeError, "kintsugi: this cannot be captured");
    return NULL;
}

static PyObject *
convert_sequence(capturing *c, PyObject *obj, const char *keyword, bool written)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    kin_aten_arg arg = {.kind = KIN_ATEN_LIST, .list = {.count = (uint32_t)n}};
    kin_aten_add_arg(c->out->graph, arg, keyword, NULL);
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = convert(c, PySequence_Fast_GET_ITEM(obj, i), NULL, written);
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
convert(capturing *c, PyObject *obj, const char *keyword, bool written)
{
    uint32_t number = kin_capture_number(obj);
    if (number < c->entries.len) {
        const capture_entry *e = &c->entries.at[number];
        /* Storages are numbered from the inputs on. */
        if (written && c->out->graph->values.at[e->val].storage <= c->out->ninputs)
            return refused(c, "%s", "an input is written to");
        kin_aten_arg arg = {.kind = KIN_ATEN_VALUE, .written = written, .value = e->val};
        kin_aten_add_arg(c->out->graph, arg, keyword, NULL);
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
        return convert_sequence(c, obj, keyword, written);
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
convert_args(capturing *c, PyObject *args, PyObject *written)
{
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
        PyObject *item = convert(c, PyTuple_GET_ITEM(args, i), NULL, is_written(written, i, NULL));
        if (item == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

static PyObject *
convert_kwargs(capturing *c, PyObject *kwargs, PyObject *written)
{
    PyObject *dict = PyDict_New(), *key, *value;
    Py_ssize_t pos = 0;
    while (dict != NULL && kwargs != NULL && PyDict_Next(kwargs, &pos, &key, &value)) {
        const char *name = PyUnicode_AsUTF8(key);
        PyObject *item = name == NULL ? NULL : convert(c, value, name, is_written(written, 0, key));
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

/* The twin as a hint says it lies, or itself: new reference. */
static PyObject *
lay_out(capturing *c, PyObject *twin)
{
    const kin_aten *g = c->out->graph;
    uint32_t number = g->calls.len - 1, which = g->calls.at[number].nresults;
    kin_dtype dtype;
    for (uint32_t i = 0; i < c->hints->len; i++) {
        const kin_capture_hint *h = &c->hints->at[i];
        if (h->call == number && h->which == which && h->ndim == kin_tensor_dim(twin) && kin_tensor_dtype(twin, &dtype))
            return kin_tensor_new(dtype, h->ndim, kin_tensor_sizes(twin), h->strides, true);
    }
    return Py_NewRef(twin);
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
    if (kin_is_tensor(result)) {
        PyObject *twin = lay_out(c, result), *made = twin == NULL ? NULL : wrap_tensor(c, call, twin);
        Py_XDECREF(twin);
        return made;
    }
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
    PyObject *written = PyTuple_GET_ITEM(row, 2);
    if (writes_secretly(name, args) || (PyTuple_GET_SIZE(written) != 0 && is_random(func)))
        return refused(c, "%s changes an argument", name);
    uint32_t before = c->out->graph->values.len;
    kin_capture_call call = {PyTuple_GET_ITEM(row, 0), args, kwargs != NULL && PyDict_GET_SIZE(kwargs) ? kwargs : NULL};
    kin_aten_add_call(c->out->graph, name);
    if (kin_vec_push(&c->out->calls, call) != KIN_OK)
        return PyErr_NoMemory();
    Py_INCREF(call.op);
    Py_INCREF(call.args);
    Py_XINCREF(call.kwargs);
    PyObject *twins = convert_args(c, args, written);
    PyObject *twin_kwargs = twins == NULL ? NULL : convert_kwargs(c, kwargs, written);
    PyObject *result = NULL, *made = NULL;
    if (twin_kwargs != NULL && place_on_meta(c, twin_kwargs))
        result = PyObject_Call(call.op, twins, twin_kwargs);
    if (result != NULL)
        made = wrap_result(c, &call, result);
    uint32_t results = c->out->graph->values.len - before;
    if (made != NULL && (results == 0 || (PyTuple_GET_SIZE(written) != 0 && results != 1))) {
        Py_CLEAR(made);
        refused(c, "%s changes an argument that it does not return", name);
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
