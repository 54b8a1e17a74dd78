/* inspect.signature of functions of the program. */
#ifndef KIN_PY_MODELS_INSPECTING_H
#define KIN_PY_MODELS_INSPECTING_H

#include "py/recorder/rec.h"

/* True when it took care of the call. */
bool rec_call_signature(rec *r, const rec_args *a);

#endif
