"""TORCH_LOGS views of what the engine did (SERVED names them), and TORCH_TRACE (_trace.py).

The engine calls `_look` soon after it has recorded something, from the frame that made the compiled call. Records go
through PyTorch's own artifact loggers, so TORCH_LOGS, torch._logging.set_logs and their formats apply.
"""

import atexit
import collections
import functools
import json
import logging
import os
import sys
import uuid
import weakref

from . import _counters, _trace, passes
from ._compiled import function_of, live_compiled

_engine = None
_next_seq = 0
_kept = collections.deque(maxlen=10000)
_failed = collections.deque(maxlen=1000)  # of the kept events those of backends that raised: stats() must not read all events for them
_frames = weakref.WeakKeyDictionary()  # Compiled -> frame number in trace ids
_next_frame = 0
_told_breaks = set()
_shown = {}  # entry number -> graphs and breaks already shown
_codes = {}  # entry number and compiled part of a graph -> code already shown
_waiting = {}  # entry number and graph -> what the trace log has to say of it at the end, if no call has run its code by then
_graph_number = 0
_loggers = {}
_told_missing = set()

_HOMES = {"graph_breaks": "torch._dynamo.symbolic_convert", "recompiles": "torch._dynamo.guards",
          "recompiles_verbose": "torch._dynamo.guards", "side_effects": "torch._dynamo.side_effects",
          "guards": "torch._dynamo.guards", "graph_code": "torch._dynamo.output_graph",
          "fusion": "torch._inductor.scheduler", "output_code": "torch._inductor.codecache"}
SERVED = tuple(_HOMES)
# Artifacts of stock's compiler that have no counterpart here; a component at DEBUG switches some on that nobody named.
_NOT_SERVED = ("bytecode", "aot_graphs", "aot_joint_graph", "aot_graphs_effects", "pre_grad_graphs", "post_grad_graphs", "ddp_graphs",
               "compiled_autograd", "compiled_autograd_verbose", "kernel_code", "ir_pre_fusion", "ir_post_fusion", "schedule",
               "perf_hints", "cudagraphs", "inductor_metrics", "autotuning", "benchmarking", "trace_source", "trace_call",
               "trace_bytecode", "verbose_guards", "graph", "graph_sizes", "graph_code_verbose")
# Switches of stock's compiler that somebody sets to get something written.
_SWITCHES = ("TORCHDYNAMO_REPRO_AFTER", "TORCH_COMPILE_CPROFILE", "INDUCTOR_PROVENANCE")


def start(engine):
    """Begins to listen; logs are printed when somebody has asked for them."""
    global _engine
    _engine = engine
    engine.set_listener(_look)
    _ask_for_code()
    atexit.register(_write_waiting)


def note_new(compiled):
    """A new compile() call: its graph breaks are reported in full again, as PyTorch does."""
    _told_breaks.clear()


def forget():
    _told_breaks.clear()
    _write_waiting()
    _shown.clear()
    _codes.clear()


def events():
    """All events of this process so far (the newest 10000), as dicts, oldest first."""
    _collect()
    return [json.loads(text) for text in _kept]


@functools.cache
def _kinds():
    """Number of each kind of event."""
    return {name: number for number, name in enumerate(_engine.event_kinds())}


@functools.cache
def _number_of_backend_failed():
    """What events have as `why` where a backend raised."""
    return next(number for number, row in enumerate(_engine.break_rows(), 1) if row["why"] == "BACKEND_FAILED")


def _collect():
    """(number, kind, why, JSON text) of what is new."""
    global _next_seq
    if _engine is None:  # nothing has been compiled
        return []
    new = _engine.events_since(_next_seq)
    if new:
        _next_seq = new[-1][0] + 1
        _kept.extend(text for _, _, _, text in new)
        _failed.extend(text for _, kind, why, text in new if kind == _kinds()["fallback"] and why == _number_of_backend_failed())
    return new


def _tell_what_is_missing():
    """Once for each: what was asked for in words of stock's compiler and is not there."""
    internal = sys.modules.get("torch._logging._internal")
    if internal is None:
        return
    enabled = internal.log_state.artifact_names
    if _told_missing and enabled.isdisjoint(_NOT_SERVED):
        return
    asked = [f"TORCH_LOGS={name}" for name in _NOT_SERVED if name in enabled]
    if not _told_missing:
        asked += [name for name in _SWITCHES if os.environ.get(name, "0") not in ("", "0")]
        asked += ["TORCH_COMPILE_DEBUG=1 (but for its trace log)"] if os.environ.get("TORCH_COMPILE_DEBUG") == "1" else []
    new = [name for name in asked if name not in _told_missing]
    _told_missing.update(new, ["environment"])
    if new:
        logging.getLogger("torch._dynamo").warning(
            "Kintsugi does not serve %s; it serves TORCH_LOGS=%s and TORCH_TRACE=folder", ", ".join(new), ",".join(SERVED))


def _look():
    """Shows what is new."""
    try:
        _tell_what_is_missing()
        collected = _collect()
        if not _is_wanted():
            _show_unasked(collected)
            return
        new = [json.loads(text) for _, _, _, text in collected]
        for event in new:
            _counters.note(event)
        outer = _outer_frames() if any(e["event"] in ("record", "extend") for e in new) else ()
        taken = {entry.number: entry for entry in _engine.take_recorded()}
        for event in new:
            found = _find(event["entry"], taken) if "entry" in event and "record_ns" in event else (None, None, 0)
            _show(event, found, outer, new)
    except Exception as error:  # a report must never cost the program its result
        sys.stderr.write(f"kintsugi: a report failed: {error!r}\n")


def _is_wanted():
    return any(_enabled(name) for name in SERVED) or _dynamic_log() is not None or _component_log("torch._dynamo") is not None or passes.logger() is not None or _trace.is_wanted()


def _show_unasked(collected):
    """What is counted and said although nobody asked for logs; most events are not even read then."""
    _engine.take_recorded()
    _ask_for_code()
    kinds = _kinds()
    breaks = collections.Counter(why for _, kind, why, _ in collected if kind == kinds["break"])
    if breaks:
        _counters.note_breaks(breaks)
    for _, kind, _, text in collected:
        if kind in (kinds["record"], kinds["extend"], kinds["lower"]):
            _counters.note(json.loads(text))
        elif kind == kinds["limit"]:
            _show(json.loads(text), (None, None, 0), (), ())


def _dynamic_log():
    """The logger of TORCH_LOGS=dynamic if somebody wants it, else None."""
    return _component_log("torch.fx.experimental.symbolic_shapes")


def _component_log(name):
    """A component's logger if somebody wants what it says at INFO level, else None."""
    internal = sys.modules.get("torch._logging._internal")
    if internal is None or name not in internal.log_state.log_qname_to_level:
        return None
    log = logging.getLogger(name)
    return log if log.isEnabledFor(logging.INFO) else None


def _enabled(artifact):
    """The artifact's logger when somebody wants it, else None."""
    if artifact not in _loggers:
        internal = sys.modules.get("torch._logging._internal")
        if internal is None:
            return None
        try:
            _loggers[artifact] = internal.getArtifactLogger(_HOMES[artifact], artifact)
        except ValueError:  # this version of torch has no such artifact, so nobody can have asked for it
            _loggers[artifact] = None
    log = _loggers[artifact]
    if log is None:
        return None
    return log if log.isEnabledFor(logging.DEBUG) else None  # named itself, or its component is at DEBUG


def _log(artifact, text, ids):
    log = _enabled(artifact)
    if log is None:
        return
    with _within(ids):
        log.debug("%s", text)


def _within(ids):
    """What is logged here has frame and recording in front."""
    from torch._guards import CompileContext, CompileId, compile_context

    return compile_context(CompileContext(CompileId(frame_id=ids[0], frame_compile_id=ids[1])))


def _find(number, taken):
    """The compiled function (None when it is gone) and the entry with that number, and its place among the entries."""
    for compiled in live_compiled():
        numbers = sorted(v.number for v in compiled.entries())
        for entry in compiled.entries():
            if entry.number == number:
                return compiled, entry, numbers.index(number)
    return None, taken.get(number), 0


def dump_of_entry(number):
    """Frame and recording of a live entry, and its dump; None, None: it is gone."""
    compiled, entry, index = _find(number, {})
    return ((number_frame(compiled), index), _engine.dump(entry)) if entry is not None else (None, None)


def ids_of_entry(number, name):
    """Frame and recording, as in TORCH_LOGS; the entry may be about to become one."""
    compiled, _, index = _find(number, {})
    return (number_frame(compiled), index) if compiled is not None else _ids_of_name(name)


def _ids_of_recompilation(event, new):
    """Those of the recording that came of it, which is there already when anything is shown."""
    later = (e for e in new if e["seq"] > event["seq"] and e["event"] == "record" and e["name"] == event["name"])
    recorded = next(later, {})
    compiled, _, index = _find(recorded.get("entry"), {})
    return (number_frame(compiled), index) if compiled is not None else _frame_of(event["name"])


def _show_steps(event, ids):
    """TORCH_LOGS=dynamo: that a function was traced and a graph compiled. It ran while it was traced, so both lines come afterwards."""
    log = _component_log("torch._dynamo")
    if log is None:
        return
    name, place = event["name"], f"{event.get('filename', '?')}:{event.get('line', 0)}"
    if event["event"] == "lower":
        lines = [f"Step 2: done compiler function {event['backend']} (graph {event['graph']} of {name}, {event['compile_ns'] / 1e6:.1f} ms)"]
    else:
        more = event["event"] == "extend"
        lines = [f"Step 1: torchdynamo start tracing {name} {place}" + more * " (the rest of a call that a recording does not cover)",
                 f"Step 1: torchdynamo done tracing {name} ({event.get('reason') or 'RETURN_VALUE'}; {event['record_ns'] / 1e6:.1f} ms)"]
        frames = sys.modules.get("torch._dynamo.eval_frame")
        if frames is not None and not more:
            getattr(getattr(frames, "dynamo_tls", None), "traced_frame_infos", []).append(f"{name} {place}")
    with _within(ids):
        for line in lines:
            log.info("%s", line)


def _show(event, found, outer, new):
    kind = event["event"]
    if kind in ("record", "extend", "lower"):
        compiled, _, index = found if kind != "lower" else _find(event["entry"], {})
        _show_steps(event, (number_frame(compiled), index) if compiled is not None else _ids_of_name(event["name"]))
    if kind in ("record", "extend"):
        compiled, entry, index = found
        _ask_for_code()
        if kind == "extend" and _enabled("recompiles"):
            _show_branch(event, new, (number_frame(compiled), index))
        if entry is not None:
            _show_entry(entry, (number_frame(compiled), index), outer, event)
        elif kind == "record" and _trace.is_wanted():
            before = [e for e in new if e["seq"] < event["seq"] and e["event"] in ("record", "refuse") and e["name"] == event["name"]]
            refusal = before[-1] if before and before[-1]["event"] == "refuse" else None
            _trace.write_eager(event, _ids_of_name(event["name"]), outer, refusal)
    elif kind == "recompile":
        name = next((name for name in ("recompiles", "recompiles_verbose") if _enabled(name)), None)
        if name:
            from . import _messages

            ids = _ids_of_recompilation(event, new)
            _log(name, _messages.recompile_record(event, ids[0]), ids)
        if _trace.is_wanted():
            _trace.write_recompile(event, _ids_of_recompilation(event, new))
    elif kind == "exact_size":
        text = f"{event.get('filename', '?')}:{event.get('line', 0)} in {event.get('function', event['name'])}: {event['text']}"
        if _dynamic_log() is not None:
            _dynamic_log().info("%s", text)
        _log("recompiles", text, ids_of_entry(event["entry"], event["name"]))
    elif kind == "fusion":
        if _enabled("fusion"):
            _log("fusion", f"{event['name']}, graph {event['graph']}: not fused:\n{event['text']}", _frame_of(event["name"]))
    elif kind == "passes":
        _show_passes(event)
    elif kind == "lower":
        if _trace.is_wanted():
            compiled, _, index = _find(event["entry"], {})
            _trace.write_backend(event, (number_frame(compiled), index))
        if _enabled("output_code") or _trace.is_wanted():
            _show_code(event)
    elif kind == "limit":
        from . import _messages

        logging.getLogger("torch._dynamo").warning("%s", _messages.limit_record(event))


def _show_branch(event, new, ids):
    from .diagnose import recompiles

    left = recompiles.branch_of(event, new)
    if left is not None:
        _log("recompiles", f"A branch of function {event['name']} in {event.get('filename', '?')}:{event.get('line', 0)}: {recompiles.branch_text(left)}", ids)


def backend_failures(names):
    """{what its backend raised and where: how often} of a function that events call by one of these names."""
    _collect()
    return collections.Counter(event["reason"] for event in map(json.loads, _failed) if event["name"] in names)


def _ask_for_code():
    """Graphs are compiled at the first replay of what was just recorded: their code is kept if it is to be shown, and made before the call goes on."""
    from ._config import config

    wanted = _enabled("output_code") or _trace.is_wanted()
    _engine._set_listing((2 if config.verbose else 1) if wanted else 0)
    for name in ("async_compile", "async_sizes"):
        _engine.set_option(name, not wanted and getattr(config, name))


def _show_code(event):
    compiled, entry, index = _find(event["entry"], {})
    for part, subgraph in enumerate(_engine.kernels(entry) if entry is not None else ()):
        made = [version for version in subgraph["versions"] if version["code"]]
        code = [version["code"] for version in made]
        if subgraph["graph"] == event["graph"] and code:
            ids = number_frame(compiled), index
            if _codes.get((entry.number, part)) == code[-1]:
                continue  # another part of the graph was compiled, or this one for other sizes with the same code
            _codes[entry.number, part] = code[-1]
            _log("output_code", f"Output code of {event['name']}, graph {event['graph']}:\n{code[-1]}", ids)
            if _trace.is_wanted():
                _trace.write_code(event["name"], event["graph"], code[-1], ids)
                _trace.write_graph(event, ids, _engine.dump(entry)["graphs"][event["graph"] - 1], made[-1], _place_of(compiled))
                _waiting.pop((entry.number, event["graph"]), None)


def _write_waiting():
    """Graphs whose code no call has run: it is made now, so that the trace has it as stock's does, which compiles at the first call."""
    waiting = list(_waiting.values())
    _waiting.clear()
    if waiting and _trace.is_wanted():
        from . import _unrun

        _engine.set_listener(lambda: None)  # compiling them is not part of what the program did
        try:
            _unrun.write(_engine, waiting)
        finally:
            _collect()
            _engine.take_recorded()
            _engine.set_listener(_look)


def _place_of(compiled):
    code = getattr(function_of(compiled.fn), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("?", 0)


def _ids_of_name(name):
    """Of a call that left no recording."""
    compiled = next((c for c in live_compiled() if c.__name__ == name), None)
    return number_frame(compiled), len(compiled.entries()) if compiled is not None else 0


def _show_passes(event):
    if passes.logger() is None:
        return
    _, entry, _ = _find(event["entry"], {})
    found = [row for row in passes.of_entry(_engine, entry) if row.graph == event["graph"]] if entry is not None else []
    if found:
        log = passes.logger()
        log.info("%s", passes.log_record(event["name"], event["graph"], found, log.isEnabledFor(logging.DEBUG)))


def number_frame(compiled):
    global _next_frame
    number = _frames.get(compiled) if compiled is not None else None
    if number is None:
        number = _next_frame
        _next_frame += 1
        if compiled is not None:
            _frames[compiled] = number
    return number


def _frame_of(name):
    """Frame number of the compiled function with that name, and how many recordings it has."""
    for compiled in live_compiled():
        if compiled.__name__ == name and compiled in _frames:
            return _frames[compiled], len(compiled.entries())
    return 0, 1


def _show_entry(entry, ids, outer, event):
    global _graph_number
    wanted = [name for name in ("graph_breaks", "graph_code", "guards", "side_effects") if _enabled(name)]
    if not wanted and not _trace.is_wanted():
        return
    from . import _messages

    dump = _engine.dump(entry)
    graphs_seen, breaks_seen, effects_seen = _shown.get(entry.number, (0, 0, 0))
    _shown[entry.number] = (len(dump["graphs"]), len(dump["breaks"]), len(dump["effects"]))
    graphs, breaks, effects = dump["graphs"][graphs_seen:], dump["breaks"][breaks_seen:], dump["effects"][effects_seen:]
    for graph in graphs:
        _graph_number += 1
        if "graph_code" in wanted:
            name = f"__compiled_fn_{_graph_number}_{str(uuid.uuid4()).replace('-', '_')}"
            _log("graph_code", _messages.traced_graph(graph, name), ids)
    if "graph_breaks" in wanted:
        for entry in breaks:
            _log("graph_breaks", _messages.break_record(entry, outer, _is_told(entry)), ids)
    if "side_effects" in wanted:
        for entry in effects:
            _log("side_effects", _messages.effect_record(entry), ids)
    if "guards" in wanted and event["event"] == "record":
        _log("guards", "GUARDS:\n" + _messages.guard_tree(dump), ids)
    if _trace.is_wanted():
        _trace.write_recording(event, dump, graphs, breaks, ids, outer)
        for number, graph in enumerate(graphs, graphs_seen + 1):
            _waiting[event["entry"], number] = ({"graph": number, "name": event["name"]}, ids, graph, (dump["filename"], dump["firstlineno"]),
                                                sys.modules["torch"].is_grad_enabled())


def _is_told(entry):
    from ._config import config

    key = (entry["type"], tuple(map(tuple, entry["user_stack"])))
    told = key in _told_breaks and not config.verbose
    _told_breaks.add(key)
    return told


def _outer_frames():
    """(file, line, function) of the frames around the compiled call, outermost first, without ours and those of
    `python -m kintsugi run`."""
    here = os.path.dirname(__file__)
    found = []
    frame = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "kintsugi.cli":
        if not frame.f_code.co_filename.startswith(here):
            found.insert(0, (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    while frame is not None and found and found[0][0] == "<frozen runpy>":
        del found[0]
    return found
