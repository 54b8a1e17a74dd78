/* The row of a graph's backward in torch.profiler, named after the graph: "Graph 1 of forward [0/0], backward". */
#include "py/training/training_priv.h"

#include "py/aten/profiler.h"

void
launch_training_note_row(launch_training *t)
{
    if (kin_profiler_on())
        Py_XSETREF(t->row, Py_XNewRef(kin_profiler_graph()));
}

PyObject *
launch_training_begin_row(const launch_training *t)
{
    if (t->row == NULL || !kin_profiler_on())
        return NULL;
    PyObject *text = PyUnicode_FromFormat("%U, backward", t->row);
    const char *name = text != NULL ? PyUnicode_AsUTF8(text) : NULL;
    PyObject *row = name != NULL ? kin_profiler_begin(name) : NULL;
    PyErr_Clear();
    Py_XDECREF(text);
    return row;
}
