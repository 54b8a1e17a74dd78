"""Times of calls that take turns in one process: what disturbs the machine disturbs all of them."""

import gc
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


class Times:
    """Seconds per call of one of several ways, a sample for each turn; `calm`: the ones in which no thread had to give its processor to another
    program, where there are enough of them."""

    def __init__(self, samples, interrupted=()):
        self.samples = samples
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


def _switches():
    """How often threads of this process lost their processor to another program so far, and how often they gave it up to wait for something."""
    usage = resource.getrusage(resource.RUSAGE_SELF) if resource else None
    return (usage.ru_nivcsw, usage.ru_nvcsw) if usage else (0, 0)


class _Samples:
    """Of one way: seconds per call by the clock and of the processor; how often each was interrupted."""

    def __init__(self):
        self.clock, self.processor, self.interrupted, self.waited = [], [], [], 0

    def take(self, call, count):
        lost, waited = _switches()
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(count):
            call()
        self.clock.append((time.perf_counter() - start) / count)
        self.processor.append((time.process_time() - busy) / count)
        after = _switches()
        self.interrupted.append(after[0] - lost)
        self.waited += after[1] - waited

    def times(self, by_processor):
        return Times(self.processor) if by_processor else Times(self.clock, self.interrupted)


def turns(calls, seconds, least=9):
    """{name: Times}; each turn asks each in a row, in an order that rotates. Where other programs interrupt most samples, it goes on for longer. Where that does
    not help (calls that are longer than the time between two interruptions), the processor's time is taken for all ways, as far as it is that of the calls: one
    thread, which waits for nothing."""
    names = list(calls)
    inner = {name: _repetitions(calls[name]) for name in names}
    samples = {name: _Samples() for name in names}
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
                    samples[name].take(call, count)
            turn += 1
            if turn >= 3 and time.perf_counter() > stop + 4 * seconds:
                break
    finally:
        if enabled:
            gc.enable()
    by_processor = torch.get_num_threads() == 1 and any(one.times(False).disturbed for one in samples.values()) \
        and not any(2 * one.waited > len(one.clock) for one in samples.values())
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
