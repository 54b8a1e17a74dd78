"""Counts graphs: `python graph_count.py stock|kintsugi NAME ...` prints one JSON line for each program.

accepts  does fullgraph=True take it; else the first line of the error, and the user's line
graphs   how many graphs the backend got: {"full": under fullgraph, "plain": without}
explain  [graph_count, graph_break_count]; kintsugi alone: stats, its own count of graphs
equal    is what compiled calls return what eager returns
"""
import json
import logging
import pathlib
import sys
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from graph_programs import PROGRAMS  # noqa: E402


def flat(value):
    leaves = [getattr(v, "inner", v) if type(v).__name__ == "Wrapped" else v for v in torch.utils._pytree.tree_leaves(value)]
    return [v.detach() if isinstance(v, torch.Tensor) else v if isinstance(v, (str, type(None))) else torch.as_tensor(v) for v in leaves]


def same(a, b):
    if hasattr(a, "__next__"):
        a, b = list(a), list(b)
    a, b = flat(a), flat(b)
    return len(a) == len(b) and all(
        torch.equal(x.as_subclass(torch.Tensor), y.as_subclass(torch.Tensor)) if isinstance(x, torch.Tensor) and not x.is_nested
        else x == y if not isinstance(x, torch.Tensor) else all(map(torch.equal, x.unbind(), y.unbind())) for x, y in zip(a, b))


class Backend:
    def __init__(self):
        self.graphs, self.ops = 0, []

    def __call__(self, gm, inputs):
        self.graphs += 1
        self.ops.append(sum(n.op.startswith("call") for n in gm.graph.nodes))
        return gm


def of(engine):
    """compile, explain, reset of the engine."""
    if engine == "kintsugi":
        import kintsugi

        return kintsugi.compile, kintsugi.explain, kintsugi.reset
    return torch.compile, torch._dynamo.explain, torch._dynamo.reset


def one(name, engine):
    compile, explain, reset = of(engine)
    row = {"name": name}
    expected = None
    try:
        fn, args = PROGRAMS[name]()
        expected = fn(*args)
        if hasattr(expected, "__next__"):
            expected = list(expected)
    except Exception as error:
        row["eager"] = f"{type(error).__name__}: {error}"[:200]
    row["graphs"] = {}
    for kind, full in (("full", True), ("plain", False)):
        reset()
        backend = Backend()
        fn, args = PROGRAMS[name]()
        compiled = compile(fn, fullgraph=full, backend=backend)
        try:
            values = [compiled(*args) for args in ([args] * 3 if args else [()])]
            values = [list(v) if hasattr(v, "__next__") else v for v in values]
            if full:
                row["accepts"] = True
            row["equal"] = row.get("equal", True) and all(same(expected, v) for v in values)
        except Exception as error:
            if full:
                row["accepts"] = False
                row["error"] = f"{type(error).__name__}: " + str(error).partition("\n")[0][:160]
                row["line"] = "graph_programs.py" in str(error)
            else:
                row["raised"] = f"{type(error).__name__}: {error}"[:300]
        row["graphs"][kind] = backend.graphs
        row.setdefault("ops", {})[kind] = backend.ops
        if engine == "kintsugi" and not full:
            import kintsugi

            stats = kintsugi.stats(compiled)
            row["stats"] = [sum(entry["graphs"] for entry in stats["variants"]), stats["breaks"]]
    reset()
    fn, args = PROGRAMS[name]()
    try:
        out = explain(fn)(*args)
        row["explain"] = [out.graph_count, out.graph_break_count]
        row["reasons"] = [str(r.reason).partition("\n")[0] for r in out.break_reasons]
    except Exception as error:
        row["explain"] = f"{type(error).__name__}: {error}"[:200]
    return row


if __name__ == "__main__":
    engine = sys.argv[1]
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch._dynamo

    if engine == "kintsugi":
        import kintsugi

        kintsugi.install()
    for name in sys.argv[2:] or PROGRAMS:
        print(json.dumps(one(name, engine)), flush=True)
