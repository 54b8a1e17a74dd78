"""Objects that C code goes over by __getitem__ and __len__ in Python: containers of users, forwards and backwards."""

import collections
import functools
import itertools

import pytest
import torch

import kintsugi


class Items:
    def __init__(self, *items):
        self.items = list(items)
        self.asked = []

    def __len__(self):
        self.asked.append("len")
        return len(self.items)

    def __getitem__(self, i):
        self.asked.append(i)
        return self.items[i]


class Short(Items):
    """Has fewer items than it says."""

    def __getitem__(self, i):
        if i == 1:
            raise IndexError(i)
        return self.items[i]


class Hinted:
    def __init__(self, *items):
        self.items = items

    def __length_hint__(self):
        return 5

    def __getitem__(self, i):
        return self.items[i]


class Mirrored(Items):
    def __reversed__(self):
        self.asked.append("reversed")
        return iter(self.items[::-1])


class Doubled(Items):
    def __reversed__(self):
        for item in self.items:
            yield item * 2


class Immeasurable(Items):
    def __len__(self):
        raise ValueError("no length")


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(2, 2)
        self.b = torch.nn.Linear(2, 2)

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return (self.a, self.b)[i]


LAYERS = Layers()
Pair = collections.namedtuple("Pair", "first second")


def forwards(x):
    s = Items(x, x + 1)
    a, b = s
    grown = [x]
    grown.extend(s)
    grown += s
    it = iter(s)
    next(it)
    return (list(s), tuple(s), [*s, x], (lambda *v, k: v[0] + k)(*s, k=2), grown, a * b, list(it), sum(s), sum(s, x), sorted(Items(3, 1, 2)), "".join(Items("a", "b")),
            Pair(*s), Pair._make(s), list(Hinted(x, x + 1)), list(Short(x, x)), s.asked)


def backwards(x):
    s, total = Items(x, x + 1, x + 2), x
    for v in reversed(s):
        total = total * v
    grown = [x]
    grown.extend(reversed(s))
    return (total, list(reversed(s)), [v + 1 for v in reversed(s)], next(reversed(s)), list(zip(s, reversed(s))), list(enumerate(reversed(s))), [*reversed(s)],
            (lambda *v: v)(*reversed(s)), grown, list(map(torch.sin, reversed(s))), list(itertools.chain(s, reversed(s))), list(reversed(Short(x, x, x))), s.asked)


def own_ways_back(x):
    mirrored, total = Mirrored(x, x + 1), x
    for v in reversed(Doubled(x, x + 1)):
        total = total + v
    return list(reversed(mirrored)), mirrored.asked, total, list(reversed(Doubled(x, x)))


def drained(x):
    s = Items(x, x + 1, x + 2)
    queue = collections.deque(s)
    queue.extend(s)
    return queue, list(itertools.combinations(s, 2)), functools.reduce(torch.add, s), dict.fromkeys(Items(1, 2), x), s.asked


def modules(x):
    for layer in list(LAYERS):
        x = layer(x)
    for layer in reversed(LAYERS):
        x = layer(x)
    return x


def without_length(x):
    try:
        return reversed(Immeasurable(x))
    except ValueError as e:
        return x + len(str(e))


@pytest.mark.parametrize("fn", [forwards, backwards, own_ways_back, drained, modules, without_length], ids=lambda fn: fn.__name__)
def test_stays_in_one_graph(fn):
    compiled = kintsugi.compile(fn, fullgraph=True)
    for i in range(4):
        x = torch.ones(2) + i
        assert str(compiled(x)) == str(fn(x))
    assert kintsugi.stats(compiled)["breaks"] == 0


def returned(x):
    s = Items(x, x + 1, x + 2)
    it, begun, over = reversed(s), reversed(s), reversed(Items(x))
    return next(begun), list(over), next(over, None), s.asked, it, begun, over


def left_midway(x):
    s = Items(x, x + 1, x + 2)
    for v in reversed(s):
        if v.sum() > 5:
            x = x + 1
        else:
            x = x * v
    return x, s.asked


@pytest.mark.parametrize("fn", [returned, left_midway], ids=lambda fn: fn.__name__)
def test_an_iterator_that_others_get(fn):
    compiled = kintsugi.compile(fn)
    for i in (0, 1, 2, 3, 0):
        x = torch.ones(2) + i
        ours, eager = compiled(x), fn(x)
        for it in (ours, eager):
            lengths = [v.__length_hint__() for v in it if hasattr(v, "__length_hint__")]
        ours, eager = ([list(v) if hasattr(v, "__next__") else v for v in result] for result in (ours, eager))
        assert str(ours) == str(eager) and (fn is left_midway or lengths == [3, 2, 0])


@pytest.mark.parametrize("make", [lambda x: list(Immeasurable(x)), lambda x: list(reversed(Items(x, x)[0:1]))])
def test_what_they_raise_is_raised(make):
    class Failing(Items):
        def __getitem__(self, i):
            raise KeyError(i)

    for fn in (make, lambda x: list(Failing(x)), lambda x: [v for v in reversed(Failing(x))]):
        compiled = kintsugi.compile(fn)
        for i in range(4):
            answers = []
            for f in (fn, compiled):
                try:
                    answers.append(str(f(torch.ones(2))))
                except (ValueError, KeyError) as e:
                    answers.append(repr(e))
            assert answers[0] == answers[1]


class Iterated(Items):
    def __iter__(self):
        return iter(self.items)


def added_in_place(x):
    lists = [[x] for _ in range(5)]
    same = lists[0]
    for held, thing in zip(lists, (Items(x, x + 1), Iterated(x, x + 1), (v * 2 for v in [x, x + 1]), (x * len(same) for _ in range(2)), map(torch.sin, [x]))):
        held += thing
    return lists, same


def test_a_list_that_is_added_to_in_place():
    compiled = kintsugi.compile(added_in_place, fullgraph=True)
    for i in range(4):
        assert str(compiled(torch.ones(2) + i)) == str(added_in_place(torch.ones(2) + i))
    explained = kintsugi.explain(added_in_place)(torch.ones(2))
    assert explained.graph_break_count == 0 and sum(str(ops).count("mul") for ops in explained.ops_per_graph) == 4


def test_an_older_list_that_is_added_to_is_reported():
    held = []

    def fn(x):
        same = held
        same += (x * len(held) for _ in range(2))
        return held[-1]
    compiled = kintsugi.compile(fn)
    for i in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * (2 * i + 1))
    held.clear()
    assert kintsugi.explain(fn)(torch.ones(2)).graph_break_count == 1


Named = collections.namedtuple("Named", "a b")


def compared(x):
    y, z = x + 1, x * 2
    items = [y, x, x]
    items.remove(y)
    nan = float("nan")
    return (Named(x, y) == Named(x, y), Named(x, y) == (x, y), [x, (y, 1)] != [x, (y, 2)], (x, 1) == (x, 1.0), [x] == (x,), () == (x,), [x] == [x, y], (1, x) == (2, y), (x, nan) == (x, nan),
            {"k": [x]} == {"k": [x]}, x in [x, y], (x, y) in [(x, y)], 3 in (1, 3, x), [z, x].index(z), [None, x].index(None), items.count(x), items)


def test_the_same_tensors_in_containers():
    compiled = kintsugi.compile(compared, fullgraph=True)
    for i in range(4):
        assert str(compiled(torch.ones(2) + i)) == str(compared(torch.ones(2) + i))
    assert kintsugi.stats(compiled)["breaks"] == 0


@pytest.mark.parametrize("fn", [lambda x, y: (x,) == (y,), lambda x, y: [x, y].index(y), lambda x, y: [x, x].remove(y)])
def test_other_tensors_are_asked(fn):
    compiled = kintsugi.compile(fn)
    for size, same in ((1, False), (1, True), (2, False), (1, True)):
        x = torch.ones(size)
        y = x if same else torch.zeros(size)
        answers = []
        for f in (fn, compiled):
            try:
                answers.append(f(x, y))
            except (RuntimeError, ValueError) as e:
                answers.append(str(e))
        assert answers[0] == answers[1]


class Said(Items):
    """Says another length than it has."""

    def __init__(self, length, *items):
        super().__init__(*items)
        self.length = length

    def __len__(self):
        return self.length


@pytest.mark.parametrize("length", [-1, -(2**70), 2**70, 0, 7, True])
def test_a_length_that_is_none(length):
    """CPython takes the length for a hint: what cannot be one raises, and all others do not count."""
    def fn(x):
        return torch.stack(list(Said(length, x, x + 1)))

    def outcome(call):
        try:
            return call(torch.ones(2)).tolist()
        except (ValueError, OverflowError) as error:
            return type(error), str(error)

    compiled = kintsugi.compile(fn)
    for _ in range(3):
        assert outcome(compiled) == outcome(fn)
