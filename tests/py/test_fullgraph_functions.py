"""What stock accepts under fullgraph=True where C functions call the program's functions, ask its generators or make its objects."""

import collections
import copy
import operator

import pytest
import torch
from torch.utils._pytree import tree_flatten

import kintsugi


class Held:
    def __init__(self):
        self.pair = Pair(1, 2.5)
        self.count, self.value, self.table, self.queue = 0, None, {"a": 1}, collections.deque(maxlen=4)

    @property
    def twice(self):
        return self.count * 2

    def bump(self, t):
        self.count += 1
        return t * self.count

    def state(self):
        return self.count, self.value, list(self.table.items()), list(self.queue), list(vars(self))


TOTAL = 0
Pair = collections.namedtuple("Pair", "first second")


class Made:
    def __init__(self, value):
        self.value = value + 1


class Row:
    __slots__ = ("head", "tail")

    def __init__(self, head, tail):
        self.head, self.tail = head, tail


def stores_attributes(held, x):
    def work(t):
        held.count += 1
        held.value = t
        held.other = held.count
        return t * held.count

    return sum(map(work, [x, x, x])), held.count


def stores_by_a_method(held, x):
    return list(map(held.bump, [x, x + 1]))


def stores_items(held, x):
    def work(t):
        held.table["a"] += 2
        held.table["b"] = t.shape[0]
        return t * held.table["a"]

    return tuple(map(work, [x, x]))


def stores_a_global(held, x):
    def work(t):
        global TOTAL
        TOTAL += 1
        return t * 2

    return list(map(work, [x, x]))


def stores_in_what_is_made_here(held, x):
    made, table = Held(), {}

    def work(t):
        made.count += 1
        table["last"] = t
        return t * made.count

    return list(map(work, [x, x])), made.count, table


def appends_to_an_older_list(held, x):
    rows = held.table.setdefault("rows", [])

    def work(t):
        rows.append(t.shape[0])
        return t * 2

    return sum(map(work, [x, x])), len(rows)


def extends_an_older_deque(held, x):
    held.queue.extend(x + i for i in range(3))
    held.queue.extendleft(map(lambda i: x * i, range(2)))
    held.queue += (x - i for i in range(1))
    return held.queue[-1] * 2


def makes_named_tuples(held, x):
    return Pair(*map(lambda t: t + 1, [x, x * 2])), Pair(*(t * 2 for t in (x, x)))


def slices_named_tuples(held, x):
    pair = Pair(x, x + 1)
    rest, whole, none = pair[1:], pair[:], pair[2:]
    first, = torch.max(x.view(1, 3), 1)[:1]
    return rest[0] * whole[0] + first, rest, type(whole).__name__, whole is pair, none, held.pair[::-1], type(held.pair[:1]).__name__


def makes_objects(held, x):
    return Made(*map(lambda t: t * 2, [x])).value


def gets_a_property(held, x):
    held.count = 3
    held.inner = held
    return x * operator.attrgetter("twice")(held) + operator.attrgetter("inner.twice")(held)


def assigns_a_slice(held, x):
    items = [1, 2, 3]
    items[1:2] = map(lambda t: t + 1, [x, x])
    return items[1] * items[-1], len(items)


def cond_and_a_nonlocal(held, x):
    n = 0

    def inner():
        nonlocal n
        n += 1
        return torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))

    return inner() + inner() * n


def makes_dicts_of_pairs(held, x):
    made = [dict([("a", x), ("b", 1)]), collections.OrderedDict((("a", x), ("b", 2))), collections.defaultdict(list, [("a", x), ("b", 3)])]
    return sum(d["a"] * d["b"] for d in made), [list(d) for d in made]


def copies_objects(held, x):
    made, row = Made(x), Row(1, x)
    made.extra = 2
    other, again = copy.copy(made), copy.copy(row)
    other.value = other.value * 2
    again.tail = 3
    return made.value + other.value, other.extra, again.head, again.tail * x, vars(copy.copy(held))["count"]


PROGRAMS = [copies_objects, appends_to_an_older_list, stores_attributes, stores_by_a_method, stores_items, stores_a_global, stores_in_what_is_made_here, extends_an_older_deque,
            makes_named_tuples, slices_named_tuples, makes_objects, gets_a_property, assigns_a_slice, cond_and_a_nonlocal, makes_dicts_of_pairs]


def run(fn):
    global TOTAL
    TOTAL, held, out = 0, Held(), []
    for i in range(5):
        out.append((fn(held, torch.full((3,), float(i - 2))), held.state(), TOTAL))
    return out


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_what_c_functions_call_is_part_of_the_graph(fn):
    got, expected = (tree_flatten(run(f)) for f in (kintsugi.compile(fn, fullgraph=True), fn))
    assert got[1] == expected[1]
    for a, b in zip(got[0], expected[0]):
        torch.testing.assert_close(a, b) if isinstance(b, torch.Tensor) else exactly(a, b)


def exactly(a, b):
    assert type(a) is type(b) and a == b


class Options:
    pass


def sets(x, name):
    options = Options()
    setattr(options, name, x * 2)
    return vars(options)[name], list(vars(options))


@pytest.mark.parametrize("change", [lambda x, name: getattr(x, name)(0), lambda x, name: (hasattr(x, name), x + 1), sets])
def test_names_of_attributes_that_differ(change):
    """A name that differs from call to call is compared where it is used."""
    compiled = kintsugi.compile(change, fullgraph=True)
    for name in ["sum", "mean", "sum", "amax", "scale", "amin"]:
        x = torch.arange(6.0).view(2, 3)
        try:
            expected = change(x, name)
        except AttributeError:
            continue
        got, expected = tree_flatten(compiled(x, name)), tree_flatten(expected)
        assert got[1] == expected[1]
        for a, b in zip(got[0], expected[0]):
            torch.testing.assert_close(a, b) if isinstance(b, torch.Tensor) else exactly(a, b)
