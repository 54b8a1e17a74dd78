/* Python signal handlers run in the main thread only (signals.h); a number in the runtime says which thread that is. While it names no thread, pending
 * signals are kept, and whoever lets them in again makes the evaluator ask.
 */
#define Py_BUILD_CORE 1
#include <Python.h>

#include "py/compat/signals.h"

#include <internal/pycore_ceval.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>

static unsigned long holder; /* the thread that holds them; 0: none */

/* The main thread runs pending calls (Py_AddPendingCall), too, so these wait as well. While a profiler or debugger traces, the evaluator of CPython 3.11 repeats the
 * first instruction of a function until nothing is left to be done, so it must not believe that they are. A request for the GIL that is lost is made again.
 */
static void
forget_pending(void)
{
#if PY_VERSION_HEX < 0x030C0000
    struct _ceval_state *state = &PyInterpreterState_Main()->ceval;
    if (!_Py_atomic_load_relaxed(&state->gil_drop_request) && !state->pending.async_exc)
        _Py_atomic_store_relaxed(&state->eval_breaker, 0);
#endif
}

bool
kin_signals_hold(void)
{
    unsigned long me = PyThread_get_thread_ident();
    if (_PyRuntime.main_thread != me)
        return false;
    holder = me;
    _PyRuntime.main_thread = 0;
    forget_pending();
    return true;
}

bool
kin_signals_wait(void)
{
#if PY_VERSION_HEX < 0x030D0000
    return _Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending);
#else
    return _Py_atomic_load_int_relaxed(&_PyRuntime.signals.is_tripped);
#endif
}

/* The evaluator forgets to ask about signals that came while it might not handle them: up to CPython 3.12 a thread that takes the GIL does, from 3.13 on any code that runs. */
static void
ask_again(void)
{
#if PY_VERSION_HEX < 0x030D0000
    bool calls = false;
#if PY_VERSION_HEX < 0x030C0000
    calls = _Py_atomic_load_relaxed(&PyInterpreterState_Main()->ceval.pending.calls_to_do);
#endif
    if (calls || kin_signals_wait())
        _Py_atomic_store_relaxed(&PyInterpreterState_Main()->ceval.eval_breaker, 1);
#else
    if (kin_signals_wait())
        _Py_set_eval_breaker_bit(PyThreadState_Get(), _PY_SIGNALS_PENDING_BIT);
#endif
}

void
kin_signals_release(void)
{
    holder = 0;
    _PyRuntime.main_thread = PyThread_get_thread_ident();
    ask_again();
}

bool
kin_signals_admit(void)
{
    if (_PyRuntime.main_thread != 0 || holder != PyThread_get_thread_ident())
        return false;
    kin_signals_release();
    return true;
}
