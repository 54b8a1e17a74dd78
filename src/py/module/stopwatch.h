/* Times a call for a comparison, and a recording for its budget. If torch uses one thread, only the processor time of that thread counts in a
 * comparison, so that other programs do not disturb it.
 */
#ifndef KIN_PY_MODULE_STOPWATCH_H
#define KIN_PY_MODULE_STOPWATCH_H

#include "core/tier/trace_budget.h"

#include <stdbool.h>

typedef struct {
    bool own;          /* the thread's time */
    double start, made;
} kin_stopwatch;

kin_stopwatch kin_stopwatch_start(void);
/* Nanoseconds; -1: code was compiled meanwhile, so the time is not comparable. */
double kin_stopwatch_read(const kin_stopwatch *w);

typedef struct {
    double start;
    long collections; /* of all objects, so far */
} kin_recording_watch;

kin_recording_watch kin_recording_watch_start(void);
/* The budget pays the thread's processor time. A collection of all objects takes as long as the program has objects, which has nothing to do with the recording:
 * if there was one meanwhile, the recording counts as the last one did. */
void kin_recording_watch_pay(const kin_recording_watch *w, kin_trace_budget *budget);

#endif
