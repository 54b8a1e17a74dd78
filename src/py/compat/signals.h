/* Delays Python signal handlers while our own code runs Python functions that the program did not call (asking PyTorch about an
 * operator, say). An exception from a handler would be taken for an internal error there and dropped, Ctrl-C included.
 *
 * To the program this looks like a C function that takes a while: handlers run when it returns. The rule: whoever may drop an exception holds the
 * signals (a call that no entry fits, the rest of one that is recorded, the watcher's rules, launches, listeners), and lets them in where it
 * runs the program.
 */
#ifndef KIN_PY_SIGNALS_H
#define KIN_PY_SIGNALS_H

#include <stdbool.h>

/* True: handlers wait in this thread until kin_signals_release; false: they cannot run in it anyway. */
bool kin_signals_hold(void);
void kin_signals_release(void);
/* The program runs now. True: they were held by this thread, and kin_signals_hold is to be called behind it. */
bool kin_signals_admit(void);
/* Has one come whose handler did not run yet? */
bool kin_signals_wait(void);

#endif
