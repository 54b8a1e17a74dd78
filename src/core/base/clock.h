/* The clock: how long something took, in nanoseconds. Never the time of day, which may be set back. */
#ifndef KIN_BASE_CLOCK_H
#define KIN_BASE_CLOCK_H

#include <time.h>

static inline double
kin_clock_read(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0)
        return 0;
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Since some point in the past. */
static inline double kin_clock_ns(void) { return kin_clock_read(CLOCK_MONOTONIC); }
/* What this thread has had of a processor: for work that shares the machine with the program. */
static inline double kin_clock_thread_ns(void) { return kin_clock_read(CLOCK_THREAD_CPUTIME_ID); }

#endif
