/* Times a call for a comparison. If torch uses one thread, only the processor time of that thread counts, so that other
 * programs do not disturb the comparison.
 */
#ifndef KIN_PY_MODULE_STOPWATCH_H
#define KIN_PY_MODULE_STOPWATCH_H

#include <stdbool.h>

typedef struct {
    bool own;          /* the thread's time */
    double start, made;
} kin_stopwatch;

kin_stopwatch kin_stopwatch_start(void);
/* Nanoseconds; -1: code was compiled meanwhile, so the time is not comparable. */
double kin_stopwatch_read(const kin_stopwatch *w);

#endif
