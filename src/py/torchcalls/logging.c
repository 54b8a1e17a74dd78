/* torch._dynamo.config.ignore_logging_functions and reorderable_logging_functions: functions that the program declares to be
 * called for their output only. Calls of the first kind are dropped; those of the second never end a graph.
 */
#include "py/torchcalls/torchcalls.h"

/* The setting as the program left it, NULL when it is empty. Read once per recording; not a fact of it. */
static PyObject *
load_functions(const char *name)
{
    PyObject *config = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo.config");
    PyObject *functions = config != NULL ? PyObject_GetAttrString(config, name) : NULL;
    if (functions != NULL && PyObject_Size(functions) <= 0)
        Py_CLEAR(functions);
    PyErr_Clear();
    return functions;
}

void
rec_logging_load(rec *r)
{
    r->dropped_functions = load_functions("ignore_logging_functions");
    r->report_functions = load_functions("reorderable_logging_functions");
}

void
rec_logging_free(rec *r)
{
    Py_CLEAR(r->dropped_functions);
    Py_CLEAR(r->report_functions);
}

static bool
lists(PyObject *functions, PyObject *callable)
{
    bool found = PySequence_Contains(functions, callable) > 0;
    PyErr_Clear();
    return found;
}

/* Is the callee among them, alone or as method of its first argument? It becomes a constant when it is. */
static bool
names(rec *r, PyObject *functions, rec_args *a)
{
    PyObject *obj = O(r, a->callee);
    if (functions == NULL || !(PyFunction_Check(obj) || PyCFunction_Check(obj)) || !rec_can_const(r, a->callee))
        return false;
    if (!lists(functions, obj)) {
        if (!PyFunction_Check(obj) || a->npos == 0 || O(r, a->args[0]) == NULL || !rec_can_const(r, a->args[0]))
            return false;
        PyObject *method = PyMethod_New(obj, O(r, a->args[0]));
        bool found = method != NULL && lists(functions, method);
        Py_XDECREF(method);
        if (!found || rec_need_const(r, a->args[0]) == 0)
            return false;
    }
    a->callee = rec_need_const(r, a->callee);
    return a->callee != 0;
}

bool
rec_call_report(rec *r, const rec_args *a)
{
    rec_args call = *a;
    if (!names(r, r->report_functions, &call))
        return false;
    rec_call_step(r, &call, KIN_STEP_OPAQUE | KIN_STEP_EFFECT | KIN_STEP_REPORTS, -1);
    return true;
}

static PyObject *
do_nothing(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n), PyObject *Py_UNUSED(names))
{
    Py_RETURN_NONE;
}

static PyMethodDef nothing = {"ignored", (PyCFunction)(void (*)(void))do_nothing, METH_FASTCALL | METH_KEYWORDS, NULL};

/* The recorded call must be silent as well: CPython is given another function to call. */
bool
rec_drop_report(rec *r, const rec_args *a, int below)
{
    rec_args call = *a;
    if (r->dropped_functions == NULL || !names(r, r->dropped_functions, &call))
        return false;
    PyObject *replacement = PyCFunction_New(&nothing, NULL);
    if (replacement == NULL) {
        PyErr_Clear();
        return false;
    }
    kin_watch_replace(r->top->f, r->top->nlocals + r->top->sp0 - 1 - below, replacement);
    rec_drop(r, a->ndrop);
    rec_push(r, rec_const(r, Py_None));
    return true;
}
