"""C functions that go through a generator or a map object before they do anything else: reduce, OrderedDict, deque, named tuples."""
import collections
import functools
import itertools
import operator

import torch

from kincorpus.case import T, case, glob

SCALE = 2.0
LOG = []
Point = collections.namedtuple("Point", "a b c")


def rows(x, n=3):
    for k in range(n):
        yield x * (k + SCALE)


def noisy(x, n=3):
    for k in range(n):
        LOG.append(k)
        yield x * k
    LOG.append("end")


def noting(a, b):
    LOG.append("call")
    return a - b


@case(mutate=glob(3, SCALE=3.0))
def reduces_a_map(x):
    return functools.reduce(operator.add, map(torch.sin, [x, x * SCALE, x + 2])), functools.reduce(torch.mul, map(abs, (x, x)), x * SCALE)


@case(mutate=glob(3, SCALE=3.0))
def reduces_a_generator(x):
    return (functools.reduce(operator.mul, rows(x)), functools.reduce(operator.sub, rows(x, 0), x * SCALE), functools.reduce(operator.add, rows(x, 1)),
            functools.reduce(lambda a, b: a + b, (k for k in range(4))))


@case(mutate=glob(3, SCALE=3.0))
def reduces_in_turns(x):
    total = functools.reduce(lambda a, b: a * SCALE - b, rows(x))
    other = functools.reduce(lambda a, b: torch.sin(a) + b, (x + i for i in range(3)), x)
    return total, other, functools.reduce(lambda a, b: b, rows(x, 1)), functools.reduce(lambda a, b: a, rows(x, 0), 5)


@case(mutate=glob(3, SCALE=3.0), replays=0)
def reduces_in_turns_that_show(x):
    del LOG[:]
    return functools.reduce(noting, noisy(x)) * SCALE, functools.reduce(noting, rows(x)), functools.reduce(operator.add, noisy(x)), list(LOG)


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def reduces_nothing(x):
    return functools.reduce(operator.add, rows(x, 0))


@case(mutate=glob(3, SCALE=3.0), replays=3)
def ordered_dict_of_a_generator(x):
    d = collections.OrderedDict((str(i), x * i) for i in range(3))
    e = collections.OrderedDict(((k, v * SCALE) for k, v in d.items()), z=x)
    e.move_to_end("0")
    return sum(d.values()), e, list(e)


@case(mutate=glob(3, SCALE=3.0), replays=3)
def deques_of_generators(x):
    d = collections.deque(rows(x), maxlen=2)
    e = collections.deque(map(torch.sin, [x, x * SCALE]))
    d.append(x)
    e.rotate(1)
    return d[0] + d[1], e.popleft() - e.pop(), len(d), d, e


@case(mutate=glob(3, SCALE=3.0), replays=3)
def named_tuples_of_generators(x):
    p = Point._make(rows(x))
    q = Point(*map(torch.sin, (x, x * SCALE, x + 2)))
    lazy = map(torch.cos, p)
    s = Point._make(lazy)
    return p.a * p.b + p.c, q, q.b, s, list(lazy), p._replace(a=x)


@case(mutate=glob(3, SCALE=3.0), replays=3)
def tees(x):
    a, b = itertools.tee([x, x * SCALE, x + 2])
    first = next(b)
    c, d, e = itertools.tee((x, x + 1), 3)
    return [t + 1 for t in a], [t for t in b], first, next(c) + next(d), list(e)


@case(mutate=glob(3, SCALE=3.0), args=lambda i, s: (T(i, 4, 3), T(i, 2 + i % 2, 3)), replays=2)
def sorts_by_length(x, y):
    z = x[:3]
    return sorted([x, y, z], key=len), max([y, x, z], key=len) * SCALE, min((x, y), key=len), torch.cat(sorted([x, z], key=len, reverse=True))


@case(mutate=glob(3, SCALE=3.0))
def ranges_of_the_profiler(x):
    with torch.profiler.record_function("outer") as outer:
        y = x * SCALE
        with torch.autograd.profiler.record_function("inner", "args"):
            y = y.sin()
    return y + 1, outer.name


@torch.profiler.record_function("decorated")
def decorated(x):
    return x * SCALE


@case(mutate=glob(3, SCALE=3.0), replays=0)
def ranges_as_decorators(x):
    return decorated(x) + 1


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def error_in_a_range(x):
    with torch.profiler.record_function("fails"):
        y = x * SCALE
        return y @ y.t() @ y.t()


@case(mutate=glob(3, SCALE=3.0), args=lambda i, s: (T(i, 2 + i % 3, 3), T(i, 4)), calls=9, replays=4)
def questions_of_c_code(x, y):
    shorter = sorted([y, x], key=torch.numel)[0]
    return (x * sum(map(torch.numel, (x, y))), max(map(torch.Tensor.dim, [x, y])) * SCALE, shorter + 1, list(map(operator.methodcaller("size", 0), [x, y])),
            list(map(torch.Tensor.size, [x])), [t.cos() for t in filter(torch.Tensor.is_floating_point, [x, y.int(), y])])


@case(args=lambda i, s: (T(i, 2, 3), T(i, 4) if i % 2 else T(i, 4).double()), calls=8, replays=5)
def dtypes_asked_by_c_code(x, y):
    return x * sum(map(torch.Tensor.element_size, [x, y])), list(map(torch.Tensor.get_device, [x]))


@case(args=lambda i, s: ([T(i, 5 + i % 3 - i // 5 * 4), T(i, 3), T(i + 1, 1), T(i + 2, 3)],), replays=2)
def sorts_by_sizes_that_change(ts):
    own = list(ts)
    own.sort(key=lambda t: -t.shape[0])
    a, b = max(ts, key=lambda t: t.shape[0]), min(ts, key=len)
    return sorted(ts, key=lambda t: t.shape[0]), sorted(ts, key=torch.numel, reverse=True), own, a * 2, b, max(ts, key=torch.numel) * 3


@case(mutate=glob(3, SCALE=3.0))
def extends_a_deque_by_a_map(x):
    d = collections.deque([x], maxlen=4)
    d.extendleft(map(torch.sin, [x * SCALE, x + 1]))
    d.extend(map(operator.neg, (x, x + SCALE)))
    return d, d[0] * d[1]


@case(mutate=glob(3, SCALE=3.0), replays=0)
def extends_a_deque_by_a_generator(x):
    d = collections.deque([x])
    d.extend(rows(x))
    return d, d[1] + 1


@case(mutate=glob(3, SCALE=3.0))
def ordered_from_keys(x):
    d = collections.OrderedDict.fromkeys(["a", 1, "b", True], x * SCALE)
    d["c"] = x
    d.move_to_end("a")
    return d, list(d), collections.OrderedDict.fromkeys("xy"), d["b"] + d[1]


@case(mutate=glob(3, SCALE=3.0))
def default_from_keys(x):
    d = collections.defaultdict.fromkeys(("a", "b", "a"), x * SCALE)
    return d, d.default_factory, d["a"] + 1, d.get("c")


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def default_from_keys_has_no_factory(x):
    return collections.defaultdict.fromkeys("ab", x)["c"]


class Table(dict):
    pass


@case(mutate=glob(3, SCALE=3.0))
def from_keys_of_a_generator(x):
    d = dict.fromkeys((c for c in "abca"), x * SCALE)
    e = dict.fromkeys((n for n in noisy(1, 2)), SCALE)
    return d, d["b"] + 1, e, LOG, collections.OrderedDict.fromkeys(k for k in (1, True)), Table.fromkeys((c for c in "ab"), 1)


class Held:
    def __init__(self):
        self.queue, self.count = collections.deque(maxlen=6), 0

    @property
    def last(self):
        return self.queue[-1]


HELD = Held()


@case(mutate=glob(3, SCALE=3.0), replays=0)
def extends_an_older_deque(x):
    HELD.queue.extend(rows(x))
    HELD.queue.extendleft(x - i for i in range(2))
    HELD.queue += (x + i for i in range(2))
    return HELD.queue[0] * HELD.queue[-1], len(HELD.queue), operator.attrgetter("last")(HELD)


@case(replays=0)
def extends_a_deque_by_what_looks_at_it(x):
    HELD.queue.clear()
    HELD.queue.extend(x * len(HELD.queue) for _ in range(3))
    return list(HELD.queue)
