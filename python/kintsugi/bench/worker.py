"""One measurement in a process of its own: `python -m kintsugi.bench.worker '{"model": ..., "task": ...}'` prints a JSON
line. Tasks: "steady" (eager, Kintsugi and stock take turns in one process), "first" (the first calls of one engine), "headers",
"profile" (where launches spend their time).

What an engine raises is told beside what the others did, so that one failure costs one column.
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


FIRST = 6     # calls whose times count as first calls: recording, compiling, first launch, comparisons with the steps
WARM = 40     # most calls before anything is timed: in them recordings, kernels and trials come to an end
LEAST = 4     # ... fewest
CALM = 3      # calls in a row with nothing new


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


def _eager_seconds(call):
    """A typical call; fewer of them where they take long."""
    start = time.perf_counter()
    call()
    call()
    times = [_seconds(call)]
    while len(times) < 5 and time.perf_counter() - start < 2.0:
        times.append(_seconds(call))
    return statistics.median(times)


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _first_calls(engine, fn, call_of, eager):
    """(what torch.compile or kintsugi.compile gave, what setting up and the first calls took beyond eager ones)."""
    start = time.perf_counter()
    made = _compile(engine, fn)
    setup = time.perf_counter() - start
    call = call_of(made)
    times = [_seconds(call) for _ in range(FIRST)]
    return made, {"eager": eager, "setup": setup, "calls": times,
                  "added": setup + sum(max(0.0, t - eager) for t in times), "peak_bytes": _peak()}


def _state(made):
    """What changes as long as an engine still learns; None: there is nothing to ask."""
    import kintsugi

    try:
        stats = kintsugi.stats(made)
    except TypeError:
        return None
    graphs = stats.get("kernels") or []
    return stats["recordings"], stats["branches"], stats["guard_misses"], len(graphs), sum(not row["settled"] for row in graphs)


def _warm_up(call, made=None):
    """Calls until nothing changes any more."""
    calm, before = 0, None
    for done in range(WARM):
        call()
        state = None if made is None else _state(made)
        calm = calm + 1 if state is None or (state == before and state[-1] == 0) else 0
        before = state
        if done + 1 >= LEAST and calm >= CALM:
            return


def _copying(x):
    """For comparison: what copying the argument takes, into memory that is there."""
    y = torch.empty_like(x).zero_()
    return lambda: y.copy_(x)


def _kintsugi_rows(compiled):
    import kintsugi
    from kintsugi._engine import engine

    stats = kintsugi.stats(compiled)
    numbers = {key: value for key, value in stats.items() if isinstance(value, (int, float))}
    graphs = stats.get("kernels") or []
    launched = [row for row in graphs if row["compiled"]]
    totals = {key: value for key, value in engine.kernel_totals().items() if isinstance(value, (int, float))}
    return {"stats": numbers, "totals": totals, "graphs": len(launched), "kernels": sum(row["kernels"] for row in launched),
            "library_calls": sum(row["library_calls"] for row in launched),
            "not_compiled": sorted({row["reason"] for row in graphs if not row["compiled"] and row["reason"]})}


def steady(model, engines, seconds):
    """Medians and spread of eager and each engine, in seconds, how far results are from eager's, and the first calls here."""
    entry = models.find([model])[0]
    fn, args, kwargs = entry.make()
    calls, first, errors, compiled, difference = {}, {}, {}, {}, {}

    def call_of(made):
        return lambda: made(*args, **kwargs)
    with torch.no_grad():
        wanted = fn(*args, **kwargs)
        calls["eager"] = call_of(fn)
        eager = _eager_seconds(calls["eager"])
        for engine in reversed(engines):  # stock first: it changes PyTorch's own globals, and classes of modules
            try:
                compiled[engine], first[engine] = _first_calls(engine, fn, call_of, eager)
                calls[engine] = call_of(compiled[engine])
            except Exception as error:
                errors[engine] = _text(error)
        # Warm only now: an engine that is set up may make another one record again (stock changes PyTorch's own globals).
        for engine in list(calls):
            _warm_up(calls[engine], compiled["kintsugi"] if engine == "kintsugi" else None)
            difference[engine] = _difference(wanted, calls[engine]())
        if entry.copies:
            calls["copy"] = _copying(args[0])
        samples = _interleave(calls, seconds, 100 if entry.small else 1)
    result = {"times": {name: _summary(values) for name, values in samples.items()}, "difference": difference,
              "first": first, "errors": errors}
    if entry.copies:
        result["bytes"] = 2 * args[0].numel() * args[0].element_size()
    if "kintsugi" in compiled:
        result |= _kintsugi_rows(compiled["kintsugi"])
    return result


def _text(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]


def headers(**ignored):
    """How long stock's C++ headers take to be compiled, which is paid once for a machine: the job gets an empty folder for them."""
    from torch._inductor import codecache

    compile_header, taken = codecache._precompile_header, []

    def timed(*args, **kwargs):
        start = time.perf_counter()
        try:
            return compile_header(*args, **kwargs)
        finally:
            taken.append(time.perf_counter() - start)
    codecache._precompile_header = timed
    with torch.no_grad():
        torch.compile(lambda x: x.sin() + 1)(torch.ones(64))
    return {"seconds": sum(taken)}


def first(model, engine):
    """What the first calls of an engine add to eager calls, in seconds, in this fresh process, and the most memory it had."""
    entry = models.find([model])[0]
    fn, args, kwargs = entry.make()

    def call_of(made):
        return lambda: made(*args, **kwargs)
    with torch.no_grad():
        eager = _eager_seconds(call_of(fn))
        peak = _peak()
        _, result = _first_calls(engine, fn, call_of, eager)
    return result | {"eager_peak_bytes": peak}


def profile(model, calls=10):
    """Where the launches of a model spend their time: seconds a call, rows of {name, times, best, extern}, largest first."""
    from kintsugi._api import engine_of
    from kintsugi._engine import engine

    entry = models.find([model])[0]
    fn, args, kwargs = entry.make()
    with torch.no_grad():
        made = _compile("kintsugi", fn)
        _warm_up(lambda: made(*args, **kwargs))
        engine.set_profile(True)
        seconds = min(_seconds(lambda: made(*args, **kwargs)) for _ in range(calls))
        engine.set_profile(False)
    launches, rows = [], {}
    for entry in engine_of(made).entries():
        for version in (v for subgraph in engine.kernels(entry) for v in subgraph["versions"] if v["profile"]):
            whole, *parts = version["profile"]
            launches.append(whole["best_ns"] * 1e-9)
            for part in parts:
                row = rows.setdefault(part["name"], {"name": part["name"], "extern": part["extern"], "times": 0, "best": 0.0})
                row["times"] += 1
                row["best"] += part["best_ns"] * 1e-9
    return {"seconds": seconds, "launches": launches, "rows": sorted(rows.values(), key=lambda row: -row["best"])}


def main(job):
    torch.set_num_threads(job.pop("threads"))
    task = {"steady": steady, "first": first, "headers": headers, "profile": profile}[job.pop("task")]
    return task(**job)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    print("\n" + json.dumps(main(json.loads(sys.argv[1]))))
