/* Python handlers of signals wait while code of our own runs Python functions that the program did not call (asking PyTorch about an
 * operator, say). What such a handler raises would be taken for an error of ours there and forgotten, and Ctrl-C with it.
 *
 * To the program it looks like a C function that takes a while: handlers run when it is over.
 */
#ifndef KIN_PY_SIGNALS_H
#define KIN_PY_SIGNALS_H

#include <stdbool.h>

/* True: handlers wait in this thread until kin_signals_release; false: they cannot run in it anyway. */
bool kin_signals_hold(void);
void kin_signals_release(void);

#endif
