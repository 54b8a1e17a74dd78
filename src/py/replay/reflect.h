/* The rest of an operator whose first method, run in a rebuilt frame, returned NotImplemented. */
#ifndef KIN_PY_REPLAY_REFLECT_H
#define KIN_PY_REPLAY_REFLECT_H

#include <Python.h>
#include <stdbool.h>

/* Numbers of operators: KIN_BINARY_ADD..KIN_BINARY_XOR (perhaps with INPLACE, for messages), COMPARE + Py_LT..Py_GE. */
enum { KIN_REFLECT_COMPARE = 32, KIN_REFLECT_INPLACE = 64 };

/* As the message of a TypeError writes it; op: KIN_BINARY_ADD to KIN_BINARY_XOR. */
const char *kin_operator_in_message(int op, bool inplace);
/* `done`: the operand on the right was the one that was asked. New reference, NULL: it raised. */
PyObject *kin_reflect(int op, PyObject *left, PyObject *right, bool done);

#endif
