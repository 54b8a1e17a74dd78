"""What a container or an iterator holds dies in the order in which eager lets go of it: a list from its end, a dict from its beginning, variables one by one."""

import collections
import itertools
import weakref

import pytest
import torch

import kintsugi

LOG = []


class Mortal:
    def __init__(self, n):
        self.n = n

    def __del__(self):
        LOG.append(self.n)


class Watched:
    def __init__(self, n):
        self.n = n
        weakref.finalize(self, LOG.append, n)


class Pair:
    def __init__(self, a, b):
        self.b = b
        self.a = a


def three():
    return [Mortal(1), Mortal(2), Mortal(3)]


def number(o):
    return o.n


def a_list(x):
    items = three()
    return x + items[0].n


def variables(x):
    c = Mortal(3)   # noqa: F841
    a = Mortal(1)
    b = Mortal(2)   # noqa: F841
    return x + a.n


def half_a_map(x):
    items = three()
    numbers = map(number, items)
    v = next(numbers)
    del items
    del numbers
    LOG.append("after")
    return x + v


def grown_while_mapped(x):
    items = three()
    numbers = map(number, items)
    v = next(numbers)
    items.append(Mortal(4))
    return x + v


def left_loop(x):
    items = three()
    for o in map(lambda o: o, items):   # noqa: B007
        if o.n == 2:
            break
    return x + o.n


def half_a_zip(x):
    a, b = [Mortal(1), Mortal(2)], [Mortal(3), Mortal(4)]
    pairs = zip(a, b)
    c, d = next(pairs)
    return x + c.n + d.n


def other_iterators(x):
    its = [reversed(three()), itertools.islice(three(), 1, 3), itertools.chain(three(), [4]), (o for o in three()), filter(number, three())]
    for it in its:
        x = x + next(it).n
    del it
    LOG.append("between")
    del its[1:3]
    LOG.append("after")
    return x


def of_objects(x):
    pairs = [Pair(Mortal(1), Mortal(2)), Pair(Mortal(3), Mortal(4))]
    return x + pairs[0].a.n


def of_dicts(x):
    table = collections.defaultdict(list)
    table["a"].append(Mortal(1))
    table["b"] += [Mortal(2), Mortal(3)]
    table["a"].append(Mortal(4))
    return x + len(table)


def of_calls(x):
    def inner(y):
        items, last = three(), Mortal(4)
        return y + items[0].n + last.n
    y = inner(x)
    LOG.append("after")
    return y * 2


def unused(x):
    three()
    [Mortal(4), Mortal(5)]   # noqa: B018
    LOG.append("after")
    return x + 1


def with_finalizers(x):
    items = [Watched(1), Watched(2), Watched(3)]
    return x + items[0].n


def run(call):
    LOG.clear()
    result = call(torch.ones(2))
    LOG.append("returned")
    return str(result), list(LOG)


def of_attributes(x):
    pair = Pair(Mortal(1), iter([Mortal(2), Mortal(3)]))
    x = x + 1
    pair = None
    LOG.append("after")
    return x * 2, pair


def run_in_turns(call):
    out = []
    for flag in [True, True, False, False, True, False, False]:
        LOG.clear()
        result = call(torch.ones(2), flag)
        LOG.append("returned")
        out.append((str(result), list(LOG)))
    return out


def behind_a_branch(x, flag):
    kept = (three(), Pair(Mortal(4), (Mortal(5),)), iter([[Mortal(6)], [Mortal(7), Mortal(8)]]))   # noqa: F841
    if flag:
        x = x - 1
        LOG.append("taken")
    return x


PROGRAMS = [a_list, variables, half_a_map, grown_while_mapped, left_loop, half_a_zip, other_iterators, of_objects, of_dicts, of_calls, unused, with_finalizers,
            of_attributes]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("options", [{}, {"backend": "eager"}, {"options": {"warm": True}}])
def test_contents_die_in_order(program, options):
    expected = run(program)
    compiled = kintsugi.compile(program, **options)
    for _ in range(5):
        assert run(compiled) == expected


@pytest.mark.parametrize("options", [{}, {"backend": "eager"}])
def test_what_was_made_before_a_branch_dies_in_order(options):
    assert run_in_turns(kintsugi.compile(behind_a_branch, **options)) == run_in_turns(behind_a_branch)
