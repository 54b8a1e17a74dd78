/* Detects warnings of torch operators. Operators called without torch's Python bindings would print their warnings. */
#ifndef KIN_PY_WARN_H
#define KIN_PY_WARN_H

#include <Python.h>
#include <stdbool.h>

typedef struct {
    const void *methods; /* what torch calls; first */
    void *before;        /* the thread's handler until now */
    bool warned;
} kin_warning_catch;

/* False: this build of torch lacks something. */
bool kin_warnings_init(PyObject *torch_module);
/* Until the end, in this thread, warnings are only counted. `c` stays where it is. */
void kin_warnings_begin(kin_warning_catch *c);
bool kin_warnings_end(kin_warning_catch *c);

#endif
