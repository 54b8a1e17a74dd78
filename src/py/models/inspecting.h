/* inspect.signature of functions of the program. */
#ifndef KIN_PY_MODELS_INSPECTING_H
#define KIN_PY_MODELS_INSPECTING_H

#include "py/recorder/rec.h"

/* True when it took care of the call. */
bool rec_call_signature(rec *r, kin_vid callee, const kin_vid *args, uint32_t npos, uint32_t nkw, int ndrop);

#endif
