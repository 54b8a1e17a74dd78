"""TORCH_TRACE: the events that report tools (tlparse) read, written through PyTorch's own trace log.

For each recording: where it started, its graph breaks, graphs, guards and numbers; for each recompilation its reasons; for each
compiled graph its loops. Ids are those of TORCH_LOGS: frame/recording.
"""

import contextlib
import json
import sys


def is_wanted():
    """Does the trace log go to a folder? Its handler is always there."""
    internal = sys.modules.get("torch._logging._internal")
    return internal is not None and any(getattr(handler, "root_dir", None) for handler in internal.trace_log.handlers)


@contextlib.contextmanager
def _compiling(ids, graph=0):
    """graph: its number, where an event is about one graph of a recording; PyTorch's tools show it as [0/0_1]."""
    from torch._guards import CompileContext, CompileId, compile_context

    context = CompileContext(CompileId(frame_id=ids[0], frame_compile_id=ids[1]))
    context.attempt = graph
    with compile_context(context):
        yield


def _write(name, metadata=None, payload=None):
    from torch._logging._internal import trace_structured

    trace_structured(name, lambda: metadata or {}, payload_fn=lambda: payload)


def _artifact(name, payload, encoding="string"):
    _write("artifact", {"name": name, "encoding": encoding}, payload)


def _write_span(name, event, ns, lane):
    """A row of tlparse's picture of what compiling took (chromium_events.json, for Perfetto). An event is written when what it tells of has ended."""
    if event.get("time_ns"):
        span = {"name": name, "ph": "X", "cat": "kintsugi", "ts": (event["time_ns"] - ns) / 1e3, "dur": ns / 1e3, "pid": 0, "tid": lane, "args": {"function": event["name"]}}
        _write("chromium_event", {}, json.dumps(span))


def _write_start(stack):
    from torch._logging import structured

    from . import _messages

    _write("dynamo_start", {"stack": structured.from_traceback(_messages.frames(stack))})


def write_recording(event, dump, graphs, breaks, ids, outer):
    """A recording, or what a side trace added to it: `graphs` and `breaks` are the new ones."""
    from . import _messages

    place = event.get("filename", "?"), event.get("line", 0), event["name"]
    with _compiling(ids):
        if event["event"] == "record":
            _write_start([*outer, place])
        for entry in breaks:
            _artifact("dynamo_graph_break_reason", _messages.break_record(entry, outer))
        for graph in graphs:
            _write("dynamo_output_graph", {"sizes": _sizes(graph)}, graph["code"])
        if event["event"] == "record":
            if dump["facts"]:
                _write("dynamo_cpp_guards_str", {}, _messages.guard_tree(dump))
            _write("compilation_metrics", _metrics(event, dump))
            _write_span(f"record {event['name']}", event, event.get("record_ns", 0), 0)


def write_eager(event, ids, outer, refusal=None):
    """A call that left no recording; refusal: the event of a graph break under fullgraph=True."""
    from . import _messages

    with _compiling(ids):
        _write_start([*outer, (event.get("filename", "?"), event.get("line", 0), event.get("function", event["name"]))])
        metrics = _metrics(event, {"graphs": [], "breaks": [], "facts": []}, event.get("reason") or "the call left nothing that can be replayed")
        if refusal is not None:
            stack = _messages.refusal_stack(refusal)
            file, line, _ = _messages.user_place(stack, stack[-1] if stack else ("?", 0, "?"))
            text = f"{refusal['type']} at {file}:{line}"
            row = _messages.find_row(refusal["why"])
            block = _messages.break_block(row) if row else refusal["type"]
            _artifact("dynamo_graph_break_reason", f"Graph break in user code at {file}:{line}\nGraph Break Reason: {block}\n\n"
                      f"User code traceback:\n{_messages.format_stack([*outer, *stack])}\n")
            metrics.update(fail_type="torch._dynamo.exc.Unsupported", fail_reason=text, fail_user_frame_filename=file, fail_user_frame_lineno=line)
        _write("compilation_metrics", metrics)


def write_recompile(event, ids):
    with _compiling(ids):
        reasons = [line.strip().removeprefix("- ") for line in event.get("failures", "").splitlines() if line.strip()]
        _artifact("recompile_reasons", json.dumps(reasons), "json")


def write_backend(event, ids):
    """How long a graph took to compile."""
    with _compiling(ids):
        times = {name.replace("_ns", "_s"): event[name] / 1e9 for name in ("compile_ns", "capture_ns", "llvm_ns") if name in event}
        _artifact("backend_compile_times", json.dumps({"graph": event["graph"], **times}), "json")


def write_code(name, number, code, ids):
    with _compiling(ids):
        _write("inductor_output_code", {"filename": f"{name}_graph_{number}.txt"}, code)


def write_graph(event, ids, graph, version, place, note=""):
    """A compiled graph by itself, of the function at `place`: where it stands, what was captured of it, its code (`note` above it), and what compiling it took."""
    first = graph["nodes"][0] if graph["nodes"] else {"filename": place[0], "line": place[1]}
    seconds = {name: (event.get(f"{name}_ns") or 0) / 1e9 for name in ("compile", "capture", "llvm")}
    with _compiling(ids, event["graph"]):
        _write_start([(*place, event["name"]), (first["filename"], first["line"], f"graph {event['graph']} of {event['name']}")])
        _write("dynamo_output_graph", {"sizes": _sizes(graph)}, graph["code"])
        if version["forward"]:  # it gives gradients; the halves are what is compiled
            _write("aot_joint_graph", {}, version["aten"])
            _write("aot_forward_graph", {}, version["forward"])
            _write("aot_backward_graph", {}, version["backward"])
        else:
            _write("aot_inference_graph", {}, version["aten"])
        _write("inductor_output_code", {"filename": f"{event['name']}_graph_{event['graph']}.txt"}, note + version["code"])
        _write("compilation_metrics", _metrics({"name": f"{event['name']}, graph {event['graph']}", "filename": first["filename"], "line": first["line"]},
                                               {"graphs": [graph], "breaks": [], "facts": []})
               | {"entire_frame_compile_time_s": seconds["compile"], "backend_compile_time_s": seconds["compile"], "inductor_compile_time_s": seconds["compile"] - seconds["capture"],
                  "code_gen_time_s": seconds["llvm"]})
        if event.get("event") == "lower":  # one of a call; others are made when the program ends
            _write_span(f"compile graph {event['graph']} of {event['name']}", event, event.get("compile_ns") or 0, 1)


def write_missing(event, ids, graph, reason):
    """A graph that no code was made for."""
    with _compiling(ids, event["graph"]):
        _artifact("kintsugi_no_output_code", f"No code was made for graph {event['graph']} of {event['name']}: {reason}\n\n{graph['code']}")


def _sizes(graph):
    from . import fx

    notes = {entry["local"]: fx.parse_note(entry["note"]) for entry in graph["inputs"]}
    return {name: parts[1] for name, parts in notes.items() if parts}


def counts(dump):
    """How large a recording is, in PyTorch's words."""
    return {"guard_count": len(dump["facts"]), "shape_env_guard_count": 0, "graph_op_count": sum(len(graph["nodes"]) for graph in dump["graphs"]),
            "graph_node_count": sum(len(graph["nodes"]) + len(graph["inputs"]) + 1 for graph in dump["graphs"]),
            "graph_input_count": sum(len(graph["inputs"]) for graph in dump["graphs"]), "num_graph_breaks": len(dump["breaks"])}


def _metrics(event, dump, failure=None):
    seconds = event.get("record_ns", 0) / 1e9
    reasons = [f"{entry['type']} at {entry['filename']}:{entry['line']}" for entry in dump["breaks"]]
    return {"co_name": event.get("function", event["name"]), "co_filename": event.get("filename", "?"), "co_firstlineno": event.get("line", 0),
            "cache_size": 0, "accumulated_cache_size": 0, **counts(dump),
            # Graphs are compiled at a later call: their times are artifacts of their own (write_backend).
            "start_time": None, "entire_frame_compile_time_s": seconds, "backend_compile_time_s": None,
            "inductor_compile_time_s": None, "code_gen_time_s": None, "dynamo_time_before_restart_s": None,
            "fail_type": "Eager" if failure else None, "fail_reason": failure, "fail_user_frame_filename": None,
            "fail_user_frame_lineno": None, "non_compliant_ops": [], "compliant_custom_ops": [], "restart_reasons": reasons,
            "has_guarded_code": failure is None}
