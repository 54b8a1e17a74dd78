"""locals(), vars() and texts that are made of them."""
import sys

import torch

from kincorpus.case import T, case, glob

SCALE = 2.0


def look():
    return sys._getframe(1).f_locals


@case(mutate=glob(3, SCALE=3.0))
def reads_locals(x):
    y = x * SCALE
    names = locals()
    return names["x"] + names["y"], sorted(names), len(vars())


@case(mutate=glob(3, SCALE=3.0))
def locals_are_one_dict(x):
    y = x * SCALE
    names = locals()
    before = list(names)
    z = y + 1
    again = locals()
    del y
    return names is again, before, list(names), list(locals()), names.get("z"), z


@case(mutate=glob(3, SCALE=3.0))
def locals_with_cells(x):
    k = SCALE

    def inner(y):
        z = y * k
        return {name: v for name, v in locals().items() if name != "y"}, z
    k = k + 1
    names, z = inner(x)
    outer = {n: v for n, v in locals().items() if isinstance(v, float)}
    return names, outer, z


@case(args=lambda i, s: (T(i, 3), i % 2, "ab"), mutate=glob(3, SCALE=3.0), replays=2)
def formats_locals(x, n, name):
    scale = SCALE
    text = "{name}-{n:02d} {scale!r}".format(**locals())
    return x * scale, text, "{}{}".format(name, name, x), "{1}, {0}".format("a", 2, t=x), "{n.real}".format_map(locals())


@case(mutate=glob(3, SCALE=3.0))
def config_of_locals(x, a=1, b=None, c="c"):
    config = {k: v for k, v in locals().items() if k != "x"}
    config.update(d=SCALE)
    return x * config["a"] * config["d"], config


@case(mutate=glob(3, SCALE=3.0), replays=0)
def locals_before_a_look(x):
    names = locals()
    y = x * SCALE
    look()
    z = names.get("y")
    return z, sorted(names), y is z


@case(mutate=glob(3, SCALE=3.0), replays=0)
def locals_returned(x):
    y = x * SCALE
    if x.sum() > 100:
        y = y + 1
    names = locals()
    torch.sin(y)
    return names
