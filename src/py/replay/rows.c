/* torch.profiler rows of a replay: one for each graph, whether its calls run compiled or step by step, and one for each graph break. The names
 * are made in Python (kintsugi._ranges), once per step, when a profiler is active.
 */
#include "py/aten/profiler.h"
#include "py/replay/replay_priv.h"

static void
open_row(kin_run *r, PyObject *name)
{
    kin_profiler_end(r->row);
    const char *text = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    r->row = text != NULL ? kin_profiler_begin(text) : NULL;
    r->row_name = name;
    kin_profiler_set_graph(name);
    PyErr_Clear();
}

void
kin_rows_enter(kin_run *r, uint32_t step)
{
    PyObject *name = step < (size_t)PyList_GET_SIZE(r->rows) ? PyList_GET_ITEM(r->rows, step) : NULL;
    if (name != r->row_name)
        open_row(r, name);
}

PyObject *
kin_rows_begin_rest(kin_run *r)
{
    PyObject *type, *value, *traceback;
    if (r->rows == NULL)
        return NULL;
    PyErr_Fetch(&type, &value, &traceback);
    open_row(r, NULL);
    PyObject *row = kin_profiler_begin("Rest of the call (left compiled code)");
    PyErr_Restore(type, value, traceback);
    return row;
}

void
kin_rows_end(kin_run *r)
{
    kin_profiler_end(r->row);
    r->row = NULL;
    Py_CLEAR(r->rows);
}
