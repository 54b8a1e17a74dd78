/* Clocks (stopwatch.h). */
#include "py/module/stopwatch.h"

#include <time.h>

#include "py/launch/launch.h"

static double
read_clock(bool own)
{
    struct timespec now = {0};
    if (clock_gettime(own ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now) != 0)
        timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

kin_stopwatch
kin_stopwatch_start(void)
{
    bool own = kin_launch_torch_threads() == 1;
    return (kin_stopwatch){.own = own, .made = kin_launch_made(), .start = read_clock(own)};
}

double
kin_stopwatch_read(const kin_stopwatch *w)
{
    double ns = read_clock(w->own) - w->start;
    return kin_launch_made() != w->made ? -1 : ns;
}
