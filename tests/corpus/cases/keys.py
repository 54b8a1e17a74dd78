"""Dicts whose keys are neither texts nor ints: dtypes, shapes, classes, functions, tuples, numbers that are equal to others."""
import collections

import torch
from torch import nn

from kincorpus.case import T, case, do, glob

SCALE = 2.0
CACHE = {}
WEIGHTS = {nn.Linear: 1.0, nn.ReLU: 2.0}
Shape = collections.namedtuple("Shape", "rows columns")
ODD_KEYS = {torch.sin: 1.0, torch.Size([4, 3]): 2.0, Shape(1, 2): 3.0, frozenset("ab"): 4.0, (1, (torch.cos, nn.Linear)): 5.0, range(3): 6.0}


def mixed(i, s):
    return [T(i, 2), T(i, 3), T(i, 2, dtype=torch.int64), T(i + 7, 3)],


@case(args=mixed, mutate=glob(3, SCALE=3.0))
def groups_by_dtype(ts):
    groups = {}
    for t in ts:
        groups.setdefault(t.dtype, []).append(t * SCALE)
    return {k: torch.cat(v) for k, v in groups.items()}, groups.get(torch.bool), torch.int64 in groups


@case(args=mixed, mutate=glob(3, SCALE=3.0))
def groups_by_shape_and_dtype(ts):
    groups = collections.defaultdict(list)
    for t in ts:
        groups[t.shape, t.dtype].append(t)
    return {k: torch.stack(v).sum() * SCALE for k, v in groups.items()}, groups.pop(((2,), torch.int64)), len(groups)


@case(mutate=glob(3, SCALE=3.0))
def shapes_are_tuples(x):
    table = {x.shape: 1}
    table[(4, 3)] = SCALE
    return x * table[x.shape], [type(k).__name__ for k in table], table.get((3, 4)), torch.Size([4, 3]) in table


@case(mutate=glob(3, WEIGHTS={nn.Linear: 3.0, nn.ReLU: 4.0}))
def keys_are_classes(x):
    table = {**WEIGHTS, nn.GELU: 5.0}
    table[nn.Tanh] = 6.0
    return x * sum(table[c] for c in (nn.ReLU, nn.GELU, nn.Tanh)), table.get(nn.Dropout, SCALE), nn.Linear in table


@case(mutate=glob(3, SCALE=3.0))
def keys_are_functions(x):
    table = {torch.sin: 1.0, torch.nn.functional.gelu: SCALE, torch.cos: 3}
    return sum(fn(x) * w for fn, w in table.items()), table[torch.cos], torch.tanh in table


@case(mutate=do(3, lambda s: ODD_KEYS.update({key: 7.0 for key in ODD_KEYS})))
def reads_by_keys_of_many_kinds(x):
    return x * ODD_KEYS[torch.sin] + ODD_KEYS[x.shape], ODD_KEYS[1, 2], ODD_KEYS.get(frozenset("ba")), ODD_KEYS[1, (torch.cos, nn.Linear)]


@case(mutate=do(3, lambda s: ODD_KEYS.pop(frozenset("ab"))))
def key_is_gone(x):
    return x * ODD_KEYS.get(frozenset("ba"), SCALE), frozenset("ab") in ODD_KEYS, Shape(1, 2) in ODD_KEYS, torch.cos in ODD_KEYS


@case(mutate=do(3, lambda s: ODD_KEYS.__setitem__(range(3), 8.0)))
def reads_by_range(x):
    return x * ODD_KEYS[range(3)], range(2) in ODD_KEYS


@case(mutate=glob(3, SCALE=3.0))
def numbers_that_are_equal(x):
    table = {1: x, True: x + 1, 2.0: x - 1}
    table[1.0] = x * SCALE
    table[2] = x + 2
    table[False] = 0
    return table, table[True], table.get(0), 0.0 in table, 3.0 in table, list(map(type, table))


@case(mutate=glob(3, SCALE=3.0))
def tuples_that_are_equal(x):
    table = {(1, 2): x, ("a", (None, b"b")): 3}
    table[True, 2.0] = x * SCALE
    return table, table[1.0, 2], ("a", (None, b"b")) in table, (1, 3) in table, table.get(("a", (None, "b")), 5), {**table, (1, 2): 7}


@case(mutate=glob(3, SCALE=3.0))
def matches_true(x):
    match {1: x, True: x + 1, "k": SCALE}:
        case {True: v, "k": w}:
            return v * w
    return x


@case(mutate=glob(3, SCALE=3.0))
def deletes_and_merges(x):
    a, b = {(1, 2): x, None: 2, 0.5: 3}, {None: x * SCALE, frozenset([1, 2]): 5}
    c = a | b
    del a[1, 2]
    b.update(a)
    return list(c), list(a), b, c[frozenset([2, 1])], c.pop(0.5), dict.fromkeys([(1,), (2,), (1,)], SCALE)


@case(mutate=glob(3, SCALE=3.0))
def comprehends(x):
    table = {(i % 2, float(j)): x * i + j * SCALE for i in range(3) for j in range(2)}
    return table[0, 1], table, [k for k in table if k[1]]


@case(args=mixed, mutate=glob(3, SCALE=3.0))
def counts_a_generator(ts):
    dtypes = collections.Counter(t.dtype for t in ts)
    shapes = collections.Counter(tuple(t.shape) for t in ts)
    shapes.update((3,) for _ in range(2))
    return ts[0] * dtypes[torch.float32] * SCALE, dtypes.most_common(), shapes, shapes[9,]


@case(args=lambda i, s: ([T(i, 2), T(i, 2 + i % 3)],), replays=2)
def counts_sizes_that_change(ts):
    sizes = collections.Counter(t.shape[0] for t in ts)
    return ts[0] * sizes[2], sizes


@case(mutate=do(3, lambda s: CACHE.update((k, v + 1.0) for k, v in CACHE.items())), replays=3)
def remembers_by_shape(x):
    key = x.shape, x.dtype, x.device
    if key not in CACHE:
        CACHE[key] = torch.arange(3.0) * SCALE
    return x + CACHE[key], list(CACHE)
