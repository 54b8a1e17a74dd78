/* Recording: runs a call in CPython under the watcher and writes its trace. */
#ifndef KIN_PY_DRIVER_RECORD_H
#define KIN_PY_DRIVER_RECORD_H

#include "py/recorder/options.h"
#include "py/replay/replay.h"

/* Calls func(args...) exactly as PyObject_Vectorcall would, watched. `func` is a Python function. */
PyObject *kin_record_call(const kin_record_options *options, PyObject *func, PyObject *const *args, size_t nargsf,
                          PyObject *kwnames, kin_record_result *result);

/* Can a side trace begin where the step leaves? Yes after failed checks, and where a recording ended at something that another call may not meet
 * again: an instruction that met values without a rule (first calls fill caches), an exception. */
bool kin_record_can_join(const kin_step *s);
/* Continues an exit under the watcher and, if a side trace can begin there, adds one to v->trace, reached from `step`. */
PyObject *kin_record_exit(const kin_record_options *options, kin_entry *v, uint32_t step, kin_exit *exit,
                          kin_record_result *result);

/* Enters (true) or leaves a section in which torch.compiler.is_compiling() returns true; sections nest. It does so while recording, and while
 * a program that has seen true runs on without being recorded: within one call the answer must not change. */
void kin_record_set_compiling(bool on);

/* Is a recording in progress in this process? is_compiling() returns true then. */
bool kin_record_active(void);

#endif
