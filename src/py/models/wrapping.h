/* functools.update_wrapper on functions that the recording has made; copy.deepcopy of what cannot change. */
#ifndef KIN_PY_MODELS_WRAPPING_H
#define KIN_PY_MODELS_WRAPPING_H

#include "py/recorder/rec.h"

bool rec_call_update_wrapper(rec *r, const rec_args *a);
bool rec_call_deepcopy(rec *r, const rec_args *a);

#endif
