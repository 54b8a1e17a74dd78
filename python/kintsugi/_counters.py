"""torch._dynamo.utils.counters, compile_times() and get_compilation_metrics(): what the engine did, where programs look for it.

PyTorch's compiler package is not imported for this; what happened before the program imports it is added then.
"""

import collections
import dataclasses
import functools
import sys

_waiting = {}  # (group, name) -> number, from before torch._dynamo.utils was there
_unseen = collections.deque(maxlen=64)  # events for get_compilation_metrics(), which keeps as many
_latest = {}   # name of a compiled function -> its newest CompilationMetrics


def note(event):
    """Counts one event."""
    if event["event"] in ("record", "lower"):
        _unseen.append(event)
    _count(_entries(event))


def note_breaks(numbers):
    """Counts breaks; {row + 1: how many}, 0: no row."""
    _count([("graph_break", _break_text(why - 1 if why else ""), number) for why, number in numbers.items()])


def _count(entries):
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is not None and hasattr(utils, "get_compilation_metrics"):
        flush(utils)
        _add(utils, entries)
        return
    for group, name, number in entries:
        _waiting[group, name] = _waiting.get((group, name), 0) + number


def flush(utils):
    _add(utils, [(*key, number) for key, number in _waiting.items()])
    _waiting.clear()
    while _unseen:
        _add_metrics(utils, _unseen.popleft())


def _add_metrics(utils, event):
    """A recording is a row; a graph is compiled at a later call, and its time is added to that row, to the whole as to the
    part."""
    kept = utils._compilation_metrics
    if event["event"] == "record":
        row = utils.CompilationMetrics(
            co_name=event.get("function", event["name"]), co_filename=event.get("filename"), co_firstlineno=event.get("line"),
            graph_op_count=event.get("ops", 0), entire_frame_compile_time_s=event["record_ns"] / 1e9, has_guarded_code="entry" in event,
            fail_reason=event.get("reason") or None)
        kept.append(row)
        _latest[event["name"]] = row
        return
    row = _latest.get(event["name"])
    place = next((i for i, other in enumerate(kept) if other is row), None)
    if place is not None:
        more = event["compile_ns"] / 1e9
        kept[place] = _latest[event["name"]] = dataclasses.replace(
            row, backend_compile_time_s=(row.backend_compile_time_s or 0) + more, entire_frame_compile_time_s=row.entire_frame_compile_time_s + more)


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
