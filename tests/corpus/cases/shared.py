"""Iterators that share a source: the groups of itertools.groupby, the copies of itertools.tee."""
import itertools

import torch

from kincorpus.case import T, case, glob

SCALE = 2.0
LOG = []


def rows(x, n=4):
    for k in range(n):
        yield x * (k + SCALE)


def noisy(n):
    for k in range(n):
        LOG.append(k)
        yield k


def shapes(i, s):
    return [T(i, 2), T(i + 1, 2), T(i, 3), T(i + 2, 2), T(i, 4)],


def key_of(t):
    LOG.append("key")
    return t.shape


@case(args=shapes, mutate=glob(3, SCALE=3.0))
def groups_by_shape(ts):
    return [(k, torch.stack(list(g)) * SCALE) for k, g in itertools.groupby(ts, key=lambda t: t.shape)]


@case(args=shapes, mutate=glob(3, SCALE=3.0))
def groups_in_nested_loops(ts):
    total = ts[0].sum() * 0
    for k, group in itertools.groupby(sorted(ts, key=len), len):
        for i, t in enumerate(group):
            total = total + t.sum() * k * (i + SCALE)
    return total


@case(args=shapes, mutate=glob(3, SCALE=3.0))
def groups_that_are_left_early(ts):
    out = []
    groups = itertools.groupby(ts, lambda t: t.dim() + t.shape[0])
    for k, group in groups:
        out.append(next(group) * SCALE)
        if k == 4:
            break
    rest = [(k, sum(len(t) for t in g)) for k, g in groups]
    return out, rest, list(group), list(groups)


@case(args=shapes, mutate=glob(3, SCALE=3.0))
def groups_that_are_overtaken(ts):
    groups = itertools.groupby(ts, key=len)
    first = next(groups)
    second = next(groups)
    late = list(first[1])
    again = [t * SCALE for t in second[1]]
    third = next(groups)
    return late, again, third[0], list(second[1]), next(third[1]).sum(), next(third[1], None), next(groups, ("none", ts[0]))[1]


@case(args=shapes, mutate=glob(3, SCALE=3.0))
def groups_in_generators(ts):
    ends = (k * len(list(g)) for k, g in itertools.groupby(len(t) for t in ts))
    sums = sum(sum(g) for _, g in itertools.groupby(rows(ts[0]), key=None) if len(ts) > 3) if len(ts) > 9 else 0
    return ts[0] * sum(ends) * SCALE + sums, {k: [len(t) for t in g] for k, g in itertools.groupby(ts, torch.numel)}, dict(itertools.groupby("aab")).keys()


@case(args=shapes, mutate=glob(3, SCALE=3.0))
def groups_that_are_returned(ts):
    groups = itertools.groupby(ts, key=len)
    _, first = next(groups)
    x = next(first) * SCALE
    return x, first, groups


@case(args=shapes, mutate=glob(3, SCALE=3.0))
def groups_that_are_kept_apart(ts):
    kept = [(k, g) for k, g in itertools.groupby(ts, key=len)]
    return [(k, list(g)) for k, g in kept], ts[0] * SCALE


@case(args=shapes, mutate=glob(3, SCALE=3.0), replays=0)
def groups_by_a_key_that_shows(ts):
    del LOG[:]
    return [(k, len(list(g))) for k, g in itertools.groupby(ts, key_of)], ts[0] * SCALE, list(LOG)


@case(args=lambda i, s: ([T(i, 2), T(i, 2 + i % 3), T(i, 3)],), replays=1)
def groups_of_sizes_that_change(ts):
    return [(k, sum(t.sum() for t in g)) for k, g in itertools.groupby(ts, lambda t: t.shape)]


@case(mutate=glob(3, SCALE=3.0))
def tee_of_a_generator(x):
    a, b = itertools.tee(rows(x))
    return sum(a) + list(b)[1] * SCALE


@case(mutate=glob(3, SCALE=3.0))
def tee_in_step(x):
    a, b = itertools.tee(rows(x))
    first = next(b, None)
    pairs = [p * q for p, q in zip(a, b)]
    return first, pairs, list(a), list(b), next(b, SCALE)


@case(mutate=glob(3, SCALE=3.0))
def tees_that_are_returned(x):
    a, b, c = itertools.tee(rows(x), 3)
    y = next(a) + next(a) - next(b)
    return y * SCALE, a, b, c


@case(mutate=glob(3, SCALE=3.0))
def tee_of_which_one_is_dropped(x):
    a, b = itertools.tee(x * k for k in range(3))
    next(b), next(b)
    del b
    y = next(a)
    return y, a, x * SCALE


@case(mutate=glob(3, SCALE=3.0))
def tee_of_many(x):
    a, b = itertools.tee(k for k in range(130))
    n = sum(k for k in itertools.islice(a, 120))
    m = [next(b) for _ in range(60)]
    return x * n + m[-1] * SCALE, a, b


@case(mutate=glob(3, SCALE=3.0))
def tees_of_lazy_objects(x):
    a, b = itertools.tee(map(lambda k: x * k, range(3)))
    c, d = itertools.tee(enumerate(rows(x, 2)))
    e, = itertools.tee(zip(rows(x, 2), (1, SCALE)), 1)
    it = iter([x, x + 1, x + 2])
    f, g = itertools.tee(it)
    return next(a) + next(a), list(b), dict(c), next(d), [p * q for p, q in e], next(f), list(itertools.tee(f)[1]), next(it, None), list(g)


@case(mutate=glob(3, SCALE=3.0))
def windows(x):
    def pairs(items):
        a, b = itertools.tee(items)
        next(b, None)
        return zip(a, b)
    return [torch.cat(p) for p in pairs(t * SCALE for t in x.unbind(0))], list(pairs(rows(x, 1))), list(pairs([]))


@case(mutate=glob(3, SCALE=3.0), replays=0)
def tee_of_a_generator_that_shows(x):
    del LOG[:]
    a, b = itertools.tee(noisy(3))
    n = next(a)
    LOG.append("then")
    return x * SCALE + sum(b) + n + sum(a), list(LOG)
