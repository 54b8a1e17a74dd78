/* The dispatch mode of a capture: a heap type whose __torch_dispatch__ records each operator in the graph and finds out what
 * it returns: from a shape rule (core/shape), or by calling it on meta tensors. torch takes the mode off its stack while the
 * method runs.
 */
#include <stddef.h>

#include "py/capture/capture_priv.h"
#include "py/compat/imports.h"
#include "py/refs/sequence.h"

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

/* Does the operator draw random numbers, by its schema? It is tagged so, or takes a generator. -1 with an exception. */
static int
draws_random(PyObject *func)
{
    PyObject *tags = PyObject_GetAttrString(func, "tags"), *schema = PyObject_GetAttrString(func, "_schema");
    PyObject *text = schema == NULL ? NULL : PyObject_Str(schema);
    const char *chars = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    int random = tags == NULL || chars == NULL ? -1 : PySequence_Contains(tags, T.seeded);
    if (random == 0)
        random = strstr(chars, "Generator?") != NULL;
    Py_XDECREF(text);
    Py_XDECREF(schema);
    Py_XDECREF(tags);
    return random;
}

/* What is known of an overload besides. */
enum {
    DRAWS_RANDOM = 1, /* numbers: by its schema, for what the graph says of it see kin_aten_add_call */
    IS_FOREIGN = 2,
    IS_CONSTANT = 4,
    IS_ANSWERED = 8,
    HAS_OWN_CELLS = 16
};

/* Operators of others may do anything besides giving their results, and a run could not be given up behind them. */
static bool
is_foreign(const char *name)
{
    static const char *const ours[] = {"aten.", "prims.", "mkldnn.", "quantized.", "_quantized."};
    for (unsigned i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strncmp(name, ours[i], strlen(ours[i])) == 0)
            return false;
    return true;
}

/* -1 with an exception. */
static long
find_flags(PyObject *func, const char *name)
{
    int random = name == NULL ? -1 : draws_random(func);
    if (random < 0)
        return -1;
    kin_aten_op op = kin_aten_op_find(name, NULL);
    return (random ? DRAWS_RANDOM : 0) | (is_foreign(name) ? IS_FOREIGN : 0) | (kin_aten_op_is(op, KIN_ATEN_CONSTANT) ? IS_CONSTANT : 0) |
           (kin_aten_op_is(op, KIN_ATEN_ANSWERED) ? IS_ANSWERED : 0) | (kin_aten_op_is(op, KIN_ATEN_OWN_CELLS) ? HAS_OWN_CELLS : 0);
}

/* (C function, name, written arguments, flags): borrowed, made once for each overload. */
static PyObject *
find_row(PyObject *func)
{
    PyObject *row = PyDict_GetItemWithError(T.op_rows, func);
    if (row != NULL || PyErr_Occurred())
        return row;
    PyObject *op = PyObject_GetAttrString(func, "_op"), *name = op == NULL ? NULL : PyObject_Str(func);
    PyObject *written = name == NULL ? NULL : list_written(func);
    long flags = written == NULL ? -1 : find_flags(func, PyUnicode_AsUTF8(name));
    if (flags >= 0)
        row = Py_BuildValue("(OOOl)", op, name, written, flags);
    Py_XDECREF(op);
    Py_XDECREF(name);
    Py_XDECREF(written);
    if (row != NULL && PyDict_SetItem(T.op_rows, func, row) < 0)
        Py_CLEAR(row);
    Py_XDECREF(row);
    return row; /* the dict keeps it */
}

static bool
is_row(PyObject *row, long flag)
{
    return (PyLong_AsLong(PyTuple_GET_ITEM(row, 3)) & flag) != 0;
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

/* -- arguments -------------------------------------------------------------------------------------------------- */

static bool note_arg(capturing *c, PyObject *obj, const char *keyword, bool written);

static PyObject *
refused(capturing *c, const char *format, const char *what)
{
    kin_capture_refuse(c, format, what);
    PyErr_SetString(PyExc_RuntimeError, "kintsugi: this cannot be captured");
    return NULL;
}

static bool
note_sequence(capturing *c, PyObject *obj, const char *keyword, bool written)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    kin_aten_arg arg = {.kind = KIN_ATEN_LIST, .list = {.count = (uint32_t)n}};
    kin_aten_add_arg(c->out->graph, arg, keyword, NULL);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!note_arg(c, PySequence_Fast_GET_ITEM(obj, i), NULL, written))
            return false;
    return true;
}

static bool
note_word(capturing *c, PyObject *obj, const char *keyword)
{
    PyObject *text = PyObject_Str(obj);
    const char *chars = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    if (chars != NULL)
        kin_aten_add_arg(c->out->graph, (kin_aten_arg){.kind = KIN_ATEN_WORD}, keyword, chars);
    Py_XDECREF(text);
    return chars != NULL;
}

static bool
note_number(capturing *c, PyObject *obj, const char *keyword)
{
    kin_aten_arg arg = {.kind = KIN_ATEN_FLOAT};
    if (PyFloat_Check(obj))
        arg.f = PyFloat_AS_DOUBLE(obj);
    else {
        arg.kind = PyBool_Check(obj) ? KIN_ATEN_BOOL : KIN_ATEN_INT;
        arg.i = PyLong_AsLongLong(obj);
        if (arg.i == -1 && PyErr_Occurred())
            return false;
    }
    kin_aten_add_arg(c->out->graph, arg, keyword, NULL);
    return true;
}

/* Is it the one of the capture's tensors? Without an index it names the current one. -1: an exception. */
static int
is_device(const capturing *c, PyObject *obj)
{
    PyObject *own = c->device != NULL ? c->device : T.cpu, *now = NULL;
    int same = PyObject_RichCompareBool(obj, own, Py_EQ);
    if (same == 0 && c->device != NULL && (now = PyObject_GetAttrString(obj, "index")) == Py_None) {
        PyObject *type = PyObject_GetAttrString(obj, "type"), *other = PyObject_GetAttrString(own, "type");
        same = type == NULL || other == NULL ? -1 : PyObject_RichCompareBool(type, other, Py_EQ);
        Py_XDECREF(type);
        Py_XDECREF(other);
    }
    Py_XDECREF(now);
    return now == NULL && PyErr_Occurred() ? -1 : same;
}

/* dtype, device, layout, memory format; false without an exception when it is none of them. */
static bool
note_torch(capturing *c, PyObject *obj, const char *keyword)
{
    if (Py_IS_TYPE(obj, T.dtype)) {
        for (int i = 0; i < KIN_DTYPE__COUNT; i++)
            if (obj == T.dtypes[i]) {
                kin_aten_add_arg(c->out->graph, (kin_aten_arg){.kind = KIN_ATEN_DTYPE, .i = i}, keyword, NULL);
                return true;
            }
        return refused(c, "%s", "an unsupported dtype") != NULL;
    }
    if (Py_IS_TYPE(obj, T.device)) {
        int same = is_device(c, obj);
        return same == 1 ? note_word(c, obj, keyword)
                         : same == 0 && refused(c, "%s", "a device other than that of the inputs") != NULL;
    }
    if (Py_IS_TYPE(obj, T.layout) && obj != T.strided)
        return refused(c, "%s", "a layout other than strided") != NULL;
    if (Py_IS_TYPE(obj, T.layout) || Py_IS_TYPE(obj, T.memory_format))
        return note_word(c, obj, keyword);
    return false;
}

/* A step of a subgraph that runs early is not done again where the program is left. If it writes, and behind a step that runs in order and may leave, somebody might see that it
 * has been done. */
static bool
note_once(capturing *c, bool writes)
{
    if (writes && c->leaves != 0 && c->step >= c->leaves)
        return kin_capture_refuse_step(c, c->step);
    if (!writes && kin_vec_push(&c->out->random, c->step) != KIN_OK)
        return PyErr_NoMemory() != NULL;
    return kin_vec_push(&c->out->once, c->step) == KIN_OK || PyErr_NoMemory() != NULL;
}

static bool
note_tensor(capturing *c, uint32_t number, const char *keyword, bool written)
{
    const capture_entry *e = &c->entries.at[number];
    /* Storages are numbered from the inputs on. */
    bool of_input = kin_aten_at(c->out->graph, e->val)->storage <= c->out->ninputs;
    if (e->data != 0) {
        c->data = e->data;
        c->data_storage = kin_aten_at(c->out->graph, e->val)->storage;
    }
    if (written && of_input && e->data != 0 && !kin_capture_refuse_step(c, e->data - 1)) /* x.data counts by itself how often it is written to */
        return false;
    c->out->writes = c->out->writes || (written && of_input);
    if (written && of_input && !c->may_write && !kin_capture_refuse_step(c, c->step))
        return false;
    if (written && c->at != 0 && kin_aten_at(c->out->graph, e->val)->storage <= c->before && !note_once(c, true)) /* not to memory of the step's own */
        return false;
    if (written && of_input && c->uncounted && kin_vec_push(&c->out->uncounted, kin_aten_at(c->out->graph, e->val)->storage) != KIN_OK)
        return PyErr_NoMemory() != NULL;
    kin_aten_arg arg = {.kind = KIN_ATEN_VALUE, .written = written, .value = e->val};
    kin_aten_add_arg(c->out->graph, arg, keyword, NULL);
    return true;
}

/* Adds the argument to the newest call. False with an exception. */
static bool
note_arg(capturing *c, PyObject *obj, const char *keyword, bool written)
{
    uint32_t number = kin_capture_number(obj);
    if (number < c->entries.len)
        return note_tensor(c, number, keyword, written);
    if (obj == Py_None) {
        kin_aten_add_arg(c->out->graph, (kin_aten_arg){.kind = KIN_ATEN_NONE}, keyword, NULL);
        return true;
    }
    if (PyFloat_Check(obj) || PyLong_Check(obj))
        return note_number(c, obj, keyword);
    if (PyUnicode_Check(obj)) {
        const char *text = PyUnicode_AsUTF8(obj);
        if (text != NULL)
            kin_aten_add_arg(c->out->graph, (kin_aten_arg){.kind = KIN_ATEN_STR}, keyword, text);
        return text != NULL;
    }
    if (PyTuple_Check(obj) || PyList_Check(obj))
        return note_sequence(c, obj, keyword, written);
    if (PyComplex_CheckExact(obj))
        return note_word(c, obj, keyword);
    if (note_torch(c, obj, keyword))
        return true;
    if (!PyErr_Occurred())
        refused(c, kin_is_tensor(obj) ? "%s" : "an argument is a %s",
                kin_is_tensor(obj) ? "it uses a tensor that is not among its inputs" : Py_TYPE(obj)->tp_name);
    return false;
}

static bool
note_args(capturing *c, PyObject *args, PyObject *kwargs, PyObject *written)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
        if (!note_arg(c, PyTuple_GET_ITEM(args, i), NULL, is_written(written, i, NULL)))
            return false;
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &pos, &key, &value)) {
        const char *name = PyUnicode_AsUTF8(key);
        if (name == NULL || !note_arg(c, value, name, is_written(written, 0, key)))
            return false;
    }
    return true;
}

/* -- results by rule -------------------------------------------------------------------------------------------- */

/* What is known of a result from running with it before. */
static const kin_capture_hint *
find_hint(const capturing *c, int64_t ndim)
{
    const kin_aten *g = c->out->graph;
    uint32_t number = g->calls.len - 1, which = g->calls.at[number].nresults;
    for (uint32_t i = 0; i < c->hints->len; i++) {
        const kin_capture_hint *h = &c->hints->at[i];
        if (h->call == number && h->which == which && h->ndim == ndim)
            return h;
    }
    return NULL;
}

/* Are the elements found as before, by the same numbers but for those of dims of size 1 (squeeze_, unsqueeze_, as_strided_ of a pooled image)? Then autograd's node for
 * the call has nothing to find out about memory. */
static bool
differs_by_ones(const kin_aten *g, PyObject *self, kin_aten_val val)
{
    const kin_aten_value *v = kin_aten_at(g, val);
    unsigned d = 0, ndim = (unsigned)kin_tensor_dim(self);
    for (unsigned k = 0; k < v->ndim; k++) {
        int64_t size = kin_aten_sizes(g, val)[k];
        if (size == 1)
            continue;
        while (d < ndim && kin_tensor_sizes(self)[d] == 1)
            d++;
        if (d == ndim || kin_tensor_sizes(self)[d] != size || kin_tensor_strides(self)[d++] != kin_aten_strides(g, val)[k])
            return false;
    }
    while (d < ndim && kin_tensor_sizes(self)[d] == 1)
        d++;
    return d == ndim && kin_tensor_offset(self) == v->offset;
}

/* The result is the argument itself, with another value from now on, perhaps with other sizes: new reference. */
static PyObject *
wrap_same(capturing *c, PyObject *self, kin_aten_val val)
{
    uint32_t number = kin_capture_number(self);
    if (val == 0)
        return PyErr_NoMemory();
    if (!kin_fake_lies_as(c->out->graph, self, val)) {
        bool wants = kin_tensor_requires_grad(self);
        if (number < c->out->ninputs || (wants && !differs_by_ones(c->out->graph, self, val)))
            return refused(c, "%s", "an operator resizes its argument");
        if (wants && kin_vec_push(&c->suspects, c->step) != KIN_OK)
            return PyErr_NoMemory();
        if (!kin_fake_lay_out(c, self, val))
            return NULL;
    }
    c->entries.at[number].val = val;
    return Py_NewRef(self);
}

/* A result as a shape rule foresees it: new reference. */
static PyObject *
wrap_shape(capturing *c, PyObject *args, const kin_shape *s)
{
    kin_aten *g = c->out->graph;
    if (s->none)
        Py_RETURN_NONE;
    const kin_capture_hint *hint = s->same ? NULL : find_hint(c, s->ndim);
    bool own = s->of == 0 || hint != NULL;
    uint32_t storage = own ? kin_fake_new_storage(c) : kin_aten_at(g, s->of)->storage;
    kin_aten_val val = storage == 0 ? 0 : kin_aten_add_result(g, s->dtype, s->ndim, s->sizes, hint != NULL ? hint->strides : s->strides,
                                                              storage, own ? 0 : s->offset);
    if (!s->same)
        return kin_fake_new(c, NULL, false, val);
    return wrap_same(c, PyTuple_GET_ITEM(args, 0), val);
}

/* The call's results by its rule; NULL without an exception when it has none for these arguments. */
static PyObject *
results_by_rule(capturing *c, PyObject *args)
{
    kin_shapes *shapes = &c->shapes;
    kin_status status = kin_shape_call(c->out->graph, c->out->graph->calls.len - 1, &c->options, shapes);
    if (status != KIN_OK)
        return status == KIN_NOMEM ? PyErr_NoMemory() : NULL;
    const kin_shape *first = shapes->results.at;
    uint32_t n = shapes->results.len;
    if (n > 0 && first->same && (PyTuple_GET_SIZE(args) == 0 || kin_capture_number(PyTuple_GET_ITEM(args, 0)) >= c->entries.len))
        return NULL;
    if (n == 1 && !shapes->list)
        return wrap_shape(c, args, first);
    PyObject *made = shapes->list ? PyList_New(n) : PyTuple_New(n);
    for (uint32_t i = 0; made != NULL && i < n; i++)
        kin_sequence_put(&made, i, wrap_shape(c, args, &shapes->results.at[i]));
    return made;
}

/* -- arguments of the meta tensors' call ------------------------------------------------------------------------------- */

/* The same with meta tensors in place of fake tensors, the meta device in place of the CPU: new reference. */
static PyObject *
meta_of(void *arg, PyObject *obj)
{
    capturing *c = arg;
    uint32_t number = kin_capture_number(obj);
    if (number < c->entries.len)
        return Py_XNewRef(kin_fake_meta(c, number));
    if (Py_IS_TYPE(obj, T.device))
        return Py_NewRef(T.meta);
    if (!PyTuple_Check(obj) && !PyList_Check(obj))
        return Py_NewRef(obj);
    return kin_map_items(obj, meta_of, c);
}

/* -- results of the meta tensors' call --------------------------------------------------------------------------------- */

/* The fake tensor whose meta tensor this is, among the arguments; borrowed or NULL. Operators that write return their argument. */
static PyObject *
find_argument(capturing *c, PyObject *obj, PyObject *meta, uint32_t *number)
{
    uint32_t n = kin_capture_number(obj);
    if (n < c->entries.len) {
        *number = n;
        return c->entries.at[n].meta == meta ? obj : NULL;
    }
    PyObject *found = NULL;
    if (PyTuple_Check(obj) || PyList_Check(obj))
        for (Py_ssize_t i = 0; found == NULL && i < PySequence_Fast_GET_SIZE(obj); i++)
            found = find_argument(c, PySequence_Fast_GET_ITEM(obj, i), meta, number);
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    if (PyDict_Check(obj))
        while (found == NULL && PyDict_Next(obj, &pos, &key, &value))
            found = find_argument(c, value, meta, number);
    return found;
}

/* The meta tensor as a hint says it lies, or itself: new reference. */
static PyObject *
lay_out(capturing *c, PyObject *meta)
{
    const kin_capture_hint *hint = find_hint(c, kin_tensor_dim(meta));
    kin_dtype dtype;
    if (hint == NULL || !kin_tensor_dtype(meta, &dtype))
        return Py_NewRef(meta);
    return kin_tensor_new(dtype, hint->ndim, kin_tensor_sizes(meta), hint->strides, true);
}

/* Does the tensor only say that its elements are other ones than those in memory? */
static bool
is_lazy(PyObject *meta)
{
    static const char *const questions[] = {"is_conj", "is_neg", "_is_zerotensor"};
    bool lazy = false;
    for (int i = 0; i < 3 && !lazy; i++) {
        PyObject *answer = PyObject_CallMethod(meta, questions[i], NULL);
        lazy = answer != Py_False;
        Py_XDECREF(answer);
    }
    PyErr_Clear();
    return lazy;
}

static PyObject *
wrap_tensor(capturing *c, const kin_capture_call *call, PyObject *meta)
{
    kin_dtype dtype;
    if (is_lazy(meta))
        return refused(c, "%s", "a result is a conjugated or negated view that is not resolved yet");
    if (!kin_tensor_is_dense(meta, true) || !kin_tensor_dtype(meta, &dtype))
        return refused(c, "%s", "an unsupported kind of result");
    kin_aten_val val = kin_aten_add_result(c->out->graph, dtype, (unsigned)kin_tensor_dim(meta), kin_tensor_sizes(meta),
                                           kin_tensor_strides(meta), kin_fake_storage(c, meta), kin_tensor_offset(meta));
    uint32_t number;
    PyObject *same = find_argument(c, call->args, meta, &number);
    if (same == NULL && call->kwargs != NULL)
        same = find_argument(c, call->kwargs, meta, &number);
    if (same == NULL)
        return kin_fake_new(c, meta, false, val);
    return wrap_same(c, same, val);
}

/* What the program gets for a result of the meta tensors' call. */
static PyObject *
wrap_result(capturing *c, const kin_capture_call *call, PyObject *result)
{
    if (kin_is_tensor(result)) {
        PyObject *meta = lay_out(c, result), *made = meta == NULL ? NULL : wrap_tensor(c, call, meta);
        Py_XDECREF(meta);
        return made;
    }
    if (!PyTuple_CheckExact(result) && !PyList_CheckExact(result))
        return result == Py_None ? Py_NewRef(result) : refused(c, "a result is a %s", Py_TYPE(result)->tp_name);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(result);
    PyObject *made = PyList_CheckExact(result) ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; made != NULL && i < n; i++)
        kin_sequence_put(&made, i, wrap_result(c, call, PySequence_Fast_GET_ITEM(result, i)));
    return made;
}

/* -- one operator ----------------------------------------------------------------------------------------------- */

/* Operators without tensor arguments make their results on the device that they are given; without one, on the default device. */
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

/* Meta kernels would import torch._dynamo for nothing. */
static void
prepare_kernels(void)
{
    static bool prepared;
    if (prepared)
        return;
    prepared = true;
    Py_XDECREF(kin_import_call("kintsugi._meta", "prepare", NULL));
    PyErr_Clear();
}

/* The result of the meta tensors' call (stolen), laid out as the operator leaves it: meta kernels do not always know (kintsugi/_layouts.py). */
static PyObject *
lay_out_results(const capturing *c, const kin_capture_call *call, PyObject *args, PyObject *kwargs, PyObject *result)
{
    static PyObject *ask;
    const kin_aten *g = c->out->graph;
    const kin_aten_call *noted = &g->calls.at[g->calls.len - 1];
    bool writes = false;
    for (uint32_t i = noted->args; i < g->args.len; i++)
        writes = writes || g->args.at[i].written;
    if (result == NULL || writes || noted->random || kin_import_once(&ask, "kintsugi._layouts", "results") == NULL)
        return result;
    PyObject *laid = PyObject_CallFunction(ask, "sOOOO", kin_aten_text(g, noted->op), call->op, args, kwargs, result);
    PyErr_Clear();
    if (laid == NULL)
        return result;
    Py_DECREF(result);
    return laid;
}

/* The operator on meta tensors, which must not import sympy for nothing (kintsugi/_meta.py). */
static PyObject *
call_meta(const capturing *c, PyObject *op, PyObject *args, PyObject *kwargs)
{
    static PyObject *call;
    if (kin_import_once(&call, "kintsugi._meta", "call") == NULL)
        return PyObject_Call(op, args, kwargs);
    PyObject *type = PyObject_GetAttrString(c->device != NULL ? c->device : T.cpu, "type");
    PyObject *made = type == NULL ? NULL : PyObject_CallFunctionObjArgs(call, op, args, kwargs, type, NULL);
    Py_XDECREF(type);
    return made;
}

/* What the call gives, learned by calling the operator on meta tensors. */
static PyObject *
results_by_meta(capturing *c, const kin_capture_call *call)
{
    prepare_kernels();
    PyObject *args = meta_of(c, call->args), *kwargs = args == NULL ? NULL : kin_map_values(call->kwargs, meta_of, c);
    PyObject *result = kwargs != NULL && place_on_meta(c, kwargs) ? call_meta(c, call->op, args, kwargs) : NULL;
    result = lay_out_results(c, call, args, kwargs, result);
    PyObject *made = result == NULL ? NULL : wrap_result(c, call, result);
    Py_XDECREF(result);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return made;
}

static PyObject *note_call(capturing *c, PyObject *func, PyObject *args, PyObject *kwargs);

/* torch.ops.aten.NAME.OVERLOAD called with these (the arguments are stolen): new reference. */
static PyObject *
call_overload(capturing *c, const char *name, const char *overload, PyObject *args, PyObject *kwargs)
{
    PyObject *aten = kin_import("torch", "ops.aten");
    PyObject *packet = aten == NULL ? NULL : PyObject_GetAttrString(aten, name);
    PyObject *func = packet == NULL ? NULL : PyObject_GetAttrString(packet, overload);
    PyObject *made = func == NULL || args == NULL ? NULL : note_call(c, func, args, kwargs);
    Py_XDECREF(func);
    Py_XDECREF(packet);
    Py_XDECREF(aten);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return made;
}

PyObject *
kin_mode_call_default(capturing *c, const char *name, PyObject *args, PyObject *kwargs)
{
    return call_overload(c, name, "default", args, kwargs);
}

PyObject *
kin_mode_call_whole(capturing *c, const char *name, PyObject *args)
{
    return call_overload(c, name, "input", Py_NewRef(args), NULL);
}

/* -- a call ------------------------------------------------------------------------------------------------------ */

/* What stands for the operator in calls of ours of recurrent layers (kintsugi/_recurrent.py): new reference, None if it is itself. */
static PyObject *
find_own_operator(PyObject *row, PyObject *args)
{
    static PyObject *table;
    if (!is_row(row, HAS_OWN_CELLS))
        return Py_NewRef(Py_None);
    PyObject *ask = kin_import_once(&table, "kintsugi._recurrent", "operator");
    return ask == NULL ? NULL : PyObject_CallFunctionObjArgs(ask, PyTuple_GET_ITEM(row, 1), args, NULL);
}

/* What the newest call, complete with arguments, gives: new reference. */
static PyObject *
note_results(capturing *c, uint32_t number, const kin_capture_call *call)
{
    const kin_aten_call *noted = &c->out->graph->calls.at[number];
    if (kin_aten_writes_unsaid(c->out->graph, noted))
        return refused(c, "%s mutates an argument", kin_aten_text(c->out->graph, noted->op));
    PyObject *made = c->no_rules ? NULL : results_by_rule(c, call->args);
    /* Recurrent layers come as a whole (kin_mode_call_whole); on meta tensors they would be one operator after the other. */
    return made != NULL || PyErr_Occurred() || kin_aten_op_is(kin_aten_op_of(noted), KIN_ATEN_WHOLE) ? made : results_by_meta(c, call);
}

/* The result of a call that the graph does without, or has other calls for. NULL without exception: the call itself belongs into the graph. */
static PyObject *
replace_call(capturing *c, PyObject *row, PyObject *args, PyObject *kwargs)
{
    PyObject *made = NULL;
    if (is_row(row, IS_CONSTANT) && ((made = kin_capture_new_tensor(c, args)) != NULL || PyErr_Occurred()))
        return made;
    if (is_row(row, IS_ANSWERED))
        Py_RETURN_TRUE;
    return kin_capture_compose(c, row, args, kwargs);
}

/* May the call that was noted stay, with so many results? Notes what it means for the step that made it. */
static bool
keep_call(capturing *c, const char *name, uint32_t number, uint32_t results, bool writes)
{
    kin_aten *g = c->out->graph;
    bool random = g->calls.at[number].random;
    if (random && c->at != 0 && !note_once(c, false))
        return false;
    if (results == 0 || (writes && results != 1)) {
        refused(c, "%s mutates an argument that it does not return", name);
        return false;
    }
    bool raises = c->step != UINT32_MAX && (random || kin_aten_raises(g, &g->calls.at[number]));
    if (raises && kin_vec_push(&c->out->raising, c->step) != KIN_OK) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

static PyObject *
note_call(capturing *c, PyObject *func, PyObject *args, PyObject *kwargs)
{
    PyObject *row = find_row(func);
    if (row == NULL)
        return NULL;
    const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(row, 1));
    PyObject *written = PyTuple_GET_ITEM(row, 2), *made = replace_call(c, row, args, kwargs);
    if (made != NULL || PyErr_Occurred())
        return made;
    bool random = is_row(row, DRAWS_RANDOM), writes = PyTuple_GET_SIZE(written) != 0;
    if (random && (writes || c->step == UINT32_MAX))
        return refused(c, writes ? "%s mutates an argument" : "%s among its gradients", name);
    if (is_row(row, IS_FOREIGN))
        return refused(c, "%s may have side effects", name);
    PyObject *own = find_own_operator(row, args);
    if (own == NULL)
        return NULL;
    kin_aten *g = c->out->graph;
    uint32_t before = g->values.len;
    if (c->data_storage != 0)
        c->data = c->data_storage = 0;
    kin_capture_call call = {own != Py_None ? own : PyTuple_GET_ITEM(row, 0), args, kwargs != NULL && PyDict_GET_SIZE(kwargs) ? kwargs : NULL, NULL, c->step, c->untracked};
    uint32_t number = kin_aten_add_call(g, name, random);
    if (g->failed || kin_vec_push(&c->out->calls, call) != KIN_OK) {
        Py_DECREF(own);
        return PyErr_NoMemory();
    }
    Py_INCREF(call.op);
    Py_DECREF(own);
    Py_INCREF(call.args);
    Py_XINCREF(call.kwargs);
    if (note_args(c, args, kwargs, written))
        made = note_results(c, number, &call);
    if (made != NULL && !keep_call(c, name, number, g->values.len - before, writes))
        Py_CLEAR(made);
    if (made == NULL)
        kin_culprit_refuse(c, name);
    else if (c->joint)
        c->out->calls.at[number].made = Py_NewRef(made);
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
    if (made == NULL)
        kin_culprit_note(c);
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
