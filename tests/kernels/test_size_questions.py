"""What Python asks of the sizes of a result, where sizes vary, ends no graph: `all(y.shape)`, `0 in y.shape`, lists of sizes compared, divmod, slices
made by calls, pads put together by sum(). (Each divided the graph there before.)"""
import random

import pytest
import torch
import torch.nn.functional as F

import kintsugi

WIDTH = 6


def asks_all(y):
    return torch.tanh(y + 1) if all(y.shape) else y


def asks_any(y):
    pads = [-d % 4 for d in y.shape]
    return F.pad(y, (0, pads[1], 0, pads[0])).exp() if any(pads) else y.exp() + 1


def asks_of_what_never_varies(y):
    table = torch.ones(3, 4) + 1
    return y + torch.exp(table[1:]).sum() if all(table[1:].shape) and 0 not in table.shape else y


def looks_for_zero(y):
    return y if 0 in y.shape else torch.tanh(y + 1)


def looks_for_a_shape(y):
    return y if tuple(y.shape) in [(1, 2), (3, 5)] else torch.exp(y)


def is_one_of_some(y):
    return y.exp() if y.shape[0] in (2, 4, 6, 8) else y.sin()


def compares_a_list(y):
    return torch.tanh(y) * 3 if list(y.shape) != [1, 2] and [*y.shape, 1] != [0] else y


def asks_itself(y):
    if y.shape[0]:
        y = torch.tanh(y + 1)
    return torch.exp(y) if not y.size(0) else y * 2


def takes_divmod(y):
    whole, rest = divmod(y.shape[0], 3)
    return torch.exp(y[: whole * 3].view(-1, 3, WIDTH)).sum(1), y[:rest] + whole


def calls_slice(y):
    n = y.shape[0]
    places = [slice(None)] * y.ndim
    places[0] = slice(n // 2, n // 2 + 2)
    return torch.exp(y[tuple(places)]) + n, y[slice(n - 1)].sin()


def sums_pads(y):
    pad = [(0, 0)] * y.ndim
    pad[0] = (1, -y.shape[0] % 4)
    return F.pad(y, sum(pad[::-1], ())).exp()


def sums_lists(y):
    places = sum([[y.shape[0]], [], [WIDTH]], [1])
    places.append(7)
    return torch.exp(y).view(places[:3]), len(places)


PROGRAMS = [asks_all, asks_any, asks_of_what_never_varies, looks_for_zero, looks_for_a_shape, is_one_of_some, compares_a_list, asks_itself, takes_divmod,
            calls_slice, sums_pads, sums_lists]
DIVIDES = {is_one_of_some}   # left to a step that no graph contains


def begin(program):
    def f(x):
        return program(torch.relu(x)[1:] * 2)
    return f


def differs_nowhere(program):
    order = random.Random(program.__name__)
    f = begin(program)
    compiled = kintsugi.compile(f)
    with torch.no_grad():
        for n in [6, 9, 9, 7] + [order.randrange(1, 16) for _ in range(60)]:
            x = torch.randn(n, WIDTH)
            torch.testing.assert_close(compiled(x), f(x))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_eager(program, kernels):
    differs_nowhere(program)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_eager_step_by_step(program):
    differs_nowhere(program)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in DIVIDES], ids=lambda p: p.__name__)
def test_ends_no_graph(program, kernels):
    f = begin(program)
    compiled = kintsugi.compile(f)
    with torch.no_grad():
        for n in (6, 9, 12, 15):   # one way through each program
            compiled(torch.randn(n, WIDTH))
    rows = kintsugi.stats(compiled)["kernels"]
    ends = {row["ends"] for row in rows}
    assert rows
    assert all("recording ends" in end or not end for end in ends), ends


def test_what_sum_gives_is_the_only_part_itself():
    def f(x):
        part = (x.shape[0], 2)
        return sum([(), part, ()], ()) is part, sum([[x.shape[0]]], []), sum([part, part], ())
    compiled = kintsugi.compile(f)
    for n in (3, 4, 5, 4):
        assert compiled(torch.ones(n)) == f(torch.ones(n))


def test_one_recording_serves_members_of_a_tuple():
    f = begin(is_one_of_some)
    compiled = kintsugi.compile(f)
    with torch.no_grad():
        for n in (5, 7, 9, 3, 5, 9):
            x = torch.randn(n, WIDTH)
            torch.testing.assert_close(compiled(x), f(x))
    assert kintsugi.stats(compiled)["recordings"] <= 2   # one with the first size, one with all


def test_errors_are_raised_as_in_eager():
    def f(x, k):
        y = torch.relu(x)
        return divmod(y.shape[0], k), y
    compiled = kintsugi.compile(f)
    for n in (3, 4, 5):
        for k in (2, 0):
            if k:
                assert compiled(torch.ones(n), k)[0] == divmod(n, k)
            else:
                with pytest.raises(ZeroDivisionError):
                    compiled(torch.ones(n), k)


def test_fixed_where_the_program_is_longer_with_it():
    """The number of rounds fixes a size that was read before: what is on the stack may be another object with the same value (ints above 256)."""
    def f(x):
        n = x.shape[-1]
        width = n
        parts = []
        for start in range(0, n, n):
            parts.append(torch.relu(x[..., start:start + width]))
        return torch.stack(parts)

    kintsugi.events()
    compiled = kintsugi.compile(f)
    for batch in (2, 5, 3, 4, 6):
        x = torch.randn(batch, 1600)
        torch.testing.assert_close(compiled(x), f(x))
    assert kintsugi.stats(compiled)["recordings"] == 2
    assert not [e for e in kintsugi.events() if e["event"] == "bug"]


def test_an_argument_that_is_asked_behind_other_code(kernels):
    """Its size is first compared behind code that may have changed anything: what leaves there for another size is recorded anew with sizes open, not gone on with."""
    class Asked:
        def __bytes__(self):
            return b"a"

    asked = Asked()

    def f(x, mask):
        y = torch.relu(x)
        bytes(asked)
        return torch.exp(y) + mask.sum() * mask.shape[0]

    compiled = kintsugi.compile(f)
    x = torch.randn(3, 4)
    for n in (5, 7, 9, 3, 8, 6, 4):
        mask = torch.ones(n, 2)
        torch.testing.assert_close(compiled(x, mask), f(x, mask))
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] == 2 and stats["branches"] == 0
