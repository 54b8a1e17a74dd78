"""Classes that are called: __new__ and metaclasses in Python, tuples and mappings of the program's classes, what is known of
objects made in the call; iterators that C code asks Python for."""
import collections
import dataclasses
import enum
import functools
import operator

import torch

from kincorpus.case import case, do


def changes(action, at=3, **options):
    return case(mutate=do(at, action), **options)


class Counted:
    step = 1

    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls)
        self.given = len(args) + cls.step
        return self

    def __init__(self, a, b=2):
        self.a, self.b = a, b


@case()
def new_in_python(x):
    made = Counted(x, b=5)
    return made.a * made.b + made.given


@case()
def new_in_python_returned(x):
    made = Counted(x)
    return made.given, vars(made), type(made).__name__


@changes(lambda s: setattr(Counted, "step", 7))
def new_reads_class(x):
    return x + Counted(x).given


def other_new(cls, *args, **kwargs):
    self = object.__new__(cls)
    self.given = -1
    return self


class Replaced(Counted):
    pass


@changes(lambda s: setattr(Replaced, "__new__", other_new))
def new_replaced(x):
    return x + Replaced(x).given


class Initialised(Counted):
    pass


@changes(lambda s: setattr(Initialised, "__init__", lambda self, a: setattr(self, "b", 11)))
def init_behind_new_replaced(x):
    return x + Initialised(x).b


class Elsewhere:
    def __new__(cls, a):
        return (a, 7)


@case()
def new_of_another_type(x):
    return Elsewhere(x)


class Once:
    only = None

    def __new__(cls):
        if cls.only is None:
            cls.only = super().__new__(cls)
            cls.only.calls = 0
        return cls.only

    def __init__(self):
        self.calls += 1


@case(again=1, replays=3)
def singleton(x):
    Once()
    return x + Once().calls, Once() is Once()


class Refuses:
    def __new__(cls, a):
        raise ValueError("no " + str(len(a)))


@case()
def new_raises(x):
    try:
        return Refuses(x)
    except ValueError as error:
        return x, str(error)


LOG = []


class Logged:
    def __new__(cls, a):
        LOG.append(len(LOG))
        return super().__new__(cls)

    def __init__(self, a):
        self.a = a + LOG[-1]


@case(again=1)
def new_with_effect(x):
    return Logged(x).a


class Naming(type):
    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        made.label = cls.__name__ + cls.suffix
        return made


class Named(metaclass=Naming):
    suffix = "!"

    def __init__(self, a):
        self.a = a


@changes(lambda s: setattr(Named, "suffix", "?"))
def metaclass_call(x):
    made = Named(x)
    return made.a, made.label


class Renaming(Naming):
    pass


class Renamed(metaclass=Renaming):
    suffix = "!"


@changes(lambda s: setattr(Renaming, "__call__", lambda cls: 3))
def metaclass_call_replaced(x):
    made = Renamed()
    return x, made if made == 3 else made.label


class Finalised:
    def __new__(cls):
        return super().__new__(cls)

    def __del__(self):
        LOG.append("gone")


@case(replays=0)
def finaliser_is_seen(x):
    made = Finalised()
    before = len(LOG)
    del made
    return x + (len(LOG) - before)


Point = collections.namedtuple("Point", "x y z")


class Scaled(collections.namedtuple("Scaled", "a b")):
    __slots__ = ()

    def total(self):
        return self.a + self.b


class Odd(collections.namedtuple("Odd", "a b")):
    def __getitem__(self, i):
        return 42

    def __len__(self):
        return 7

    def __iter__(self):
        return iter((1, 2, 3))


@case()
def named_tuple(x):
    p = Point(x, x + 1, z=3)
    first, *rest = p
    return p.x * p.z + p[1], len(p), first, rest, p, bool(p), [*p], p[1:], list(zip(p, p))[2]


@case()
def named_tuple_methods(x):
    s = Scaled(x, x * 2)
    return s.total(), s._replace(a=1).a, s._asdict()["b"], s + (1,)


@case()
def named_tuple_with_own_items(x):
    odd = Odd(x, 2)
    return odd[0], odd.a, len(odd), [*odd], tuple(odd), (lambda *a: a)(*odd)


HELD = Point(1, 2, 3)


@case(mutate=do(3, lambda s: globals().__setitem__("HELD", Point(5, 6, 7))))
def named_tuple_read(x):
    return x + HELD.y


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@case()
def enum_lookup(x):
    return x + Colour(2).value + Colour["RED"].value + Level(2), Colour.RED is Colour(1), Level.LOW < Level.HIGH, Level.LOW in (1, 2)


class Changing(enum.IntEnum):
    A = 1
    B = 2


@changes(lambda s: setattr(Changing, "__eq__", lambda self, other: False))
def enum_comparison_replaced(x):
    return x, Changing.A == 1, Changing.B in (2, 3)


@changes(lambda s: Colour._value2member_map_.__setitem__(3, Colour.RED))
def enum_missing(x):
    try:
        return x, Colour(3).name
    except ValueError:
        return x, None


class Output(collections.OrderedDict):
    def __post_init__(self):
        fields = dataclasses.fields(self)
        first = getattr(self, fields[0].name)
        if all(self.__dict__.get(f.name) is None for f in fields[1:]):
            self[fields[0].name] = first
        else:
            for f in fields:
                if self.__dict__.get(f.name) is not None:
                    self[f.name] = self.__dict__[f.name]

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclasses.dataclass
class TwoTensors(Output):
    a: torch.Tensor = None
    b: torch.Tensor = None
    c: int = None


@case()
def mapping_of_own_class(x):
    both = TwoTensors(x, x + 1, c=3)
    return both, TwoTensors(x).to_tuple(), both["b"], list(both)


class Plain:
    def __init__(self, a):
        self.a = a
        self.b = 2


class Slotted:
    __slots__ = ("s", "__dict__")

    def __init__(self, a):
        self.s = a
        self.d = a + 1


@case()
def dict_of_fresh_object(x):
    made = Plain(x)
    seen = made.__dict__
    made.c = 5
    return x + len(seen) + seen["b"] + seen.get("c"), list(seen), "a" in seen, {**seen, "k": 1}


@case()
def dict_of_fresh_object_changed(x):
    made = Plain(x)
    made.__dict__["b"] = 9
    vars(made).update(z=3)
    d = vars(made)
    d |= {"q": x}
    e = d.pop("b")
    return made.z + e, made.q, hasattr(made, "b"), made.__dict__


@case()
def dict_of_fresh_object_replaced(x):
    made = Plain(x)
    old = made.__dict__
    made.__dict__ = {"q": 1}
    made.b = 4
    return old, made.__dict__


@case()
def slots_are_no_items(x):
    made = Slotted(x)
    return list(made.__dict__), made.s, made.d, "s" in vars(made)


class Sequence:
    def __init__(self, *items):
        self.items = list(items)
        self.asked = 0

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)


ITEMS = Sequence(1, 2, 3)


@changes(lambda s: ITEMS.items.append(4))
def iterables_in_python(x):
    total = 0
    for i, v in enumerate(ITEMS):
        total += i * v
    for a, b in zip(ITEMS, [4, 5, 6, 7]):
        total += a * b
    return x + total + len(list(ITEMS)), list(zip(ITEMS, ITEMS)), all(ITEMS), tuple(ITEMS)


GROWING = Sequence(1, 2)


@case()
def iterable_grows(x):
    out = []
    for i, v in enumerate(GROWING):
        if i < 2:
            GROWING.items.append(v + 10)
        out.append(v)
    del GROWING.items[2:]
    return x, out


class Asked(Sequence):
    def __len__(self):
        self.asked += 1
        return 1


ASKED = Asked(1, 2)


@case(again=1)
def length_has_effect(x):
    return x + len(list(ASKED)), ASKED.asked


class Swapped(Sequence):
    pass


SWAPPED = Swapped(1, 2)


@changes(lambda s: setattr(Swapped, "__iter__", lambda self: iter((8, 9))))
def iter_replaced(x):
    return x, [i * v for i, v in enumerate(SWAPPED)]


@case()
def iterators_are_used_up(x):
    it = iter([1, 2, 3, 4])
    pairs = list(zip(it, it))
    other = iter((1, 2))
    first, second = other
    third = iter([5, 6])
    a = [*third]
    left = list(third)
    mixed = iter([1, 2, 3, 4])
    seen = []
    for i, v in enumerate(mixed):
        seen.append(v + next(mixed, 0))
    return x, pairs, list(it), list(other), first + second, a, left, seen


@case()
def partial_made_here(x):
    add = functools.partial(torch.add, x, alpha=2)
    scaled = functools.partial(lambda a, b, c=3: a * b + c, x, c=1)
    return add(x), scaled(2), scaled(b=3, c=x), scaled.keywords["c"], scaled.func(1, 2)


@case()
def setattr_by_name(x):
    made = Plain(x)
    for name, value in (("p", 1), ("q", x)):
        setattr(made, name, value)
    return made.p + made.q, setattr(made, "b", 1), delattr(made, "a"), vars(made)


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))


MODULE = Module()


@case()
def setattr_on_module(x):
    setattr(MODULE, "kept", x)
    y = MODULE.kept + 1
    delattr(MODULE, "kept")
    MODULE.other = torch.nn.Parameter(x.detach())
    y = y + MODULE.other
    del MODULE.other
    return y.detach(), hasattr(MODULE, "other")


@case()
def attributes_of_functions(x):
    method = MODULE.forward.__func__ if hasattr(MODULE.forward, "__func__") else None
    bound = ITEMS.__iter__
    return (bound.__func__.__name__, bound.__name__, bound.__self__ is ITEMS, partial_made_here.__name__, other_new.__code__.co_argcount,
            other_new.__defaults__, method is None, x)


@case()
def builtin_methods_keep_their_type(x):
    made = [1]
    return type("a b".split).__name__, type(made.append).__name__, type(ITEMS.__len__).__name__, x


@case()
def modes_as_context_managers(x):
    with torch.no_grad():
        y = x + 1
    with torch.enable_grad(), torch.set_grad_enabled(False):
        y = y * 2
    with torch.autocast("cpu", enabled=False):
        return y + 1, torch.is_grad_enabled()


class Base:
    def total(self, extra=0, **more):
        return self.a + extra + sum(more.values())

    @classmethod
    def made(cls):
        return cls.__name__


class Derived(Base):
    def __init__(self, a):
        self.a = a

    def total(self, **named):
        above = super()
        named = {**named, "other": 1}
        first = above.total(3, **named)
        kept = (above, super(Derived, self))
        print("kept", len(named))   # frames with the super objects in their locals
        return first + above.total(**{**named}) + kept[1].total(), above.__thisclass__.__name__, kept[0].__self__ is self, \
            above.__self_class__.__name__, type(kept[1]).__name__

    @classmethod
    def made(cls):
        above = super()
        print("made")
        return above.made(), above.__self_class__.__name__, above.__self__ is cls


@case()
def super_objects_that_are_kept(x):
    return Derived(x).total(more=2), Derived.made(), x


class Further(Derived):
    pass


def leave_base(s):
    Further.__bases__ = (Base,)


@changes(leave_base)
def super_after_other_bases(x):
    made = Further.__new__(Further)
    made.a = 2
    try:
        return super(Derived, made).total(), x
    except TypeError as error:
        return str(error), x


@case()
def named_results_made_by_the_program(x):
    made = torch.return_types.max((x.sum(0), x + 1))
    values, indices = made
    return made.values * 2, made.indices, values + indices.sum(), made[0], len(made), made, isinstance(made, tuple), type(made).__name__


@case(raises=(0, 1, 2, 3, 4, 5), replays=0)
def named_result_of_too_few(x):
    return torch.return_types.max((x + 1,))


@case()
def reduce_of_one(x):
    return functools.reduce(lambda a, b: a * b, [x]) + 1, functools.reduce(lambda a, b: a * b, [], x) * 2


class Measured:
    def __init__(self, value, *rest, scale=1):
        if rest:
            raise ValueError(len(rest))
        self.value, self.scale = value * 2, scale

    @property
    def scaled(self):
        return self.value * self.scale

    @property
    def itself(self):
        return self


Pair = collections.namedtuple("Pair", "first second", defaults=[7])


@case()
def classes_called_with_starred_maps(x):
    pair = Pair(*map(lambda t: t + 1, [x, x * 2]))
    short = Pair(*(t * 3 for t in [x]))
    made = Measured(*map(lambda t: t - 1, [x]), scale=3)
    return pair, short.second, made.scaled, [Pair(*map(lambda t, i=i: t * i, [x, i])) for i in range(2)]


@case()
def starred_map_and_an_init_that_raises(x):
    try:
        return Measured(*map(lambda t: t + 1, [x, x]))
    except ValueError as error:
        return str(error), x + 1


@case()
def attrgetter_finds_properties(x):
    made = Measured(x, scale=2)
    made.inner = Measured(x + 1)
    get = operator.attrgetter("inner.scaled")
    return operator.attrgetter("scaled")(made) + get(made), operator.attrgetter("scale")(made)
