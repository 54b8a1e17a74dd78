"""Times of calls that take turns in one process: what disturbs the machine disturbs all of them."""

import gc
import statistics
import time

SAMPLE_S = 200e-6  # least time of one sample: the clock and one interruption are small against it


class Times:
    """Seconds per call of one of several ways, a sample for each turn."""

    def __init__(self, samples):
        self.samples = samples
        ordered = sorted(samples)
        self.median = statistics.median(ordered)
        self.low, self.high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]

    @property
    def typical(self):
        """The lower quartile: other programs only ever make a call slower."""
        return quartile(self.samples)

    @property
    def spread(self):
        """Half the distance of the quartiles, relative to the median."""
        ordered = sorted(self.samples)
        return (ordered[(3 * len(ordered)) // 4] - ordered[len(ordered) // 4]) / 2 / self.median if self.median else 0.0


def quartile(samples):
    return sorted(samples)[len(samples) // 4]


def turns(calls, seconds, least=9):
    """{name: Times}; each turn asks each once, in an order that rotates."""
    names = list(calls)
    inner = {name: _repetitions(calls[name]) for name in names}
    samples = {name: [] for name in names}
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        stop, turn = time.perf_counter() + seconds, 0
        while turn < least or time.perf_counter() < stop:
            for i in range(len(names)):
                name = names[(turn + i) % len(names)]
                call, count = calls[name], inner[name]
                call()  # caches and freed memory are as after a call of its own kind, not of another way
                start = time.perf_counter()
                for _ in range(count):
                    call()
                samples[name].append((time.perf_counter() - start) / count)
            turn += 1
            if turn >= 3 and time.perf_counter() > stop + 4 * seconds:
                break
    finally:
        if enabled:
            gc.enable()
    return {name: Times(samples[name]) for name in names}


def _repetitions(call):
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return max(2, min(1000, int(SAMPLE_S / max(best, 1e-7))))


def difference(times, a, b, parts=4):
    """(a's typical time less b's, how far that is off in parts of the turns)."""
    x, y = times[a].samples, times[b].samples
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
