"""Control flow: loops, else clauses, match, ternaries, comparisons, comprehensions, generators, unpacking."""
import collections
import itertools

import numpy as np
import torch

from kincorpus.case import Args, T, built, case, do, glob, seq

LIMIT = 3
FLAGS = {"relu": True}


@case(mutate=glob(3, LIMIT=5))
def while_else(x):
    n = 0
    while n < LIMIT:
        x = x + n
        n += 1
    else:
        x = -x
    return x


@case(args=lambda i, s: (T(i, 3), [1, 2, 3, 4][: 2 + i // 3]), again=1)
def for_else_break(x, items):
    for v in items:
        if v == 3:
            break
        x = x * v
    else:
        return x, "no break"
    return x, "break", v


@case()
def continue_and_nested_loops(x):
    for a in range(3):
        if a == 1:
            continue
        for b in range(a):
            if b:
                break
            x = x + a * 10 + b
    return x


@case(args=lambda i, s: (T(i, 4), i >= 3), again=1)
def ternary_on_argument(x, flag):
    return x.relu() if flag else x.neg()


@case(args=lambda i, s: (T(i, 4), (0, 1, 5, 2, 0, 7)[i]), again=2, replays=2)
def chained_comparison(x, n):
    if 0 < n < 4:
        return x + n
    return x - 1


@case(args=lambda i, s: (torch.full((2,), 1.0 if i % 2 else -1.0),), again=1)
def data_dependent_if(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


@case(args=lambda i, s: (torch.full((2,), float((1, -1, 1, -1, -1, 1)[i])),), again=1)
def data_dependent_if_prints(x):
    y = x * 3
    if (y > 0).all():
        print("positive")
        y = y + 1
    else:
        print("negative")
        y = y - 1
    return y.exp()


@case(args=lambda i, s: (torch.full((2,), (0.5, 0.5, 0.1, 0.5, 0.1, 0.1)[i]),), again=1, replays=2)
def data_dependent_while(x):
    n = 0
    while x.max() < 1:
        x = x * 2
        n += 1
    return x, n


@case(args=lambda i, s: (T(i, 4), torch.tensor((2, 2, 3, 2, 3, 3)[i])), again=1, replays=2)
def item_as_loop_bound(x, n):
    for k in range(n.item()):
        x = x + k
    return x


@case(args=lambda i, s: (T(i, 4), torch.tensor(float(i))))
def item_fed_back(x, s):
    return x * s.item() + float(s)


@case(args=lambda i, s: (T(0, 3) + i // 3,), replays=1)
def tolist_decides(x):
    values = x.tolist()
    return x + len(values), max(values) > 2, sorted(values)[0]


@case(args=lambda i, s: (T(i, 4, 4), i % 2 == 0 and "a" or "b"), again=1, replays=3)
def match_strings(x, kind):
    match kind:
        case "a":
            return x + 1
        case "b" | "c":
            return x * 2
        case _:
            return x


@case(args=lambda i, s: (T(i, 3), ({"op": "add", "n": 1}, [1, 2, 3], (4, 5), {"op": "mul", "n": 2}, 7, [1])[i]),
      again=5)
def match_structures(x, m):
    match m:
        case {"op": "add", "n": n}:
            return x + n
        case {"op": op, **rest}:
            return x, op, rest
        case [a, b, *more] if len(more):
            return x * a + b, more
        case (a, b):
            return x - a - b
        case int(n):
            return x * n
        case other:
            return x, other


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


@case(args=lambda i, s: (T(i, 3), Point(0 if i < 3 else 1, 2)), again=1)
def match_class(t, p):
    match p:
        case Point(0, y):
            return t + y
        case Point(x=1, y=k):
            return t - k
    return t


@case(args=lambda i, s: (T(i, 3),))
def comprehension_scoping(x):
    n = 10
    squares = [n * n for n in range(4)]
    pairs = {(a, b) for a in range(2) for b in range(2) if a != b}
    table = {k: v for k, v in zip("ab", squares)}
    return x + n + sum(squares), sorted(pairs), table


@case(mutate=do(3, lambda s: FLAGS.__setitem__("relu", False)), replays=3)
def comprehension_over_tensors(x):
    parts = [t.relu() if FLAGS["relu"] else t for t in x.unbind(0)]
    return torch.stack(parts), {i: p.sum() for i, p in enumerate(parts)}


@case()
def generator_expression(x):
    return sum(t * k for k, t in enumerate(x)), any(n > 2 for n in range(5)), all(n for n in (1, 0))


def chunks(x, n):
    for k in range(0, x.shape[0], n):
        yield x[k:k + n]


CHUNK = 2


@case(mutate=glob(3, CHUNK=3))
def generator_function(x):
    return [c.sum() for c in chunks(x, CHUNK)]


def echo(log):
    try:
        got = yield "start"
        while True:
            log.append(got)
            got = yield got * 2
    except GeneratorExit:
        log.append("closed")
        raise
    finally:
        log.append("done")


@case()
def generator_send_and_close(x):
    log = []
    g = echo(log)
    first = next(g)
    y = g.send(x)
    z = g.send(3)
    g.close()
    return first, y, z, log[1:]


def delegating(x):
    r = yield from inner_gen(x)
    yield r


def inner_gen(x):
    yield x
    yield x + 1
    return x * 2


@case()
def yield_from(x):
    return list(delegating(x))


@case(after=lambda i, s, r: list(r))
def returns_a_generator(x):
    y = x * 2
    return (y + k for k in range(3))


@built(again=0, replays=2)
def iterator_argument_state(s):
    source = iter(range(100))

    def f(x):
        return x + next(source)
    return f


@case(args=lambda i, s: (iter([T(i, 2), T(i + 1, 2)]),))
def consumes_an_iterator(it):
    first = next(it)
    rest = list(it)
    return first + 1, len(rest), next(it, None)


@case()
def unpacking(x):
    a, *b, c = x.unbind(0)
    (d, e), f = (1, 2), [*b, a]
    return a - c, len(b), d + e, [*f, *"xy"], {**{"p": 1}, "q": c}


@case(args=lambda i, s: (T(i, 3), tuple(range(2 + i // 3))), raises=(3, 4, 5), again=1)
def unpacking_fails(x, pair):
    a, b = pair
    return x + a + b


@case()
def walrus(x):
    if (n := x.shape[0]) > 2 and (y := x * n) is not None:
        return y, [z := k for k in range(n)], z
    return x


@case(args=lambda i, s: Args(T(i, 3), n=i // 2), again=2)
def assert_statement(x, n):
    assert n < 9, f"too big: {n}"
    return x + n


@case(args=lambda i, s: (T(i, 3), i), raises=(3, 4), calls=6, again=2, replays=1)
def assert_fails(x, n):
    assert n not in (3, 4), f"bad {n}"
    return x + (n > 2)


@case()
def zip_enumerate_map_filter(x):
    rows = list(x)
    a = [r * k for k, r in enumerate(rows, start=1)]
    b = list(map(lambda p, q: p + q, rows, a))
    c = list(filter(lambda k: k % 2, range(5)))
    d = list(zip(c, b, strict=False))
    return a, b, c, d, list(reversed(c)), list(itertools.chain([1], [2]))


@case(args=lambda i, s: (T(i, 3), [np.arange(3) + i, "abc", {1, 2}, {5: 6, 7: 8}.values(), collections.deque([i, 2])][i % 5]), calls=10, again=5, replays=1)
def unpacking_what_is_not_known(x, some):
    a, b, *c = some
    d, *e, f = np.arange(4) * 0.5 + x.shape[0]
    (g, h), (k, m) = np.arange(4).reshape(2, 2)
    for p, q in [np.ones(2), "uv"]:
        e.append(p)
    try:
        u, v = np.arange(3)
    except ValueError as error:
        u = str(error)
    return x + float(d + f + g + h + k + m), a, b, c, [str(z) for z in e], u


@case(args=lambda i, s: (T(i, 6, 2), T(i + 1, 7)))
def loops_over_ranges_backwards(x, v):
    last, out = 0, torch.zeros_like(x)
    for t in reversed(range(x.shape[0])):
        out[t] = last = x[t] + 0.9 * v[t + 1] - v[t] + 0.5 * last
    for a, b in zip(range(5, 0, -2), [x, v]):
        out = out + a * b[0]
    pairs = [(k, out[n]) for k, n in enumerate(range(1, 4), 2)]
    return out, pairs, list(reversed(range(4))), next(reversed(range(3))), list(zip(range(2), range(9, 0, -3)))


@case(args=lambda i, s: (T(i, 3), {"b": 2, "a": 1} if i < 3 else {"a": 5, "b": 0}), again=1)
def sorting_with_keys(x, d):
    names = sorted(d, key=lambda k: d[k])
    words = ["bb", "a", "ccc"]
    words.sort(key=len, reverse=True)
    return x + d[names[0]], names, words, min(d.items(), key=lambda kv: kv[1]), max(words, key=len)


@case()
def min_max_sum_of_tensors(x):
    a, b = x[0].sum(), x[1].sum()
    return sum([a, b]), min(3, 1, 2), max([1, 5], default=0), sum((1, 2), start=10), abs(-3), divmod(7, 2), pow(2, 5)


@case(args=lambda i, s: (T(i, 5 if i < 3 else 6),), again=1)
def slices(x):
    n = x.shape[0]
    s = slice(1, n - 1)
    return x[s], x[::2], x[-1], x[n // 2:], [0, 1, 2, 3][s], "abcdef"[::-1]


@case(calls=8, args=lambda i, s: (T(i, 2 + i % 2, 3),), again=2)
def shape_decides(x):
    if x.size(0) == 2:
        return x.sum(0)
    return x.mean(0)


@case(args=lambda i, s: (T(i, 3), (None, 0, 1, None, "", "s")[i]), again=4)
def truth_of_things(x, v):
    a = v or "default"
    b = v and 1
    c = not v
    return x + bool(v), a, b, c, v is None


@case()
def nested_ternaries_and_boolops(x):
    n = x.dim()
    k = 1 if n == 1 else 2 if n == 2 else 3
    return x * k, (n and k) or -1, n == 2 != k, not (n > 1 and k > 5)


@case()
def infinite_loop_with_break(x):
    n = 0
    while True:
        n += 1
        if n > 3:
            break
        x = x.sin()
    return x, n
