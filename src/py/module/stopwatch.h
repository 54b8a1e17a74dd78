/* How long a call takes that is compared with others. Where torch uses one thread, that thread's time counts: what other programs do
 * with the machine meanwhile is nobody's fault.
 */
#ifndef KIN_PY_MODULE_STOPWATCH_H
#define KIN_PY_MODULE_STOPWATCH_H

#include <stdbool.h>

typedef struct {
    bool own;          /* the thread's time */
    double start, made;
} kin_stopwatch;

kin_stopwatch kin_stopwatch_start(void);
/* Nanoseconds; -1: code was made meanwhile, so the time says nothing. */
double kin_stopwatch_read(const kin_stopwatch *w);

#endif
