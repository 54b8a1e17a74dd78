"""Dicts whose keys are numbers, dicts of the program's own classes, and defaultdicts that call the program."""
import collections

import torch

from kincorpus.case import T, attr, case, do, glob

SCALE = 2.0
LOG = []


class Plain(dict):
    pass


class Attributes(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


class Filled(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.extra = SCALE


class Doubling(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)


class Missing(dict):
    def __missing__(self, key):
        return len(self)


class Ordered(collections.OrderedDict):
    def total(self):
        return sum(self.values())


@case(mutate=glob(3, SCALE=3.0))
def numbers_as_keys(x):
    d = {}
    for i in range(3):
        d[i] = x * i + SCALE
    d[1] = d[1] + d[2]
    del d[2]
    d[-1] = x
    return d[0] + d[1], list(d), list(d.values()), 0 in d, 2 in d, len(d)


@case(mutate=glob(3, SCALE=3.0))
def keys_that_are_equal(x):
    d = {1: x, "1": x * SCALE, 0: x - 1}
    d[True] = x + 5
    d[0.0] = x + 6
    return d, list(d), d[1], d[1.0], d.get(False), d.get(True, 3), 1.0 in d, True in {1: 2}, {1: x}.get(True), {2.0: x}.get(2)


@case(mutate=glob(3, SCALE=3.0), args=lambda i, s: (T(i, 4, 3), i % 2), replays=3)
def keys_that_change(x, k):
    d = {0: x, 1: x * SCALE}
    d[k] = d[k] + 1
    return d[0] - d[1], d.get(k, 0), d.pop(k), d


@case(mutate=glob(3, SCALE=3.0))
def methods_with_numbers(x):
    d = dict([(3, x), (1, x + 1)])
    d.update({5: x * SCALE, 3: x - 1})
    e = d.copy()
    d.setdefault(7, []).append(x)
    d.setdefault(3, 0)
    return d.pop(1), d.pop(9, 4), d.get(8), d, e, {k: v * 2 for k, v in e.items()}, {**e, 1: x}


@case(mutate=glob(3, SCALE=3.0), raises=(0, 1, 2, 3, 4, 5), replays=0)
def numbers_are_no_keywords(x):
    d = {"x": x, 1: x * SCALE}
    try:
        raise ValueError(len(d), SCALE)
    except ValueError as error:
        print(error)
    return torch.relu(**d)


@case(mutate=glob(3, SCALE=3.0))
def own_class_with_keywords(x):
    d = Plain(a=x, b=x * SCALE)
    d["c"] = d["a"] * 2
    d[3] = x
    d.update(z=x, a=x + 1)
    return d["a"] * d["b"] + d["c"] + d[3], len(d), list(d), "q" in d, "a" in d, d.get("a"), d.get("w"), d, type(d)


@case(mutate=glob(3, SCALE=3.0))
def own_class_of_pairs(x):
    d = Plain([("a", x), ("b", x * SCALE)], c=3)
    e = Plain(d, a=1)
    return [v for v in d.values()], e["a"], e["b"], sorted(e), {**d}, d is e


@case(mutate=glob(3, SCALE=3.0))
def own_class_with_attributes(x):
    d = Attributes(a=x, b=x + 1)
    d.c = x * SCALE
    return d.a * d.b + d.c, d, hasattr(d, "q")


@case(mutate=glob(3, SCALE=3.0), replays=3)
def own_class_that_is_filled(x):
    d = Filled({"q": x}, a=x, b=x + 1)
    return d["a"] * d["b"] + d.extra + d["q"], d, d.__dict__


@case(mutate=glob(3, SCALE=3.0))
def own_class_that_stores_otherwise(x):
    d = Doubling(a=x)
    d["b"] = x * SCALE
    return d["a"], d["b"], d


@case(mutate=glob(3, SCALE=3.0), replays=3)
def own_class_that_answers(x):
    d = Missing(a=x)
    return d["a"] * d["b"] + SCALE, d["c"], len(d), d.get("b")


@case(mutate=glob(3, SCALE=3.0))
def own_ordered_class(x):
    d = Ordered(a=x, b=x * SCALE)
    d["c"] = x
    d["a"] = x - 1
    return d.total(), list(d), d


@case(mutate=attr(3, lambda s: Plain, __getitem__=lambda self, key: key * 2), replays=3)
def own_class_changes(x):
    d = Plain(a=x)
    return d["a"]


@case(mutate=glob(3, SCALE=3.0))
def default_of_a_function(x):
    d = collections.defaultdict(lambda: x * SCALE)
    for i in range(4):
        d[i % 2] = d[i % 2] + i
    return d[0] - d[1] + d[7], dict(d)


@case(mutate=glob(3, SCALE=3.0))
def default_of_a_class(x):
    d = collections.defaultdict(list)
    for i in range(4):
        d[i % 2].append(x * i * SCALE)
    return [torch.stack(rows) for rows in d.values()], list(d)


def noisy_default():
    LOG.append(len(LOG))
    return len(LOG)


@case(mutate=glob(3, SCALE=3.0), replays=0)
def default_that_acts(x):
    d = collections.defaultdict(noisy_default)
    return x * d["a"] + d["b"] * SCALE + d["a"], d


def failing_default():
    raise ValueError(SCALE)


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def default_that_fails(x):
    d = collections.defaultdict(failing_default, a=x)
    return d["a"] + d["b"]


class Pair(tuple):
    @property
    def first(self):
        return self[0] * SCALE


class Counted(tuple):
    def __init__(self, items):
        LOG.append(len(items))


@case(mutate=glob(3, SCALE=3.0))
def tuples_of_an_own_class(x):
    p = Pair([x, x + 1])
    q = Pair(p)
    first, second = Pair((p.first, x))
    return first * p[1] + second, len(q), Pair(), p, type(q), Pair("ab"), p[::-1], p + q


@case(mutate=glob(3, SCALE=3.0), replays=3)
def tuples_of_iterators(x):
    p = Pair(x * k for k in range(1, 4))
    q = Pair(map(torch.sin, [x, x + 1]))
    it = iter([x, x + 1])
    s = Pair(it)
    return p.first, q, s, list(it)


@case(mutate=glob(3, SCALE=3.0), replays=0)
def tuples_with_an_init(x):
    del LOG[:]
    return Counted([x, x * SCALE]), list(LOG)


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def tuple_of_too_much(x):
    return Pair(x, x)


collections.Counter("a").most_common(1)  # imports heapq from CPython 3.14 on


@case(mutate=glob(3, SCALE=3.0))
def counts_with_a_counter(x):
    words = ["a", "b", "".join(["a"]), 1, 2, 1]
    count = collections.Counter(words)
    count.update("ab")
    count["c"] += 1
    y = x * count["a"] + count["nothing"] + collections.Counter("aab")["a"] * SCALE
    return y, count, count.most_common(1), collections.Counter(), sorted(collections.Counter([True, 1, 2]).items())


class Fallback(dict):
    def __missing__(self, key):
        return LIMIT[0] if key == "limit" else self[key + "t"]


LIMIT = [2.0]


@case(mutate=do(3, lambda s: LIMIT.__setitem__(0, 3.0)))
def class_with_missing(x):
    d = Fallback(a=1)
    y = x * d["a"] + d["limi"]
    d["limit"] = 5
    return y * d["limit"], d


class Decides(dict):
    def __missing__(self, key):
        self[key] = 2.0
        return 2.0 if self.x.sum() > 0 else 3.0


@case(args=lambda i, s: (T(i, 4, 3).abs() * (1 if i % 2 else -1),), calls=8, replays=5)
def leaves_in_missing(x):
    d = Decides()
    d.x = x
    return x * d["k"] + d["k"], d


@case(mutate=do(3, lambda s: setattr(Fallback, "__missing__", lambda self, key: 7.0)))
def missing_is_replaced(x):
    return x * Fallback()["limit"]


@case(args=lambda i, s: (T(i, 3), [("p", i), ["q", T(i, 3)]]), again=2)
def dicts_of_pairs_some_of_which_are_constant(x, pairs):
    plain, ordered = dict([("a", x), ("b", 1)]), collections.OrderedDict((("a", 1), ("b", x), ("a", 2)), c=3)
    default = collections.defaultdict(list, [("a", x), ("b", 1)])
    default["c"].append(2)
    older = dict(pairs)
    plain.update(pairs)
    return plain, ordered, default, older["q"] * 2, older, list(ordered.items())
