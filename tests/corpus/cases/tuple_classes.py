"""collections.namedtuple called in the compiled function: a class of its own in each call."""
import collections
from collections import namedtuple

import torch

from kincorpus.case import T, case, glob

SCALE = 2.0
FIELDS = ["a", "b"]
KEPT = []


@case(mutate=glob(3, SCALE=3.0))
def makes_and_reads(x):
    Point = collections.namedtuple("Point", ["a", "b"])
    p = Point(x * SCALE, b=2)
    a, b = p
    return p.a + p[1], a * b, len(p), p._fields, isinstance(p, Point), isinstance((1, 2), Point), Point.__name__


@case(mutate=glob(3, FIELDS=["a", "c"]))
def fields_change(x):
    Point = namedtuple("Point", FIELDS)
    p = Point(x, x + 1)
    return p.a + p[1], p._asdict(), Point._fields


@case(mutate=glob(3, SCALE=3.0))
def methods(x):
    Point = namedtuple("Point", "a, b c", defaults=(4, 5))
    p = Point(x)
    q = p._replace(a=x * SCALE, c=1)
    r = Point._make([1, 2, 3])
    return q.a * q.b + q.c, q._asdict()["c"], r, Point(1) == Point(1), Point(1) < Point(2), r.count(2), {r: 3}[Point(1, 2, 3)], Point._field_defaults


def seen(i, s, result):
    """Each call has a class of its own, of the function's module."""
    KEPT.append(type(result[0]))
    return len(set(map(id, KEPT))) == len(KEPT), KEPT[-1].__module__ == KEPT[0].__module__, KEPT[-1].__qualname__, hasattr(KEPT[-1], "extra")


@case(mutate=glob(3, SCALE=3.0), after=seen)
def returns_one(x):
    Point = namedtuple("Point", ["a", "b"])
    return Point(x * SCALE, 2), Point


@case(mutate=glob(3, SCALE=3.0), after=seen, replays=0)
def sets_attributes_of_the_class(x):
    Point = namedtuple("Point", ["a", "b"])
    before = hasattr(Point, "extra")
    Point.extra = SCALE
    Point.twice = lambda self: self.a * 2
    p = Point(x, 1)
    return p, p.twice() * p.extra, before


@case(args=lambda i, s: (T(i, 3), i % 2), mutate=glob(3, SCALE=3.0), replays=0)
def two_ways(x, n):
    Point = namedtuple("Point", ["a", "b"], module="elsewhere")
    p = Point(x, SCALE)
    if x.sum() > 0 and n:
        return p.a * p.b, p
    return [Point(i, p) for i in range(2)][1].b.a * SCALE, Point.__module__


@case(mutate=glob(3, SCALE=3.0))
def two_classes(x):
    First, Second = namedtuple("P", ["a"]), namedtuple("P", ["a"])
    p, q = First(x * SCALE), Second(x)
    return p.a + q.a, First is Second, type(p) is First, isinstance(q, First), p == (1,) if False else None


@case(mutate=glob(3, SCALE=3.0))
def wrong_names(x):
    said = []
    for names in (["a", "1b"], ["a", "a"], "a class", ["_a"]):
        try:
            namedtuple("P", names)
        except ValueError as error:
            said.append(str(error))
    renamed = namedtuple("P", ["a", "def"], rename=True)
    return x * SCALE, said, renamed._fields


@case(mutate=glob(3, SCALE=3.0))
def dropped_classes(x):
    total = x
    for k in range(3):
        total = total + namedtuple("P", ["a", "b"])(x * k, SCALE).a
    return total * SCALE


@case(mutate=glob(3, SCALE=3.0), replays=0)
def gives_the_class_away(x):
    Point = namedtuple("Point", ["a", "b"])
    p = Point(x, 1)
    opaquely(p)
    return p.a * SCALE, p.extra, Point.__doc__


def opaquely(p):
    exec("type(p).extra = 7", {"p": p})
