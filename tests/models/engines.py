"""The engines a model run can use: what compiles, and where its numbers come from.

kintsugi: the one under test, recording and replay alone, every bit as in eager. kintsugi_kernels: with kernels, which sum in another
order; used even where they are slower. stock: torch.compile(backend="eager"), for comparison and to prove that the runner itself
works without the extension. eager: no engine at all. stale, ulp, skip_state: engines that are wrong on purpose; the
runner's own tests use them.
"""
import torch

import bitwise


def size(value):
    """A number, whether it comes as such, by reason in a dict, or as the list of the things counted."""
    if isinstance(value, dict):
        return sum(value.values())
    return value if isinstance(value, (int, float)) else len(value)


def reasons(stats, events):
    """Why calls ran eagerly, why recordings failed or ended early: each once, in order."""
    found = [f"{count} eager: {why}" for why, count in stats["eager_calls"].items()]
    found += [f"nothing recorded: {e['reason']}" for e in events
              if e.get("event") == "record" and e.get("reason") and "entry" not in e]
    found += [f"bug in {e.get('where')}: {e.get('message')}" for e in events if e.get("event") == "bug"]
    found += [f"entry {v.get('number', i)} ends early: {v['reason']}"
              for i, v in enumerate(stats["variants"]) if v.get("reason")]
    return list(dict.fromkeys(found))


class Eager:
    name = "eager"
    close = None   # may floats differ, and by what (bitwise.py); None: not in a bit

    def compile(self, function):
        return function

    def stats(self, compiled):
        return {}


class Kintsugi:
    name = "kintsugi"
    close = None
    kernels = False

    def __init__(self):
        import kintsugi
        import kintsugi._kintsugi
        self.kintsugi = kintsugi

    def compile(self, function):
        self.kintsugi._kintsugi.events()   # those of earlier models
        self.kintsugi.config.kernels = self.kernels
        self.kintsugi._kintsugi.set_option("trials", 0)
        return self.kintsugi.compile(function)

    def stats(self, compiled):
        stats = self.kintsugi.stats(compiled)
        entries = [v for v in stats["variants"] if v]   # a dropped entry has no numbers
        row = {key: sum(size(v[key]) for v in entries) for key in ("graphs", "breaks", "guards", "ops", "bytes")}
        row["record_ms"] = sum(v["record_ms"] for v in entries)
        row["variants"] = len(entries)
        row["whole"] = sum(v.get("hits", 0) for v in entries)   # replays that ran to the end
        row["exits"] = size(stats["bail_outs"])
        for key in ("calls", "recordings", "replays", "guard_misses", "eager_calls", "deferred_effects"):
            row[key] = size(stats[key])
        row["reasons"] = reasons(stats, self.kintsugi._kintsugi.events())
        return row


class KintsugiKernels(Kintsugi):
    name = "kintsugi_kernels"
    close = staticmethod(bitwise.nearly)
    kernels = True

    def stats(self, compiled):
        row = super().stats(compiled)
        rows = self.kintsugi.stats(compiled)["kernels"]
        row["launches"] = sum(r["launches"] for r in rows)
        row["native"], row["extern"] = (sum(r[key] for r in rows) for key in ("native_calls", "library_calls"))
        row["reasons"] += sorted({f"step by step: {r['reason']}" for r in rows if r["reason"] and not (r["waits"] or r["as_fast"])})
        return row


class KintsugiCudaGraphs(Kintsugi):
    """On a GPU: graphs as CUDA graphs, whether or not their calls are as fast one by one. Libraries may choose other algorithms in captures."""
    name = "kintsugi_cuda_graphs"
    close = staticmethod(bitwise.nearly)
    kernels = True

    def __init__(self):
        super().__init__()
        from kintsugi import _cuda_graphs
        self.graphs = _cuda_graphs
        self.graphs.Graph.pays = lambda graph, inputs: True

    def compile(self, function):
        super().compile(function)
        return self.kintsugi.compile(function, mode="reduce-overhead")

    def stats(self, compiled):
        launches = sum(device.launches for device in self.graphs._devices.values())
        events = self.kintsugi._kintsugi.events()
        row = super().stats(compiled)
        row["launches"] = launches
        row["reasons"] += sorted({e["reason"] for e in events if e.get("event") == "fallback"})
        row["reasons"] += [f"bug in {e.get('where')}: {e.get('message')}" for e in events if e.get("event") == "bug"]
        return row


class Stock:
    name = "stock"
    close = None

    def compile(self, function):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        return torch.compile(function, backend="eager")

    def stats(self, compiled):
        counters = torch._dynamo.utils.counters
        return {"graphs": counters["stats"]["unique_graphs"], "breaks": sum(counters["graph_break"].values())}


class Stale(Eager):
    """Answers the second call with the first call's result."""
    name = "stale"

    def compile(self, function):
        kept = []

        def call(*args, **kwargs):
            if not kept:
                kept.append(function(*args, **kwargs))
            return kept[0]
        return call


class Ulp(Eager):
    """The last bit of one element of one tensor is wrong from the second call on."""
    name = "ulp"

    def compile(self, function):
        calls = []

        def call(*args, **kwargs):
            out = function(*args, **kwargs)
            calls.append(1)
            tensor = out if isinstance(out, torch.Tensor) else out[0]
            if len(calls) > 1:
                with torch.no_grad():
                    flat = tensor.view(torch.int32) if tensor.dim() else tensor.reshape(1).view(torch.int32)
                    flat.reshape(-1)[-1] ^= 1
            return out
        return call


class SkipState(Eager):
    """Right results, but what the call does to the module is lost from the second call on."""
    name = "skip_state"

    def compile(self, function):
        calls = []

        def call(*args, **kwargs):
            calls.append(1)
            if len(calls) == 1:
                return function(*args, **kwargs)
            before = {name: value.clone() for name, value in function.named_buffers()}
            out = function(*args, **kwargs)
            for name, value in function.named_buffers():
                value.data.copy_(before[name])   # through .data: autograd must not notice
            return out
        return call


ENGINES = {cls.name: cls for cls in (Kintsugi, KintsugiKernels, KintsugiCudaGraphs, Stock, Eager, Stale, Ulp, SkipState)}
