/* Python signal handlers run in the main thread only (signals.h); a number in the runtime says which thread that is. While it names no thread, pending
 * signals are kept, and the evaluator asks again as soon as it may.
 */
#define Py_BUILD_CORE 1
#include <Python.h>

#include "py/compat/signals.h"

#include <internal/pycore_runtime.h>

bool
kin_signals_hold(void)
{
    if (_PyRuntime.main_thread != PyThread_get_thread_ident())
        return false;
    _PyRuntime.main_thread = 0;
    return true;
}

void
kin_signals_release(void)
{
    _PyRuntime.main_thread = PyThread_get_thread_ident();
}
