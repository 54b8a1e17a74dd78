"""C functions of Python's library that programs hand tensors and containers of them: iteration, sorting, operators, collections."""
import collections
import functools
import itertools
import operator
import typing

import torch

from kincorpus.case import T, case, do, glob

SCALE = 2.0
LETTERS = "ab"
KEYS = [1, 2, 3]


# -- what C functions iterate over ---------------------------------------------------------------------------------------


@case(mutate=glob(3, SCALE=3.0))
def rows_by_enumerate_and_zip(x):
    out = [row * i * SCALE for i, row in enumerate(x)]
    for a, b in zip(x, x.t()):
        out.append(a[0] - b[0])
    return out


@case(mutate=glob(3, SCALE=3.0))
def rows_as_containers(x):
    rows = list(x)
    rows.extend(x * SCALE)
    return rows, tuple(x), torch.stack([*x]), rows[0] is rows[0], [a - b for a, b in itertools.pairwise(x)]


@case(args=lambda i, s: (T(i, 3, 2, grad=True),), after=lambda i, s, r: r.sum().backward(), mutate=glob(3, SCALE=3.0))
def rows_with_gradients(x):
    total = 0
    for i, row in enumerate(x):
        total = total + row * i
    return total * SCALE + sum(x)


@case(args=lambda i, s: (T(i, 2 + i % 4, 3),), calls=8, replays=2)   # each number is another branch
def number_of_rows_changes(x):
    return [row * i for i, row in enumerate(x)], len(list(x))


@case(args=lambda i, s: (torch.tensor(1.0) if i == 4 else T(i, 2, 3),), raises=(4,), replays=3)
def rows_of_a_number(x):
    return list(enumerate(x))


@case(mutate=glob(3, LETTERS="cd"))
def dicts_of_pairs(x):
    table = dict(zip(LETTERS, [x, x * 2]))
    more = dict(table, c=1, a=x + 1)
    return table, more, dict([("k", x)], k=2), dict.fromkeys(LETTERS, 0), list(reversed(table)), list(LETTERS)


@case(mutate=glob(3, SCALE=3.0))
def copies_a_dict_that_changes(x):
    table = {"a": x, "b": 1}
    copy = dict(table)
    table["b"] = SCALE
    return copy, table


@case(mutate=glob(3, SCALE=3.0))
def sums_from_a_start(x):
    return sum([x, x * SCALE], start=x), sum((t for t in [x, x]), x), sum(x, start=torch.zeros(3)), sum([1, 2], start=SCALE)


@case(mutate=glob(3, SCALE=3.0))
def chains_from_an_iterable(x):
    return torch.stack(list(itertools.chain.from_iterable([[x, x * 2], (x * SCALE,)])))


def give_extra():
    Plain.extra = 5.0


class Plain:
    kind = "plain"


@case(mutate=do(3, lambda s: give_extra()))
def asks_a_class(x):
    return x * getattr(Plain, "extra", SCALE), hasattr(Plain, "extra"), hasattr(Plain, "nothing"), getattr(Plain, "kind", None)


# -- sorting ---------------------------------------------------------------------------------------------------------------


class Named:
    def __init__(self, n, t):
        self.n, self.t = n, t

    def key(self, k):
        return -self.n * k


@case(mutate=glob(3, SCALE=3.0))
def sorts_a_list_in_place(x):
    rows = [("b", x * 2), ("a", x + SCALE), ("c", x)]
    rows.sort(key=lambda r: r[0])
    first = [t for _, t in rows]
    rows.sort(key=operator.itemgetter(0), reverse=True)
    rows.append(("d", x))
    return first, rows


@case(mutate=do(3, lambda s: KEYS.reverse()))
def order_of_a_sort_changes(x):
    rows = [(KEYS[0], x * 2), (KEYS[1], x + 1), (KEYS[2], x)]
    rows.sort(key=lambda r: r[0])
    return rows, sorted(rows, key=operator.itemgetter(0), reverse=True), max(rows, key=operator.itemgetter(0))


@case(mutate=glob(3, SCALE=3.0))
def sorts_by_c_keys(x):
    rows = [Named(2, x * 2), Named(1, x + SCALE), Named(3, x)]
    words = ["aaa", "B", "cc"]
    return ([r.t for r in sorted(rows, key=operator.attrgetter("n"))], sorted(words, key=len), sorted(words, key=str.lower), min(words, key=len),
            [r.n for r in sorted(rows, key=lambda r: r.key(2))], sorted([-2, 1], key=abs), max(rows, key=operator.attrgetter("n")).t)


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def keys_do_not_compare(x):
    rows = [(1, x), ("a", x)]
    rows.sort(key=operator.itemgetter(0))
    return rows


@case(args=lambda i, s: (T(i, 3, 3), [T(i, 2), T(i + 1, 3)]), mutate=glob(3, SCALE=3.0))
def sorts_an_argument(x, rows):
    rows.sort(key=lambda t: -t.shape[0])
    return rows[0] * SCALE, x


@case(mutate=glob(3, SCALE=3.0))
def sorts_by_data(x):
    rows = [x[0], x[1] * SCALE, x[2]]
    rows.sort(key=lambda r: r.sum().item())
    return torch.stack(rows)


# -- named tuples and partial objects --------------------------------------------------------------------------------------


Point = collections.namedtuple("Point", "a b c", defaults=(1.0,))


class Scaled(typing.NamedTuple):
    x: torch.Tensor
    k: float = 2.0

    def scaled(self):
        return self._replace(x=self.x * self.k)


def longer(p):
    return collections.namedtuple("Longer", "a b c d")(*p, 0)


@case(args=lambda i, s: (Point(T(i, 3), T(i + 1, 3), i),))
def unpacks_a_named_tuple(p):
    a, b, c = p
    return a + b, c


@case(args=lambda i, s: (Point(T(i, 3), T(i + 1, 3), 2) if i != 3 else longer(Point(T(i, 3), T(i, 3), 2)),), replays=3)
def walks_a_named_tuple(p):
    return [v * 2 for v in p], len(p), p[0] + p.b, (*p,), dict(zip(p._fields, p))


@case(mutate=glob(3, SCALE=3.0))
def replaces_in_a_named_tuple(x):
    p = Point(x, x * SCALE)
    p = p._replace(b=p.a - 1)
    return p, p._asdict(), Point._make([x, 1, SCALE]), Scaled(x, SCALE).scaled()


@case(args=lambda i, s: (Point(T(i, 3), T(i + 1, 3), 2),), mutate=glob(3, SCALE=3.0))
def replaces_in_an_argument(p):
    return p._replace(a=p.b * SCALE), p._asdict()["c"], type(p)(*[v for v in p])


@case(args=lambda i, s: (torch.max(T(i, 3, 3), 1),))
def unpacks_what_torch_returned(p):
    v, i = p
    return v * 2, i


@case(mutate=glob(3, SCALE=3.0))
def takes_from_a_map_twice(x):
    table = {"a": x, "b": x * SCALE}
    values = map(table.pop, ["a", "b"])
    return tuple.__new__(Point, values), list(values), table


@case(mutate=glob(3, SCALE=3.0))
def partial_of_partial(x):
    f = functools.partial(torch.add, x)
    g = functools.partial(f, x * SCALE, alpha=2)
    return f(x), g(), functools.partial(g)()


# -- deques ----------------------------------------------------------------------------------------------------------------


@case(mutate=glob(3, SCALE=3.0))
def walks_by_a_queue(x):
    queue = collections.deque([(x, 0)])
    out = []
    while queue:
        t, depth = queue.popleft()
        out.append(t)
        if depth < 2:
            queue.append((t * SCALE, depth + 1))
            queue.extend([(t + 1, depth + 1)])
    return out


@case(mutate=glob(3, SCALE=3.0))
def ends_of_a_deque(x):
    q = collections.deque(maxlen=3)
    for k in range(4):
        q.appendleft(x * k)
    q.rotate(1)
    last = q.pop()
    q[0] = x * SCALE
    a, b = q
    return last, a - b, len(q), q[-1], list(q), q, torch.stack(list(q))


def history(s):
    s.h = collections.deque(maxlen=3)


@case(setup=history, args=lambda i, s: (T(i, 4), s.h), calls=8, mutate=do(5, lambda s: s.h.clear()), again=0, replays=5)
def keeps_a_history(x, h):
    h.append(x)
    return torch.stack(list(h)).mean(0), len(h)


@case(mutate=glob(3, SCALE=3.0))
def deque_holds_what_others_change(x):
    rows, table = [x], {}
    q = collections.deque([rows])
    q.append(table)
    table[x.shape[0]] = rows
    fill(q)
    return len(rows), len(table), rows[-1] * SCALE


def fill(q):
    exec("q[0].append(q[0][0] + 1); q[1]['k'] = 1", {"q": q})


@case(mutate=glob(3, SCALE=3.0))
def dict_of_unknown_keys_holds_a_list(x):
    rows, table = [x], {}
    for key in {3, 5}:
        table[key] = rows
    exec("t[3].append(1)", {"t": table})
    return len(rows), x * SCALE


@case(mutate=glob(3, SCALE=3.0))
def compares_deques(x):
    a, b = collections.deque([1, SCALE]), collections.deque([1, 2.0])
    return x, a == b, 1 in a, a.count(1), a.index(1), a + b, a.copy()
