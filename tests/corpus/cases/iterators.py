"""Iterators in C that ask others, one item at a time: map, zip, islice, takewhile, chain ... in for loops, next(), unpacking, and left half used."""
import itertools
import operator

import torch
from torch import nn

from kincorpus.case import T, case, do, glob

SCALE = 2.0
STOP = 3
LOG = []


def rows(x, n=3):
    for k in range(n):
        yield x * (k + SCALE)


def numbers(n):
    for k in range(n):
        yield k + 1


def noting(v):
    LOG.append(v)
    return v < STOP


def failing(v):
    if v == STOP:
        raise ValueError(f"stop at {SCALE}")
    return v * SCALE


def left(it, most=6):
    """What an iterator still has."""
    return list(itertools.islice(it, most))


def by_sign(i, s):
    return (T(i, 4, 3).abs() * (1 if i % 2 else -1),)


def nets(s):
    s.a = nn.ParameterList([torch.ones(3) * 2, torch.ones(3)])
    s.b = nn.Linear(3, 3)
    for p in s.b.parameters():
        nn.init.constant_(p, 0.5)


@case(mutate=glob(3, SCALE=3.0))
def loops_over_map(x):
    for k in map(lambda v: v * SCALE, [1, 2, 3]):
        x = x * k + 1
    for y in map(torch.sin, [x, x * 2]):
        x = x + y
    for k, y in enumerate(map(lambda a, b: a * b, rows(x), numbers(2))):
        x = x + y * k
    return x


@case(mutate=glob(3, STOP=2))
def loops_over_filters(x):
    for k in filter(lambda v: v < STOP, numbers(4)):
        x = x * k + 1
    for k in filter(None, [0, 1, STOP]):
        x = x - k
    for k in itertools.filterfalse(lambda v: v < STOP, [1, 2, 3, 1]):
        x = x * k
    return x


@case(mutate=glob(3, STOP=2))
def takes_and_drops(x):
    it = iter([1, 2, 3, 1, 5])
    for k in itertools.takewhile(lambda v: v < STOP, it):
        x = x * k + 1
    rest = list(it)
    for k in itertools.dropwhile(lambda v: v < STOP, itertools.chain(numbers(4), [1])):
        x = x - k
    return x, rest, list(itertools.takewhile(bool, [1, 0, 2]))


@case(mutate=glob(3, STOP=2))
def chunks_with_islice(x):
    it = iter(range(7))
    while chunk := tuple(itertools.islice(it, STOP)):
        x = x * 0.5 + sum(chunk)
    first, *others = itertools.islice(rows(x), 2)
    args = [iter([x, x + 1, x + 2, x + 3])] * STOP
    return first, others, [a - b for a, b, *_ in zip(*args)]


@case(mutate=glob(3, STOP=2))
def islice_passes_over(x):
    it = itertools.count(1)
    every = itertools.islice(it, 1, 9, STOP)
    first = next(every)
    y = x * first + sum(every)
    return y, left(every), left(it)


@case(mutate=glob(3, SCALE=3.0))
def endless_iterators(x):
    names = itertools.count(5, -2)
    for k, w, s in zip(itertools.count(SCALE), itertools.cycle([1, 2]), itertools.repeat(x)):
        x = x + s * w * k
        if k > 5:
            break
    ids = [next(names) for _ in range(3)]
    for w, y in zip(itertools.cycle(ids), rows(x)):
        x = x + y * w
    return x, next(names), list(map(pow, [2, 3], itertools.repeat(2)))


@case(setup=nets, args=lambda i, s: (T(i, 2, 3), s.a, s.b), mutate=do(3, lambda s: s.a.append(torch.ones(3))))
def chains_parameters(x, a, b):
    for p in itertools.chain(a.parameters(), b.parameters()):
        x = x + p.sum()
    return x, sum(p.sum() for p in itertools.chain(b.parameters(), [x]))


@case(mutate=glob(3, SCALE=3.0))
def chain_moves_on(x):
    a, b = iter([1, 2, 3]), [4]
    pairs = itertools.chain(zip(a, b), [(SCALE, 2)])
    for u, v in pairs:
        x = x * u + v
    return x, left(a), left(pairs)


@case(mutate=glob(3, SCALE=3.0))
def accumulates_in_a_loop(x):
    sizes = itertools.accumulate([1, 1, 2])
    for end in sizes:
        x = x + x[:end].sum()
    totals = itertools.accumulate(rows(x), lambda a, b: a * 0.5 + b, initial=x)
    first, second = next(totals), next(totals)
    return first - second, list(totals), list(itertools.accumulate([2, 3], operator.mul)), left(sizes)


@case(args=by_sign, calls=8, replays=5)
def left_half_used(x):
    it = iter([1, 2, 3, 4, 5, 6])
    every, taken = itertools.islice(it, 0, None, 2), itertools.takewhile(lambda v: v < 4, numbers(6))
    sums, dropped = itertools.accumulate([x, x, x]), itertools.dropwhile(lambda v: v < 2, numbers(4))
    both = itertools.chain(zip(iter([1, 2]), [3]), map(lambda v: (v, v), numbers(2)))
    y = x * next(every) + next(taken) * next(dropped) + next(sums)
    first = next(both)
    if x.sum() > 0:
        return y, [left(i) for i in (every, taken, sums, dropped, both)], left(it)
    z = y + sum(taken) + next(every) + next(sums)
    second = next(both, None)
    if z.sum() > -1000:
        return z, first, second, [left(i) for i in (every, taken, sums, dropped, both)], left(it)
    return z


@case(args=by_sign, calls=8, replays=5)
def breaks_by_data(x):
    it = map(lambda v: v + 1, itertools.filterfalse(lambda v: v == STOP, itertools.count()))
    for k in it:
        x = x * 2
        if x.sum() > 50 or k > 6:
            break
    return x, left(it, 3)


@case(mutate=glob(3, SCALE=3.0), raises=(0, 1, 2, 3, 4, 5), replays=0)
def callback_raises(x):
    y = x
    for k in map(failing, numbers(4)):
        y = y * k
    return y


@case(mutate=glob(3, STOP=2), replays=0)
def callbacks_that_show(x):
    del LOG[:]
    for k in itertools.takewhile(noting, numbers(5)):
        x = x * k
    return x, list(LOG)


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def next_of_nothing(x):
    it = map(abs, [1])
    return x * next(it) + next(it)


@case(mutate=glob(3, SCALE=3.0))
def next_with_a_handler(x):
    it = filter(None, [0, SCALE, 0])
    while True:
        try:
            x = x * next(it)
        except StopIteration:
            break
    return x, next(it, "end")


@case(mutate=glob(3, SCALE=3.0))
def list_changes_under_it(x):
    values = [1, 2]
    for k in map(lambda v: v * SCALE, values):
        x = x + k
        if len(values) < 4:
            values.append(3)
    it = iter(values)
    m = map(int, it)
    next(m)
    values.clear()
    return x, left(m), left(it)


@case(mutate=glob(3, SCALE=3.0))
def same_iterator_twice(x):
    it = numbers(7)
    a, b = map(lambda v: v * SCALE, it), filter(lambda v: v % 2, it)
    y = x * next(a) + next(b) + next(a)
    return y, list(zip(a, b)), left(it)


@case(mutate=glob(3, SCALE=3.0))
def flattens(x):
    nested = itertools.chain.from_iterable([k, k * SCALE] for k in (1, 2))
    for k in nested:
        x = x + k
        if k == 2:
            break
    parts = itertools.chain.from_iterable(rows(x, n) for n in (1, 2, 0, 1))
    return x, left(nested), next(parts) + next(parts), [p * 2 for p in parts], list(itertools.chain.from_iterable([[x], (x, x)]))


@case(args=by_sign, calls=8, replays=5)
def flat_left_half_used(x):
    outer = iter([(1, 2), [3], (), (4, 5, 6)])
    flat = itertools.chain.from_iterable(map(iter, outer))
    y = x * next(flat)
    if x.sum() > 0:
        return y, left(flat, 2), left(outer)
    y = y + next(flat) + next(flat) + next(flat)
    if y.sum() > -1000:
        return y, left(outer), left(flat)
    return y


@case(args=by_sign, calls=8, replays=5)
def pairs_left_half_used(x):
    pairs, longest = itertools.pairwise(rows(x, 4)), itertools.zip_longest(numbers(3), [1], fillvalue=SCALE)
    a, b = next(pairs)
    c, d = next(longest)
    if x.sum() > 0:
        return a - b, c + d, [p * q for p, q in pairs], left(longest)
    e, f = next(longest)
    y = a * c - b * d + e * f + next(pairs)[1]
    if y.sum() > -1000:
        return y, left(longest), [p * q for p, q in pairs], next(pairs, "end")
    return y


@case(mutate=glob(3, SCALE=3.0))
def products_of_generators(x):
    for a, b in itertools.product((k * SCALE for k in (1, 2)), [1, 2]):
        x = x * a - b
    return x, [a * b for a, b in itertools.combinations(rows(x), 2)], len(list(itertools.permutations(numbers(3), 2)))
