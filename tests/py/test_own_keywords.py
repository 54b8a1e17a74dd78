"""**kwargs of the compiled function itself: a new dict in each call, so what is taken out or put in ends nothing."""

import gc

import pytest
import torch

import kintsugi
from kintsugi import _kintsugi as engine


def inner(x, scale=1.0, **rest):
    return x * scale + len(rest), sorted(rest)


def popped(x, **kwargs):
    flag = kwargs.pop("flag", False)
    missing = kwargs.pop("missing", 3)
    out = inner(x, **kwargs)
    return out, flag, missing


def replaced(x, **kwargs):
    kwargs["scale"] = kwargs.get("scale", 1.0) * 2
    kwargs.setdefault("more", None)
    kwargs.update(last=1)
    del kwargs["gone"]
    return inner(x, **kwargs), list(kwargs)


def returned(x, **kwargs):
    kwargs["y"] = x + 1
    return kwargs


def captured(x, **kwargs):
    def read():
        return kwargs["scale"] * x

    kwargs.pop("flag")
    return read(), kwargs


def looped(x, *args, **kwargs):
    for name in list(kwargs):
        if name.startswith("drop"):
            x = x + kwargs.pop(name)
    return x, kwargs, args


def unpacked(x, **kwargs):
    return dict(kwargs, z=1), {**kwargs}, [*kwargs.items()], "flag" in kwargs, len(kwargs), bool(kwargs)


PROGRAMS = [popped, replaced, returned, captured, looped, unpacked]
KEYWORDS = {"flag": True, "scale": 2.0, "gone": None, "drop_a": 1, "drop_b": 2}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_as_eager_in_one_epoch(fn):
    compiled = kintsugi.compile(fn)
    x = torch.randn(4)
    handed = dict(KEYWORDS)
    for _ in range(4):
        assert same(compiled(x, **handed), fn(x, **handed))
        assert handed == KEYWORDS
    (entry,) = compiled.entries()
    assert engine.dump(entry)["epochs"] == 1
    assert same(compiled(x, **dict(reversed(KEYWORDS.items()))), fn(x, **dict(reversed(KEYWORDS.items()))))


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_left_before_each_step(fn):
    compiled = kintsugi.compile(fn)
    x = torch.randn(4)
    compiled(x, **KEYWORDS)
    steps = len(engine.dump(compiled.entries()[0])["steps"])
    try:
        for k in range(steps):
            engine.force_exit(k)
            assert same(compiled(x, **KEYWORDS), fn(x, **KEYWORDS)), k
    finally:
        engine.force_exit(None)


def test_sizes_behind_a_popped_keyword_stay_the_guards():
    """As decorators of transformers have it: a test of sizes in a later epoch would cut the graph in side traces."""
    weight = torch.randn(8, 8)

    def layer(x, **kwargs):
        return torch.relu(x @ weight).view(x.shape[0] * 2, -1)

    def fn(self, **kwargs):
        flag = kwargs.pop("flag", None)
        return layer(self, **kwargs), flag

    compiled = kintsugi.compile(fn)
    for n in [5, 7, 9, 4, 12, 6]:
        x = torch.randn(n, 8)
        assert same(compiled(x, flag=True, other=1), fn(x, flag=True, other=1))
    stats = compiled.stats()
    assert stats["recordings"] == 2 and stats["branches"] == 0 and stats["bail_outs"] == 0


def test_what_a_keyword_held_dies_with_the_call():
    class Thing:
        alive = 0

        def __init__(self):
            Thing.alive += 1

        def __del__(self):
            Thing.alive -= 1

    def fn(x, **kwargs):
        kwargs.pop("thing")
        return x + 1

    compiled = kintsugi.compile(fn)
    for call in (fn, compiled, compiled, compiled):
        call(torch.zeros(1), thing=Thing())
        gc.collect()
        assert Thing.alive == 0
