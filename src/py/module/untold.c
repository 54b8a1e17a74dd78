/* A library that was told of compiling, took another way for it and failed there: the call is made once more, and the library is not told.
 *
 * Only where the call has changed nothing (rules/untouched.c, and its torch calls below), so nobody can tell that there were two. If it fails again,
 * that is what it does without compiling too, and later recordings tell libraries as before.
 */
#include "core/diag/breaks.h"
#include "py/compat/imports.h"
#include "py/module/untold.h"
#include "py/report/dump.h"
#include "py/report/log.h"

/* kin_grad_enabled would do, but a first recording comes before it is set up. */
int
kin_grad_mode(void)
{
    PyObject *on = kin_import_call("torch", "is_grad_enabled", NULL);
    int mode = on == NULL ? -1 : on == Py_True;
    Py_XDECREF(on);
    if (mode < 0)
        PyErr_Clear();
    return mode;
}

PyObject *
kin_random_state(void)
{
    PyObject *state = kin_import_call("kintsugi._random", "random_state", NULL);
    if (state == NULL)
        PyErr_Clear();
    return state;
}

bool
kin_random_restore(PyObject *before)
{
    return before != NULL && kin_says_yes(kin_import_call("kintsugi._random", "restore_random_state", before));
}

/* Do all torch calls of the entry only compute? */
static bool
torch_only_computed(kin_entry *v)
{
    uint32_t n = v->trace.steps.len, *graph = calloc(n + 1, sizeof *graph), *needed = calloc(v->trace.vals.len + 1, sizeof *needed), calls = 0;
    for (uint32_t i = 0; graph != NULL && i < n; i++) {
        graph[i] = v->trace.steps.at[i].flags & KIN_STEP_TORCH ? 1 : 0;
        calls += graph[i];
    }
    PyObject *graphs = graph == NULL || needed == NULL ? NULL : kin_dump_subgraphs(v, graph, needed, calls > 0);
    bool only = kin_says_yes(graphs == NULL ? NULL : kin_import_call("kintsugi._effects", "only_compute", graphs));
    Py_XDECREF(graphs);
    free(graph);
    free(needed);
    return only;
}

/* Is the exception one that the code itself has raised? An interrupt comes from outside, and memory and stack may be there the next time. */
static bool
is_of_code(PyObject *type)
{
    return type != NULL && PyErr_GivenExceptionMatches(type, PyExc_Exception) && !PyErr_GivenExceptionMatches(type, PyExc_RecursionError) &&
           !PyErr_GivenExceptionMatches(type, PyExc_MemoryError);
}

static bool
may_repeat(const kin_record_result *result, int grad_mode, PyObject *random)
{
    kin_entry *v = result->entry;
    return result->untouched && v != NULL && kin_entry_was_asked(v, KIN_ASKER_LIBRARY, true) && !kin_entry_was_asked(v, KIN_ASKER_LIBRARY, false) &&
           grad_mode >= 0 && grad_mode == kin_grad_mode() && torch_only_computed(v) && kin_random_restore(random);
}

static void
tell(kin_compiled *self, PyObject *type, const char *after)
{
    char text[200];
    const char *name = PyType_Check(type) ? ((PyTypeObject *)type)->tp_name : "an exception";
    snprintf(text, sizeof text, "a library that was told of compiling raised %.60s; %s", name, after);
    kin_log_fallback(self->state, self->name, PyFunction_Check(self->fn) ? (PyCodeObject *)PyFunction_GET_CODE(self->fn) : NULL, text, KIN_WHY_NONE);
}

bool
kin_untold_wanted(kin_compiled *self, const kin_record_options *options, int grad_mode, PyObject *random, kin_record_result *result)
{
    PyObject *type, *error, *traceback;
    if (!result->untouched || options->dynamic_sources == NULL)
        return false;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *mark = is_of_code(type) && may_repeat(result, grad_mode, random) ? PyUnicode_FromString(KIN_ASKERS_SLOWER) : NULL;
    bool wanted = mark != NULL && PySet_Add(options->dynamic_sources, mark) == 0;
    Py_XDECREF(mark);
    if (!wanted) {
        PyErr_Restore(type, error, traceback);
        return false;
    }
    tell(self, type, "the call is made again, with is_compiling() False for libraries");
    kin_entry_free(result->entry);
    result->entry = NULL;
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return true;
}

void
kin_untold_failed(const kin_record_options *options)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *mark = PyUnicode_FromString(KIN_ASKERS_SLOWER);
    if (mark == NULL || PySet_Discard(options->dynamic_sources, mark) < 0)
        PyErr_Clear();
    Py_XDECREF(mark);
    PyErr_Restore(type, error, traceback);
}
