"""torch._dynamo.utils.counters and compile_times(): what the engine did, where programs look for it.

PyTorch's compiler package is not imported for this; what happened before the program imports it is added then.
"""

import functools
import sys

_waiting = {}  # (group, name) -> number, from before torch._dynamo.utils was there


def note(event):
    """Counts one event."""
    _count(_entries(event))


def note_breaks(numbers):
    """Counts breaks; {row + 1: how many}, 0: no row."""
    _count([("graph_break", _break_text(why - 1 if why else ""), number) for why, number in numbers.items()])


def _count(entries):
    utils = sys.modules.get("torch._dynamo.utils")
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


@functools.cache
def _break_text(why):
    from . import _messages

    row = _messages.find_row(why)
    return _messages.break_block(row) if row else why


def _entries(event):
    kind = event["event"]
    if kind == "break":
        yield "graph_break", _break_text(event["why"]), 1
    elif kind == "lower":
        yield "seconds", "kintsugi.backend", event["compile_ns"] / 1e9
    elif kind in ("record", "extend"):
        yield "seconds", "kintsugi.record", event["record_ns"] / 1e9
        if kind == "record":
            yield "frames", "total", 1
            yield "frames", "ok", int("entry" in event)
        if "entry" in event:
            yield "stats", "unique_graphs", event["graphs"]
            yield "stats", "calls_captured", event["ops"]
