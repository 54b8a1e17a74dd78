"""Sizes that meet numbers of modules, branches that sizes decide, and batches of one: one graph serves them."""

import pytest
import torch

import kintsugi

pytestmark = pytest.mark.usefixtures("kernels")


class GroupedHeads(torch.nn.Module):
    """Keys and values are repeated for groups of heads; a batch of one takes another way."""

    def __init__(self):
        super().__init__()
        self.q, self.kv, self.groups, self.dim = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32), 2, 8

    def forward(self, x):
        batch, length, _ = x.shape
        places = torch.arange(length)[None]
        if batch != places.shape[0]:
            places = places.expand(batch, -1)
        shape = x.shape[:-1]
        q = self.q(x).view(*shape, -1, self.dim).transpose(1, 2)
        k, v = (y.view(*shape, -1, self.dim).transpose(1, 2) for y in self.kv(x).chunk(2, -1))
        k, v = (y[:, :, None].expand(batch, y.shape[1], self.groups, length, self.dim).reshape(batch, y.shape[1] * self.groups, length, self.dim) for y in (k, v))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(*shape, -1)
        return y + places[..., None]


class Patches(torch.nn.Module):
    """A grid of positions resized to how many patches the image has."""

    def __init__(self):
        super().__init__()
        self.patch_size = 4
        self.project = torch.nn.Conv2d(3, 8, 4, 4)
        self.places = torch.nn.Parameter(torch.randn(1, 8, 4, 4))

    def forward(self, x):
        height, width = x.shape[2] // self.patch_size, x.shape[3] // self.patch_size
        places = torch.nn.functional.interpolate(self.places, size=(height, width), mode="bicubic")
        return (self.project(x) + places).flatten(2).mean(-1)


def lengths(n):
    return [(1 + (7 * i) % 4, 5 + (11 * i) % 23) for i in range(n)]


PROGRAMS = {"heads": (GroupedHeads, [(torch.randn(b, n, 32),) for b, n in [(3, 20), *lengths(24)]]),
            "patches": (Patches, [(torch.randn(1 + i % 3, 3, 8 + 4 * (i * 5 % 7), 8 + 4 * (i * 3 % 5)),) for i in range(24)])}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all(name):
    make, inputs = PROGRAMS[name]
    torch.manual_seed(0)
    module = make().eval()
    compiled = kintsugi.compile(module, options={"warm": True})
    with torch.no_grad():
        for _ in range(2):
            for args in inputs:
                torch.testing.assert_close(compiled(*args), module(*args), rtol=1e-4, atol=1e-5)
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] <= 2 and stats["branches"] <= 1 and stats["bail_outs"] <= 2, stats
    assert stats["compiled_calls"] >= len(inputs), stats


def test_a_branch_on_a_size_leaves_others_open():
    torch.manual_seed(0)
    module = GroupedHeads().eval()
    compiled = kintsugi.compile(module, options={"warm": True})
    with torch.no_grad():
        for b, n in [(3, 20), (2, 11), (4, 15), (1, 9), (1, 17), (1, 30), (1, 6), (2, 8)]:
            x = torch.randn(b, n, 32)
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    stats = kintsugi.stats(compiled)
    assert stats["branches"] <= 1 and stats["bail_outs"] <= 2, stats
    parts = [k for k in stats["kernels"] if k["recording"] == stats["recordings"]]
    assert not any("needs a result" in k["ends"] for k in parts), parts


def test_one_after_another_size_is_open():
    """A batch of one that comes second is recorded once, with the batches that follow it."""

    def fn(x):
        return (x * 2).sum(1) + x.shape[0]

    compiled = kintsugi.compile(fn)
    for n in [5, 1, 4, 1, 7, 2]:
        x = torch.randn(n, 6)
        torch.testing.assert_close(compiled(x), fn(x))
    assert kintsugi.stats(compiled)["recordings"] == 2


@pytest.mark.parametrize("divisor", [4, 0])
def test_what_a_size_is_divided_by(divisor):
    class Windows(torch.nn.Module):
        size = divisor

        def forward(self, x):
            return x.sum() * (x.shape[0] // self.size)

    module = Windows()
    compiled = kintsugi.compile(module)
    for n in [8, 12, 16, 9]:
        x = torch.randn(n)
        if divisor == 0:
            with pytest.raises(ZeroDivisionError):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), module(x))
    module.size = 2
    torch.testing.assert_close(compiled(torch.ones(8)), torch.tensor(32.0))


def chosen(fn):
    CHOSEN.append(fn)
    return fn


CHOSEN = []


@chosen
def shorter_of_two(x, y):
    n = min(x.shape[0], y.shape[0])
    return (x[:n] * y[:n]).sum() * n


@chosen
def longest(x, y):
    z = torch.cat([x, y])
    return z.tanh() * max(z.shape[0], y.shape[0], 2) + min(z.shape)


@chosen
def one_size_by_another(x, y):
    z = torch.cat([x, y])
    return z.tanh().sum() * (z.shape[0] // x.shape[0]) + z.shape[0] % y.shape[0]


@chosen
def at_least_one(x, y):
    z = x + 1
    return z[:max(1, z.shape[0] - 3)].sum(), min(z.shape[0], 6)


@chosen
def of_all(x, y):
    z = x * 2
    n = min(size for size in z.shape)
    return z.sum() + n if n <= 4 else z.mean() * n


@pytest.mark.parametrize("fn", CHOSEN, ids=lambda fn: fn.__name__)
def test_least_largest_and_quotients_of_sizes(fn):
    """max(), min() and divisions of sizes are numbers of the graph; what divides by 0 raises as in eager."""
    compiled = kintsugi.compile(fn, options={"warm": True})
    for a, b in [(7, 3), (4, 9), (12, 12), (5, 1), (1, 8), (9, 2), (3, 0), (2, 6), (0, 4), (11, 5), (8, 8), (6, 13)]:
        x, y = torch.randn(a, 5), torch.randn(b, 5)
        try:
            expected = fn(x, y)
        except ZeroDivisionError:
            with pytest.raises(ZeroDivisionError):
                compiled(x, y)
            continue
        torch.testing.assert_close(compiled(x, y), expected, rtol=1e-4, atol=1e-4)
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] <= 2 and stats["compiled_calls"] >= 4, stats
    assert not any("needs a result" in part["ends"] for part in stats["kernels"]) or fn is of_all, stats["kernels"]


def test_a_shape_is_asked_for_again_once_its_sizes_are_decided():
    """range() of a size fixes it; the shape that is read behind it is another object with the same sizes."""
    def f(x):
        made = torch.ones(x.shape[0] * 2)
        rounds = range(0, made.shape[0], 2)
        return x + made.shape[0], len(rounds)

    compiled = kintsugi.compile(f)
    since = max((e["seq"] for e in kintsugi.events()), default=-1)
    for n in (2, 3, 4, 5, 3, 6):
        x = torch.randn(n, n)
        (got, rounds), (expected, others) = compiled(x), f(x)
        assert torch.equal(got, expected) and rounds == others
    assert not [e["message"] for e in kintsugi.events() if e["event"] == "bug" and e["seq"] > since]
