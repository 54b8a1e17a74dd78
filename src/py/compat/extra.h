/* The API for data that extensions keep in code objects, under its names in the running version. */
#ifndef KIN_PY_EXTRA_H
#define KIN_PY_EXTRA_H

#include <Python.h>

#if PY_VERSION_HEX >= 0x030C0000
#define kin_extra_index PyUnstable_Eval_RequestCodeExtraIndex
#define kin_extra_get PyUnstable_Code_GetExtra
#define kin_extra_set PyUnstable_Code_SetExtra
#else
#define kin_extra_index _PyEval_RequestCodeExtraIndex
#define kin_extra_get _PyCode_GetExtra
#define kin_extra_set _PyCode_SetExtra
#endif

#endif
