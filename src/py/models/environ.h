/* os.environ.get of a variable that is not set. */
#ifndef KIN_PY_MODELS_ENVIRON_H
#define KIN_PY_MODELS_ENVIRON_H

#include "py/recorder/rec.h"

/* True when it took care of the call. */
bool rec_call_environ(rec *r, const rec_args *a);

#endif
