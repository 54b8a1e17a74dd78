/* Rows of calls in torch.profiler (profiler_range.h); kintsugi._ranges makes their names. */
#include "py/module/profiler_range.h"

#include "py/compat/imports.h"
#include "py/compat/signals.h"

/* What replaying the entry shows; made anew when the trace has grown. */
static void
name_steps(kin_compiled *self, const kin_entry_object *entry)
{
    if (entry->v->rows != NULL && (size_t)PyList_GET_SIZE(entry->v->rows) == entry->v->trace.steps.len)
        return;
    PyObject *rows_of = kin_import("kintsugi._ranges", "rows_of");
    PyObject *rows = rows_of == NULL ? NULL : PyObject_CallFunctionObjArgs(rows_of, self, entry, NULL);
    if (rows != NULL && PyList_CheckExact(rows))
        kin_entry_set_rows(entry->v, Py_NewRef(rows));
    PyErr_Clear();
    Py_XDECREF(rows);
    Py_XDECREF(rows_of);
}

PyObject *
kin_range_begin(kin_compiled *self, const kin_entry_object *entry, const char *how)
{
    if (self->state == NULL || !kin_profiler_on())
        return NULL;
    bool held = kin_signals_hold();
    if (entry != NULL)
        name_steps(self, entry);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *name_of = kin_import("kintsugi._ranges", "name_of");
    PyObject *name = name_of == NULL ? NULL : PyObject_CallFunction(name_of, "Ois", self, entry != NULL ? (int)entry->number : -1, how);
    const char *text = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    PyObject *row = text != NULL ? kin_profiler_begin(text) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(name_of);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    if (held)
        kin_signals_release();
    return row;
}
