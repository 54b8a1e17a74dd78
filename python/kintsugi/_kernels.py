"""What became of the graphs of a compiled function: rows for stats() and explain()."""


def rows(engine, compiled):
    """A dict for each version of each graph: graphs are compiled when they are first replayed, for each kind of inputs anew."""
    found = []
    for number, variant in enumerate(compiled.variants()):
        for graph, unit in enumerate(engine.kernels(variant), 1):
            found += [_row(number, graph, version) for version in unit["versions"]]
            if unit["reason"]:
                found.append(_row(number, graph, {"compiled": False, "reason": unit["reason"]}))
    return found


def _row(variant, graph, version):
    return {"recording": variant, "graph": graph, "compiled": version["compiled"], "reason": version["reason"],
            "native_calls": version.get("native", 0), "library_calls": version.get("extern", 0),
            "kernels": version.get("kernels", 0), "launches": version.get("runs", 0),
            "compile_ms": version.get("total_ns", 0.0) / 1e6,
            "launch_us": version.get("launch_ns", 0.0) / 1e3, "steps_us": version.get("steps_ns", 0.0) / 1e3}


def _count(number, noun):
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def describe(row):
    """A row as one line."""
    where = f"graph {row['graph']} of recording {row['recording']}: "
    if not row["compiled"]:
        return where + "runs step by step" + (f": {row['reason']}" if row["reason"] else "")
    calls = f"{_count(row['native_calls'], 'call')} in {_count(row['kernels'], 'kernel')}, {row['library_calls']} of PyTorch's"
    tried = f", {row['launch_us']:.1f} us against {row['steps_us']:.1f} us step by step" if row["steps_us"] else ""
    return f"{where}{calls}, compiled in {row['compile_ms']:.1f} ms{tried}"
