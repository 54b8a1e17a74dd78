/* What dispatch writes into the event log (events.def names the fields). Never raises, and leaves a pending exception
 * alone. `name` is the compiled function's name (str).
 */
#ifndef KIN_PY_REPORT_LOG_H
#define KIN_PY_REPORT_LOG_H

#include "core/diag/breaks.h"
#include "py/cache/entry_object.h"
#include "py/driver/record.h"

/* A call is refused because of the graph break at the step. */
void kin_log_refusal(kin_state *st, PyObject *name, const kin_entry *v, const kin_step *step);
/* A recording ended; `entry` is NULL when it left nothing. Its breaks and deferred effects are logged as well. */
void kin_log_record(kin_state *st, PyObject *name, PyCodeObject *code, const kin_entry_object *entry,
                    const kin_record_result *result);
/* How much of an entry there was before it grew. */
typedef struct {
    uint32_t steps, graphs;
} kin_log_before;

/* A side trace was added behind `step`. */
void kin_log_extend(kin_state *st, PyCodeObject *code, const kin_entry_object *entry, uint32_t step,
                    kin_log_before before, const kin_record_result *result);
/* cause: what did not hold, with the value now (str); NULL: not known. */
void kin_log_exit(kin_state *st, const kin_entry_object *entry, uint32_t step, PyObject *cause);
/* "file:line (function)" of the instruction behind a step: new str, or NULL (no exception). */
PyObject *kin_log_step_place(const kin_entry_object *entry, uint32_t step);
void kin_log_recompile(kin_state *st, PyObject *name, PyCodeObject *code, const char *failures);
void kin_log_limit(kin_state *st, PyObject *name, PyCodeObject *code, uint32_t limit, const char *last);
/* `code` may be NULL. */
void kin_log_fallback(kin_state *st, PyObject *name, PyCodeObject *code, const char *reason,
                      unsigned why);
void kin_log_lower(kin_state *st, PyObject *name, uint32_t entry, uint32_t graph, const char *backend, double time_ns);
/* A pending exception, if any, is put into the message and dropped. */
void kin_log_bug(kin_state *st, PyObject *name, const char *where, const char *message);
/* A size that is marked as dynamic is fixed in the graph that a backend compiles: at the line (NULL, 0: not known), to this number. */
void kin_log_exact_size(kin_state *st, PyObject *name, uint32_t entry, const char *source, int64_t size, const char *filename, int line, const char *text);
void kin_log_reset(kin_state *st);

/* The row as users are told it now: with torch._dynamo.config.capture_scalar_outputs, what a number of a tensor decides on is a branch like others. */
kin_break_row kin_row_told(const kin_break_row *row);

#endif
