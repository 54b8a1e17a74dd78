"""Weak references made by the compiled function: while a variable has the object, they give it."""
import weakref

import torch

from kincorpus.case import T, case, glob

SCALE = 2.0
DIED = []


class Node:
    def __init__(self, value, parent=None):
        self.value = value
        self.parent = parent and weakref.ref(parent)


@case(mutate=glob(3, SCALE=3.0))
def asks_at_once(x):
    y = x * SCALE
    r = weakref.ref(x)
    return r() + weakref.ref(y)(), r() is x, r is weakref.ref(x), r == weakref.ref(y), isinstance(r, weakref.ref)


@case(mutate=glob(3, SCALE=3.0), replays=0)
def asks_when_it_is_gone(x):
    y = x * SCALE
    r = weakref.ref(y)
    z = r() + 1
    del y
    return z, r() is None


@case(mutate=glob(3, SCALE=3.0), replays=0)
def asks_when_something_else_has_it(x):
    y = x * SCALE
    kept = [y]
    r = weakref.ref(y)
    del y
    return r() + 1, kept


@case(mutate=glob(3, SCALE=3.0))
def returns_one(x):
    y = x * SCALE
    r = weakref.ref(y)
    return y, r, r() + 1


@case(mutate=glob(3, SCALE=3.0), replays=0)
def has_a_callback(x):
    del DIED[:]
    y = x * SCALE
    r = weakref.ref(y, lambda ref: DIED.append(1))
    z = r() + 1
    del y
    return z, list(DIED)


@case(mutate=glob(3, SCALE=3.0))
def parents(x):
    root = Node(x * SCALE)
    leaf = Node(x + 1, root)
    return leaf.value + leaf.parent().value, leaf.parent() is root


@case(mutate=glob(3, SCALE=3.0))
def in_a_closure(x):
    y = x * SCALE
    r = weakref.ref(y)

    def inner(k):
        return r() * k + y
    return inner(2)


class Holder:
    pass


HOLDER = Holder()


@case(mutate=glob(3, SCALE=3.0))
def sees_what_a_store_replaces(x):
    HOLDER.value = x + 1
    r = weakref.ref(HOLDER.value)
    before = r() is None
    HOLDER.value = x * SCALE
    return HOLDER.value + 1, before, r() is None


@case(mutate=glob(3, SCALE=3.0), replays=3)
def sees_what_the_call_before_has_stored(x):
    r = HOLDER.__dict__.get("seen")
    gone = r is None or r() is None
    HOLDER.value = x * SCALE
    HOLDER.seen = weakref.ref(HOLDER.value)
    return HOLDER.value + 1, gone, r is None or r() is None
