"""What became of the graphs of a compiled function: rows for stats() and explain().

Steps that may change what the program sees (a test, an attribute that is set) can part a graph: then each part is compiled by itself.
"""

import collections
import linecache


def rows(engine, compiled):
    """A dict for each version of each graph: graphs are compiled when they are first replayed, for each kind of inputs anew. A graph without
    code has one with the reason; it "waits" where nothing was tried so far."""
    found, general = [], obstacle(compiled)
    for number, entry in enumerate(sorted(compiled.entries(), key=lambda entry: entry.number), 1):
        subgraphs = engine.kernels(entry)
        counts = collections.Counter(subgraph["graph"] for subgraph in subgraphs)
        parts = collections.Counter()
        for subgraph in subgraphs:
            parts[subgraph["graph"]] += 1
            place = number, subgraph["graph"], parts[subgraph["graph"]], counts[subgraph["graph"]]
            ends = describe_end(subgraph["end"]) if parts[subgraph["graph"]] < counts[subgraph["graph"]] else ""
            found += [_row(place, version, ends) for version in subgraph["versions"]]
            reason = subgraph["reason"] or (subgraph["not_yet"] and (general or subgraph["not_yet"]))
            if reason:
                found.append(_row(place, {"compiled": False, "reason": reason, "waits": not subgraph["reason"]}, ends))
        found += [_row((number, graph, 1, 1), {"compiled": False, "reason": general or _no_part(compiled.stats()["optimizer_steps"]), "waits": True})
                  for graph in range(1, is_ours(compiled) * entry.graphs + 1) if graph not in counts]
    return found


def _no_part(steps):
    apart, none = "steps of optimizers in it are compiled passes of their own, and ", "none of its {}calls can be part of compiled code"
    return apart + none.format("other ") if steps["compiled"] else none.format("")


def is_ours(compiled):
    """Do its graphs go to no backend of somebody else?"""
    return compiled.kwargs["backend"] is None or isinstance(compiled.kwargs["backend"], str)


def describe_end(end):
    """Where a part of a graph ends before its graph does: the line, what of it stands between, and why; "": that is not known."""
    if end is None:
        return ""
    why, filename, line, column, end_column = end
    text = linecache.getline(filename, line)
    text = (text.encode()[column:end_column].decode(errors="replace") if column >= 0 else text).strip()
    return f"{filename}:{line}" + (f": {text}" if text else "") + f": {why}"


def _row(place, version, ends=""):
    recording, graph, part, parts = place
    return {"recording": recording, "graph": graph, "part": part, "parts": parts, "ends": ends,
            "compiled": version["compiled"], "reason": version["reason"],
            "settled": version.get("settled", True), "waits": version.get("waits", False), "as_fast": version.get("as_fast", False), "native_calls": version.get("native", 0), "library_calls": version.get("extern", 0),
            "kernels": version.get("kernels", 0), "launches": version.get("runs", 0),
            "compile_ms": version["total_ns"] / 1e6 if version.get("total_ns") else None, "not_fused": _fold((version.get("not_fused") or "").splitlines()),
            "launch_us": _measured_us(version, "launch_ns"), "steps_us": _measured_us(version, "steps_ns"),
            # Kept between calls: what was made of weights, memory for intermediates, machine code that no graph before had.
            "weights_bytes": (version.get("frozen") or {}).get("bytes", 0), "scratch_bytes": version.get("scratch_bytes", 0),
            "code_bytes": version.get("code_bytes", 0)}


def _measured_us(version, key):
    """None: it was not measured."""
    return version[key] / 1e3 if version.get(key) else None


def _fold(lines):
    """Equal lines once, with their number."""
    return [line + (f" ({number} times)" if number > 1 else "") for line, number in collections.Counter(lines).items()]


def none(compiled, found):
    """Why there are no rows, or none that says more than that; "": there are."""
    if compiled is None:
        return "none: this function is not compiled; pass what kintsugi.compile() returned, after some calls, to see its kernels"
    general = obstacle(compiled)
    if any(row["compiled"] or row["reason"] != general for row in found):
        return ""
    return f"none: {general or 'no graph was reached yet by a call that could run it compiled'}"


def obstacle(compiled):
    """Why no graph of the function can have been compiled so far; "": nothing stands in the way."""
    from ._config import config

    backend, options, stats = compiled.kwargs["backend"], compiled.kwargs["options"] or {}, compiled.stats()
    if backend is not None:
        from . import _logs

        failed = "".join(f"; {text}" for text in _logs.backend_failures({compiled.__name__, stats["name"]}))
        graphs, parts = (sum(entry.get(key, 0) for entry in stats["variants"]) for key in ("graphs", "subgraphs"))
        divided = f", which got {_count(graphs, 'graph')} in {parts} parts" if parts > graphs else ""
        return f"graphs run with backend={repr(backend) if isinstance(backend, str) else getattr(backend, '__name__', type(backend).__name__)}{divided}{failed}"
    if not options.get("kernels", config.kernels):
        return "they are switched off (" + ("options={'kernels': False})" if "kernels" in options else "kintsugi.config.kernels = False)")
    if not stats["calls"]:
        return "it was not called yet"
    if not stats["replays"]:
        eager = "; ".join(f"{number} ran eagerly: {why}" for why, number in stats["eager_calls"].items())
        return (f"no recorded call has come again so far ({_count(stats['calls'], 'call')}, {stats['recordings']} recorded"
                + (f", {eager})" if eager else ")") + ". Graphs are compiled when one does, or at once with options={'warm': True}")
    return "" if any(entry["graphs"] for entry in stats["variants"]) else "no torch call was recorded"


def describe_calls(compiled):
    """How the calls of a compiled function were done, as one line, and steps of optimizers, as another if there are any."""
    stats = compiled.stats()
    steps, eager = stats["replays"] - stats["compiled_calls"], sum(stats["eager_calls"].values())
    again = stats["calls"] < stats["replays"] + stats["recordings"] + eager  # a call that was recorded was done again by compiled code
    parts = [(stats["compiled_calls"], "ran compiled code"), (max(steps, 0), "ran step by step"),
             (stats["recordings"], "recorded first" if again else "recorded"), (eager, "ran eagerly")]
    told = ", ".join(f"{number} {what}" for number, what in parts if number)
    return f"Calls: {stats['calls']}" + (f" ({told}; the last one: {stats['last_call']})" if told else "") + _describe_steps(stats["optimizer_steps"])


def _describe_steps(steps):
    """Those of the library's optimizers that replays came to."""
    parts = [f"{steps['compiled']} in one compiled pass each"] * (steps["compiled"] > 0)
    parts += [f"{steps['eager']} by PyTorch's own code (the last one: {steps['reason']})"] * (steps["eager"] > 0)
    return "\nOptimizer Steps: " + ", ".join(parts) if parts else ""


def _count(number, noun):
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def describe(row):
    """A row as one line."""
    part = f", part {row['part']} of {row['parts']}" if row["parts"] > 1 else ""
    where = f"graph {row['graph']} of recording {row['recording']}{part}: "
    if not row["compiled"]:
        return where + "runs step by step" + (f": {row['reason']}" if row["reason"] else "")
    calls = f"{_count(row['native_calls'], 'call')} in {_count(row['kernels'], 'kernel')}, {row['library_calls']} of PyTorch's"
    tried = f", {row['launch_us']:.1f} us against {row['steps_us']:.1f} us step by step" if row["steps_us"] and row["launch_us"] else ""
    kept = row["weights_bytes"] + row["scratch_bytes"]
    keeps = f", keeps {kept / 1e6:.1f} MB" if kept >= 100_000 else ""
    return f"{where}{calls}, compiled in {row['compile_ms']:.1f} ms{tried}{keeps}"
