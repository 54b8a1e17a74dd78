"""Loops and lists that are as long as a size which has never differed, where another one does: the size is fixed, and the graph is compiled as if the loop were
written out. If it differs later, it is open, and few recordings are enough."""

import math

import pytest
import torch
from launches import engine, kintsugi

pytestmark = pytest.mark.usefixtures("kernels")
LENGTHS = [24, 32, 17, 40, 9, 28, 33, 12, 21, 36]


def slopes_of(n):
    start = 2 ** (-(2 ** -(math.log2(n) - 3)))
    if math.log2(n).is_integer():
        return [start * start**i for i in range(n)]
    power = 2 ** math.floor(math.log2(n))
    return slopes_of(power) + slopes_of(2 * power)[0::2][: n - power]


def alibi(x):
    """Slopes by head, a bias by length, as in models with ALiBi."""
    q = x.transpose(1, 2)
    slopes = torch.tensor(slopes_of(x.shape[2]))
    places = torch.arange(x.shape[1])
    bias = (places[None] - places[:, None]).abs() * slopes[:, None, None]
    return torch.softmax(q @ q.transpose(-1, -2) - bias, -1)


def number_first(x):
    n = x.shape[2]
    half, scale = n // 2, 1.0 / n
    weights = torch.tensor([scale * (i + half) for i in range(n)])
    return x * weights[:, None]


def masks(x):
    places = torch.arange(x.shape[1])
    near = [(places[None] - places[:, None]).abs() <= (h + 1) * 4 for h in range(x.shape[2])]
    return x.sum((1, 2, 3), keepdim=True) * torch.stack(near)


def stacked(x):
    return torch.stack([torch.relu(x[:, :, h]) * (h + 1) for h in reversed(range(x.size(2)))], 1)


def groups(x):
    n = x.shape[-1] // 2
    return torch.stack([x[..., i * 2 : (i + 1) * 2].relu() for i in range(n)], 1)


def computed(x):
    """The heads of a tensor that the function computes itself."""
    y = torch.nn.functional.pad(x.relu() * 2, (0, 0, 0, 0, 0, 1))
    total = y[:, :, 0]
    for h in range(y.shape[2]):
        total = total * 0.5 + y[:, :, h] * h
    return total.tanh()


def batch(x):
    return torch.stack([x[i].sin() * (i + 1) for i in range(x.shape[0])])


def repeated(x):
    return (x * torch.tensor([0.5] * x.shape[-1])).tanh()


def paired(x):
    total = x[:, :, 0]
    for i, w in zip(range(x.shape[2]), [0.1] * x.shape[2]):
        total = total + x[:, :, i] * w
    return total


def nested(x):
    n = x.shape[3]
    table = torch.tensor([[1.0 if i == j else 0.5 for i in range(n)] for j in range(n)])
    return (x * table.sum(0) + table[0]).tanh()


def flags(x):
    return x.masked_fill(torch.tensor([i % 2 == 0 for i in range(x.shape[3])]), 0.0).sin()


PROGRAMS = [alibi, number_first, masks, stacked, groups, computed, batch, repeated, paired, nested, flags]
WITH_LENGTH = (alibi, masks)


def newest(compiled):
    return max(compiled.entries(), key=lambda entry: engine.dump(entry)["hits"])


def check(fn, compiled, *sizes):
    x = torch.randn(*sizes)
    torch.testing.assert_close(compiled(x), fn(x))


@pytest.mark.parametrize("fn", PROGRAMS)
def test_it_is_compiled(fn):
    compiled = kintsugi.compile(fn, options={"warm": True})
    for n in LENGTHS * 2:
        check(fn, compiled, 2, n, 4, 4)
    stats = compiled.stats()
    assert stats["recordings"] <= 2 and stats["bail_outs"] <= 1, stats
    assert stats["last_call"] == "compiled" and stats["compiled_calls"] >= 15, stats
    graphs = [subgraph["inputs"] for subgraph in engine.kernels(newest(compiled)) if subgraph["versions"]]
    if fn is not computed:  # whose first recording goes on with a branch
        assert graphs == [2 if fn in WITH_LENGTH else 1], "something is made outside of the graph, or it is in parts"


@pytest.mark.parametrize("fn", PROGRAMS)
def test_it_differs_later(fn):
    compiled = kintsugi.compile(fn, options={"warm": True})
    for n in LENGTHS:
        check(fn, compiled, 2, n, 4, 4)
    for k in range(30):
        check(fn, compiled, 2 + k % 4, LENGTHS[k % 7], 3 + k % 3, 4 if fn in (nested, flags) else 4 + 2 * (k % 2))
    for n in LENGTHS:
        check(fn, compiled, 2, n, 4, 4)
    stats = compiled.stats()
    assert stats["recordings"] <= 5, stats
    assert not [e for e in engine.events() if e["event"] == "bug" and e["name"] == compiled.__name__]


def test_numbers_of_a_size_that_was_fixed_are_constants():
    """Also those that were computed, or unpacked from the shape, before the loop showed that the size is one of the program."""

    def fn(x):
        b, t, h, d = x.shape
        pair = (h * 2, d)
        total = [0.0] * 3
        for i in range(h):
            total[0] += i
        return x * torch.tensor([pair[0] / d, float(h), total[0]]).sum() + t, pair, h, {h: t}

    compiled = kintsugi.compile(fn, options={"warm": True})
    for n in LENGTHS:
        x = torch.randn(2, n, 4, 4)
        got, expected = compiled(x), fn(x)
        torch.testing.assert_close(got[0], expected[0])
        assert got[1:] == expected[1:]
    assert compiled.stats()["recordings"] == 2


def test_a_marked_size_stays_open():
    def fn(x):
        total = x[:, 0]
        for i in range(x.shape[1]):
            total = total + x[:, i] * i
        return total

    compiled = kintsugi.compile(fn)
    for n, m in ((5, 7), (5, 9), (5, 8), (6, 8), (4, 8)):
        x = torch.randn(2, n, m)
        x._dynamo_dynamic_indices = {1}  # as torch._dynamo.mark_dynamic does
        torch.testing.assert_close(compiled(x), fn(x))
    assert compiled.stats()["recordings"] == 2
