"""One measurement in a process of its own: `python -m kintsugi.bench.worker '{"model": ..., "task": ...}'` prints a JSON
line. Tasks: "steady" (eager, Kintsugi and stock take turns in one process) and "first" (the first calls of one engine).
"""

import gc
import json
import os
import resource
import statistics
import sys
import time

import torch

from . import models


WARM = 24  # calls: recordings, kernels and their trials against the steps come to an end in them


def _compile(engine, fn):
    if engine == "kintsugi":
        import kintsugi

        return kintsugi.compile(fn)
    return torch.compile(fn)


def _seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _flat(value):
    """All tensors of a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, (list, tuple)) else []


def _difference(wanted, got):
    """Largest difference relative to the largest element, over all result tensors."""
    worst = 0.0
    for a, b in zip(_flat(wanted), _flat(got), strict=True):
        if a.is_floating_point() and a.numel():
            scale = a.abs().max().item() or 1.0
            worst = max(worst, (a - b).abs().max().item() / scale)
        elif not torch.equal(a, b):
            worst = float("inf")
    return worst


def _summary(samples):
    samples = sorted(samples)
    n = len(samples)
    return {"median": statistics.median(samples), "low": samples[n // 10], "high": samples[-1 - n // 10], "n": n}


def _interleave(calls, seconds, inner):
    """Seconds per call, in turns whose order rotates, for about so long."""
    names = list(calls)
    samples = {name: [] for name in names}
    stop = time.perf_counter() + seconds
    gc.collect()
    gc.disable()
    turn = 0
    while turn < 5 or time.perf_counter() < stop:
        for i in range(len(names)):
            name = names[(turn + i) % len(names)]
            start = time.perf_counter()
            for _ in range(inner):
                calls[name]()
            samples[name].append((time.perf_counter() - start) / inner)
        turn += 1
    gc.enable()
    return samples


def steady(model, engines, seconds):
    """Medians and spread of eager and each engine, in seconds, and how far results are from eager's."""
    entry = models.find([model])[0]
    fn, args, kwargs = entry.make()
    with torch.no_grad():
        wanted = fn(*args, **kwargs)
        compiled = {engine: _compile(engine, fn) for engine in engines}
        calls = {"eager": lambda: fn(*args, **kwargs)}
        first, difference = {}, {}
        for engine, made in compiled.items():
            calls[engine] = lambda made=made: made(*args, **kwargs)
            first[engine] = [_seconds(calls[engine]) for _ in range(4)]
        # Warm only now: an engine that is set up may make another one record again (stock changes PyTorch's own globals).
        for engine in compiled:
            for _ in range(WARM):
                calls[engine]()
            difference[engine] = _difference(wanted, calls[engine]())
        samples = _interleave(calls, seconds, 100 if entry.small else 1)
    result = {"times": {name: _summary(values) for name, values in samples.items()}, "difference": difference}
    if "kintsugi" in compiled:
        import kintsugi

        stats = kintsugi.stats(compiled["kintsugi"])
        result["stats"] = {key: value for key, value in stats.items() if isinstance(value, (int, float))}
    return result


def first(model, engine, warm):
    """What the first calls of an engine add to eager calls, in seconds, in this fresh process. warm: another small
    function was compiled before (stock then has its headers)."""
    entry = models.find([model])[0]
    fn, args, kwargs = entry.make()
    with torch.no_grad():
        for _ in range(3):
            fn(*args, **kwargs)
        eager = statistics.median(_seconds(lambda: fn(*args, **kwargs)) for _ in range(5))
        if warm:
            _compile(engine, lambda x: x.exp().sum(-1) + 3)(torch.randn(64, 1000))
        made = _compile(engine, fn)
        times = [_seconds(lambda: made(*args, **kwargs)) for _ in range(4)]
    added = sum(max(0.0, t - eager) for t in times)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"eager": eager, "calls": times, "added": added, "peak_bytes": peak}


def main(job):
    torch.set_num_threads(job.pop("threads"))
    task = {"steady": steady, "first": first}[job.pop("task")]
    return task(**job)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    print("\n" + json.dumps(main(json.loads(sys.argv[1]))))
