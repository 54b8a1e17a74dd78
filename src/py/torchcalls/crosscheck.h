/* The cross-check: a torch-function mode that sees the torch calls that really happen during recording, to verify
 * that the recorder wrote a node for each. Off unless asked for (kin_record_options.crosscheck). The program can notice a mode
 * (tracebacks and warnings of torch.nn.functional then name other lines), so it is on only while a watched instruction runs that is not an opaque step.
 */
#ifndef KIN_PY_TORCHCALLS_CROSSCHECK_H
#define KIN_PY_TORCHCALLS_CROSSCHECK_H

#include "py/recorder/rec.h"

/* NULL when it cannot be had (an exception is not left behind); the recording then goes on without. */
struct rec_crosscheck *rec_crosscheck_new(rec *r);
void rec_crosscheck_free(struct rec_crosscheck *w);

/* Around the instruction that the current rule was about: watch it, unless the rule left it as an opaque step. */
void rec_crosscheck_look(rec *r);
void rec_crosscheck_look_away(rec *r);

/* Everything since the last comparison is over: do the steps and what was seen agree? If not, rec_bug. */
void rec_crosscheck_compare(rec *r);

#endif
