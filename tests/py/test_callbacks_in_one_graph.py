"""C functions that call functions of the program, and objects made by calling: one graph, as with stock PyTorch. Each program is called with numbers and sizes that
change; results, what it changes, and exceptions are eager's."""
import collections
import functools
import itertools
import operator
import types

import pytest
import torch
from torch.utils import _pytree as pytree

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


def scaled(x, n):
    return map(lambda y: y * n, [x, x + 1, x * 2])


class Holder:
    def __init__(self, v):
        self.v = v

    def minus(self, y):
        return self.v - y

    def fold(self, a, b):
        return a * b - self.v


def times(self, y):
    return self.v * y


# -- reduce ------------------------------------------------------------------------------------------------------------------


def reduce_over_map(x, n):
    return functools.reduce(lambda a, b: a * b + 1, scaled(x, n)), functools.reduce(operator.sub, scaled(x, n), x)


def reduce_over_iterators(x, n):
    chained = itertools.chain((y + 1 for y in [x, x * 2]), [x * n])
    pairs = zip(map(lambda y: y * n, [x, x + 1]), [2, 3])
    return (functools.reduce(lambda a, b: a * b, chained), functools.reduce(lambda a, b: a + b[0] * b[1], pairs, x),
            functools.reduce(lambda a, b: a + b[1] * b[0], enumerate(y + 1 for y in [x, x * n]), 0),
            functools.reduce(operator.add, itertools.islice((y + 1 for y in [x, x * 2, x * 5]), 2)))


def reduce_in_reduce(x, n):
    return functools.reduce(lambda a, b: a + b, map(lambda y: functools.reduce(lambda c, d: c * d, map(lambda z: z + n, [y, y])), [x, x + 1]))


def reduce_of_methods(x, n):
    weighted = functools.partial(lambda s, a, b: a * s + b, 3)
    return functools.reduce(Holder(x).fold, scaled(x, n)), functools.reduce(weighted, scaled(x, n)), functools.reduce(weighted, (y * n for y in [x, x + 1]), x)


def reduce_of_few(x, n):
    empty = functools.reduce(lambda a, b: a + b, map(lambda y: y, []), x)
    return empty, functools.reduce(lambda a, b: a / 0, map(lambda y: y * n, [x]))


def reduce_of_nothing(x, n):
    return functools.reduce(lambda a, b: a + b, map(lambda y: y, []))


def reduce_behind_next(x, n):
    lazy = scaled(x, n)
    first = next(lazy)
    return functools.reduce(lambda a, b: a * b, lazy), first, list(lazy)


# -- deques and ordered dicts ------------------------------------------------------------------------------------------------


def extended(x, n):
    d = collections.deque([x])
    d.extend(y * n for y in (x, x + 1))
    d.extend(map(lambda y: y - n, list(d)))
    d.extendleft(y + n for y in (x,))
    d.extend(zip((y * n for y in (x, x)), "ab"))
    d.extend(y for y in ())
    pairs = d.pop(), d.pop()
    return sum(d), pairs, len(d)


def extended_with_limit(x, n):
    d = collections.deque(maxlen=2)
    d.extend(x * v for v in (1, n, 3))
    return d[0] - d[1], d.maxlen


def used_up_by_deque(x, n):
    seen, kept = [], []
    collections.deque(map(seen.append, [x, x * n]), maxlen=0)
    collections.deque(map(lambda y: kept.append(y * n), [x, x * 2]), maxlen=0)
    last = collections.deque(scaled(x, n), 2)
    return seen[0] + seen[1], kept[0] * kept[1], last[0] + last[1]


def trees(x, n):
    tree = collections.OrderedDict(a=x, b=(x * n, collections.deque([x, x + n], maxlen=3)))
    leaves, spec = pytree.tree_flatten(tree)
    made = pytree.tree_unflatten([leaf + 1 for leaf in leaves], spec)
    return sum(pytree.tree_leaves(tree)), made["b"][1][0] + made["a"], made["b"][1].maxlen, pytree.tree_map(lambda t: t * n, tree)["a"]


# -- functions that write what lies outside of them --------------------------------------------------------------------------


def counting(x, n):
    k = 0

    def f(v):
        nonlocal k
        k += n
        return v * k
    items = list(zip(map(f, [x, x + 1]), [1, 2])), tuple(map(f, [x])), dict(zip("ab", map(f, [x, x + 1]))), sum(map(f, [x, x]))
    return items, k


def two_cells(x, n):
    a = b = 0

    def f(v):
        nonlocal a, b
        a, b = b + n, a + 1
        return v * a + b
    items = tuple(map(f, [x, x + 1, x * 2]))
    return items[0] + items[1] * items[2], a, b


def tensors_in_a_cell(x, n):
    k = x

    def f(v):
        nonlocal k
        k = k * v + n
        return k
    items = list(map(f, [x, x + 1]))
    return items[0] + items[1] + k


def folding_counts(x, n):
    k = 0

    def f(v):
        nonlocal k
        k += n
        return v * k

    def fold(a, b):
        nonlocal k
        k += 1
        return a + b * k
    return functools.reduce(fold, map(f, [x, x + 1, x + 2])), k


def sorted_and_counted(x, n):
    k = 0

    def key(v):
        nonlocal k
        k += 1
        return -v
    return sorted([1, n, 3], key=key), k, x * k


def appended(x, n):
    first, second = [], []
    nones = list(map(first.append, [x, x * n]))
    tuple(map(second.append, first))
    return sum(first), len(second), nones, any(map(first.append, second)), len(first)


# -- methods, getters --------------------------------------------------------------------------------------------------------


def bound_by_hand(x, n):
    held = Holder(x)
    held.f = times.__get__(held)
    return times.__get__(held)(n), times.__get__(held, Holder)(n), held.f(n), Holder.minus.__get__(held)(n), times.__get__(None, Holder) is times


def attributes_of_tensors(x, n):
    shape = operator.attrgetter("T.shape")(x * n)
    kind, dims = operator.attrgetter("device.type", "T.ndim")(x * n)
    turned = list(map(operator.attrgetter("T"), [x, x * n]))
    return x * shape[1], kind, dims, turned[1] + 1, operator.attrgetter("T.T")(x) * n, {"cpu": 3}[operator.attrgetter("device.type")(x * n)]


def read_through_proxies(x, n):
    d = {"a": x, "n": n}
    m = types.MappingProxyType(d)
    before = m["a"] * m["n"], len(m), "n" in m, list(m), m.get("more", 3), [v for _, v in m.items()][1], dict(m), sorted(m.keys())
    d["b"] = x * n
    del d["a"]
    total = x
    for k in m:
        total = total + m[k]
    copy = m.copy()
    copy["c"] = 1
    it = iter(m)
    return before, total, len(m), "a" in m, {**m}, set(m) == {"n", "b"}, len(d), next(it), isinstance(m, dict), types.MappingProxyType({"n": n}) == {"n": 2}, list(m.values())[0], d, m


def proxies_of_ordered_dicts(x, n):
    m = types.MappingProxyType(collections.OrderedDict(b=x, a=n))
    return m["b"] * m["a"], list(m), len(m), torch.add(x, x, **types.MappingProxyType({"alpha": n}))


def refused_by_proxies(x, n):
    m = types.MappingProxyType({"a": x})
    try:
        m["a"] = n
    except TypeError as e:
        return x * 2, str(e)


ONE_GRAPH = [read_through_proxies, proxies_of_ordered_dicts, refused_by_proxies, reduce_over_map, reduce_over_iterators, reduce_in_reduce, reduce_of_methods, reduce_of_few, reduce_behind_next, extended, extended_with_limit,
             used_up_by_deque, trees, counting, two_cells, tensors_in_a_cell, folding_counts, sorted_and_counted, appended, bound_by_hand, attributes_of_tensors]


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (dict, types.MappingProxyType)):
        return type(value), list(value), list(map(plain, value.values()))
    return (type(value), list(map(plain, value))) if isinstance(value, (list, tuple)) else value


def answer(fn, x, n):
    try:
        return plain(fn(x, n))
    except Exception as e:
        return type(e), str(e)


def compare(fn, compiled):
    for i, n in enumerate([2, 2, 3, 3, 5, 2]):
        x = torch.randn(3 if i < 4 else 4, 2, generator=torch.Generator().manual_seed(i))
        assert answer(compiled, x, n) == answer(fn, x, n)


@pytest.mark.parametrize("fn", ONE_GRAPH, ids=lambda fn: fn.__name__)
def test_one_graph(fn):
    compare(fn, kintsugi.compile(fn, fullgraph=True))


# -- what cannot be followed behaves as eager all the same -------------------------------------------------------------------


def extended_by_its_own_length(x, n):
    d = collections.deque([n])
    d.extend(len(d) + y for y in (1, 2))
    return x, list(d)


def extended_by_what_it_holds(x, n):
    d = collections.deque([n])
    d.extend(map(lambda v: v + d[-1], (1, 2)))
    return x, list(d)


def extended_until_it_raises(x, n):
    d = collections.deque([1])

    def numbers():
        yield n
        raise ValueError
    try:
        d.extend(numbers())
    except ValueError:
        pass
    return x, list(d)


def raising_behind_a_store(x, n):
    k = 0

    def f(v):
        nonlocal k
        k += 1
        if v == n:
            raise ValueError(k)
        return v
    try:
        list(map(f, [1, 2, 3]))
    except ValueError as e:
        return x * k, str(e)
    return x, k


def deciding_behind_a_store(x, n):
    k = 0

    def f(v):
        nonlocal k
        k += 1
        if v.sum() > 1:
            k += 10
        return v * k
    return list(map(f, [x + n, x]))[1], k


def branches_that_read_the_cell(x, n):
    k = 0

    def f(v):
        nonlocal k
        k += n
        return torch.cond(v.sum() > 0, lambda t: t * k, lambda t: t - k, (v,))
    return sum(map(f, [x, x + 1])), k


def functions_that_keep_the_cell(x, n):
    kept, k = [], 0

    def f(v):
        nonlocal k
        k += 1
        kept.append(lambda: v * k)
        return v
    list(map(f, [x, x * n]))
    return kept[0]() + kept[1]() * 2, k


def sorted_by_append(x, n):
    seen = []
    try:
        sorted([2, 1], key=seen.append)
    except TypeError:
        pass
    return x * len(seen), seen


def dict_with_attributes(x, n):
    d = collections.OrderedDict(a=x)
    d.more = n
    d.values = lambda: [n]
    return d["a"] * d.more, d.values(), getattr(d, "other", 3)


@pytest.mark.parametrize("fn", [reduce_of_nothing, extended_by_its_own_length, extended_by_what_it_holds, extended_until_it_raises, raising_behind_a_store, deciding_behind_a_store,
                                branches_that_read_the_cell, functions_that_keep_the_cell, sorted_by_append, dict_with_attributes], ids=lambda fn: fn.__name__)
def test_as_eager(fn):
    compare(fn, kintsugi.compile(fn))
