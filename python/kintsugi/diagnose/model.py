"""What a graph break costs where it cannot be measured, since the tensor calls around it cannot be run apart from the program: a model with two numbers of
this machine. Each break ends a launch and begins another; what goes from one graph to the next is written and read again.
"""

import functools

import torch

from .. import _api, fx
from . import anatomy, timing

SECONDS = 0.05  # of measuring the boundary


def price(dump, steps):
    """Seconds that the breaks at these steps of a recording cost in a call."""
    return len(steps) * boundary() + 2 * sum(crossing(dump, step) for step in steps) / (_limits()["gb_per_s"] * 1e9)


def crossing(dump, step):
    """Bytes that the graph behind a step is given by graphs before it."""
    behind = next((one["graph"] for one in dump["steps"][step:] if one["graph"]), 0)
    if not behind:
        return 0
    made = {vid for graph in dump["graphs"][:behind - 1] for vid in graph["outputs"]}
    return sum(_bytes(entry["note"]) for entry in dump["graphs"][behind - 1]["inputs"] if entry["vid"] in made)


def _bytes(note):
    parts = fx.parse_note(note)
    if parts is None:
        return 0
    dtype, sizes, _, _ = parts
    return torch.empty(0, dtype=dtype).element_size() * functools.reduce(lambda a, b: a * b, sizes, 1)


@functools.lru_cache(maxsize=1)
def boundary():
    """Seconds that one break costs on little data: the difference of two functions that differ in nothing else."""
    engine = _api.start_engine()

    def broken(x):
        x = torch.sin(x) * 2
        torch._dynamo.graph_break()
        return torch.cos(x) + 1

    def whole(x):
        x = torch.sin(x) * 2
        return torch.cos(x) + 1

    x, ways = torch.ones(8), {}
    with torch.no_grad():
        for fn in (broken, whole):
            compiled = engine.Compiled(fn)
            ways[fn.__name__] = functools.partial(compiled, x)
            timing.warm(ways[fn.__name__], (compiled,))
        times = timing.steady(ways, SECONDS * len(ways))
    return max(0.0, times["broken"].typical - times["whole"].typical)


@functools.lru_cache(maxsize=1)
def _limits():
    return anatomy.limits()
