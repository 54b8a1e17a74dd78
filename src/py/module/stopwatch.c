/* Clocks (stopwatch.h). */
#include "py/module/stopwatch.h"

#include "core/base/clock.h"
#include "py/launch/launch.h"

static double
read_clock(bool own)
{
    return own ? kin_clock_thread_ns() : kin_clock_ns();
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
