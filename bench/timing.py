"""Clocks and statistics of the benchmarks: interleaved samples, median and spread, bytes held by the process.

Interleaving: the things compared take turns within one loop and the order rotates, so that a slow moment of the machine
hits all of them alike. Differences are taken within a turn and then summarised, not between two medians.
"""
import contextlib
import ctypes
import gc
import math
import os
import statistics
import time


def quantile(values, q):
    values = sorted(values)
    at = q * (len(values) - 1)
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def spread(values):
    """Median, quartiles, smallest and number of the samples; None when there is none."""
    if not values:
        return None
    return {"median": statistics.median(values), "q1": quantile(values, 0.25), "q3": quantile(values, 0.75),
            "min": min(values), "n": len(values)}


def geomean(values):
    values = [v for v in values if v is not None and v > 0]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


@contextlib.contextmanager
def no_gc():
    """The collector runs before, not during: a collection in one sample would be charged to whatever ran then."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def time_once(call):
    start = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - start


def time_loop(call, inner):
    """Nanoseconds per call over `inner` calls in a row."""
    calls = range(inner)
    start = time.perf_counter_ns()
    for _ in calls:
        call()
    return (time.perf_counter_ns() - start) / inner


def interleave(calls, turns, inner=1, warm=3):
    """{name: [ns per call, one sample per turn]} for named callables that take turns in rotating order."""
    names = list(calls)
    for name in names:
        for _ in range(warm):
            calls[name]()
    samples = {name: [] for name in names}
    with no_gc():
        for turn in range(turns):
            at = turn % len(names)
            for name in names[at:] + names[:at]:
                samples[name].append(time_loop(calls[name], inner))
    return samples


def differences(samples, name, base):
    """Sample by sample: name minus base, in the same turn."""
    if name not in samples or base not in samples:
        return []
    return [a - b for a, b in zip(samples[name], samples[base])]


class MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def bytes_in_use():
    """Bytes the C library's allocator has given out. Complete for Python objects too only under PYTHONMALLOC=malloc."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = MallInfo
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd


def machine():
    name = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return {"cpu": name, "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
