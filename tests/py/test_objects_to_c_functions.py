"""C functions that are given objects whose __iter__ is a plain Python function (a ModuleList, a ParameterList): map, reduce, sum, OrderedDict ... go through what it returns."""
import collections
import functools
import itertools

import pytest
import torch
from torch import nn

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


class Items:
    def __init__(self, items):
        self.held = items

    def __iter__(self):
        return iter(self.held)


class Sized(Items):
    def __len__(self):
        return len(self.held)


class Made(Items):
    """Its __iter__ returns a generator, as that of a ParameterList."""
    def __iter__(self):
        return (item * 2 for item in self.held)


class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, x, more=1):
        return x * self.by + more


torch.manual_seed(0)
LAYERS = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
WEIGHTS = nn.ParameterList([nn.Parameter(torch.full((2,), float(i))) for i in range(3)])
NUMBERS, SIZED, TENSORS, MADE = Items([1.0, 2.0]), Sized([3.0, 4.0]), Items([torch.ones(2), torch.ones(2)]), Made([torch.ones(2), torch.ones(2)])
SCALE = Scale(2)

PROGRAMS = {
    "map of a ModuleList": lambda x: list(map(lambda layer: layer(x), LAYERS)),
    "for of a map": lambda x: [y for y in map(lambda layer: layer(x), LAYERS)],
    "map of a ParameterList": lambda x: list(map(lambda w: x + w, WEIGHTS)),
    "map of two": lambda x: list(map(lambda a, b: x + a * b, NUMBERS, SIZED)),
    "filter": lambda x: [x * n for n in filter(lambda n: n > 1, NUMBERS)],
    "starmap": lambda x: list(itertools.starmap(lambda a, b: a + b, Items([(x, x)]))),
    "accumulate": lambda x: list(itertools.accumulate(TENSORS)),
    "islice": lambda x: list(itertools.islice(MADE, 1)),
    "pairwise": lambda x: list(itertools.pairwise(TENSORS)),
    "reduce of a ModuleList": lambda x: functools.reduce(lambda y, layer: layer(y), LAYERS, x),
    "reduce of a ParameterList": lambda x: functools.reduce(lambda a, b: a * x + b, WEIGHTS),
    "reduce by a torch function": lambda x: functools.reduce(torch.add, TENSORS, x),
    "reduce by one, of a generator": lambda x: functools.reduce(torch.mul, MADE, x),
    "sum": lambda x: x + sum(WEIGHTS),
    "sum from a tensor": lambda x: sum(MADE, x),
    "list": lambda x: torch.stack(list(WEIGHTS)) * x,
    "tuple": lambda x: torch.stack(tuple(MADE)) * x,
    "any": lambda x: x if any(w.requires_grad for w in WEIGHTS) else x + 1,
    "unpacking": lambda x: [*WEIGHTS, x],
    "deque": lambda x: [x * w for w in collections.deque(TENSORS, 1)],
    "OrderedDict": lambda x: collections.OrderedDict(Items([("a", x), ("b", x + 1)])),
    "product": lambda x: [x * a * b for a, b in itertools.product(NUMBERS, NUMBERS)],
    "fromkeys": lambda x: dict.fromkeys(NUMBERS, x),
    "partial of an object": lambda x: list(map(functools.partial(SCALE), [x, x + 1])),
    "partial with a keyword": lambda x: list(map(functools.partial(SCALE, more=x), TENSORS)),
    "partial of a module": lambda x: list(map(functools.partial(LAYERS[0]), [x, x + 1])),
    "reduce by a partial": lambda x: functools.reduce(functools.partial(SCALE), [x, x + 1]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_one_graph(name):
    fn = PROGRAMS[name]
    compiled = kintsugi.compile(fn, fullgraph=True)
    for n in range(4):
        x = torch.full((2,), float(n))
        assert repr(compiled(x)) == repr(fn(x))


def test_object_that_changes():
    """Its items, its length, and what a partial object calls are asked for in each call."""
    things, scale = Sized([1.0]), Scale(2)

    def fn(x):
        return sum(map(lambda n: x * n, things)), functools.reduce(lambda a, b: a + b, things, x), functools.partial(scale, more=0)(x)

    compiled, x = kintsugi.compile(fn), torch.ones(2)
    for items, by in (([1.0], 2), ([1.0], 2), ([1.0, 2.0], 3), ([5.0, 2.0], 3), ([1.0, 2.0, 3.0], 2)):
        things.held, scale.by = items, by
        assert repr(compiled(x)) == repr(fn(x))


@pytest.mark.parametrize("items", [[], [2.0]])
def test_reduce_without_a_call(items):
    def fn(x):
        return functools.reduce(lambda a, b: a + b, Items(items), x)

    compiled, x = kintsugi.compile(fn), torch.ones(2)
    for _ in range(3):
        assert torch.equal(compiled(x), fn(x))
