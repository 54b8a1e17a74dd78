"""torch._dynamo.utils.counters, compile_times() and get_compilation_metrics(): what the engine did, where programs look for it.

PyTorch's compiler package is not imported for this; what happened before the program imports it is added then.
"""

import collections
import dataclasses
import functools
import itertools
import sys
import time

_waiting = {}  # (group, name) -> number, from before torch._dynamo.utils was there
_unseen = collections.deque(maxlen=64)  # events for get_compilation_metrics(), which keeps as many
_latest = {}   # name of a compiled function -> its newest CompilationMetrics
_recorded = {} # id of a CompilationMetrics -> the number of its entry, which is looked at when the row is read
_frame_keys = itertools.count(1)


def note(event):
    """Counts one event."""
    if event["event"] in ("record", "lower"):
        _unseen.append({**event, "noted_ns": time.time_ns()})
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


class _Rows(collections.deque):
    """PyTorch's rows. What takes a look at the recording, as counting its guards does, is added when they are read."""

    def __iter__(self):
        for i in range(len(self)):
            number = _recorded.pop(id(self[i]), None)
            if number is not None:
                _put(self, self[i], **_found_in(number))
        return super().__iter__()


def _known(kind, fields):
    """Those that rows of this PyTorch have; torch 2.6's know no number of graph breaks."""
    return {name: value for name, value in fields.items() if name in kind.__dataclass_fields__}


def _put(rows, row, **fields):
    """The row with these fields, in its place."""
    place = next((i for i in range(len(rows)) if rows[i] is row), None)
    if place is None:
        return
    rows[place] = new = dataclasses.replace(row, **_known(row, fields))
    if id(row) in _recorded:
        _recorded[id(new)] = _recorded.pop(id(row))
    _latest.update({name: new for name, latest in _latest.items() if latest is row})


def _found_in(number):
    """What the recording says; nothing where it is gone."""
    from . import _logs, _trace

    ids, dump = _logs.dump_of_entry(number)
    if dump is None:
        return {}
    return {"compile_id": f"{ids[0]}/{ids[1]}", "cache_size": ids[1], "accumulated_cache_size": ids[1], **_trace.counts(dump)}


def _add_metrics(utils, event):
    """A recording is a row; a graph is compiled at a later call, and its time is added to that row, to the whole as to the
    part."""
    if type(utils._compilation_metrics) is not _Rows:
        utils._compilation_metrics = _Rows(utils._compilation_metrics, utils._compilation_metrics.maxlen)
    kept = utils._compilation_metrics
    if event["event"] == "record":
        took = event["record_ns"]
        begun, lasted = (event["noted_ns"] - took) // 1000, took // 1000
        row = utils.CompilationMetrics(**_known(utils.CompilationMetrics, dict(
            frame_key=str(next(_frame_keys)),
            co_name=event.get("function", event["name"]), co_filename=event.get("filename"), co_firstlineno=event.get("line"),
            graph_op_count=event.get("ops", 0), entire_frame_compile_time_s=took / 1e9, has_guarded_code="entry" in event,
            start_time=begun / 1e6, start_time_us=begun, duration_us=lasted, end_time_us=begun + lasted,
            fail_reason=event.get("reason") or None)))
        kept.append(row)
        _latest[event["name"]] = row
        present = {id(kept[i]) for i in range(len(kept))}
        for gone in _recorded.keys() - present:
            del _recorded[gone]
        if "entry" in event:
            _recorded[id(row)] = event["entry"]
        return
    row = _latest.get(event["name"])
    if row is not None:
        more = event["compile_ns"] / 1e9
        _put(kept, row, backend_compile_time_s=(row.backend_compile_time_s or 0) + more, entire_frame_compile_time_s=row.entire_frame_compile_time_s + more)


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
