"""Unpacking what the recording knows nothing of: iterators from outside, zips over rows of tensors, classes with __getitem__ or __next__. The step
does what CPython's instruction does: it asks as often, raises in the same words, and leaves the iterator in the same state."""

import itertools

import pytest
import torch

import kintsugi
from kintsugi import _kintsugi


class Sequence:
    """Iterable through __getitem__ alone; remembers what it was asked for."""

    def __init__(self, items):
        self.items, self.asked = items, []

    def __getitem__(self, i):
        self.asked.append(i)
        return self.items[i]


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


def two(x, it):
    y = x.sin()
    a, b = it
    return y * a + b, list(itertools.islice(it, 3)) if hasattr(it, "__next__") else None


def starred(x, it):
    a, *b, c = it
    return x * a + c, b, len(b)


def only_rest(x, it):
    *a, = it
    return x + len(a), a



def caught(x, it):
    try:
        a, b = it
    except (ValueError, TypeError) as error:
        return x + 1, type(error), str(error)
    return x + a, b


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


MAKERS = {
    "iter": lambda n: iter(range(2, 2 + n)),
    "sequence": lambda n: Sequence(list(range(2, 2 + n))),
    "countdown": Countdown,
    "islice": lambda n: itertools.islice(itertools.count(3), n),
    "chain": lambda n: itertools.chain([1.5], iter(range(n - 1))),
    "generator": lambda n: (i * 2 for i in range(n)),
    "map": lambda n: map(float, range(n)),
    "dict": lambda n: dict.fromkeys(range(4, 4 + n)),
    "none": lambda n: None,
    "int": lambda n: n,
}


def rest_of(it):
    return it.asked if isinstance(it, Sequence) else [*itertools.islice(it, 4)] if hasattr(it, "__next__") else it


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("fn", [two, starred, only_rest, caught])
def test_any_iterable(fn, kind):
    compiled = kintsugi.compile(fn)
    x = torch.randn(3)
    for n in (2, 2, 2, 3, 2, 1, 2, 5, 0, 2):
        mine, theirs = MAKERS[kind](n), MAKERS[kind](n)
        assert same(outcome(compiled, x, mine), outcome(fn, x, theirs)), n
        assert rest_of(mine) == rest_of(theirs), n


def test_what_a_backend_gets_is_what_explain_tells():
    graphs = []

    def fn(x):
        a, b = zip(*x.sin())
        return torch.stack(a) + torch.stack(b)

    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: graphs.append(gm) or gm)
    x = torch.randn(4, 2)
    for _ in range(3):
        assert torch.equal(compiled(x), fn(x))
    found = kintsugi.explain(fn)(x)
    assert (len(graphs), found.graph_count, found.graph_break_count) == (2, 2, 1)
    assert found.frames[0]["outcome"] == "recorded"


@pytest.mark.parametrize("kind", ["iter", "sequence", "countdown", "generator", "islice"])
def test_goes_on_behind_it(kind):
    def fn(x, it):
        y = x.cos()
        a, b = it
        return (y * a).exp() + b

    x = torch.randn(3)
    for k in range(12):
        compiled = kintsugi.compile(fn)
        compiled(x, MAKERS[kind](2))
        _kintsugi.force_exit(k)
        try:
            mine, theirs = MAKERS[kind](2), MAKERS[kind](2)
            assert same(compiled(x, mine), fn(x, theirs)), k
            assert rest_of(mine) == rest_of(theirs), k
        finally:
            _kintsugi.force_exit(None)
    outcome = kintsugi.explain(fn)(x, MAKERS[kind](2)).frames[0]["outcome"]
    assert outcome == "recorded" or kind == "countdown"


def test_python_code_below_is_followed_or_a_break():
    def fn(x, rows):
        a, b = rows
        return a * b + x

    x = torch.randn(2, 3)
    assert kintsugi.explain(fn)(x, Rows(x)).break_reasons == []
    found = kintsugi.explain(fn)(x, MAKERS["sequence"](2))  # changes an older list more than once
    assert [r.lineno for r in map(lambda b: b.user_stack[-1], found.break_reasons)] == [fn.__code__.co_firstlineno + 1]


class Rows:
    def __init__(self, x):
        self.x = x

    def __getitem__(self, i):
        if i == 2:
            raise IndexError
        return self.x[i].tanh()


def from_slice(x, gen):
    return x + 1, list(itertools.islice(gen, 3))


def from_loop(x, gen):
    for v in gen:
        x = x + v
    return x


def from_tuple(x, gen):
    return x + len(tuple(gen))


@pytest.mark.parametrize("fn", [from_slice, from_loop, from_tuple, two])
def test_generators_that_have_ended(fn):
    """What their frames held is gone: nothing of it is read."""
    def walk(t, n):
        scaled = t * 2
        for i in range(n):
            yield scaled.sum().item() * 0 + i

    x = torch.randn(3)
    compiled = kintsugi.compile(fn)
    for n in (2, 0, 2, 3):
        mine, theirs = walk(x, n), walk(x, n)
        for gen in (mine, theirs) if n != 3 else ():
            list(gen)
        assert same(outcome(compiled, x, mine), outcome(fn, x, theirs)), n
