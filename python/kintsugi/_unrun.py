"""Code of graphs that no call has run when the program ends: made for the trace log, for inputs like the recorded ones.

Stock's compiler makes code in the first call, so tools that read its traces expect code for every graph. Only graphs of PyTorch's own operators are
compiled here: they run once for it, on inputs of zeros, and an operator of the program's might do something that can be seen.
"""

import math
import time

SECONDS = 30  # for all of them; the end of a program must not be put off for longer
ELEMENTS = 1 << 28  # of the inputs of one graph
NOTE = "# No call ran this code before the program ended: it was made for this trace, for inputs like the recorded ones.\n"


def write(engine, waiting):
    """waiting: (event, ids, graph, place, wants_gradients) of each graph."""
    from . import _trace

    until = time.monotonic() + SECONDS
    for event, ids, graph, place, wants_gradients in waiting:
        try:
            reason = "the program ended" if time.monotonic() > until else obstacle(graph)
            version = None if reason else compile_graph(engine, graph, wants_gradients)
        except Exception as error:
            version, reason = None, f"{type(error).__name__}: {error}"
        if version is not None and version["code"]:
            _trace.write_graph({**event, "compile_ns": version["total_ns"], "capture_ns": version["capture_ns"], "llvm_ns": version["llvm_ns"]}, ids, graph, version, place, NOTE)
        else:
            _trace.write_missing(event, ids, graph, reason or (version and version["reason"]) or "nothing of it can be compiled")


def obstacle(graph):
    """Why the graph is not run; "": it may be."""
    from . import fx

    for node in graph["nodes"]:
        module = getattr(node["callable"], "__module__", None) or getattr(type(node["callable"]), "__module__", "")
        namespace = getattr(node["callable"], "namespace", None) or getattr(node["callable"], "_qualified_op_name", "aten::").split("::")[0]
        if node["op"] != "call_method" and (module.split(".")[0] not in ("torch", "_operator", "builtins", "math") or namespace != "aten"):
            return f"{node['target']} is no operator of PyTorch's, and it is not run only for the trace"
    notes = [fx.parse_note(entry["note"]) for entry in graph["inputs"]]
    if None in notes:
        return f"{graph['inputs'][notes.index(None)]['source']} is no tensor"
    return "its inputs are too large to be made only for the trace" if sum(math.prod(sizes) for _, sizes, _, _ in notes) > ELEMENTS else ""


def compile_graph(engine, graph, wants_gradients):
    """What the engine tells of the graph's code; None: there is none."""
    import torch

    from . import fx

    values = []
    for entry in graph["inputs"]:
        dtype, sizes, strides, device = fx.parse_note(entry["note"])
        value = torch.empty_strided(sizes, strides, dtype=dtype, device=device).zero_()
        values.append(value.requires_grad_(wants_gradients and dtype.is_floating_point and "._parameters[" in entry["path"]))
    module = fx.to_graph_module(graph)
    compiled = engine.Compiled(module.forward, options={"warm": True}, dynamic=False)
    made = []
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(wants_gradients):
        for _ in range(2):  # a graph that reads a number in between runs its code in the second call
            if not made:
                compiled(*values)
                made = [version for entry in compiled.entries() for subgraph in engine.kernels(entry) for version in subgraph["versions"]]
    return next((version for version in made if version["code"]), made[0] if made else None)
