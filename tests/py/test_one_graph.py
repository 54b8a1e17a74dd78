"""Everyday code around tensors that must stay one graph, with no breaks and replayed whole."""
import collections
import functools
import pathlib
import sys

import pytest
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "models"))
kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)

from bitwise import difference  # noqa: E402

gelu = functools.partial(nn.functional.gelu, approximate="tanh")


class View:
    def __init__(self, n):
        self.n = n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        return i * 0.5

    def __iter__(self):
        i = 0
        try:
            while True:
                yield self[i]
                i += 1
        except IndexError:
            return


def merge_heads(x):
    y = x.view(2, 3, 2, 2).permute(0, 2, 1, 3).contiguous()
    return y.view(*(y.size()[:-2] + (6,))) + 1


def partial_activation(x):
    return gelu(x) * 2


def by_number(x):
    return x.max(-1)[0] + x.topk(1, -1)[0].sum() + abs(x)[:, 0]


def by_name(x):
    best = x.max(-1, keepdim=True)
    return (x - best.values) * x.sort(-1).values + best.indices


def starred(x):
    batch, *rest = x.shape
    return x.reshape(batch * rest[0]) * rest[-1]


def unpacked_generator(x):
    a, b = (y.relu() for y in (x, x * 2))
    return a + b


def over_a_view(x):
    for v in View(3):
        x = x + v
    return x.relu()


@pytest.mark.parametrize("fn", [merge_heads, partial_activation, by_number, by_name, starred, unpacked_generator, over_a_view])
def test_one_graph(fn):
    compiled = kintsugi.compile(fn)
    for i in range(4):
        x = torch.randn(2, 12 if fn is merge_heads else 5, generator=torch.Generator().manual_seed(i))
        assert difference(fn(x), compiled(x)) is None
    stats = kintsugi.stats(compiled)
    entry, = stats["variants"]
    assert (entry["graphs"], stats["breaks"], entry["hits"]) == (1, 0, 3), stats


@pytest.mark.parametrize("leaves", [False, True])
def test_generator_with_tensors(leaves):
    """What it computes is in the graph, though it is suspended inside `try`; where it is left before its end, its `finally` runs inside of the graph."""
    ended = []

    def halves(x):
        try:
            yield x * 0.5
            yield x * 0.25
        finally:
            ended.append(0)

    def fn(x):
        for h in halves(x):
            x = x + h
            if leaves:
                break
        return x * 2
    compiled = kintsugi.compile(fn)
    x = torch.arange(4.0)
    for _ in range(3):
        assert torch.equal(fn(x), compiled(x))
    assert kintsugi.stats(compiled)["breaks"] == 0 and ended == [0] * 6


@pytest.mark.parametrize("close", [False, True])
def test_generator_that_closes_quietly(close):
    """Left inside `try`, whose handlers are for other exceptions than GeneratorExit: nothing of it runs."""
    def halves(x):
        try:
            yield x * 0.5
            yield x * 0.25
        except (IndexError, KeyError):
            print("handled")
        except TypeError:
            raise

    def fn(x):
        items = halves(x)
        for h in items:
            x = x + h
            break
        if close:
            items.close()
        return x * 2
    compiled = kintsugi.compile(fn, fullgraph=True)
    x = torch.arange(4.0)
    for _ in range(3):
        assert torch.equal(fn(x), compiled(x))
    assert kintsugi.stats(compiled)["breaks"] == 0


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_autograd_function_is_replayed_whole():
    """Each access to `apply` through super() makes a new bound method: it must not be asked whether it is the old one."""
    def fn(x):
        return Double.apply(x + 1) * 3
    compiled = kintsugi.compile(fn)
    for i in range(4):
        x, y = (torch.full((3,), float(i), requires_grad=True) for _ in range(2))
        a, b = fn(x), compiled(y)
        a.sum().backward()
        b.sum().backward()
        assert torch.equal(a, b) and torch.equal(x.grad, y.grad)
    entry, = kintsugi.stats(compiled)["variants"]
    assert (entry["hits"], entry["exits"]) == (3, 0)


def extended(x, items):
    found = [x]
    found.extend(items(x))
    found.append(x)
    return found


def added_up(x):
    numbers = [1, x / 2]
    numbers = numbers + [x, 4]
    numbers.append(2.5)
    return sum(numbers)


def inserted(x):
    found = collections.deque([x, x + 1], maxlen=5)
    found.insert(0, x * 3)
    found.insert(1, "text")
    return found[0] + found[2]


@pytest.mark.parametrize("fn", [
    lambda x: sum([1, 2, 3, x]), lambda x: sum([x, 1, x], 2.5), lambda x: sum((v for v in (1, x, 2)), x * 2), lambda x: sum(v for v in (1, x, 2.5)), added_up,
    lambda x: sum(v * 2 for v in [True, 3, x, x + 1]), lambda x: x + len(x) + x.__len__(), lambda x: [sum([1, 2]), sum([0.5, 2]) * x],
    lambda x: extended(x, lambda x: map(lambda v: v + 1, [x, x * 2])), lambda x: extended(x, lambda x: map(torch.sin, [x, x * 2])),
    lambda x: extended(x, lambda x: (v + 1 for v in [x, x * 2])), lambda x: extended(x, lambda x: filter(lambda v: v.dim() == 1, [x, x.sum(), x])),
    lambda x: extended(x, lambda x: (v for v in ())), inserted])
def test_numbers_among_tensors_and_iterators_that_lists_take(fn):
    compiled = kintsugi.compile(fn, fullgraph=True)
    for x in (torch.ones(3), torch.ones(3), torch.arange(3.0), torch.ones(5), torch.ones(5), torch.ones(4)):
        expected, found = fn(x), compiled(x)
        assert type(found) is type(expected)
        for a, b in zip(found, expected, strict=True) if isinstance(found, list) else [(found, expected)]:
            assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    assert kintsugi.stats(compiled)["breaks"] == 0
