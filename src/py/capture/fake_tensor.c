/* Fake tensors (capture.h): a subclass of torch.Tensor whose instances claim to be on the CPU and have no
 * storage. Each keeps its number in the capture in a slot of its class.
 */
#include <Python.h>
#include <stdarg.h>
#include <stdio.h>
#include <structmember.h>

#include "core/base/hash.h"
#include "core/base/table.h"
#include "py/compat/heap.h"
#include "py/capture/capture_priv.h"

capture_torch kin_capture_torch;

#define T kin_capture_torch

/* -- the class -------------------------------------------------------------------------------------------------- */

/* Operators on fake tensors outside of their capture. */
static PyObject *
refuse_dispatch(PyObject *self, PyObject *args)
{
    PyErr_SetString(PyExc_RuntimeError, "kintsugi: a fake tensor was used outside of its capture");
    return NULL;
}

static PyMethodDef dispatch_method = {"__torch_dispatch__", refuse_dispatch, METH_VARARGS, NULL};

/* type(torch.Tensor)("KintsugiTensor", (torch.Tensor,), {...}) */
static PyTypeObject *
make_class(PyObject *tensor, PyObject *disabled)
{
    PyObject *function = PyCFunction_New(&dispatch_method, NULL);
    PyObject *dispatch = function == NULL ? NULL : PyStaticMethod_New(function);
    PyObject *type = dispatch == NULL ? NULL
                     : PyObject_CallFunction((PyObject *)Py_TYPE(tensor), "s(O){s:O,s:O,s:(s),s:s}", "KintsugiTensor",
                                             tensor, "__torch_function__", disabled, "__torch_dispatch__", dispatch,
                                             "__slots__", "_kintsugi_number", "__module__", "kintsugi");
    Py_XDECREF(function);
    Py_XDECREF(dispatch);
    return (PyTypeObject *)type;
}

static Py_ssize_t
find_slot(PyTypeObject *type)
{
    PyObject *descr = PyDict_GetItemString(kin_type_dict(type), "_kintsugi_number");
    bool ok = descr != NULL && Py_IS_TYPE(descr, &PyMemberDescr_Type) &&
              ((PyMemberDescrObject *)descr)->d_member->type == T_OBJECT_EX;
    return ok ? ((PyMemberDescrObject *)descr)->d_member->offset : 0;
}

static const char *const dtype_attrs[KIN_DTYPE__COUNT] = {
    [KIN_BOOL] = "bool", [KIN_U8] = "uint8", [KIN_I8] = "int8", [KIN_I16] = "int16", [KIN_I32] = "int32",
    [KIN_I64] = "int64", [KIN_F16] = "float16", [KIN_BF16] = "bfloat16", [KIN_F32] = "float32", [KIN_F64] = "float64",
    [KIN_C64] = "complex64", [KIN_C128] = "complex128"};

static bool
find_constants(PyObject *torch)
{
    for (int i = 0; i < KIN_DTYPE__COUNT; i++)
        if ((T.dtypes[i] = PyObject_GetAttrString(torch, dtype_attrs[i])) == NULL)
            return false;
    T.dtype = (PyTypeObject *)PyObject_GetAttrString(torch, "dtype");
    T.device = (PyTypeObject *)PyObject_GetAttrString(torch, "device");
    T.layout = (PyTypeObject *)PyObject_GetAttrString(torch, "layout");
    T.memory_format = (PyTypeObject *)PyObject_GetAttrString(torch, "memory_format");
    T.strided = PyObject_GetAttrString(torch, "strided");
    T.cpu = T.device == NULL ? NULL : PyObject_CallFunction((PyObject *)T.device, "s", "cpu");
    T.meta = T.cpu == NULL ? NULL : PyObject_CallFunction((PyObject *)T.device, "s", "meta");
    T.s_device = PyUnicode_InternFromString("device");
    T.instance_names = Py_BuildValue("(sssss)", "strides", "storage_offset", "dtype", "device", "requires_grad");
    return T.dtype && T.layout && T.memory_format && T.strided && T.meta && T.s_device && T.instance_names;
}

static bool
find_tag(PyObject *torch)
{
    PyObject *tags = PyObject_GetAttrString(torch, "Tag");
    T.seeded = tags == NULL ? NULL : PyObject_GetAttrString(tags, "nondeterministic_seeded");
    Py_XDECREF(tags);
    return T.seeded != NULL;
}

kin_status
kin_fake_init(PyObject *torch)
{
    PyObject *tensor = PyObject_GetAttrString(torch, "Tensor"), *c = PyObject_GetAttrString(torch, "_C");
    PyObject *disabled = c == NULL ? NULL : PyObject_GetAttrString(c, "_disabled_torch_function_impl");
    bool ok = tensor != NULL && disabled != NULL && find_constants(torch) &&
              (T.make_subclass = PyObject_GetAttrString(tensor, "_make_wrapper_subclass")) != NULL &&
              (T.push = PyObject_GetAttrString(c, "_push_on_torch_dispatch_stack")) != NULL &&
              (T.pop = PyObject_GetAttrString(c, "_pop_torch_dispatch_stack")) != NULL &&
              (T.op_rows = PyDict_New()) != NULL && find_tag(torch) && (T.fake = make_class(tensor, disabled)) != NULL &&
              (T.number_at = find_slot(T.fake)) != 0;
    if (ok)
        kin_aten_own_class(T.fake);
    Py_XDECREF(disabled);
    Py_XDECREF(c);
    Py_XDECREF(tensor);
    return ok ? KIN_OK : KIN_BREAK;
}

/* -- instances -------------------------------------------------------------------------------------------------- */

/* torch.Tensor._make_wrapper_subclass(class, sizes, strides=, storage_offset=, dtype=, device=, requires_grad=) */
static PyObject *
make_instance(const capturing *c, kin_aten_val val, bool requires_grad)
{
    const kin_aten *g = c->out->graph;
    const kin_aten_value *v = kin_aten_at(g, val);
    PyObject *sizes = kin_tuple_of_ints(kin_aten_sizes(g, val), v->ndim), *strides = kin_tuple_of_ints(kin_aten_strides(g, val), v->ndim);
    PyObject *at = PyLong_FromLongLong(v->offset), *made = NULL;
    if (sizes != NULL && strides != NULL && at != NULL) {
        PyObject *args[] = {(PyObject *)T.fake, sizes, strides, at, T.dtypes[v->dtype], c->device != NULL ? c->device : T.cpu,
                            requires_grad ? Py_True : Py_False};
        made = PyObject_Vectorcall(T.make_subclass, args, 2, T.instance_names);
    }
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    Py_XDECREF(at);
    return made;
}

/* It gets its number. Steals `made`. */
static PyObject *
enter(capturing *c, PyObject *made, PyObject *meta, kin_aten_val val)
{
    PyObject *number = made == NULL ? NULL : PyLong_FromUnsignedLong(c->entries.len);
    bool data = val != 0 && (c->data_storage == 0 || kin_aten_at(c->out->graph, val)->storage == c->data_storage);
    if (number == NULL || PyList_Append(c->out->fakes, made) < 0 ||
        kin_vec_push(&c->entries, ((capture_entry){meta, val, data ? c->data : 0})) != KIN_OK) {
        Py_XDECREF(number);
        Py_XDECREF(made);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "kintsugi: no fake tensor");
        return NULL;
    }
    Py_XINCREF(meta);
    Py_XSETREF(*(PyObject **)((char *)made + T.number_at), number);
    return made;
}

bool
kin_fake_lies_as(const kin_aten *g, PyObject *fake, kin_aten_val val)
{
    const kin_aten_value *v = kin_aten_at(g, val);
    size_t row = (size_t)v->ndim * sizeof(int64_t);
    return kin_tensor_dim(fake) == (int64_t)v->ndim && kin_tensor_offset(fake) == v->offset &&
           (row == 0 || (memcmp(kin_tensor_sizes(fake), kin_aten_sizes(g, val), row) == 0 &&
                         memcmp(kin_tensor_strides(fake), kin_aten_strides(g, val), row) == 0));
}

PyObject *
kin_fake_new(capturing *c, PyObject *meta, bool requires_grad, kin_aten_val val)
{
    return enter(c, val == 0 ? NULL : make_instance(c, val, requires_grad), meta, val);
}

/* -- for inputs: most are parameters, the same in each capture ------------------------------------------------------------ */

/* Fake tensors of earlier captures; one that nobody else has is free. */
static struct {
    kin_table table; /* by what they look like */
    KIN_VEC(PyObject *) at;
} kept;

static uint64_t
hash_of_looks(const kin_aten *g, kin_aten_val val, bool requires_grad)
{
    const kin_aten_value *v = kin_aten_at(g, val);
    uint64_t hash = kin_hash_word((uint64_t)v->dtype << 8 | v->ndim, (uint64_t)v->offset << 1 | requires_grad);
    for (unsigned d = 0; d < v->ndim; d++)
        hash = kin_hash_word(kin_hash_word(hash, (uint64_t)kin_aten_sizes(g, val)[d]), (uint64_t)kin_aten_strides(g, val)[d]);
    return hash;
}

static bool
looks_like(PyObject *fake, const kin_aten *g, kin_aten_val val, bool requires_grad)
{
    kin_dtype dtype;
    return kin_fake_lies_as(g, fake, val) && kin_tensor_dtype(fake, &dtype) && dtype == (kin_dtype)kin_aten_at(g, val)->dtype &&
           kin_tensor_requires_grad(fake) == requires_grad;
}

PyObject *
kin_fake_for_input(capturing *c, bool requires_grad, kin_aten_val val)
{
    enum { MOST = 2048 };
    const kin_aten *g = c->out->graph;
    if (val == 0 || c->joint || c->device != NULL || (requires_grad && kin_grad_enabled()))
        return kin_fake_new(c, NULL, requires_grad, val);
    uint64_t hash = hash_of_looks(g, val, requires_grad);
    uint32_t number, at = 0;
    while ((number = kin_table_next(&kept.table, hash, &at)) != KIN_TABLE_NONE)
        if (Py_REFCNT(kept.at.at[number]) == 1 && looks_like(kept.at.at[number], g, val, requires_grad))
            return enter(c, Py_NewRef(kept.at.at[number]), NULL, val);
    PyObject *made = make_instance(c, val, requires_grad);
    if (made != NULL && kept.at.len < MOST && kin_table_reserve(&kept.table, 1) == KIN_OK && kin_vec_push(&kept.at, made) == KIN_OK) {
        Py_INCREF(made);
        if (kin_table_add(&kept.table, hash, kept.at.len - 1) != KIN_OK)
            PyErr_Clear(); /* there was room */
    }
    return enter(c, made, NULL, val);
}

/* fake.data = made. On the way an operator asks whether both are of one kind: of a mode, as the class itself is asked at the
 * price of importing torch.distributed. */
static bool
set_data(capturing *c, PyObject *fake, PyObject *made)
{
    PyObject *mode = kin_mode_new(c), *pushed = mode == NULL ? NULL : PyObject_CallOneArg(T.push, mode);
    bool ok = pushed != NULL && PyObject_SetAttrString(fake, "data", made) == 0;
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyObject *popped = pushed == NULL ? NULL : PyObject_CallOneArg(T.pop, Py_None);
    if (mode != NULL)
        kin_mode_end(mode);
    Py_XDECREF(popped);
    Py_XDECREF(pushed);
    Py_XDECREF(mode);
    PyErr_Restore(type, error, tb);
    return ok;
}

bool
kin_fake_lay_out(capturing *c, PyObject *fake, kin_aten_val val)
{
    const kin_aten *g = c->out->graph;
    const kin_aten_value *v = kin_aten_at(g, val);
    capture_entry *e = &c->entries.at[kin_capture_number(fake)];
    PyObject *made = make_instance(c, val, false);
    bool ok = made != NULL && set_data(c, fake, made);
    Py_XDECREF(made);
    if (ok && e->meta != NULL) { /* in the same memory, which it gives its name to */
        PyObject *meta = kin_tensor_view(e->meta, v->ndim, kin_aten_sizes(g, val), kin_aten_strides(g, val), v->offset);
        ok = meta != NULL;
        if (ok)
            Py_SETREF(e->meta, meta);
    }
    return ok;
}

uint32_t
kin_capture_number(PyObject *obj)
{
    if (obj == NULL || T.fake == NULL || !Py_IS_TYPE(obj, T.fake))
        return UINT32_MAX;
    PyObject *number = *(PyObject **)((char *)obj + T.number_at);
    return number == NULL ? UINT32_MAX : (uint32_t)PyLong_AsUnsignedLong(number);
}

uint32_t
kin_fake_storage(capturing *c, PyObject *meta)
{
    const void *name = kin_tensor_storage(meta);
    for (uint32_t i = c->storages.len; i-- > 0;)
        if (c->storages.at[i] == name)
            return i + 1;
    return kin_vec_push(&c->storages, name) == KIN_OK ? c->storages.len : 0;
}

uint32_t
kin_fake_new_storage(capturing *c)
{
    return kin_vec_push(&c->storages, NULL) == KIN_OK ? c->storages.len : 0;
}

/* -- meta tensors ------------------------------------------------------------------------------------------------------ */

/* A fake tensor with a meta tensor in the same memory, of the same dtype; else the first in this memory, from which all others come. */
static uint32_t
find_relative(const capturing *c, const kin_aten_value *v)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t i = c->entries.len; i-- > 0;) {
        const kin_aten_value *other = kin_aten_at(c->out->graph, c->entries.at[i].val);
        if (other->storage != v->storage)
            continue;
        if (c->entries.at[i].meta != NULL && other->dtype == v->dtype)
            return i;
        first = i;
    }
    return first;
}

PyObject *
kin_fake_meta(capturing *c, uint32_t number)
{
    capture_entry *e = &c->entries.at[number];
    if (e->meta != NULL)
        return e->meta;
    const kin_aten *g = c->out->graph;
    const kin_aten_value *v = kin_aten_at(g, e->val);
    uint32_t relative = find_relative(c, v);
    if (relative == number) {
        e->meta = kin_tensor_new((kin_dtype)v->dtype, v->ndim, kin_aten_sizes(g, e->val), kin_aten_strides(g, e->val), true);
        if (e->meta != NULL)
            c->storages.at[v->storage - 1] = kin_tensor_storage(e->meta);
    } else if (kin_fake_meta(c, relative) != NULL)
        e->meta = kin_tensor_view(c->entries.at[relative].meta, v->ndim, kin_aten_sizes(g, e->val),
                                  kin_aten_strides(g, e->val), v->offset);
    return e->meta;
}

void
kin_capture_refuse(capturing *c, const char *format, ...)
{
    va_list args;
    if (c->out->reason[0] != 0)
        return;
    va_start(args, format);
    vsnprintf(c->out->reason, sizeof c->out->reason, format, args);
    va_end(args);
}

bool
kin_capture_refuse_step(capturing *c, uint32_t step)
{
    kin_capture *out = c->out;
    if (!kin_step_is_in(out->refused.at, out->refused.len, step) && kin_vec_push(&out->refused, step) != KIN_OK)
        return PyErr_NoMemory() != NULL;
    return true;
}
