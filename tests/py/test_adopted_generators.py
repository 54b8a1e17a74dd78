"""Generators that were made before an exit: the side trace goes on with them."""

import pytest
import torch

import kintsugi
from kintsugi._engine import engine

pytestmark = pytest.mark.usefixtures("no_failure_of_our_own")


class Plain(Exception):
    pass


def condition_on_size(x, n):
    items = (y for y in [x, x + 1, x + 2] if y.shape[0] > 3)
    z = x + 1
    if x.shape[0] > 5:
        z = z * 2
    for y in items:
        z = z + y
    return z


def new_at_the_exit(x, n):
    items = (y * 2 for y in (x, x + 1))
    z = x - 1 if n > 1 else x + 1
    return z + sum(items)


def half_used_at_the_exit(x, n):
    def values(a, b):
        scale = 2
        yield a * scale
        scale = scale + n
        yield b * scale
        for y in [a, b]:
            yield y + scale
    items = values(x, x + 1)
    z = next(items)
    if n > 1:
        z = z * 2
    z = z + next(items)
    if n > 2:
        z = z - 1
    return z, list(items)


def inside_a_call(x, n):
    def values():
        for k in range(3):
            try:
                if k == n:
                    raise Plain(k)
                yield x * k
            except Plain:
                yield x + 1
    return list(values()), sum(values())


def two_at_once(x, n):
    one, two = (y + 1 for y in [x, x * 2, x * 3]), (y - 1 for y in [x, x + 2, x + 4])
    total = 0
    for y in one:
        if n == 2:
            y = y * 2
        total = total + y * next(two)
        if n == 1:
            break
    return total, list(one), list(two)


def also_held_by_others(x, n):
    items = (y + 1 for y in [x, x * 2])
    box = [items]
    z = next(items)
    if n > 1:
        z = z * 2
    return z + sum(box[0]), list(items)


PROGRAMS = [condition_on_size, new_at_the_exit, half_used_at_the_exit, inside_a_call, two_at_once, also_held_by_others]
CALLS = [(6, 0), (6, 1), (4, 2), (6, 3), (8, 1), (2, 2), (6, 0), (3, 3), (6, 2), (4, 0), (8, 3), (6, 1)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_results(program):
    compiled = kintsugi.compile(program, fullgraph=program is not also_held_by_others)
    for size, n in CALLS * 2:
        x = torch.arange(float(size))
        assert str(compiled(x, n)) == str(program(x, n)), (size, n)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_exit(program):
    compiled = kintsugi.compile(program)
    for size, n in CALLS:
        compiled(torch.arange(float(size)), n)
    for size, n in CALLS[:6]:
        x = torch.arange(float(size))
        expected = str(program(x, n))
        for k in range(30):
            engine.force_exit(k)
            left = str(compiled(x, n))
            engine.force_exit(None)
            assert left == expected, (size, n, k)


# -- zip, map and enumerate objects over generators that were made before the exit -----------------------------------------------------------------------


def batches(x, size=2):
    for i in range(0, x.shape[0], size):
        yield x[i:i + size]


class Rows:
    def __init__(self, x):
        self.x = x

    def __iter__(self):
        for i in range(len(self.x)):
            yield self.x[i]


def enumerated(x):
    total = 0
    for i, part in enumerate(batches(x)):
        total = total + part.sum() * i
    return total


def enumerated_from(x):
    return [part.sum() * i for i, part in enumerate(batches(x), 3)]


def zipped(x):
    total = 0
    for a, b in zip(batches(x), batches(x * 2)):
        total = total + (a * b).sum()
    return total


def mapped(x):
    total = 0
    for part in map(lambda t: t * 2, batches(x)):
        total = total + part.sum()
    return total


def summed(x):
    return sum(part.sum() for part in batches(x))


def of_objects(x):
    total = 0
    for i, row in enumerate(Rows(x)):
        total = total + row * i
    return total


def one_in_another(x):
    total = 0
    for i, (a, b) in enumerate(zip(batches(x), map(torch.sin, batches(x)))):
        total = total + (a * b).sum() * i
    return total


def held_by_others_as_well(x):
    parts = enumerate(batches(x))
    box = [parts]
    total = 0
    for i, part in parts:
        total = total + part.sum() * i
        if i == 2:
            break
    return total, [part for _, part in box[0]]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("fn", [enumerated, enumerated_from, zipped, mapped, summed, of_objects, one_in_another], ids=lambda fn: fn.__name__)
def test_iterators_over_generators_of_other_lengths(fn, fullgraph):
    compiled = kintsugi.compile(fn, backend="eager", fullgraph=fullgraph)
    for n in (4, 5, 6, 7, 4, 9, 2, 6):
        x = torch.arange(n * 3.0).reshape(n, 3)
        assert all(map(torch.equal, torch.utils._pytree.tree_leaves(compiled(x)), torch.utils._pytree.tree_leaves(fn(x)))), n
    assert kintsugi.stats(compiled)["breaks"] == 0


def test_iterators_that_others_hold():
    compiled = kintsugi.compile(held_by_others_as_well, backend="eager")
    for n in (4, 5, 6, 7, 4, 9, 2, 6, 12):
        x = torch.arange(n * 3.0).reshape(n, 3)
        assert all(map(torch.equal, torch.utils._pytree.tree_leaves(compiled(x)), torch.utils._pytree.tree_leaves(held_by_others_as_well(x)))), n


@pytest.mark.parametrize("fullgraph", [False, True])
def test_keys_that_a_generator_goes_over(fullgraph):
    """nn.ParameterDict.items() is such a generator; which key is asked for, and which keys there are, differs."""
    weights = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.arange(3.0) + i) for i, name in enumerate("abcd")})

    def fn(x, wanted):
        for name, weight in weights.items():
            x = x + weight if name == wanted else x * weight
        return x
    compiled = kintsugi.compile(fn, backend="eager", fullgraph=fullgraph)
    for i, wanted in enumerate("abcadbcaddbacd"):
        if i == 8:
            weights["e"] = torch.nn.Parameter(torch.ones(3) * 5)
        if i == 10:
            first = weights.pop("a")
            weights["a"] = first
        assert torch.equal(compiled(torch.ones(3), wanted), fn(torch.ones(3), wanted)), i
    assert kintsugi.stats(compiled)["breaks"] == 0


@pytest.mark.parametrize("fn", [enumerated, enumerated_from, zipped, mapped, summed, of_objects, one_in_another, held_by_others_as_well], ids=lambda fn: fn.__name__)
def test_left_anywhere_among_iterators(fn):
    compiled = kintsugi.compile(fn, backend="eager")
    for n in (4, 5, 6, 8):
        compiled(torch.arange(n * 3.0).reshape(n, 3))
    for n in (4, 6, 9):
        x = torch.arange(n * 3.0).reshape(n, 3)
        for k in range(40):
            engine.force_exit(k)
            left = compiled(x)
            engine.force_exit(None)
            assert str(left) == str(fn(x)), (n, k)
