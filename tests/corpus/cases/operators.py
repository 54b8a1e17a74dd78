"""Operators of the program's own classes, and operators by name: which method is asked, in which order, and what follows."""
import dataclasses
import functools
import operator

import torch

from kincorpus.case import T, case, do, glob

SCALE = 2.0
LOG = []


class Vec:
    def __init__(self, t):
        self.t = t

    def __add__(self, other):
        return Vec(self.t + (other.t if isinstance(other, Vec) else other))

    def __mul__(self, k):
        if not isinstance(k, (int, float)):
            return NotImplemented
        return Vec(self.t * k)

    __rmul__ = __mul__

    def __rsub__(self, other):
        return Vec(other - self.t)

    def __neg__(self):
        return Vec(-self.t)

    def __invert__(self):
        LOG.append("invert")
        return Vec(1 - self.t)

    def __matmul__(self, other):
        return self.t @ other.t.t()

    def __lt__(self, other):
        return self.t.shape[0] < other

    def __eq__(self, other):
        return isinstance(other, Vec) and self.t is other.t

    __hash__ = None


class Right:
    def __init__(self, k):
        self.k = k

    def __rmul__(self, other):
        return other.t * self.k

    def __gt__(self, other):
        return ("gt", other.t * self.k)


class Twice(Vec):
    def __radd__(self, other):
        return ("twice", other.t + self.t)


@case(mutate=glob(3, SCALE=3.0))
def arithmetic_of_a_class(x):
    v = Vec(x)
    w = v + v * 2 + SCALE * v + 1
    return (1 - w).t, (-w).t, w @ v


@case(mutate=glob(3, SCALE=3.0))
def augmented_without_a_method(x):
    v = Vec(x)
    v += SCALE
    v *= 2
    return v.t


@case(mutate=do(3, lambda s: setattr(Vec, "__add__", lambda self, other: Vec(self.t - 1))))
def operator_is_replaced(x):
    return (Vec(x) + 1).t


@case(mutate=do(3, lambda s: setattr(Vec, "__iadd__", lambda self, other: Vec(self.t * other))))
def augmented_method_appears(x):
    v = Vec(x)
    v += 3
    return v.t


@case(mutate=glob(3, SCALE=3.0))
def answers_not_implemented(x):
    return Vec(x) * Right(SCALE), Vec(x) == 3, Vec(x) != None, Vec(x) == Vec(x)   # noqa: E711


@case(args=lambda i, s: (T(i, 4, 3), Right(2.0) if i % 2 else 3), replays=3)
def right_operand_changes(x, right):
    return Vec(x) * right


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def nobody_knows_the_operator(x):
    return Vec(x) * Vec(x)


@case(mutate=glob(3, SCALE=3.0))
def nobody_knows_it_and_it_is_handled(x):
    out = []
    for f in (lambda: Vec(x) * Vec(x), lambda: Right(1) + 1, lambda: Right(1) < 3):
        try:
            out.append(f())
        except TypeError as e:
            out.append(str(e))
    return out, x * SCALE


@case(mutate=glob(3, SCALE=3.0))
def subclass_on_the_right_is_asked_first(x):
    return Vec(x) + Twice(x * SCALE)


@case(mutate=glob(3, SCALE=3.0))
def effects_in_operators(x):
    del LOG[:]
    v = ~Vec(x)
    return (~v).t * SCALE, list(LOG)


@case(args=lambda i, s: (T(i, 3 + i % 2, 3),), replays=3)
def compares_by_a_class(x):
    return x * 2 if Vec(x) < 4 else x + 1


@functools.total_ordering
class Version:
    def __init__(self, n):
        self.n = n

    def __lt__(self, other):
        return self.n < other.n

    def __eq__(self, other):
        return self.n == other.n

    __hash__ = None


@dataclasses.dataclass(order=True)
class Item:
    n: int
    name: str = dataclasses.field(compare=False, default="")


@case(mutate=glob(3, SCALE=3.0))
def total_ordering(x):
    return x * SCALE if Version(1) <= Version(2) else x, Version(3) >= Version(1), Item(1) < Item(2, "b"), Item(1, "a") == Item(1, "b")


class Bare:
    pass


@case(mutate=do(3, lambda s: setattr(Bare, "__eq__", lambda self, other: True)))
def equality_appears(x):
    a, b = Bare(), Bare()
    return x + (a == b), a != b, a == a


class Leaves:
    """Reads a number from data: what it answers changes between the calls."""

    def __init__(self, t):
        self.t = t

    def __add__(self, other):
        if self.t.sum() > 0:
            return NotImplemented
        return self.t + 1

    def __lt__(self, other):
        if self.t.sum() > 0:
            return NotImplemented
        return "less"


class Helps:
    def __radd__(self, other):
        return "helped", other.t

    def __gt__(self, other):
        return "greater", other.t


@case(args=lambda i, s: (T(i, 4, 3).abs() * (1 if i in (2, 4) else -1), Helps() if i < 4 else 1), raises=(4,), replays=2)
def answer_depends_on_data(x, other):
    return Leaves(x) + other


@case(args=lambda i, s: (T(i, 4, 3).abs() * (1 if i in (2, 4) else -1), Helps() if i < 4 else 1), raises=(4,), replays=2)
def comparison_depends_on_data(x, other):
    return Leaves(x) < other


# -- by name --------------------------------------------------------------------------------------------------------------


@case(mutate=glob(3, SCALE=3.0))
def operators_by_name(x):
    return (operator.add(x, x), operator.mul(x, SCALE), operator.truediv(x, 2), operator.neg(x), operator.lt(x, 0), operator.getitem([x, 1], 0),
            operator.add(Vec(x), 1).t, operator.contains({"a": 1}, "a"), operator.is_(x, x), operator.not_(0), operator.concat([x], [1]))


@case(mutate=glob(3, SCALE=3.0))
def operators_in_place_by_name(x):
    y = x.clone()
    z = operator.iadd(y, SCALE)
    rows = [x]
    return z is y, y, operator.iadd(rows, [1]) is rows, rows, operator.iadd(3, 4)


@case(args=lambda i, s: (T(i, 4, 3), 3 if i < 4 else "a"), raises=(4, 5), replays=3)
def operator_by_name_raises(x, k):
    return operator.add(Vec(x).t, k)


@case(mutate=glob(3, SCALE=3.0))
def reduces_by_an_operator(x):
    return (functools.reduce(operator.mul, [x, x * SCALE, x]), functools.reduce(operator.add, [1, 2, 3]), functools.reduce(torch.maximum, (x, -x), x * SCALE),
            functools.reduce(operator.add, [Vec(x), Vec(x)]).t)


@case(mutate=glob(3, SCALE=3.0))
def picks_by_getters(x):
    first, last, shape = operator.itemgetter(0), operator.itemgetter(-1, 0), operator.attrgetter("shape")
    rows = [x * SCALE, x + 1]
    return first(rows), last(rows), first({0: 1}), shape(x), operator.methodcaller("sum", dim=0)(x), operator.attrgetter("t.dtype")(Vec(x))


@case(mutate=glob(3, SCALE=3.0))
def maps_c_functions(x):
    q, k = map(torch.relu, [x, x * SCALE])
    return (q, k, list(map(torch.add, [x, x], [1, SCALE])), tuple(map(operator.itemgetter(1), [(1, x), (2, q)])), list(map(str, [1, 2])), sum(map(torch.abs, [x, k])),
            dict(map(lambda p: (p[0], p[1] + 1), [("a", x)])), list(map(x.add, [1, 2])), max(map(len, ["a", "bb"])), torch.stack(list(map(torch.Tensor.neg, [x, q]))))


@case(mutate=glob(3, SCALE=3.0))
def getters_of_tensors(x):
    scaled = operator.attrgetter("mT")(x * SCALE)
    name = "".join(["re", "al"])
    return scaled, operator.attrgetter(name)(x) + 1, operator.attrgetter("grad")(x), operator.attrgetter("dtype")(x), operator.attrgetter("T")(x).shape


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def getter_of_a_missing_attribute(x):
    return operator.attrgetter("missing")(x * SCALE)


@case(mutate=glob(3, SCALE=3.0))
def caller_with_keywords(x):
    mean, clamp = operator.methodcaller("mean", dim=0, keepdim=True), operator.methodcaller("clamp", -1.0, max=SCALE)
    return mean(x), clamp(x * 3), operator.methodcaller("split", sep=",", maxsplit=1)("a,b,c"), list(map(operator.methodcaller("sum", dim=1), [x, x * SCALE]))
