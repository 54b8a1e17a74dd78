/* Decoded code objects, kept as long as the code object lives. */
#ifndef KIN_PY_COMPAT_CODES_H
#define KIN_PY_COMPAT_CODES_H

#include "core/bytecode/bytecode.h"
#include <Python.h>

/* NULL when the code cannot be decoded. The result lives as long as the code object. */
const kin_code *rec_code_of(PyCodeObject *code);
/* What could not be decoded first, as a sentence; NULL: everything could be. */
const char *rec_code_unknown(void);

#endif
