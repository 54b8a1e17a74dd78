/* Weights that do not change between calls: what is computed from them, or packed, is kept, and computed again if they
 * change.
 *
 * A change is a tensor at another address, or a write to its memory by anyone (core/track). Only inputs whose data was
 * used for what is kept are watched. The memory of weights is not kept alive.
 */
#ifndef KIN_PY_RUN_FROZEN_H
#define KIN_PY_RUN_FROZEN_H

#include "py/run/library.h"
#include "py/run/run.h"

/* What was made of one set of weights. A run holds a reference, so that a change meanwhile does not pull it away. */
typedef struct {
    uint32_t refs, nvalues, npacked;
    PyObject **values;     /* outputs of `once`; NULL: only its packed form is needed */
    launch_packed *packed; /* by extern call of the main program */
    size_t bytes;
} launch_prepared;

void launch_prepared_release(launch_prepared *p);

/* For code whose `main` and `once` programs are complete. KIN_OK with *out NULL: nothing is kept. Its kept values are made in the way that `key` tells, which it takes; `shares`: other
 * code whose values are made in the same way of the same inputs of its subgraph has them too. */
kin_status launch_frozen_new(const launch_code *code, kin_text *key, bool shares, launch_frozen **out) KIN_MUST_CHECK;
/* For a copy of code that has it; NULL: some of it was lost. */
launch_frozen *launch_frozen_again(launch_frozen *f);
void launch_frozen_free(launch_frozen *f);

/* New reference to what holds for the inputs of this call; NULL: it cannot be made, the call has to do without the code. What was up to date at this
 * `moment` (kin_launcher) still is. */
launch_prepared *launch_frozen_take(launch_frozen *f, launch_code *code, uint64_t moment, PyObject *const *in);
/* Inputs (of the subgraph) that turned out not to stay as they are, or not to be watched: code that freezes them is given up. Appends them;
 * false: there are none. */
bool launch_frozen_lost(const launch_frozen *f, launch_numbers *lost);
const char *launch_frozen_why(const launch_frozen *f);
uint64_t launch_frozen_renewals(const launch_frozen *f);
/* Nanoseconds that these took. */
double launch_frozen_renewal_ns(const launch_frozen *f);
/* Divided among those that share them. */
size_t launch_frozen_bytes(const launch_frozen *f);
/* New dict for reports. */
PyObject *launch_frozen_describe(launch_frozen *f);

#endif
