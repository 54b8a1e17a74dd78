/* Decoded code objects, kept as long as the code object lives. */
#ifndef KIN_PY_COMPAT_CODES_H
#define KIN_PY_COMPAT_CODES_H

#include "core/bytecode/bytecode.h"
#include <Python.h>

/* What co_localspluskinds says of a variable, the same on 3.11-3.14. HIDDEN: of a comprehension that is part of the function (3.12). */
enum { KIN_VARIABLE_HIDDEN = 0x10, KIN_VARIABLE_CELL = 0x40, KIN_VARIABLE_FREE = 0x80 };

/* NULL when the code cannot be decoded. The result lives as long as the code object. */
const kin_code *rec_code_of(PyCodeObject *code);
/* What the code does: list of (canonical operation, name of the attribute, global or cell, or None); NULL with an exception. */
PyObject *rec_code_operations(PyCodeObject *code);
/* What could not be decoded first, as a sentence; NULL: everything could be. */
const char *rec_code_unknown(void);

#endif
