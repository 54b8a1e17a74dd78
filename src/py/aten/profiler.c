/* torch.profiler rows (profiler.h). A global of PyTorch's Python side says whether a profiler is on. Its module's
 * dict has a version that changes with every store, so a hit reads the global only after something was stored.
 */
#include "py/aten/profiler.h"

#include "py/compat/heap.h"

static PyObject *names;         /* of torch.autograd.profiler; for the life of the process */
static const uint64_t *version; /* NULL: no word says it */
static uint64_t seen;
static bool on;

static bool
find_profiler(void)
{
    PyObject *module = PyImport_ImportModule("torch.autograd.profiler");
    names = module != NULL && PyModule_Check(module) ? Py_NewRef(PyModule_GetDict(module)) : NULL;
    version = names != NULL ? kin_heap_dict_version(names) : NULL;
    Py_XDECREF(module);
    PyErr_Clear();
    return names != NULL;
}

bool
kin_profiler_on(void)
{
    if (names == NULL && !find_profiler())
        return false;
    if (version != NULL && *version == seen)
        return on;
    on = PyDict_GetItemString(names, "_is_profiler_enabled") == Py_True;
    seen = version != NULL ? *version : 0;
    return on;
}

PyObject *
kin_profiler_begin(const char *name)
{
    PyObject *make = names != NULL ? PyDict_GetItemString(names, "record_function") : NULL; /* borrowed */
    PyObject *row = make != NULL ? PyObject_CallFunction(make, "s", name) : NULL;
    PyObject *entered = row != NULL ? PyObject_CallMethod(row, "__enter__", NULL) : NULL;
    if (entered == NULL)
        Py_CLEAR(row);
    Py_XDECREF(entered);
    PyErr_Clear();
    return row;
}

void
kin_profiler_end(PyObject *row)
{
    PyObject *type, *value, *traceback;
    if (row == NULL)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(PyObject_CallMethod(row, "__exit__", "OOO", Py_None, Py_None, Py_None));
    PyErr_Clear();
    Py_DECREF(row);
    PyErr_Restore(type, value, traceback);
}

static PyObject *graph;

void
kin_profiler_set_graph(PyObject *name)
{
    Py_XSETREF(graph, Py_XNewRef(name));
}

PyObject *
kin_profiler_graph(void)
{
    return graph;
}
