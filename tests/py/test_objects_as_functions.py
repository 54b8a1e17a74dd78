"""Modules and other objects with a __call__ in Python, given to C functions that call them."""

import functools
import itertools

import pytest
import torch
from torch import nn

import kintsugi
from kintsugi._api import engine_of
from kintsugi._engine import engine


class Scaled:
    def __init__(self, by):
        self.by = by
        self.calls = 0

    def __call__(self, x, y=0, *, z=0):
        self.calls += 1
        return x * self.by + y + z


LAYER = nn.Sequential(nn.ReLU(), nn.Tanh())
KEPT = Scaled(2)


def module(x):
    return list(map(LAYER, [x, x - 1]))


def loop(x):
    total = x
    for y in map(KEPT, [x, x + 1], (3, 4)):
        total = total + y
    return total, KEPT.calls


def made_inside(x):
    scaled = Scaled(3)
    return sum(map(scaled, [x, x]), x), scaled.calls


def between(x):
    return functools.reduce(Scaled(2), [x, x + 1, 5]), list(itertools.accumulate([x, x, x], Scaled(3))), [*itertools.starmap(KEPT, [(x, 1), (x, x)])]


def keys(x):
    return x * 2, sorted([3, 1, 2], key=Scaled(-1)), max([1, 5, 3], key=Scaled(-1)), list(filter(Scaled(1), [0, 1, 2]))


@pytest.mark.parametrize("fn", [module, loop, made_inside, between, keys], ids=lambda fn: fn.__name__)
def test_stays_in_one_graph(fn):
    compiled = kintsugi.compile(fn, fullgraph=True)
    for i in range(5):
        x, KEPT.calls = torch.ones(2 + i // 3) + i, i
        expected, KEPT.calls = fn(x), i
        assert str(compiled(x)) == str(expected)
    assert kintsugi.stats(compiled)["breaks"] == 0


def test_another_call_of_the_class_or_another_state_is_noticed():
    class Adds:
        by = 1

        def __call__(self, x):
            return x + self.by

    adds = Adds()
    compiled = kintsugi.compile(lambda x: list(map(adds, [x, x])))

    def gives(number):
        return torch.equal(torch.stack(compiled(torch.zeros(2))), torch.full((2, 2), number))

    assert gives(1.0) and gives(1.0)
    adds.by = 7
    assert gives(7.0)
    Adds.__call__ = lambda self, x: x + 50
    assert gives(50.0)
    adds.__call__ = lambda x: x  # calls look for it in the class
    assert gives(50.0)
    Adds.__call__ = torch.cos  # a C function is no method
    assert gives(1.0)


def of_a_generator(x):
    return LAYER(*(x - i for i in range(1))), KEPT(*(x + i for i in range(2))), KEPT.calls


def of_a_generator_with_keywords(x):
    return KEPT(*(x + i for i in range(2)), z=x.sum()), KEPT.calls


def made_inside_of_a_generator(x):
    scaled = Scaled(3)
    return scaled(*(x * i for i in (1, 2))), scaled.calls


@pytest.mark.parametrize("fn", [of_a_generator, of_a_generator_with_keywords, made_inside_of_a_generator])
def test_a_call_with_the_items_of_a_generator_goes_on_into_the_object(fn):
    compiled = kintsugi.compile(fn)
    for size in (2, 2, 2, 3):
        x = torch.randn(size)
        KEPT.calls = 0
        wanted = fn(x)
        KEPT.calls = 0
        given = compiled(x)
        assert given[-1] == wanted[-1]
        assert all(torch.equal(a, b) for a, b in zip(given[:-1], wanted[:-1], strict=True))
    steps = engine.dump(engine_of(compiled).entries()[0])["steps"]
    assert not [s["text"] for s in steps if "opaque" in s["flags"]]


def test_a_weight_norm_leaves_a_graph_whole():
    """PyTorch's parametrizations call their first module with the items of a generator."""
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)))
    compiled, x = kintsugi.compile(model), torch.randn(3, 4)
    for _ in range(3):
        assert torch.equal(compiled(x), model(x))
    assert not [s["text"] for s in engine.dump(engine_of(compiled).entries()[0])["steps"] if "opaque" in s["flags"]]
