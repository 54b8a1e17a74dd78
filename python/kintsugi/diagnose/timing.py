"""Times of calls that take turns in one process: what disturbs the machine disturbs all of them.

With several threads that is not enough: a parallel operator waits until the last of its threads gets a processor, so on a busy machine calls of many small operators
(eager's) take many times as long, in every turn. Samples in which a thread of this process waited for a processor therefore do not count. Where few others are left,
everything is measured once more on one thread (steady), by processor time if need be.
"""

import contextlib
import gc
import os
import statistics
import sys
import time

import torch

try:
    import resource
except ImportError:  # not on every system
    resource = None

SAMPLE_S = 200e-6  # least time of one sample: the clock and one interruption are small against it
SAMPLES, PRIMING = 4, 2  # in a turn of one way: short ones, for other programs interrupt long ones
ENOUGH = 12        # samples of a way that nothing interrupted: fewer say too little
WAITED = 0.02      # share of a sample that threads may wait for a processor before it counts as interrupted
CERTAIN = 1.5      # most that the ratio of two ways may vary in parts of the measurement, for it to be told without a warning
PARTS = 5


class Times:
    """Seconds per call of one of several ways, a sample for each turn; `calm`: the ones in which no thread had to give its processor to another
    program, where there are enough of them. one_thread: taken on one thread, although the program uses more (steady)."""

    def __init__(self, samples, interrupted=(), one_thread=False):
        self.samples, self.interrupted, self.one_thread = samples, interrupted, one_thread
        calm = [sample for sample, often in zip(samples, interrupted) if not often]
        self.calm = calm if len(calm) >= ENOUGH else samples
        self.disturbed = bool(interrupted) and len(calm) < ENOUGH
        ordered = sorted(samples)
        self.median = statistics.median(ordered)
        self.low, self.high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]

    @property
    def typical(self):
        """The lower quartile: other programs only ever make a call slower."""
        return quartile(self.calm)

    @property
    def spread(self):
        """Half the distance of the quartiles, relative to the median."""
        ordered = sorted(self.calm)
        median = statistics.median(ordered)
        return (ordered[(3 * len(ordered)) // 4] - ordered[len(ordered) // 4]) / 2 / median if median else 0.0


def quartile(samples):
    return sorted(samples)[len(samples) // 4]


def ratio(a, b):
    """(how many times as long a takes as b, the least and the most of that in parts of the measurement)."""
    parts = [quartile(x) / quartile(y) for x, y in zip(_parts(a.calm), _parts(b.calm)) if quartile(y)]
    whole = a.typical / b.typical if b.typical else 1.0
    return whole, min(parts, default=whole), max(parts, default=whole)


def _parts(samples):
    """One after the other: a disturbance that lasts is in some of them only."""
    size = max(1, len(samples) // PARTS)
    return [samples[first:first + size] for first in range(0, size * min(PARTS, len(samples)), size)]


class _Waits:
    """How long threads of this process have waited for a processor that was not free, in nanoseconds; where the system does not tell, how often they lost one."""

    def __init__(self):
        self.files = {}
        self.in_ns = self.look()

    def look(self):
        """Threads come and go."""
        try:
            now = set(os.listdir("/proc/self/task"))
            for thread in now - set(self.files):
                self.files[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
            for thread in set(self.files) - now:
                os.close(self.files.pop(thread))
        except OSError:
            return False
        return True

    def total(self):
        if not self.in_ns:
            return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw if resource else 0
        total = 0
        for file in self.files.values():
            with contextlib.suppress(OSError, ValueError, IndexError):  # that thread has ended
                total += int(os.pread(file, 64, 0).split()[1])
        return total

    def is_much(self, waited, seconds):
        return waited > (WAITED * seconds * 1e9 if self.in_ns else 0)

    def close(self):
        while self.files:
            os.close(self.files.popitem()[1])


class _Samples:
    """Of one way: seconds per call by the clock and of the processor; whether each was interrupted."""

    def __init__(self):
        self.clock, self.processor, self.interrupted, self.idle = [], [], [], 0

    def take(self, call, count, waits):
        idle, waited = _idle(), waits.total()
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(count):
            call()
        took, worked = time.perf_counter() - start, time.process_time() - busy
        self.interrupted.append(int(waits.is_much(waits.total() - waited, took)))
        self.clock.append(took / count)
        self.processor.append(worked / count)
        self.idle += _idle() - idle

    def times(self, by_processor):
        return Times(self.processor) if by_processor else Times(self.clock, self.interrupted)


def _idle():
    """How often threads of this process gave up their processor to wait for something."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw if resource else 0


@contextlib.contextmanager
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def steady(calls, seconds, least=9):
    """turns(), and once more on one thread where other programs keep the processors that several threads need."""
    times = turns(calls, seconds, least)
    if torch.get_num_threads() == 1 or not any(one.disturbed for one in times.values()):
        return times
    with one_thread():
        times = turns(calls, seconds, least)
    for one in times.values():
        one.one_thread = True
    return times


def turns(calls, seconds, least=9):
    """{name: Times}; each turn asks each in a row, in an order that rotates. Where other programs interrupt most samples, it goes on for longer. Where that does
    not help (calls that are longer than the time between two interruptions), the processor's time is taken for all ways, as far as it is that of the calls: one
    thread, which waits for nothing."""
    names = list(calls)
    inner = {name: _repetitions(calls[name]) for name in names}
    samples, waits = {name: _Samples() for name in names}, _Waits()
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        stop, turn = time.perf_counter() + seconds, 0
        while turn < least or time.perf_counter() < stop or any(one.interrupted.count(0) < SAMPLES * ENOUGH for one in samples.values()):
            for i in range(len(names)):
                name = names[(turn + i) % len(names)]
                call, count = calls[name], inner[name]
                for _ in range(PRIMING * count):
                    call()  # caches and freed memory are as after calls of its own kind, not of another way
                for _ in range(SAMPLES):
                    samples[name].take(call, count, waits)
            turn += 1
            waits.look()
            if turn >= 3 and time.perf_counter() > stop + 4 * seconds:
                break
    finally:
        waits.close()
        if enabled:
            gc.enable()
    by_processor = torch.get_num_threads() == 1 and any(one.times(False).disturbed for one in samples.values()) \
        and not any(2 * one.idle > len(one.clock) for one in samples.values())
    return {name: samples[name].times(by_processor) for name in names}


def _repetitions(call):
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return max(1, min(1000, int(SAMPLE_S / max(best, 1e-7))))


def difference(times, a, b, parts=4):
    """(a's typical time less b's, how far that is off in parts of the turns)."""
    x, y = times[a].calm, times[b].calm
    found = [quartile(x[i::parts]) - quartile(y[i::parts]) for i in range(parts)]
    return times[a].typical - times[b].typical, statistics.pstdev(found)


def warm(call, compiled=(), most=60):
    """Calls until nothing changes any more: recordings, kernels and their comparisons have come to an end."""
    from .._engine import engine

    calm, before = 0, None
    for done in range(most):
        call()
        engine.wait_for_kernels()
        state = [_state(one) for one in compiled]
        calm = calm + 1 if state == before and all(part[-1] == 0 for part in state) else 0
        before = state
        if done >= 3 and calm >= 3:
            return done + 1
    return most


def _state(compiled):
    from .. import _kernels
    from .._engine import engine

    stats, rows = compiled.stats(), _kernels.rows(engine, compiled)
    return stats["recordings"], stats["branches"], stats["guard_misses"], len(rows), sum(not row["settled"] for row in rows)


def of_lines(call, places, times=7):
    """{(file, line): seconds} that the calls made at these lines take, of as many as are made in one call: the least of some times, without what watching costs."""
    def watched(do, wanted):
        found, open_calls = dict.fromkeys(wanted, 0.0), []

        def see(frame, event, arg):
            now = time.perf_counter()
            caller = frame if event.startswith("c_") else frame.f_back
            place = (caller.f_code.co_filename, caller.f_lineno) if caller is not None else None
            if event in ("call", "c_call"):
                if not open_calls and place in found:
                    open_calls.append((place, caller, time.perf_counter()))
            elif open_calls and event in ("return", "c_return", "c_exception") and open_calls[0][1] is caller:
                at, _, start = open_calls.pop()
                found[at] += now - start
        sys.setprofile(see)
        try:
            do()
        finally:
            sys.setprofile(None)
        return found

    def nothing():
        len(())
    own = nothing.__code__
    empty = [watched(nothing, [(own.co_filename, own.co_firstlineno + 1)]) for _ in range(20)]
    watching = min(one for found in empty for one in found.values())
    runs = [watched(call, places) for _ in range(times)]
    return {place: max(0.0, min(run[place] for run in runs) - watching) for place in places}
