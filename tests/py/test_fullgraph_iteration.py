"""What stock accepts under fullgraph=True and goes over objects in Python: sequences, mappings, generators that handle exceptions or raise them."""

import collections
import collections.abc
import functools
import itertools

import pytest
import torch
from torch.utils._pytree import tree_flatten

import kintsugi


class Row(collections.abc.Sequence):
    def __init__(self, items):
        self.items = items

    def __getitem__(self, i):
        return self.items[i]

    def __len__(self):
        return len(self.items)


class Table(collections.abc.Mapping):
    def __init__(self, items):
        self.held = items

    def __getitem__(self, key):
        return self.held[key] * 2

    def __len__(self):
        return len(self.held)

    def __iter__(self):
        return iter(self.held)


class Missing(LookupError):
    pass


def sequences(x):
    rows, listed = Row([x, x + 1]), collections.UserList([x, x * 2])
    a, b = rows
    total = x
    for v in listed:
        total = total + v
    return list(rows), tuple(listed), [*rows], sum(rows), a * b, total, list(zip(rows, listed)), next(v for v in rows if v.ndim == 1), 2 in Row([1, 2])


def mappings(x):
    table, user, chain = Table({"a": x, "b": x + 1}), collections.UserDict({"a": x}), collections.ChainMap({"b": x}, {"a": x + 1, "b": x * 3})
    filled = {}
    filled.update(table)
    return dict(table), {**table}, (lambda **k: k)(**table), filled, dict(user), list(user.items()), dict(chain), list(chain.values()), [chain[k] * 2 for k in sorted(chain)]


def exceptions_in_callbacks(x):
    def found(key):
        try:
            return {"a": x}[key]
        except KeyError:
            return x * 2
    return list(map(found, "ab")), sum(map(found, "bc"))


def exceptions_in_generators(x):
    def values():
        for k in range(3):
            try:
                yield [x, x + 1][k]
            except IndexError:
                pass

    def drained(items):
        while True:
            try:
                v = next(items)
            except StopIteration:
                return
            yield v * 2
    return list(values()), list(drained(values())), sum(drained(iter([x, x])))


def exceptions_of_generators(x):
    def failing():
        yield x
        raise Missing("gone")
    found = []
    for ask in (list, sum, tuple):
        try:
            found.append(ask(failing()))
        except Missing as e:
            found.append(e.args)
    try:
        for v in failing():
            found.append(v)
    except LookupError:
        return found, x * 3


class Steps:
    def __init__(self, x, n):
        self.x, self.n, self.i = x, n, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.x * self.i


def iterators(x):
    begun = Steps(x, 3)
    return next(begun), list(begun), tuple(Steps(x, 2)), sum(Steps(x, 2), x), next(Steps(x, 0), None), [*Steps(x, 2)], (lambda a, b: a + b)(*Steps(x, 2)), all(Steps(1, 3))


WEIGHT = torch.ones(3, requires_grad=True)


def gradients_in_callbacks(x):
    def without(v):
        with torch.no_grad():
            return v * WEIGHT
    found = list(map(without, [x, x * WEIGHT])) + [sum(map(torch.no_grad()(lambda v: v * WEIGHT), [x, x]))]
    return [v.requires_grad for v in found], found, (x * WEIGHT).requires_grad


def builders_in_map(x):
    rows, tables, joined = [(x, x + 1), [x]], [{"a": x}, {"b": x + 1}], {"c": x}
    for keys in map(dict.fromkeys, reversed(tables)):
        joined |= keys
    for table in map(dict, tables):
        joined |= table
    joined |= [("d", x * 2)]
    return ([v for v in map(list, rows)], list(map(tuple, rows)), list(map(dict, [[("a", x)], {"b": x}])), list(map(dict.fromkeys, ["ab", ["c"]])), joined, list(joined),
            joined["a"] * joined["d"])


PROGRAMS = [builders_in_map, iterators, gradients_in_callbacks, sequences, mappings, exceptions_in_callbacks, exceptions_in_generators, exceptions_of_generators]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_is_one_graph(fn):
    compiled = kintsugi.compile(fn, fullgraph=True)
    for i in range(4):
        x = torch.full((3,), float(i - 2))
        got, expected = tree_flatten(compiled(x)), tree_flatten(fn(x))
        assert got[1] == expected[1]
        for a, b in zip(got[0], expected[0]):
            torch.testing.assert_close(a, b, rtol=0, atol=0) if isinstance(b, torch.Tensor) else exactly(a, b)
    stats = kintsugi.stats(compiled)
    assert stats["breaks"] == 0 and stats["recordings"] == 1 and stats["replays"] == 3


def exactly(a, b):
    assert type(a) is type(b) and a == b


def merged(x):
    return {**Table({"a": x + 1})}["a"] + 3


def named(x):
    return (lambda **k: k)(**Table({"a": x + 1}))["a"] + 3


def updated(x):
    filled = {}
    filled.update(Table({"a": x + 1}))
    return filled["a"] + 3


@pytest.mark.parametrize("fn", [merged, named, updated], ids=lambda fn: fn.__name__)
def test_what_a_mapping_computes_is_in_the_graph(fn):
    """__getitem__ multiplies: that ran beside the graphs, and nobody was told."""
    graphs = []

    def backend(gm, inputs):
        graphs.append([n.target.__name__ for n in gm.graph.nodes if n.op == "call_function"])
        return gm
    compiled = kintsugi.compile(fn, fullgraph=True, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))
    assert graphs == [["add", "mul", "add"]]


class Counted:
    """An iterator as programs write them."""

    def __init__(self, items):
        self.items, self.i = items, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.i >= len(self.items):
            raise StopIteration
        self.i += 1
        return self.items[self.i - 1] * 2


def given_to_iterators(x):
    def it(n=3):
        return Counted([x + k for k in range(n)])
    return (list(map(lambda v: v + 1, it())), list(zip(it(), [1, 2])), list(enumerate(it())), list(filter(lambda v: v.ndim == 1, it())), list(itertools.islice(it(), 2)),
            list(itertools.chain(it(1), [x], it(2))), list(itertools.pairwise(it())), list(itertools.zip_longest(it(2), it(3))), sum(map(torch.sin, it())),
            list(itertools.accumulate(it())), tuple(zip(it(), it())), dict(zip("abc", it())))


def loops_over_iterators(x):
    total, first = 0, Counted([x, x + 1, x + 2])
    for a, b in zip(first, range(2)):
        total = total + a * b
    for i, v in enumerate(Counted([x, x])):
        total = total + i * v
        if i == 1:
            break
    for v in Counted([x]):
        total = total - v
    return total, first.i, next(first, 3), [v * 2 for v in Counted([x, x])]


def used_in_part(x):
    it = Counted([x, x + 1, x + 2])
    pairs = zip(it, "ab")
    first = next(pairs)
    return first, list(it), list(pairs), it.i


def check_that_all_is_followed(fn):
    """Equal to eager over two sizes, and nothing runs beside the graph."""
    compiled = kintsugi.compile(fn, fullgraph=True)
    for i in range(4):
        x = torch.ones(3 + (i == 2)) + i
        assert str(compiled(x)) == str(fn(x))
    steps = [s for entry in compiled.entries() for s in kintsugi._kintsugi.dump(entry)["steps"]]
    assert not [s["text"] for s in steps if "opaque" in s.get("flags", [])]


@pytest.mark.parametrize("fn", [given_to_iterators, loops_over_iterators, used_in_part])
def test_iterators_of_the_program(fn):
    check_that_all_is_followed(fn)


def test_an_iterator_that_is_not_followed_is_reported():
    class Stateful(Counted):
        def __iter__(self):
            self.i = 0
            return self

    def fn(x):
        return list(zip(Stateful([x, x + 1]), "ab"))
    compiled = kintsugi.compile(fn)
    for _ in range(3):
        assert str(compiled(torch.ones(2))) == str(fn(torch.ones(2)))
    assert kintsugi.stats(compiled)["breaks"] == 1


class Indexed:
    """Has nothing but __getitem__: iter() asks it for 0, 1, 2 ... until it raises IndexError."""

    def __init__(self, items):
        self.items, self.asked = items, 0

    def __getitem__(self, i):
        self.asked += 1
        return self.items[i] * 2


class End(IndexError):
    pass


class Limited(Indexed):
    def __getitem__(self, i):
        if i == 2:
            raise End("over")
        return Indexed.__getitem__(self, i)


class Stopping(Indexed):
    def __getitem__(self, i):
        if i == 1:
            raise StopIteration
        return super().__getitem__(i)


def indexed(x):
    def seq():
        return Indexed([x, x + 1])
    a, b = seq()
    total, *rest = seq()
    for v in seq():
        total = total + v
    return (a * b, total, rest, list(seq()), tuple(seq()), [*seq()], sum(seq()), [v + 1 for v in seq()], list(zip(seq(), seq())), list(map(lambda v: v + 1, seq())),
            list(enumerate(seq())), next(iter(seq())), (lambda *items: items)(*seq()), any(v.ndim for v in seq()), list(Limited([x, x, x])), list(Stopping([x, x])),
            list(itertools.chain(seq(), [x], seq())))


def indexed_in_part(x):
    s = Indexed([x, x + 1, x + 2, x + 3])
    for i, v in enumerate(s):
        if i == 2:
            break
    pairs = zip(s, "ab")
    it = iter(s)
    return v, next(pairs), s.asked, list(pairs), s.asked, next(it), list(it), next(it, None)


@pytest.mark.parametrize("fn", [indexed, indexed_in_part])
def test_objects_with_getitem_alone(fn):
    check_that_all_is_followed(fn)


def test_an_index_iterator_that_is_returned():
    def fn(x):
        it, pairs = iter(Indexed([x, x + 1, x + 2])), enumerate(Indexed([x, x]))
        return next(it), next(pairs), it, pairs
    compiled = kintsugi.compile(fn)
    for i in range(4):
        first, pair, it, pairs = compiled(torch.ones(2) * i)
        expected = fn(torch.ones(2) * i)
        assert str((first, pair, list(it), list(pairs))) == str((*expected[:2], list(expected[2]), list(expected[3])))


class Generated(Indexed):
    def __iter__(self):
        for v in self.items:
            yield v * 2


def drained(x):
    kinds = (Row, Generated, Counted, Indexed)
    queue = collections.deque([x])
    for kind in kinds:
        queue.extend(kind([x, x + 1]))
    return ([functools.reduce(lambda a, b: a * b, kind([x, x + 1])) for kind in kinds], [functools.reduce(torch.add, kind([x, x]), x) for kind in kinds],
            [collections.deque(kind([x, x + 1, x]), maxlen=2) for kind in kinds], queue, [list(itertools.combinations(kind([x, x + 1]), 2)) for kind in kinds[:2]],
            [dict.fromkeys(kind([1, 2]), x) for kind in kinds], [collections.Counter(kind([1, 2, 1])) for kind in kinds])


def derived_dicts(x):
    table, chain = Table({"a": x, "b": x + 1}), collections.ChainMap({"b": x}, {"a": x + 1})
    return collections.defaultdict(list, chain), collections.defaultdict(list, table), collections.defaultdict(list, collections.UserDict({"a": x}))["z"]


@pytest.mark.parametrize("fn", [drained, derived_dicts])
def test_c_functions_that_take_all_items_first(fn):
    compiled = kintsugi.compile(fn, fullgraph=True)
    for i in range(4):
        x = torch.ones(3 + (i == 2)) + i
        assert str(compiled(x)) == str(fn(x))
    assert kintsugi.stats(compiled)["breaks"] == 0


class Loader:
    """Goes over batches, and begins anew with each iter()."""

    def __init__(self, x, size):
        self.x, self.size = x, size

    def __iter__(self):
        self.at = 0
        return self

    def __next__(self):
        if self.at >= len(self.x):
            raise StopIteration
        part = self.x[self.at:self.at + self.size]
        self.at += self.size
        return part


def test_iter_of_an_object_that_is_its_own_iterator():
    def fn(x, size):
        loader = Loader(x, size)
        it = iter(loader)
        first = next(it)
        return first, next(iter(loader)), [part.mean() for part in loader], it is loader, loader.at
    compiled = kintsugi.compile(fn, fullgraph=True, backend="eager")
    for n, size in ((4, 2), (5, 2), (6, 3), (4, 1), (5, 2)):
        x = torch.arange(n * 2.0).reshape(n, 2)
        assert str(compiled(x, size)) == str(fn(x, size))


def test_iter_of_an_object_that_gives_no_iterator():
    class Wrong:
        def __iter__(self):
            return 5

    def fn(x):
        try:
            iter(Wrong())
        except TypeError as error:
            return x + 1, str(error)
        return x, "none"
    compiled = kintsugi.compile(fn, backend="eager")
    for _ in range(3):
        assert str(compiled(torch.ones(2))) == str(fn(torch.ones(2)))
