/* Internal failures (a trace that is not well formed, as opposed to an error of the user's program or lack of memory).
 *
 * They are raised as a class of their own. When a replay meets one, it continues in CPython if the failing step has a
 * snapshot. If it has none and nothing visible has happened yet, the whole call runs eagerly. What remains: a
 * step without a snapshot fails after visible effects, or a frame cannot be built then. Such a call can neither be
 * continued nor restarted, and the error (a SystemError) is raised.
 */
#ifndef KIN_PY_FAILURE_H
#define KIN_PY_FAILURE_H

#include <Python.h>
#include <stdbool.h>

/* Does a pending exception have its traceback itself? Before CPython 3.12 it gets it when it is taken up. */
#define KIN_EXCEPTIONS_HAVE_TRACEBACKS (PY_VERSION_HEX >= 0x030C0000)

/* Raises one; the arguments are those of PyErr_Format. */
void kin_failure_raise(const char *format, ...);
/* Is the pending exception one? */
bool kin_failure_pending(void);
/* Takes the pending exception away; its message goes to text. */
void kin_failure_take(char *text, size_t size);

#endif
