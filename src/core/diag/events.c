/* The event log: a ring of finished JSON lines and the event being written. */
#include "core/diag/events.h"

#include "core/base/clock.h"
#include "core/diag/breaks.h"
#include "core/diag/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct kin_event_log {
    kin_event *ring;   /* finished events; owns their texts */
    uint32_t capacity, first, count;
    uint64_t seq, dropped;
    int64_t start_ns;
    kin_text open;     /* the event being written */
    bool writing;
    kin_event_kind kind;
    unsigned why;
    FILE *file;
    void (*heard)(void *arg, kin_event_kind kind);
    void *heard_arg;
};

static const char *const names[] = {
#define EVENT(NAME, text, doc) text,
#include "core/diag/events.def"
#undef EVENT
};

const char *
kin_event_name(kin_event_kind kind)
{
    return kind < KIN_EVENT__COUNT ? names[kind] : "?";
}

kin_event_log *
kin_event_log_new(uint32_t capacity)
{
    kin_event_log *log = calloc(1, sizeof *log);
    if (log == NULL)
        return NULL;
    log->ring = calloc(capacity ? capacity : 1, sizeof *log->ring);
    if (log->ring == NULL) {
        free(log);
        return NULL;
    }
    log->capacity = capacity ? capacity : 1;
    log->start_ns = (int64_t)kin_clock_ns();
    return log;
}

void
kin_event_log_free(kin_event_log *log)
{
    if (log == NULL)
        return;
    for (char *line; (line = kin_event_take(log)) != NULL;)
        free(line);
    kin_event_log_open(log, NULL);
    kin_text_deinit(&log->open);
    free(log->ring);
    free(log);
}

bool
kin_event_log_open(kin_event_log *log, const char *path)
{
    if (log == NULL)
        return false;
    if (log->file != NULL)
        fclose(log->file);
    log->file = path == NULL ? NULL : fopen(path, "a");
    return path == NULL || log->file != NULL;
}

void
kin_event_begin(kin_event_log *log, kin_event_kind kind)
{
    if (log == NULL)
        return;
    if (log->writing)
        kin_event_end(log);
    kin_text_clear(&log->open);
    log->kind = kind;
    log->why = 0;
    log->writing = true;
    kin_text_addf(&log->open, "{\"event\": \"%s\", \"seq\": %" PRIu64 ", \"time_ns\": %" PRId64, kin_event_name(kind),
                  log->seq++, (int64_t)kin_clock_ns() - log->start_ns);
}

static bool
begin_field(kin_event_log *log, const char *key)
{
    if (log == NULL || !log->writing)
        return false;
    kin_text_add(&log->open, ", ");
    kin_text_add_json(&log->open, key);
    kin_text_add(&log->open, ": ");
    return true;
}

void
kin_event_str(kin_event_log *log, const char *key, const char *value)
{
    if (begin_field(log, key))
        kin_text_add_json(&log->open, value != NULL ? value : "");
}

void
kin_event_int(kin_event_log *log, const char *key, int64_t value)
{
    if (begin_field(log, key))
        kin_text_addf(&log->open, "%" PRId64, value);
}

void
kin_event_num(kin_event_log *log, const char *key, double value)
{
    if (begin_field(log, key)) {
        if (isfinite(value))
            kin_text_addf(&log->open, "%.17g", value);
        else
            kin_text_add(&log->open, "null"); /* JSON has no other way to say it */
    }
}

void
kin_event_why(kin_event_log *log, unsigned why)
{
    const kin_break_row *row = kin_break_find(why);
    if (row == NULL || log == NULL)
        return;
    kin_event_str(log, "why", row->name);
    log->why = why;
}

static void
write_to_file(kin_event_log *log)
{
    if (log->file == NULL)
        return;
    if (fprintf(log->file, "%s\n", log->open.at) < 0 || fflush(log->file) != 0)
        kin_event_log_open(log, NULL); /* a full disk must not cost the program more than its log */
}

void
kin_event_end(kin_event_log *log)
{
    if (log == NULL || !log->writing)
        return;
    log->writing = false;
    kin_text_add(&log->open, "}");
    if (log->open.failed) {
        log->dropped++;
        return;
    }
    write_to_file(log);
    if (log->count == log->capacity) {
        free(kin_event_take(log));
        log->dropped++;
    }
    log->ring[(log->first + log->count++) % log->capacity] =
        (kin_event){.seq = log->seq - 1, .kind = log->kind, .why = log->why, .json = log->open.at};
    log->open = (kin_text){0};
    if (log->heard != NULL)
        log->heard(log->heard_arg, log->kind);
}

void
kin_event_log_listen(kin_event_log *log, void (*heard)(void *arg, kin_event_kind kind), void *arg)
{
    if (log == NULL)
        return;
    log->heard = heard;
    log->heard_arg = arg;
}

const kin_event *
kin_event_at(const kin_event_log *log, uint32_t i)
{
    return log == NULL || i >= log->count ? NULL : &log->ring[(log->first + i) % log->capacity];
}

char *
kin_event_take(kin_event_log *log)
{
    if (log == NULL || log->count == 0)
        return NULL;
    char *line = log->ring[log->first].json;
    log->ring[log->first].json = NULL;
    log->first = (log->first + 1) % log->capacity;
    log->count--;
    return line;
}

uint32_t
kin_event_count(const kin_event_log *log)
{
    return log == NULL ? 0 : log->count;
}

uint64_t
kin_event_dropped(const kin_event_log *log)
{
    return log == NULL ? 0 : log->dropped;
}
