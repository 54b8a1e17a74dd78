"""torch._dynamo.utils.counters and compile_times(): what the engine did, where programs look for it.

PyTorch's compiler package is not imported for this; what happened before the program imports it is added then.
"""

import sys
import weakref

_waiting = {}  # (group, name) -> number, from before torch._dynamo.utils was there
_counted = weakref.WeakKeyDictionary()  # variant -> (graphs, operations) already counted


def note(event, variant):
    """Counts one event; `variant` is the recording it belongs to, None when there is none."""
    utils = sys.modules.get("torch._dynamo.utils")
    entries = list(_entries(event, variant))
    if utils is not None and hasattr(utils, "compile_times"):
        flush(utils)
        _add(utils, entries)
        return
    for group, name, number in entries:
        _waiting[group, name] = _waiting.get((group, name), 0) + number


def flush(utils):
    _add(utils, [(*key, number) for key, number in _waiting.items()])
    _waiting.clear()


def _add(utils, entries):
    for group, name, number in entries:
        if group == "seconds":
            times = utils.compilation_time_metrics.setdefault(name, [])
            times[:] = [sum(times) + number]  # one sum: a process that goes on recording must not grow
        elif number:
            utils.counters[group][name] += number


def _entries(event, variant):
    kind = event["event"]
    if kind == "break":
        from . import _messages

        row = _messages.find_row(event["why"])
        yield "graph_break", _messages.break_block(row) if row else event["type"], 1
    elif kind == "lower":
        yield "seconds", "kintsugi.backend", event["compile_ns"] / 1e9
    elif kind in ("record", "extend"):
        yield "seconds", "kintsugi.record", event["record_ns"] / 1e9
        if kind == "record":
            yield "frames", "total", 1
            yield "frames", "ok", int(variant is not None)
        if variant is not None:
            graphs, ops = _counted.get(variant, (0, 0))
            numbers = variant.stats()
            _counted[variant] = numbers["graphs"], numbers["ops"]
            yield "stats", "unique_graphs", numbers["graphs"] - graphs
            yield "stats", "calls_captured", numbers["ops"] - ops
