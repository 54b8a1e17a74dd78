/* A small extension for tests of src/py/replay without the recorder: programs are written down in Python (see
 * program.py) and run against real functions. Guards and tensors are replaced by stand-ins at the end of this file.
 */
#include "py/compat/frame.h"
#include "py/compat/recursion.h"
#include "py/guardeval/guard.h"
#include "py/aten/make.h"
#include "py/aten/sizes.h"
#include "py/aten/tensor.h"
#include "py/replay/replay.h"
#include "py/watch/watch.h"

static PyObject *epoch_hook; /* called for epochs > 0: truth = the facts hold */

/* -- building --------------------------------------------------------------------------------------------------- */

static uint32_t
number(PyObject *row, const char *key)
{
    PyObject *value = PyDict_GetItemString(row, key);
    return value ? (uint32_t)PyLong_AsUnsignedLong(value) : 0;
}

static kin_ref
object(kin_entry *v, PyObject *row, const char *key)
{
    PyObject *value = PyDict_GetItemString(row, key);
    kin_ref ref = 0;
    if (value != NULL && kin_refs_add(&v->refs, value, &ref) != KIN_OK)
        return 0;
    return ref;
}

static uint32_t
vids(kin_entry *v, PyObject *row, const char *key, uint32_t *n)
{
    PyObject *list = PyDict_GetItemString(row, key);
    uint32_t first = v->trace.vids.len;
    *n = list ? (uint32_t)PyList_GET_SIZE(list) : 0;
    for (uint32_t i = 0; i < *n; i++)
        if (kin_vec_push(&v->trace.vids, (uint32_t)PyLong_AsUnsignedLong(PyList_GET_ITEM(list, i))) != KIN_OK)
            return 0;
    return first;
}

static kin_status
add_value(kin_entry *v, PyObject *row)
{
    kin_val val = {.kind = (uint8_t)number(row, "kind"), .access = (uint8_t)number(row, "access"),
                   .key = number(row, "key"), .step = number(row, "step")};
    if (val.kind == KIN_VAL_CONST)
        val.key = object(v, row, "obj");
    return kin_vec_push(&v->trace.vals, val);
}

static kin_status
add_step(kin_entry *v, PyObject *row)
{
    kin_step s = {.imm = (uint8_t)number(row, "imm"), .flags = (uint16_t)number(row, "flags"),
                  .num = number(row, "num"), .out = number(row, "out"), .snap = number(row, "snap"),
                  .alt = number(row, "alt"), .ref = object(v, row, "ref")};
    const char *name = PyUnicode_AsUTF8(PyDict_GetItemString(row, "kind"));
    for (int k = 0; k < KIN_STEP__COUNT; k++)
        if (strcmp(name, kin_step_name((kin_step_kind)k)) == 0)
            s.kind = (uint8_t)k;
    uint32_t n;
    s.args = vids(v, row, "args", &n);
    s.nargs = (uint16_t)n;
    return kin_vec_push(&v->trace.steps, s);
}

static kin_status
add_snap(kin_entry *v, PyObject *row)
{
    kin_snap s = {.parent = number(row, "parent"), .func = number(row, "func"), .code = object(v, row, "code"),
                  .offset = number(row, "offset"), .resume = (uint8_t)number(row, "resume"),
                  .extra = number(row, "extra"), .exc = number(row, "exc")};
    uint32_t n;
    s.vals = vids(v, row, "vals", &n);
    s.nlocals = (uint16_t)number(row, "nlocals");
    s.nstack = (uint16_t)(n - s.nlocals);
    return kin_vec_push(&v->trace.snaps, s);
}

static kin_status
add_all(kin_entry *v, PyObject *rows, kin_status (*add)(kin_entry *, PyObject *))
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(rows); i++)
        KIN_TRY(add(v, PyList_GET_ITEM(rows, i)));
    return KIN_OK;
}

static void
free_capsule(PyObject *capsule)
{
    kin_entry_free(PyCapsule_GetPointer(capsule, "entry"));
}

/* make(func, vals, steps, snaps): rows without the ones numbered 0. */
static PyObject *
make(PyObject *self, PyObject *args)
{
    PyObject *func, *vals, *steps, *snaps;
    if (!PyArg_ParseTuple(args, "OO!O!O!", &func, &PyList_Type, &vals, &PyList_Type, &steps, &PyList_Type, &snaps))
        return NULL;
    kin_entry *v = kin_entry_new();
    if (v == NULL)
        return PyErr_NoMemory();
    v->func = Py_NewRef(func);
    kin_status status = add_all(v, vals, add_value);
    if (status == KIN_OK)
        status = add_all(v, steps, add_step);
    if (status == KIN_OK)
        status = add_all(v, snaps, add_snap);
    v->trace.nepochs = 8;
    if (status == KIN_OK)
        status = kin_trace_finish(&v->trace);
    if (status != KIN_OK || PyErr_Occurred()) {
        kin_entry_free(v);
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "the trace is not well formed: status %d", (int)status);
        return NULL;
    }
    return PyCapsule_New(v, "entry", free_capsule);
}

/* -- running ---------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *log; /* list or NULL */
    PyThreadState *ts;
} exit_log;

static void
note_entered(void *arg, uint32_t depth, struct kin_frame *frame, struct _PyInterpreterFrame *raw)
{
    exit_log *log = arg;
    PyObject *entry = Py_BuildValue("(sI)", "entered", (unsigned)depth);
    if (entry == NULL || PyList_Append(log->log, entry) < 0)
        PyErr_Clear();
    Py_XDECREF(entry);
    if (kin_frame_trace_opcodes(log->ts, frame) != KIN_OK)
        Py_FatalError("trace_opcodes");
}

static PyObject *
watch_exit(kin_entry *v, uint32_t step, kin_exit *exit, void *arg)
{
    exit_log *log = arg;
    const kin_snap *s = &v->trace.snaps.at[kin_exit_snap(exit)];
    uint32_t depth = 0;
    for (uint32_t p = s->parent; p != 0; p = v->trace.snaps.at[p].parent)
        depth++;
    PyObject *values = PyList_New(0);
    for (uint32_t i = 0; i < (uint32_t)s->nlocals + s->nstack; i++) {
        PyObject *value = kin_exit_value(exit, depth, i);
        PyList_Append(values, value ? value : Py_Ellipsis);
    }
    PyObject *entry = Py_BuildValue("(sIN)", "exit", (unsigned)step, values);
    PyList_Append(log->log, entry);
    Py_XDECREF(entry);
    kin_recursion_take(log->ts, -1);
    PyObject *result = kin_exit_resume(exit, note_entered, log);
    kin_recursion_take(log->ts, 1);
    return result;
}

static PyObject *
run_entry(kin_entry *v, PyObject *args, PyObject *log)
{
    PyThreadState *ts = PyThreadState_Get();
    uint32_t n = v->trace.vals.len;
    PyObject **slots = calloc(n, sizeof *slots);
    for (uint32_t i = 1; i < n; i++) {
        const kin_val *val = &v->trace.vals.at[i];
        if (val->kind == KIN_VAL_SRC && val->epoch == 0)
            slots[i] = Py_NewRef(val->access == KIN_ACCESS_FUNC ? v->func : PyTuple_GetItem(args, val->key));
    }
    exit_log exits = {log, ts};
    kin_recursion_take(ts, 1);
    PyObject *result = kin_replay_run(v, slots, NULL, log ? watch_exit : NULL, &exits);
    kin_recursion_take(ts, -1);
    for (uint32_t i = 0; i < n; i++)
        if (slots[i] != NULL)
            Py_FatalError("a slot was not released");
    free(slots);
    return result;
}

/* run(entry, args, force=-1, log=None) */
static PyObject *
run(PyObject *self, PyObject *args)
{
    PyObject *capsule, *values, *log = Py_None;
    int force = -1;
    if (!PyArg_ParseTuple(args, "OO!|iO", &capsule, &PyTuple_Type, &values, &force, &log))
        return NULL;
    kin_entry *v = PyCapsule_GetPointer(capsule, "entry");
    if (v == NULL)
        return NULL;
    uint32_t before = kin_replay_force_exit;
    kin_replay_force_exit = (uint32_t)force;
    PyObject *result = run_entry(v, values, log == Py_None ? NULL : log);
    kin_replay_force_exit = before;
    return result;
}

static PyObject *
counters(PyObject *self, PyObject *capsule)
{
    kin_entry *v = PyCapsule_GetPointer(capsule, "entry");
    return v ? Py_BuildValue("{sKsKsIsI}", "hits", (unsigned long long)v->hits, "exits", (unsigned long long)v->exits,
                             "running", (unsigned)v->running, "depth", (unsigned)v->trace.depth) : NULL;
}

static PyObject *
flags(PyObject *self, PyObject *capsule)
{
    kin_entry *v = PyCapsule_GetPointer(capsule, "entry");
    PyObject *list = v ? PyList_New(0) : NULL;
    for (uint32_t i = 0; list != NULL && i < v->trace.steps.len; i++) {
        PyObject *flag = PyLong_FromLong(v->trace.steps.at[i].flags);
        if (flag == NULL || PyList_Append(list, flag) < 0)
            Py_CLEAR(list);
        Py_XDECREF(flag);
    }
    return list;
}

static PyObject *
set_epoch_hook(PyObject *self, PyObject *hook)
{
    Py_XSETREF(epoch_hook, hook == Py_None ? NULL : Py_NewRef(hook));
    Py_RETURN_NONE;
}

/* A bare frame, dropped without running while somebody holds its frame object: hold(func, offset) -> frame object. */
static PyObject *
hold(PyObject *self, PyObject *args)
{
    PyObject *func, *values;
    unsigned offset;
    if (!PyArg_ParseTuple(args, "OIO!", &func, &offset, &PyTuple_Type, &values))
        return NULL;
    PyThreadState *ts = PyThreadState_Get();
    kin_frame *frame = kin_frame_new(func, (PyCodeObject *)PyFunction_GET_CODE(func));
    if (frame == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++)
        kin_frame_set_local(frame, (int)i, Py_NewRef(PyTuple_GET_ITEM(values, i)));
    kin_frame_link(ts, frame, offset);
    PyObject *object = (PyObject *)PyThreadState_GetFrame(ts);
    kin_frame_unlink(ts, frame);
    kin_frame_free(ts, frame);
    return object;
}

/* -- stand-ins -------------------------------------------------------------------------------------------------- */

bool
kin_guard_eval(kin_entry *v, uint32_t epoch, PyObject **slots, kin_guard_miss *miss)
{
    PyObject *result = epoch_hook ? PyObject_CallFunction(epoch_hook, "I", (unsigned)epoch) : Py_NewRef(Py_True);
    bool holds = result != NULL && PyObject_IsTrue(result) == 1;
    Py_XDECREF(result);
    PyErr_Clear();
    return holds;
}

void
kin_guard_free(struct kin_guard_prog *p)
{
}

bool
kin_profiler_on(void)
{
    return false;
}

PyObject *
kin_profiler_begin(const char *name)
{
    return NULL;
}

void
kin_profiler_end(PyObject *row)
{
}

void
kin_profiler_set_graph(PyObject *name)
{
}

bool
kin_is_exact_immutable(PyObject *obj)
{
    return PyLong_CheckExact(obj) || PyUnicode_CheckExact(obj) || obj == Py_None;
}

bool
kin_is_immutable_class(const PyTypeObject *type)
{
    return type == &PyLong_Type || type == &PyUnicode_Type || type == Py_TYPE(Py_None);
}

bool
kin_exact_equal(PyObject *a, PyObject *b)
{
    return Py_TYPE(a) == Py_TYPE(b) && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

bool
kin_owns_attribute(PyObject *obj, PyObject *name)
{
    return false;
}

bool
kin_owns_item(PyObject *dict, PyObject *key)
{
    return false;
}

bool
kin_is_tensor(PyObject *obj)
{
    return false;
}

/* Nothing here is a tensor (py/replay/ahead.c). */
PyObject *
kin_guard_live(const kin_entry *v, kin_vid vid, PyObject *const *slots)
{
    return slots[vid];
}

bool
kin_tensor_is_inference(PyObject *tensor)
{
    return false;
}

bool
kin_tensor_is_dense(PyObject *tensor, bool meta)
{
    return false;
}

bool
kin_tensor_has_ordinary_data(PyObject *tensor)
{
    return false;
}

bool
kin_tensor_dtype(PyObject *tensor, kin_dtype *out)
{
    return false;
}

void *
kin_tensor_data(PyObject *tensor)
{
    return NULL;
}

int64_t
kin_tensor_dim(PyObject *tensor)
{
    return 0;
}

const int64_t *
kin_tensor_sizes(PyObject *tensor)
{
    return NULL;
}

const int64_t *
kin_tensor_strides(PyObject *tensor)
{
    return NULL;
}

unsigned
kin_dtype_bytes(kin_dtype dtype)
{
    return 1;
}

bool
kin_meta_match(PyObject *tensor, PyObject *record)
{
    return false;
}



unsigned
kin_meta_mask(PyObject *record)
{
    return 0;
}

bool
kin_place_takes(PyObject *base, PyObject *key, uint32_t num, Py_ssize_t ours)
{
    return false;
}

PyObject *
kin_instance_dict(PyObject *obj)
{
    return NULL;
}

bool
kin_exact_runs_no_code(PyObject *obj, bool all)
{
    return false;
}

bool
kin_watch_foreign_tool(PyThreadState *ts)
{
    return false;
}

bool kin_grad_enabled(void);
void kin_grad_set(bool enabled);

bool
kin_grad_enabled(void)
{
    return false;
}

void
kin_grad_set(bool enabled)
{
}

bool kin_is_class_of_tensors(PyObject *type);

bool
kin_is_class_of_tensors(PyObject *type)
{
    return false;
}

bool
kin_is_size(PyObject *obj)
{
    return false;
}

/* A tuple stands for the tensor with its sizes. */
PyObject *
kin_size_at(PyObject *tensor, unsigned dim)
{
    return PySequence_GetItem(tensor, (Py_ssize_t)dim);
}

PyObject *
kin_size_new(PyObject *const *items, Py_ssize_t n)
{
    PyObject *size = PyTuple_New(n);
    for (Py_ssize_t i = 0; size != NULL && i < n; i++)
        PyTuple_SET_ITEM(size, i, Py_NewRef(items[i]));
    return size;
}

static PyMethodDef methods[] = {
    {"make", make, METH_VARARGS, NULL},
    {"run", run, METH_VARARGS, NULL},
    {"counters", counters, METH_O, NULL},
    {"flags", flags, METH_O, NULL},
    {"set_epoch_hook", set_epoch_hook, METH_O, NULL},
    {"hold", hold, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "replaytest", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit_replaytest(void)
{
    return PyModule_Create(&definition);
}
