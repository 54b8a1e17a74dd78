/* Decoded code objects, kept per process. */
#ifndef KIN_PY_RECORD_CODES_H
#define KIN_PY_RECORD_CODES_H

#include "core/bytecode/bytecode.h"
#include <Python.h>

/* NULL when the code cannot be decoded. The code object is kept alive. */
const kin_code *rec_code_of(PyCodeObject *code);

#endif
