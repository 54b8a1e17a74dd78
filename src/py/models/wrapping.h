/* functools.update_wrapper on functions that the recording has made; copy.deepcopy of what cannot change. */
#ifndef KIN_PY_MODELS_WRAPPING_H
#define KIN_PY_MODELS_WRAPPING_H

#include "py/recorder/rec.h"

bool rec_call_update_wrapper(rec *r, kin_vid callee, const kin_vid *args, uint32_t npos, uint32_t nkw, PyObject *kwnames, int ndrop);
bool rec_call_deepcopy(rec *r, kin_vid callee, const kin_vid *args, uint32_t npos, uint32_t nkw, int ndrop);

#endif
