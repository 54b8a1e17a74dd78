"""Lists that a graph fills and reads itself: their items need not be made; whoever sees a list behind the graph, or leaves within it, finds all of them."""

import pytest
import torch
from launches import engine, kintsugi, versions

pytestmark = pytest.mark.usefixtures("kernels")
ARGS = [torch.randn(64) for _ in range(4)]


def appended(*a):
    found = []
    for i in range(2):
        found.append(a[2 * i] * a[2 * i + 1])
    return found[0] - found[1]


def comprehended(*a):
    found = [x * y for x, y in zip(a[::2], a[1::2])]
    return found[0] + found[1]


def tree(*a):
    a = list(a)
    while len(a) > 1:
        a = [x * y + 1 for x, y in zip(a[::2], a[1::2])]
    return a[0]


@pytest.mark.parametrize("body", [appended, comprehended, tree])
def test_items_are_not_made(body):
    compiled = kintsugi.compile(body, options={"warm": True})
    for _ in range(4):
        torch.testing.assert_close(compiled(*ARGS), body(*ARGS))
    assert [v["kernels"] for v in versions(compiled)] == [1]


SEEN = []


def kept_outside(*a):
    found = []
    for x in a:
        found.append(x * 2)
    SEEN.append(found)
    return (found[0] + found[1]).relu()


def returned(*a):
    found = [a[0] + 1]
    y = found[0] * 2
    found.append(y)
    z = found[1] - found[0]
    return z, found


def left_within(*a):
    found = [a[0] * 2]
    y = found[0] + a[1]
    found.append(y)
    if bool((y > 100).any()):
        return found, 1
    found.append(y * 3)
    z = found[2].sin()
    return z, 0


def broken(*a):
    found = []
    for x in a:
        found.append(x * 2)
    y = found[0] + found[1]
    torch._dynamo.graph_break()
    found.append(y)
    return found[0] + found[3] + found[4], len(found)


def raised(*a):
    found = [a[0] * 2]
    try:
        found.append(found[0] + 1)
        found.append(found[1].view(7, 9))
    except RuntimeError:
        return found, len(found)
    return found[0]


def in_two_graphs(*a):
    rows = [[], []]
    for i, x in enumerate(a):
        rows[i % 2].append(x.exp())
    mid = rows[0][0] + rows[1][0]
    print(end="")
    rows[0].append(mid)
    return torch.stack([r[-1] for r in rows]).sum(0)


@pytest.mark.parametrize("body", [kept_outside, returned, left_within, broken, raised, in_two_graphs])
@pytest.mark.parametrize("warm", [True, False])
def test_lists_that_are_seen(body, warm):
    compiled = kintsugi.compile(body, options={"warm": True} if warm else {})
    for call in range(8):
        args = [x * (1000 if call == 5 else 1) for x in ARGS]
        SEEN.clear()
        want, kept = body(*args), list(SEEN)
        SEEN.clear()
        torch.testing.assert_close(compiled(*args), want)
        torch.testing.assert_close(SEEN, kept)


@torch.compiler.disable
def change(rows):
    rows[0][0] += 1.0


def changed_between(x):
    first = [1.0, 2.0]
    rows = [first, [3.0, 4.0]]
    a = x * torch.tensor(rows)
    change(rows)
    return a, x * torch.tensor(rows), x * torch.tensor(first)


def changed_before(x):
    first = [1.0, 2.0]
    rows = (first, [3.0, 4.0])
    change(rows)
    return (x * torch.tensor(rows)).sin(), (x * torch.tensor(first)).sin()


def filled_between(x):
    rows = [[float(i)] * 2 for i in range(2)]
    a = x * torch.tensor(rows)
    rows[0][0] = 5.0
    rows[1].append(3.0)
    rows[1].pop()
    b = (a * torch.tensor(rows)).sin()
    change(rows)
    return a, b, b * torch.tensor(rows), rows


@pytest.mark.parametrize("fn", [changed_between, changed_before, filled_between])
def test_lists_in_lists(fn):
    compiled = kintsugi.compile(fn, options={"warm": True})
    for _ in range(6):
        x = torch.randn(3, 2, 2)
        for got, expected in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(got, expected) if isinstance(expected, torch.Tensor) else None
            assert isinstance(expected, torch.Tensor) or got == expected


@pytest.mark.parametrize("n", [2, 8, 33, 64, 65, 300])
def test_a_list_of_many_numbers(n):
    def fn(x):
        found = []
        for i in range(n):
            found.append(1.0 / (i + 1))
        return (x * torch.tensor(found)).tanh()

    compiled = kintsugi.compile(fn, options={"warm": True})
    for _ in range(4):
        x = torch.randn(3, n)
        torch.testing.assert_close(compiled(x), fn(x))
    graphs = [subgraph["inputs"] for entry in compiled.entries() for subgraph in engine.kernels(entry)]
    assert graphs == [1 if n <= 64 else 2], "torch.tensor() is not part of the graph"
