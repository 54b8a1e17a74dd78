/* The engine's answers for `kintsugi doctor`: which parts of it work on this machine, with this CPython and this torch. */
#ifndef KIN_MODULE_DOCTOR_H
#define KIN_MODULE_DOCTOR_H

#include <Python.h>

#include <stdbool.h>

/* New dict: {built_for, foreign_tool, target, target_why, write_tracking, write_tracking_why, tensors,
 * blocks}. NULL with an exception.
 * torch has been imported. `foreign_tool`: another tool traces the interpreter. */
PyObject *kin_doctor_facts(bool foreign_tool);

#endif
