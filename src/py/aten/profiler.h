/* Rows of torch.profiler, as torch.autograd.profiler.record_function makes them. */
#ifndef KIN_PY_ATEN_PROFILER_H
#define KIN_PY_ATEN_PROFILER_H

#include <Python.h>
#include <stdbool.h>

/* Is a profiler of PyTorch on? A compare of one word as long as nothing changes. */
bool kin_profiler_on(void);
/* What kin_profiler_end closes; NULL: there is no row (no exception). */
PyObject *kin_profiler_begin(const char *name);
/* Keeps the pending exception. Steals row, which may be NULL. */
void kin_profiler_end(PyObject *row);
/* The name of the row of the graph that is replayed last: its way back, which comes later, has a row with the same name. Borrowed; NULL: there was none. */
void kin_profiler_set_graph(PyObject *name);
PyObject *kin_profiler_graph(void);

#endif
