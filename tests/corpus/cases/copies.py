"""copy.copy of objects of the program's classes: with slots, frozen, with hooks of their own, older ones that change. The first copy of an object changes
its class, which remembers the names of its slots: the second call is recorded as well."""
import copy
import dataclasses

from kincorpus.case import T, case, do, glob

SCALE, LOG = 2.0, []


@dataclasses.dataclass
class Pair:
    first: object
    count: int = 3


@dataclasses.dataclass(frozen=True)
class Frozen:
    first: object
    count: int = 3


class Slots:
    __slots__ = ("first", "second", "unset")

    def __init__(self, first):
        self.first, self.second = first, 2


class SlotsAndMore(Slots):
    pass


class Empty:
    pass


class Guarded:
    def __init__(self, first):
        object.__setattr__(self, "first", first)

    def __setattr__(self, name, value):
        LOG.append(name)
        object.__setattr__(self, name, value)

    @property
    def twice(self):
        return self.first * 2


class Stated:
    def __init__(self, first):
        self.first, self.cache = first, {1: 2}

    def __getstate__(self):
        return {"first": self.first, "was": "copied"}

    def __setstate__(self, state):
        LOG.append(sorted(state))
        self.__dict__.update(state)


class Restored:
    def __init__(self, first):
        self.first = first

    def __setstate__(self, state):
        self.first = state["first"] * SCALE


class Made:
    def __init__(self, first):
        self.first = first

    def __copy__(self):
        return Made(self.first * SCALE)


def held(s):
    s.pair, s.empty, s.slots = Pair(2.0), Empty(), Slots(3.0)


def of(s):
    if not hasattr(s, "pair"):
        held(s)
    return s.pair, s.empty, s.slots


def change(s):
    s.pair.first, s.empty.new, s.slots.unset = 3.0, 4, 5


@case(mutate=glob(3, SCALE=3.0), replays=3)
def copies_of_objects_made_here(x):
    pair = Pair(x * SCALE)
    other = copy.copy(pair)
    other.count += 1
    other.first = other.first + 1
    pair.late = 5
    again = copy.copy(pair)
    return pair, other, again, again.late, copy.copy(Frozen(x)), copy.copy(Empty()), vars(copy.copy(other))


@case(mutate=glob(3, SCALE=3.0), replays=3)
def copies_with_slots(x):
    slots = Slots(x * SCALE)
    other = copy.copy(slots)
    other.second = 7
    return slots.second, other.first, other.second, hasattr(other, "unset")


@case(mutate=glob(3, SCALE=3.0), replays=3)
def copies_with_slots_and_a_dict(x):
    more = SlotsAndMore(x * SCALE)
    more.own = 4
    other = copy.copy(more)
    return other.first, other.second, other.own, vars(other)


@case(mutate=glob(3, SCALE=3.0), replays=3)
def copies_of_classes_with_hooks(x):
    del LOG[:]
    guarded, stated, restored = copy.copy(Guarded(x)), copy.copy(Stated(x)), copy.copy(Restored(x))
    guarded.more = 1
    return guarded.twice, vars(guarded), stated.first, vars(stated), restored.first, copy.copy(Made(x)).first, list(LOG)


@case(args=lambda i, s: (T(i, 4, 3), *of(s)), mutate=do(3, change), replays=3)
def copies_of_older_objects(x, pair, empty, slots):
    other = copy.copy(pair)
    other.count = 9
    return x * other.first, other, pair.count, copy.copy(empty), copy.copy(slots).first, hasattr(copy.copy(slots), "unset")


@case(mutate=glob(3, SCALE=3.0))
def attributes_put_in_by_dict(x):
    pair, frozen, guarded = Pair(x), Frozen(x), Guarded(x)
    pair.__dict__.update(count=4, other=x * SCALE)
    vars(frozen).update({"first": x + 1})
    guarded.__dict__.update(twice=1, more=2)
    return pair, pair.other, frozen, guarded.twice, guarded.more, list(vars(guarded))
