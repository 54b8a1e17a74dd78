"""Times of calls that take turns in one process: what disturbs the machine disturbs all of them."""

import gc
import statistics
import time

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


def _interruptions():
    """How often threads of this process lost their processor to another program so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw if resource else 0


def turns(calls, seconds, least=9):
    """{name: Times}; each turn asks each in a row, in an order that rotates. Where other programs interrupt most samples, it goes on for longer."""
    names = list(calls)
    inner = {name: _repetitions(calls[name]) for name in names}
    samples, interrupted = {name: [] for name in names}, {name: [] for name in names}
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        stop, turn = time.perf_counter() + seconds, 0
        while turn < least or time.perf_counter() < stop or any(one.count(0) < SAMPLES * ENOUGH for one in interrupted.values()):
            for i in range(len(names)):
                name = names[(turn + i) % len(names)]
                call, count = calls[name], inner[name]
                for _ in range(PRIMING * count):
                    call()  # caches and freed memory are as after calls of its own kind, not of another way
                for _ in range(SAMPLES):
                    before = _interruptions()
                    start = time.perf_counter()
                    for _ in range(count):
                        call()
                    samples[name].append((time.perf_counter() - start) / count)
                    interrupted[name].append(_interruptions() - before)
            turn += 1
            if turn >= 3 and time.perf_counter() > stop + 4 * seconds:
                break
    finally:
        if enabled:
            gc.enable()
    return {name: Times(samples[name], interrupted[name]) for name in names}


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
    calm, before = 0, None
    for done in range(most):
        call()
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
