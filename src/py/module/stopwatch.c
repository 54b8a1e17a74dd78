/* Clocks (stopwatch.h). */
#include "py/module/stopwatch.h"

#include "core/base/clock.h"
#include "py/compat/imports.h"
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

/* -1: not known. */
static long
count_collections(void)
{
    PyObject *stats = kin_import_call("gc", "get_stats", NULL);
    PyObject *oldest = stats != NULL && PyList_Check(stats) && PyList_GET_SIZE(stats) > 0 ? PyList_GET_ITEM(stats, PyList_GET_SIZE(stats) - 1) : NULL;
    PyObject *count = oldest != NULL && PyDict_Check(oldest) ? PyDict_GetItemString(oldest, "collections") : NULL;
    long n = count != NULL ? PyLong_AsLong(count) : -1;
    PyErr_Clear();
    Py_XDECREF(stats);
    return n;
}

kin_recording_watch
kin_recording_watch_start(void)
{
    long collections = count_collections();
    return (kin_recording_watch){kin_clock_thread_ns(), collections};
}

void
kin_recording_watch_pay(const kin_recording_watch *w, kin_trace_budget *budget)
{
    double ns = kin_clock_thread_ns() - w->start;
    kin_trace_budget_spend(budget, count_collections() != w->collections && budget->last < ns ? budget->last : ns);
}
