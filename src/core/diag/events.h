/* The event log: what the engine decided, in order, as one JSON object per event. It keeps the newest events in
 * a ring until somebody takes them, and writes each to a file as well when one is open. Every report is a view
 * of these events and of entry dumps.
 *
 *     kin_event_begin(log, KIN_EVENT_BREAK);
 *     kin_event_str(log, "why", "DATA_DEPENDENT_BRANCH");
 *     kin_event_int(log, "line", 10);
 *     kin_event_end(log);
 *
 * Nothing here can fail visibly: an event that does not fit in memory is counted in `dropped`. One log belongs to
 * one module state; callers hold the GIL.
 */
#ifndef KIN_DIAG_EVENTS_H
#define KIN_DIAG_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
#define EVENT(NAME, text, doc) KIN_EVENT_##NAME,
#include "core/diag/events.def"
#undef EVENT
    KIN_EVENT__COUNT
} kin_event_kind;

typedef struct kin_event_log kin_event_log;

/* A finished event. */
typedef struct {
    uint64_t seq;
    kin_event_kind kind;
    unsigned why; /* kin_why of its field "why"; 0: it has none */
    char *json;
} kin_event;

/* NULL when memory is short; every function below accepts a NULL log and does nothing. */
kin_event_log *kin_event_log_new(uint32_t capacity);
void kin_event_log_free(kin_event_log *log);
/* Appends further events to the file as JSON lines; NULL closes it. False when it cannot be opened. */
bool kin_event_log_open(kin_event_log *log, const char *path);

void kin_event_begin(kin_event_log *log, kin_event_kind kind);
void kin_event_str(kin_event_log *log, const char *key, const char *value);
void kin_event_int(kin_event_log *log, const char *key, int64_t value);
void kin_event_num(kin_event_log *log, const char *key, double value);
/* "why": the stable name of the row; nothing for KIN_WHY_NONE. */
void kin_event_why(kin_event_log *log, unsigned why);
void kin_event_end(kin_event_log *log);

/* Takes the oldest event out: a malloc'ed JSON line (the caller frees it), or NULL when the log is empty. */
char *kin_event_take(kin_event_log *log);
/* The i-th oldest event still kept, NULL past the end; valid until the next change of the log. */
const kin_event *kin_event_at(const kin_event_log *log, uint32_t i);
uint32_t kin_event_count(const kin_event_log *log);
/* Events lost because the ring was full or memory short. */
uint64_t kin_event_dropped(const kin_event_log *log);

/* `heard` is called at the end of each event; it must not write events itself. NULL: nobody listens. */
void kin_event_log_listen(kin_event_log *log, void (*heard)(void *arg, kin_event_kind kind), void *arg);

const char *kin_event_name(kin_event_kind kind);

#endif
