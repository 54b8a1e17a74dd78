/* A step of an optimizer (optim.h): its tensors are gathered and checked, then written in one pass. */
#include "py/aten/sizes.h"
#include "py/aten/threads.h"
#include "py/optim/optim.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/vec.h"
#include "py/aten/make.h"
#include "py/aten/modes.h"
#include "py/aten/tensor.h"
#include "py/compat/heap.h"
#include "py/optim/optim_priv.h"

/* A row with what was found of the library. */
typedef struct {
    PyObject *code;     /* of `step`, without its wrappers */
    PyObject *step;     /* that function */
    PyObject *init;     /* _init_group */
    PyObject *function; /* what does the arithmetic */
    PyObject *native;   /* the C function in place of `step` */
    PyObject *names[KIN_OPTIM_STATES], *scalars[OPTIM_SCALARS];
} found_row;

enum { MOST_ROWS = 16 };
static found_row found[MOST_ROWS];
static PyObject *name_step, *name_grad, *name_params, *name_groups, *name_state, *name_init, *name_scale, *name_patched, *name_inf;
static uint64_t steps_done, steps_left;
static const char *last_reason = "";
static _Thread_local kin_optim_count here = {.why = ""};
static kin_optim_listener listening;
static void *listener_arg;

/* -- numbers in groups -------------------------------------------------------------------------------------------------- */

bool
optim_number(PyObject *dict, const char *name, double *out)
{
    PyObject *value = PyDict_GetItemString(dict, name); /* borrowed */
    if (value == NULL || (!PyFloat_CheckExact(value) && !PyLong_CheckExact(value) && !PyBool_Check(value)))
        return false;
    *out = PyFloat_AsDouble(value);
    return *out != -1.0 || !PyErr_Occurred();
}

bool
optim_flag(PyObject *dict, const char *name, bool *out)
{
    PyObject *value = PyDict_GetItemString(dict, name);
    *out = value == Py_True;
    return value == NULL || value == Py_None || PyBool_Check(value);
}

/* -- tensors ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject *tensor; /* borrowed of whoever keeps it; gradients are owned */
    uint8_t writes;
} written;

typedef struct {
    void *at;         /* of state["step"] */
    bool wide;        /* a double */
    float *scalars[OPTIM_SCALARS]; /* that are written with it */
} counter;

typedef struct {
    KIN_VEC(kin_optim_tensor) tensors;
    KIN_VEC(optim_group) groups;
    KIN_VEC(kin_optim_factored) factored; /* Adafactor's, in place of `tensors` */
    KIN_VEC(uint32_t) group_of;  /* by tensor */
    KIN_VEC(written) written;
    KIN_VEC(counter) counters;   /* by tensor, where they are counted */
    KIN_VEC(optim_stretch) memory;
    KIN_VEC(PyObject *) owned;
    double *sums;                /* room for Adafactor, of `rows` numbers */
    int64_t rows;
    const char *why;
} gathered;

static bool
refuse(gathered *all, const char *why)
{
    all->why = why;
    return false;
}

bool
optim_is_dense(const int64_t *sizes, const int64_t *strides, int64_t ndim, int64_t *numel)
{
    int64_t next = 1, left = 0;
    bool done[8] = {false};
    *numel = 1;
    for (int64_t d = 0; d < ndim; d++)
        *numel *= sizes[d];
    if (*numel == 0 || kin_lies_by_rows(sizes, strides, ndim))
        return true;
    if (ndim > 8)
        return false;
    for (int64_t d = 0; d < ndim; d++)
        left += !(done[d] = sizes[d] == 1);
    for (next = 1; left > 0; left--) {
        int64_t at = -1;
        for (int64_t d = 0; d < ndim; d++)
            if (!done[d] && strides[d] == next)
                at = d;
        if (at < 0)
            return false;
        done[at] = true;
        next *= sizes[at];
    }
    return true;
}

/* An ordinary float32 tensor that lies as `like` does. */
static bool
take_tensor(gathered *all, PyObject *tensor, PyObject *like, bool reads, float **data, int64_t *numel)
{
    kin_dtype dtype;
    if (!kin_tensor_is_ordinary(tensor) || kin_tensor_is_inference(tensor))
        return refuse(all, "a tensor is of another kind than torch.Tensor on the CPU");
    if (!kin_tensor_dtype(tensor, &dtype) || dtype != KIN_F32)
        return refuse(all, "a tensor is not float32");
    int64_t ndim = kin_tensor_dim(tensor);
    const int64_t *sizes = kin_tensor_sizes(tensor), *strides = kin_tensor_strides(tensor);
    if (tensor == like ? !optim_is_dense(sizes, strides, ndim, numel)
                       : ndim != kin_tensor_dim(like) || memcmp(sizes, kin_tensor_sizes(like), (size_t)ndim * sizeof *sizes) != 0 ||
                             (*numel > 1 && memcmp(strides, kin_tensor_strides(like), (size_t)ndim * sizeof *strides) != 0))
        return refuse(all, "a parameter, its gradient and its state lie in memory in different ways");
    *data = kin_tensor_data(tensor);
    optim_stretch s = {(const char *)*data, (const char *)(*data + *numel), reads};
    if (*numel > 0 && (*data == NULL || kin_vec_push(&all->memory, s) != KIN_OK))
        return refuse(all, "no memory");
    return true;
}

static bool
take_written(gathered *all, PyObject *tensor, unsigned writes)
{
    return kin_vec_push(&all->written, ((written){tensor, (uint8_t)writes})) == KIN_OK || refuse(all, "no memory");
}

/* A tensor that holds one number, which the step changes. */
static bool
take_scalar(gathered *all, PyObject *state, PyObject *name, kin_dtype *dtype, void **at)
{
    PyObject *tensor = state != NULL ? PyDict_GetItemWithError(state, name) : NULL; /* borrowed */
    if (tensor == NULL || !kin_is_plain_tensor(tensor) || !kin_tensor_is_ordinary(tensor) || kin_tensor_is_inference(tensor) || kin_tensor_dim(tensor) != 0 ||
        !kin_tensor_dtype(tensor, dtype) || (*dtype != KIN_F32 && *dtype != KIN_F64))
        return refuse(all, "a step counter is no float tensor on the CPU");
    *at = kin_tensor_data(tensor);
    optim_stretch s = {*at, (const char *)*at + (*dtype == KIN_F64 ? 8 : 4), false};
    if (*at == NULL || kin_vec_push(&all->memory, s) != KIN_OK)
        return refuse(all, "no memory");
    return take_written(all, tensor, 1);
}

static bool
take_counter(gathered *all, int row, PyObject *state)
{
    kin_dtype dtype;
    counter c = {0};
    void *at;
    if (!take_scalar(all, state, name_step, &dtype, &c.at))
        return false;
    c.wide = dtype == KIN_F64;
    for (int i = 0; i < OPTIM_SCALARS && optim_rows[row].scalars[i] != NULL; i++) {
        if (!take_scalar(all, state, found[row].scalars[i], &dtype, &at))
            return false;
        if (dtype != KIN_F32)
            return refuse(all, "a tensor is not float32");
        c.scalars[i] = at;
    }
    return kin_vec_push(&all->counters, c) == KIN_OK || refuse(all, "no memory");
}

/* The dict of a parameter's state; NULL: there is none yet. */
static PyObject *
state_of(PyObject *table, PyObject *param)
{
    kin_dict_entry entry; /* a tensor's hash is its address */
    if (kin_heap_dict_find(table, param, (Py_hash_t)(uintptr_t)param, &entry) != KIN_FIND_HIT)
        return NULL;
    return PyDict_CheckExact(entry.value) ? entry.value : NULL;
}

static bool
take_states(gathered *all, int row, const optim_group *g, PyObject *table, PyObject *param, kin_optim_tensor *t)
{
    const optim_row *r = &optim_rows[row];
    PyObject *state = NULL;
    int64_t numel = t->n;
    for (int i = 0; i < KIN_OPTIM_STATES && r->states[i] != NULL; i++) {
        if (!r->has(g, i))
            continue;
        state = state != NULL ? state : state_of(table, param);
        PyObject *tensor = state != NULL ? PyDict_GetItemWithError(state, found[row].names[i]) : NULL;
        if (tensor == NULL || !kin_is_plain_tensor(tensor))
            return refuse(all, "a parameter has no state yet");
        if (!take_tensor(all, tensor, param, false, &t->state[i], &numel) || !take_written(all, tensor, g->fused ? 0 : r->writes[i] != 0 ? r->writes[i] : r->state_writes(g)))
            return false;
    }
    return !r->counts || take_counter(all, row, state);
}

/* A mean that Adafactor keeps. */
static bool
take_mean(gathered *all, PyObject *state, const char *name, int64_t numel, float **data)
{
    PyObject *tensor = state != NULL ? PyDict_GetItemString(state, name) : NULL; /* borrowed */
    int64_t n;
    if (tensor == NULL || !kin_is_plain_tensor(tensor))
        return refuse(all, "a parameter has no state yet");
    return take_tensor(all, tensor, tensor, false, data, &n) && take_written(all, tensor, 1) &&
           ((n == numel && kin_lies_by_rows(kin_tensor_sizes(tensor), kin_tensor_strides(tensor), kin_tensor_dim(tensor))) ||
            refuse(all, "the state of a parameter is laid out in another way"));
}

static bool
take_factored(gathered *all, int row, uint32_t group, PyObject *table, PyObject *param, PyObject *grad)
{
    kin_optim_factored f = {.matrices = 1, .rows = 1, .columns = 1};
    int64_t n, ndim;
    float *data;
    if (!take_tensor(all, param, param, false, &f.param, &n) || !take_tensor(all, grad, param, true, &data, &n))
        return false;
    f.grad = data;
    ndim = kin_tensor_dim(param);
    const int64_t *sizes = kin_tensor_sizes(param);
    if (n == 0 || !kin_lies_by_rows(sizes, kin_tensor_strides(param), ndim))
        return refuse(all, "a parameter is empty or not laid out row by row");
    f.columns = ndim > 0 ? sizes[ndim - 1] : 1;
    f.rows = ndim > 1 ? sizes[ndim - 2] : 1;
    f.matrices = n / f.rows / f.columns;
    all->rows = f.matrices * f.rows > all->rows ? f.matrices * f.rows : all->rows;
    PyObject *state = state_of(table, param);
    if (!(ndim > 1 ? take_mean(all, state, "row_var", n / f.columns, &f.row) && take_mean(all, state, "col_var", n / f.rows, &f.column)
                   : take_mean(all, state, "variance", n, &f.vector)) ||
        !take_counter(all, row, state) || !take_written(all, param, optim_rows[row].param_writes(&all->groups.at[group])))
        return false;
    return (kin_vec_push(&all->factored, f) == KIN_OK && kin_vec_push(&all->group_of, group) == KIN_OK) || refuse(all, "no memory");
}

static bool
take_param(gathered *all, int row, uint32_t group, PyObject *table, PyObject *param)
{
    const optim_row *r = &optim_rows[row];
    const optim_group *g = &all->groups.at[group];
    kin_optim_tensor t = {.rule = r->rule};
    if (!kin_is_plain_tensor(param))
        return refuse(all, "a parameter is no plain tensor");
    PyObject *grad = PyObject_GetAttr(param, name_grad);
    if (grad == NULL || grad == Py_None) {
        Py_XDECREF(grad);
        PyErr_Clear();
        return grad == Py_None || refuse(all, "a parameter has no `grad`");
    }
    if (kin_vec_push(&all->owned, grad) != KIN_OK) {
        Py_DECREF(grad);
        return refuse(all, "no memory");
    }
    if (!kin_is_plain_tensor(grad))
        return refuse(all, "a gradient is no plain tensor");
    if (r->rule == KIN_OPTIM_ADAFACTOR)
        return take_factored(all, row, group, table, param, grad);
    r->set(g, 1, &t);
    bool keeps = t.flags & KIN_OPTIM_KEEPS_GRAD;
    return take_tensor(all, param, param, false, &t.param, &t.n) && take_tensor(all, grad, param, !keeps, &t.grad, &t.n) &&
           take_states(all, row, g, table, param, &t) && take_written(all, param, g->fused ? 0 : r->param_writes(g)) &&
           (!keeps || take_written(all, grad, 1)) &&
           ((kin_vec_push(&all->tensors, t) == KIN_OK && kin_vec_push(&all->group_of, group) == KIN_OK) || refuse(all, "no memory"));
}

static bool
take_group(gathered *all, int row, PyObject *table, PyObject *dict)
{
    optim_group g = {.dict = dict};
    if (!PyDict_CheckExact(dict) || !optim_rows[row].read(&g))
        return refuse(all, "a number of a group is a tensor, or the group is capturable or differentiable");
    PyObject *params = PyDict_GetItemWithError(dict, name_params);
    if (params == NULL || !PyList_CheckExact(params))
        return refuse(all, "the parameters of a group are no list");
    if (kin_vec_push(&all->groups, g) != KIN_OK)
        return refuse(all, "no memory");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); i++)
        if (!take_param(all, row, all->groups.len - 1, table, PyList_GET_ITEM(params, i)))
            return false;
    return true;
}

/* -- memory that is shared ------------------------------------------------------------------------------------------------ */

static int
by_address(const void *a, const void *b)
{
    const optim_stretch *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

bool
optim_overlaps(optim_stretch *s, uint32_t n)
{
    qsort(s, n, sizeof *s, by_address);
    const char *read_to = NULL, *written_to = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (s[i].from < written_to || (!s[i].reads && s[i].from < read_to))
            return true;
        const char **to = s[i].reads ? &read_to : &written_to;
        *to = s[i].to > *to ? s[i].to : *to;
    }
    return false;
}

/* -- the step -------------------------------------------------------------------------------------------------------------- */

PyObject *
optim_name_grad(void)
{
    return name_grad;
}

static PyObject *
own_attr(PyObject *self, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(self);
    return type->tp_getattro == PyObject_GenericGetAttr && _PyType_Lookup(type, name) == NULL ? kin_heap_instance_attr(self, name) : NULL;
}

PyObject *
optim_groups(PyObject *self)
{
    PyObject *groups = own_attr(self, name_groups);
    return groups != NULL && PyList_CheckExact(groups) ? groups : NULL;
}

bool
optim_was_patched(PyObject *self)
{
    return own_attr(self, name_patched) != NULL;
}

/* Nothing of the optimizer was replaced by something else. */
static bool
is_as_known(int row, PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject *globals = PyFunction_GET_GLOBALS(found[row].step);
    PyObject *init = _PyType_Lookup(type, name_init), *function = PyDict_GetItemString(globals, optim_rows[row].function);
    if (init != found[row].init || function != found[row].function || !kin_heap_instance_lacks(self, name_init))
        return false;
    PyObject *scale = kin_heap_instance_attr(self, name_scale), *inf = kin_heap_instance_attr(self, name_inf);
    return (scale == NULL || scale == Py_None) && (inf == NULL || inf == Py_None);
}

static bool
gather(gathered *all, int row, PyObject *self)
{
    if (kin_foreign_modes() || kin_modes_active() || kin_ambient_special() || kin_grad_enabled())
        return refuse(all, "a mode of torch is on");
    if (!is_as_known(row, self))
        return refuse(all, "a method of the optimizer was replaced, or gradients are scaled");
    PyObject *groups = optim_groups(self), *table = own_attr(self, name_state);
    if (groups == NULL || table == NULL || !PyDict_Check(table))
        return refuse(all, "the optimizer keeps its groups in another way");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(groups); i++)
        if (!take_group(all, row, table, PyList_GET_ITEM(groups, i)))
            return false;
    if (all->rows > 0 && (all->sums = malloc((size_t)all->rows * sizeof *all->sums)) == NULL)
        return refuse(all, "no memory");
    return !optim_overlaps(all->memory.at, all->memory.len) || refuse(all, "tensors share memory");
}

/* Counts the step; what it is now. */
static double
count(const counter *c)
{
    if (c->wide)
        return *(double *)c->at += 1;
    return *(float *)c->at += 1;
}

static void
set_numbers(gathered *all, const optim_row *r, uint32_t i)
{
    const optim_group *g = &all->groups.at[all->group_of.at[i]];
    double step = r->counts ? count(&all->counters.at[i]) : 1;
    r->set(g, step, &all->tensors.at[i]);
    if (r->advance != NULL)
        r->advance(g, step, all->counters.at[i].scalars, &all->tensors.at[i]);
}

static void
run(gathered *all, int row)
{
    for (uint32_t i = 0; i < all->tensors.len; i++)
        set_numbers(all, &optim_rows[row], i);
    for (uint32_t i = 0; i < all->factored.len; i++) {
        optim_set_adafactor(&all->groups.at[all->group_of.at[i]], count(&all->counters.at[i]), &all->factored.at[i]);
        kin_optim_adafactor(&all->factored.at[i], all->sums, kin_parallel_for);
    }
    kin_optim_run(all->tensors.at, all->tensors.len, kin_parallel_for);
    for (uint32_t i = 0; i < all->written.len; i++)
        kin_tensor_bump(all->written.at[i].tensor, all->written.at[i].writes);
}

static void
let_go(gathered *all)
{
    for (uint32_t i = 0; i < all->owned.len; i++)
        Py_DECREF(all->owned.at[i]);
    kin_vec_deinit(&all->owned);
    free(all->sums);
    kin_vec_deinit(&all->factored);
    kin_vec_deinit(&all->tensors);
    kin_vec_deinit(&all->groups);
    kin_vec_deinit(&all->group_of);
    kin_vec_deinit(&all->written);
    kin_vec_deinit(&all->counters);
    kin_vec_deinit(&all->memory);
}

void
kin_optim_listen(kin_optim_listener listener, void *arg)
{
    listening = listener;
    listener_arg = arg;
}

static void
note_left(PyObject *self, const char *why)
{
    static const void *last; /* only compared */
    if (listening != NULL && (why != last_reason || self != last))
        listening(listener_arg, Py_TYPE(self)->tp_name, why);
    last_reason = why;
    last = self;
    steps_left++;
    here.left++;
    here.why = why;
}

static PyObject *
native_step(PyObject *number, PyObject *const *args, Py_ssize_t nargs)
{
    int row = (int)PyLong_AsLong(number);
    gathered all = {0};
    if (nargs != 1) {
        PyErr_SetString(PyExc_TypeError, "a step takes the optimizer");
        return NULL;
    }
    bool done = gather(&all, row, args[0]);
    PyErr_Clear();
    if (done)
        run(&all, row);
    else
        note_left(args[0], all.why);
    let_go(&all);
    steps_done += done;
    here.done += done;
    return done ? Py_NewRef(Py_None) : PyObject_Vectorcall(found[row].step, args, 1, NULL);
}

/* -- finding it in the library ---------------------------------------------------------------------------------------------- */

static PyMethodDef native_def = {"step", (PyCFunction)(void (*)(void))native_step, METH_FASTCALL, "A step of an optimizer, in one pass over its tensors."};

/* What decorators wrapped (new reference). */
static PyObject *
unwrap(PyObject *func)
{
    PyObject *inner = func;
    while (func != NULL && (inner = PyObject_GetAttrString(func, "__wrapped__")) != NULL)
        Py_SETREF(func, inner);
    PyErr_Clear();
    return func;
}

static bool
intern_names(void)
{
    if (name_inf != NULL)
        return true;
    name_step = PyUnicode_InternFromString("step");
    name_grad = PyUnicode_InternFromString("grad");
    name_params = PyUnicode_InternFromString("params");
    name_groups = PyUnicode_InternFromString("param_groups");
    name_state = PyUnicode_InternFromString("state");
    name_init = PyUnicode_InternFromString("_init_group");
    name_patched = PyUnicode_InternFromString("_zero_grad_profile_name");
    name_scale = PyUnicode_InternFromString("grad_scale");
    return (name_inf = PyUnicode_InternFromString("found_inf")) != NULL;
}

PyObject *
optim_find(const char *module, const char *type, const char *name)
{
    PyObject *modules = PyImport_GetModuleDict(), *torch = PyDict_GetItemString(modules, "torch"); /* borrowed */
    PyObject *home = Py_XNewRef(PyDict_GetItemString(modules, module));
    if (home != NULL && type != NULL)
        Py_SETREF(home, PyObject_GetAttrString(home, type));
    PyObject *func = home != NULL ? unwrap(PyObject_GetAttrString(home, name)) : NULL;
    if (func != NULL && (!PyFunction_Check(func) || torch == NULL || !intern_names() || kin_aten_init(torch) != KIN_OK || kin_make_init(torch) != KIN_OK))
        Py_CLEAR(func);
    Py_XDECREF(home);
    PyErr_Clear();
    return func;
}

PyObject *
optim_native(PyMethodDef *def, PyObject *self, const char *format, const char *owner)
{
    PyObject *module = PyUnicode_FromFormat(format, owner), *native = module != NULL ? PyCFunction_NewEx(def, self, module) : NULL;
    Py_XDECREF(module);
    return native;
}

static bool
find_row(int row)
{
    const optim_row *r = &optim_rows[row];
    found_row *f = &found[row];
    PyObject *step = optim_find(r->module, r->name, "step");
    PyObject *module = PyDict_GetItemString(PyImport_GetModuleDict(), r->module); /* borrowed */
    PyObject *type = step != NULL ? PyObject_GetAttrString(module, r->name) : NULL, *number = PyLong_FromLong(row);
    bool ok = type != NULL && number != NULL;
    for (int i = 0; ok && i < KIN_OPTIM_STATES && r->states[i] != NULL; i++)
        ok = (f->names[i] = PyUnicode_InternFromString(r->states[i])) != NULL;
    for (int i = 0; ok && i < OPTIM_SCALARS && r->scalars[i] != NULL; i++)
        ok = (f->scalars[i] = PyUnicode_InternFromString(r->scalars[i])) != NULL;
    if (ok && (f->init = PyObject_GetAttr(type, name_init)) != NULL && (f->function = PyObject_GetAttrString(module, r->function)) != NULL &&
        (f->native = optim_native(&native_def, number, "torch.optim.%s", r->name)) != NULL) {
        f->step = Py_NewRef(step);
        f->code = Py_NewRef(PyFunction_GET_CODE(step));
    }
    Py_XDECREF(number);
    Py_XDECREF(step);
    Py_XDECREF(type);
    PyErr_Clear();
    return f->native != NULL;
}

PyObject *
kin_optim_native(PyObject *func)
{
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(func);
    if (PyUnicode_CompareWithASCIIString(code->co_name, "step") != 0)
        return NULL;
    for (int row = 0; row < optim_nrows && row < MOST_ROWS; row++)
        if ((found[row].native != NULL || find_row(row)) && found[row].code == (PyObject *)code)
            return found[row].native;
    return NULL;
}

kin_optim_count
kin_optim_counted(void)
{
    return here;
}

PyObject *
kin_optim_totals(void)
{
    return Py_BuildValue("{s:K,s:K,s:s}", "compiled", (unsigned long long)steps_done, "eager", (unsigned long long)steps_left, "reason", last_reason);
}
