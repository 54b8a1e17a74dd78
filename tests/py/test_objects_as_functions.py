"""Modules and other objects with a __call__ in Python, given to C functions that call them."""

import functools
import itertools

import pytest
import torch
from torch import nn

import kintsugi


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
