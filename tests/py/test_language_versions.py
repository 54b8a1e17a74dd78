"""What CPython 3.12 to 3.14 compile in another way than 3.11, and what they add to the language: recorded and replayed alike, and left at
every step."""
import collections
import itertools
import sys
import textwrap

import pytest
import torch

from kintsugi import _kintsugi
from kintsugi._kintsugi import Compiled

since = {version: pytest.mark.skipif(sys.version_info < version, reason="a later version's syntax") for version in ((3, 12), (3, 13), (3, 14))}


def slices(x, n):
    return x[n:2] + x[:, 1:3].sum() + [1, 2, 3, 4][n:3][0] + len("word"[:n])


def stored_slices(x, n):
    y, items = x.clone(), [1, 2, 3]
    y[n:2] = 7
    items[n:2] = [9, 9]
    return y + sum(items)


def texts(x, n):
    return f"{n!r:>5} {n!s} {tuple(x.shape)!r} {'é'!a}"


def closures(x, n):
    def inner(y, k=3, *, z: int = n):
        return y + k + z + n
    return inner(x) + len(inner.__annotations__) + inner.__defaults__[0]


class Base(torch.nn.Module):
    def forward(self, x):
        return x + 1

    @property
    def scale(self):
        return 5


class Child(Base):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(super().forward(x)) * super().scale


CHILD = Child()


def supers(x, n):
    return CHILD(x) * n


def conditions(x, n):
    if n:
        x = x + 1
    if n > 1 and not (n == 5):
        x = x * 2
    while n < 3:
        n += 1
        x = x + n
    return x - 1 if x.shape == (3, 4) and x.dtype == torch.float32 else x


def data_comparison(x, n):
    return x + 1 if x.sum() > 60 * n else x - 1


def data_truth(x, n):
    return x + 1 if (x > 10 * n).any() else x - 1


def data_assertion(x, n):
    assert (x > -5).all()
    assert x.sum() > -n
    return x + n


class Number:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value

    def __lt__(self, other):
        return [1] if self.value < other.value else []

    def __gt__(self, other):
        return NotImplemented

    def __bool__(self):
        return self.value > 1


def own_comparisons(x, n):
    if Number(n) == Number(1):
        x = x + 1
    if Number(n) < Number(2):
        x = x * 3
    if Number(n) > Number(1):
        x = x * 5
    return x - 1 if Number(n) else x


def spread(x, n):
    def inner(*args, **kwargs):
        return args[0] + kwargs.get("z", 1)
    return inner(*(x, n)) + inner(*[x], **{"z": n})


def conversions(x, n):
    return x + 1 if any(v > 1 for v in (n, 2)) and all([n, 1]) else x + sum(tuple(v for v in (n, 3)))


def cells_of_comprehensions(x, n):
    return x + sum(f() for f in [lambda: v * n for v in range(3)]) + [(lambda: v)() for v in range(3)][2]


def delegating(x, n):
    def inner():
        yield from [n, 2]
        yield x

    def outer():
        yield from inner()
    return sum(outer())


def looked_up(x, n):
    return CHILD.linear(x) + CHILD.linear.weight.sum() * n


class Shop:
    rate = 2

    @classmethod
    def priced(cls, x, n, *, more=0):
        if x.sum() > 60 * n:
            x = x - 1
        return x * cls.rate + more

    @staticmethod
    def plain(x):
        return x + 1

class Corner(Shop):
    rate = 3


def class_methods(x, n):
    """3.14.4 and later leave the function and the class on the stack where earlier versions leave a bound method."""
    shop, corner = Shop(), Corner()
    corner.plain = lambda v: v * 7
    return shop.priced(x, n) + corner.priced(x, n, more=n) + Corner.priced(x, n) + shop.plain(x) + corner.plain(x) + type(corner).priced(x, 1)


Point = collections.namedtuple("Point", "first second")
POINTS = [Point(1, 2), Point(3, 4)]


def queues(x, n):
    queue, out = collections.deque([(x, 0)]), []
    while queue:
        t, depth = queue.popleft()
        out.append(t)
        if depth < 2:
            queue.append((t * n, depth + 1))
            queue.extend([(t + 1, depth + 1)])
    return sum(out)


def default_dicts(x, n):
    rows = collections.defaultdict(list)
    for k in range(3):
        rows[k % 2].append(x + k)
    return sum(rows[0]) * n + rows[1][0]


def fields(x, n):
    point = Point(x, n)
    return point.first * point.second + sum(p.second for p in POINTS)


def iterators_of_c(x, n):
    queue = collections.deque([1, 2, n])
    for k in queue:
        x = x + k
    for k in itertools.chain([1], (n, 2)):
        x = x * k
    return x


def unions(x, n):
    return x + isinstance(n, int | str) + issubclass(bool, str | list) + len(str(list[int])) + len(str(collections.deque[int]))


CLASSES_OF_C = [queues, default_dicts, fields, iterators_of_c, unions]  # on the heap from 3.12 on, under other names some of them


class Steps(collections.deque):
    def __radd__(self, other):
        return other + len(self)


class Whole:
    def __add__(self, other):
        return NotImplemented if type(other) is collections.deque else 5

    def __radd__(self, other):
        return 7

    def __eq__(self, other):
        return 3


def operators_of_c(x, n):
    steps, queue = Steps([1, n]), collections.deque([1, n])
    try:
        x = x + (queue + Whole())
    except TypeError:
        x = x * 2
    return x + (n + steps) + len(queue + collections.deque([x])) + len(steps * 2) + (Whole() + steps) + (queue == Whole()) + len(steps.copy() + queue)


RECORDED = [*CLASSES_OF_C, slices, stored_slices, texts, closures, supers, conditions, data_comparison, data_truth, data_assertion, own_comparisons, spread,
            conversions, cells_of_comprehensions, delegating, looked_up, class_methods]


class Manager:
    def __enter__(self):
        return 3

    def __exit__(self, *raised):
        return True


def swallowing(x, n):
    with Manager() as k:
        x = x + k
        raise ValueError(n)
    return x


def groups(x, n):
    try:
        raise ExceptionGroup("both", [ValueError(n), TypeError(2)])
    except* ValueError:
        x = x + n
    except* TypeError as group:
        x = x * len(group.exceptions)
    return x


def snapshots_of_locals(x, n):
    seen = locals()
    seen["n"] = 100
    n = n + 1
    return x + n + len(locals())


def values():
    return [(torch.arange(12.0).reshape(3, 4) + i, n) for i in range(3) for n in (1, 2)]


def outcome(fn, args):
    try:
        result = fn(*args)
    except Exception as error:
        return type(error), str(error)
    return result.tolist() if isinstance(result, torch.Tensor) else result


def steps(compiled):
    return [s for v in compiled.entries() for s in _kintsugi.dump(v)["steps"]]


def check(fn, replayed=True):
    compiled, expected = Compiled(fn), [outcome(fn, args) for args in values()]
    for _ in range(3):
        assert [outcome(compiled, args) for args in values()] == expected
    assert not replayed or compiled.stats()["replays"] > 0
    try:
        for k in range(60):
            _kintsugi.force_exit(k)
            assert [outcome(compiled, args) for args in values()] == expected, k
    finally:
        _kintsugi.force_exit(None)
    return compiled


@pytest.mark.parametrize("fn", RECORDED, ids=lambda f: f.__name__)
def test_recorded_to_the_end(fn):
    ends = [s["text"] for s in steps(check(fn)) if s["text"].startswith("exit")]
    assert [text for text in ends if "unsupported" in text or "bool" in text] == []


@pytest.mark.parametrize("fn", CLASSES_OF_C, ids=lambda f: f.__name__)
def test_classes_of_c_are_known(fn):
    compiled = Compiled(fn)
    for args in values():
        compiled(*args)
    assert compiled.stats()["breaks"] == 0


@pytest.mark.parametrize("fn", [operators_of_c, swallowing, groups, snapshots_of_locals], ids=lambda f: f.__name__)
def test_same_results(fn):
    check(fn)


def defined(source, name="fn"):
    place = {"torch": torch}
    exec(textwrap.dedent(source), place)
    return place[name]


@since[3, 12]
def test_type_parameters():
    check(defined("""
        def fn(x, n):
            def inner[T: int, *Ts, **P](y: T) -> T:
                return y + 1
            class Box[T]:
                def get(self, v: T) -> T:
                    return v * n
            type Pair[T] = tuple[T, T]
            return Box().get(inner(x)) + len(inner.__type_params__) + len(Pair.__type_params__)
    """))


@since[3, 13]
def test_writes_through_f_locals():
    check(defined("""
        import sys

        def change(value):
            sys._getframe(1).f_locals["n"] = value

        def fn(x, n):
            y = x * n
            change(n + 10)
            z = y + n
            sys._getframe().f_locals["z"] = z + n
            return z
    """))


@since[3, 14]
def test_deferred_annotations():
    check(defined("""
        def fn(x, n):
            def inner(y: Later[n], *, k: int = 2) -> "Later":
                return y + k
            class Later:
                def __class_getitem__(cls, i):
                    return i
            return inner(x) + inner.__annotations__["y"] + len(inner.__annotate__(1))
    """))


@since[3, 14]
def test_templates():
    check(defined("""
        def fn(x, n):
            template = t"a {n} b {x.shape!r:>3}"
            return x + template.interpolations[0].value + len(template.strings)
    """), replayed=False) # nothing is won before the template


@since[3, 14]
def test_except_without_parentheses():
    check(defined("""
        def fn(x, n):
            try:
                raise KeyError(n)
            except KeyError, ValueError:
                x = x + 1
            return x
    """))
