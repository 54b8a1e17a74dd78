"""Classes: attributes, properties, descriptors, slots, operators, metaclasses, inheritance, special methods."""
import abc
import collections
import copy
import dataclasses
import enum
import types
import typing

import torch
from torch.nn.attention import SDPBackend

from kincorpus.case import T, attr, built, case, do, glob, seq


class Config:
    scale = 2.0
    name = "cfg"

    def __init__(self):
        self.width = 3
        self.child = types.SimpleNamespace(depth=1, tag="t")

    def apply(self, x):
        return x * self.scale + self.width


CFG = Config()


def changes(action, at=3, **options):
    return case(mutate=do(at, action), **options)


@changes(lambda s: setattr(CFG, "width", 5))
def instance_attribute(x):
    return x * CFG.width


@changes(lambda s: setattr(Config, "scale", 4.0))
def class_attribute(x):
    return x * CFG.scale


@changes(lambda s: setattr(CFG, "scale", 9.0))
def instance_shadows_class(x):
    return x + CFG.scale


@changes(lambda s: setattr(CFG.child, "depth", 2))
def nested_attribute(x):
    return x + CFG.child.depth


@changes(lambda s: setattr(CFG, "child", types.SimpleNamespace(depth=7)))
def nested_object_replaced(x):
    return x + CFG.child.depth


@changes(lambda s: setattr(Config, "apply", lambda self, x: x - self.scale))
def method_replaced(x):
    return CFG.apply(x)


@changes(lambda s: setattr(CFG, "apply", lambda x: x.neg()))
def method_shadowed_in_instance(x):
    return CFG.apply(x)


class Other(Config):
    scale = 8.0

    def apply(self, x):
        return super().apply(x) + 100


@changes(lambda s: setattr(CFG, "__class__", Other))
def class_of_instance_changes(x):
    return CFG.apply(x)


@changes(lambda s: setattr(CFG, "__dict__", {"width": 11}))
def dict_of_instance_replaced(x):
    return x + CFG.width


@changes(lambda s: delattr(CFG, "width"), raises=(3, 4, 5))
def attribute_deleted(x):
    return x + CFG.width


@changes(lambda s: setattr(CFG, "extra", 3))
def hasattr_and_getattr_default(x):
    return x + getattr(CFG, "extra", 1), hasattr(CFG, "extra")


class Lazy:
    def __init__(self):
        self.log = []

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self.log.append(name)
        return len(name)


LAZY = Lazy()


@changes(lambda s: setattr(LAZY, "width", 50))
def dunder_getattr(x):
    return x + LAZY.width + LAZY.depth


class Props:
    def __init__(self):
        self._v = 2
        self.reads = 0

    @property
    def v(self):
        self.reads += 1
        return self._v * 10

    @v.setter
    def v(self, value):
        self._v = value + 1

    @staticmethod
    def stat(a):
        return a * 3

    @classmethod
    def make(cls, v):
        p = cls()
        p._v = v
        return p


PROPS = Props()


@changes(lambda s: setattr(PROPS, "_v", 6), replays=3)
def property_read(x):
    return x + PROPS.v


@case(again=1)
def property_write(x):
    PROPS.v = x.shape[0]
    return x * PROPS._v


@changes(lambda s: setattr(Props, "v", property(lambda self: -1)), replays=3)
def property_replaced(x):
    return x + PROPS.v


@changes(lambda s: setattr(Props, "stat", staticmethod(lambda a: a - 1)))
def static_and_class_methods(x):
    return Props.stat(x) + Props.make(4)._v


class Doubling:
    factor = 2

    def __set_name__(self, owner, name):
        self.slot = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.slot, 0) * self.factor

    def __set__(self, obj, value):
        setattr(obj, self.slot, value)


class Described:
    d = Doubling()

    def __init__(self, v):
        self.d = v


@changes(lambda s: setattr(Doubling, "factor", 5))
def user_descriptor(x):
    o = Described(3)
    return x + o.d


class Plain:
    def __get__(self, obj, owner=None):
        return 1


class Holder:
    item = Plain()


HOLDER = Holder()
HOLDER.__dict__["item"] = 10


@changes(lambda s: setattr(Plain, "__set__", lambda self, obj, v: None))
def descriptor_becomes_data(x):
    return x + HOLDER.item


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


SLOTTED = Slotted(2)


@changes(lambda s: setattr(SLOTTED, "a", 5))
def slots_read(x):
    return x * SLOTTED.a, hasattr(SLOTTED, "b")


@case(args=lambda i, s: (T(i, 3), Slotted(i)), again=5, replays=0)
def slots_write(x, o):
    o.b = x * 2
    o.a += 1
    return o.b + o.a


class Vec:
    def __init__(self, *v):
        self.v = list(v)

    def __add__(self, o):
        return Vec(*(a + b for a, b in zip(self.v, o.v))) if isinstance(o, Vec) else NotImplemented

    def __radd__(self, o):
        return Vec(*(o + a for a in self.v))

    def __mul__(self, k):
        return Vec(*(a * k for a in self.v))

    def __iadd__(self, o):
        self.v.append(o)
        return self

    def __neg__(self):
        return Vec(*(-a for a in self.v))

    def __eq__(self, o):
        return isinstance(o, Vec) and len(self.v) == len(o.v)

    def __hash__(self):
        return 5

    def __lt__(self, o):
        return len(self.v) < len(o.v)

    def __len__(self):
        return len(self.v)

    def __bool__(self):
        return bool(self.v) and FLAG

    def __iter__(self):
        return iter(self.v)

    def __contains__(self, k):
        return k in (1, FLAGGED)

    def __getitem__(self, i):
        return self.v[i]

    def __setitem__(self, i, value):
        self.v[i] = value

    def __delitem__(self, i):
        del self.v[i]

    def __call__(self, x, scale=1):
        return x * scale + len(self.v)

    def __repr__(self):
        return f"Vec{tuple(self.v)}"

    def __format__(self, spec):
        return f"<{spec}:{len(self.v)}>"

    def __index__(self):
        return len(self.v)


FLAG = True
FLAGGED = 2


@case()
def user_operators(x):
    a, b = Vec(x, 1), Vec(x * 2, 2)
    c = a + b
    d = 10 + Vec(1, 2)
    e = -c * 2
    e += 5
    return list(c), list(d), list(e), len(e)


@case(mutate=glob(3, FLAG=False))
def user_bool(x):
    v = Vec(1)
    return x + 1 if v else x - 1, not v, v and 1


@case(mutate=glob(3, FLAGGED=9))
def user_contains(x):
    return x + (2 in Vec(1)), 9 not in Vec(1)


@case()
def user_items(x):
    v = Vec(x, 2, 3)
    v[1] = x + 1
    del v[2]
    return v[0] + v[1], len(v), [k for k in v] == list(v), f"{v:spec}", [0, 1, 2][Vec(1)]


@changes(lambda s: setattr(Vec, "__call__", lambda self, x, scale=1: x - scale))
def user_call(x):
    return Vec(1, 2)(x, scale=3)


@changes(lambda s: setattr(Vec, "__lt__", lambda self, o: False))
def user_compare_and_hash(x):
    a, b = Vec(1), Vec(1, 2)
    return x + (a < b), a == Vec(7), {a: 1}[Vec(3)], sorted([b, a])[0].v


class Reg(type):
    made = []

    def __new__(mcs, name, bases, ns, **kw):
        cls = super().__new__(mcs, name, bases, ns)
        mcs.made.append(name)
        cls.tag = kw.get("tag", "none")
        return cls

    def __call__(cls, *args):
        o = super().__call__(*args)
        o.stamp = cls.tag
        return o

    @property
    def label(cls):
        return cls.tag * 2

    def __contains__(cls, v):
        return v == cls.tag


class Meta1(metaclass=Reg, tag="m"):
    pass


@changes(lambda s: setattr(Meta1, "tag", "zz"))
def metaclass_property(x):
    return x + len(Meta1.label), "m" in Meta1, Meta1().stamp


@case(replays=0)
def class_made_in_function(x):
    class Made(metaclass=Reg, tag="in"):
        k = 3

    return x * Made.k, Made().stamp, len(Reg.made) > 0


class Base:
    subs = []

    def __init_subclass__(cls, weight=1, **kw):
        super().__init_subclass__(**kw)
        cls.weight = weight
        Base.subs.append(cls.__name__)

    def __class_getitem__(cls, item):
        return (cls.__name__, item)


@case(replays=0)
def init_subclass_and_class_getitem(x):
    class Heavy(Base, weight=4):
        pass

    return x * Heavy.weight, Heavy[int], Base["k"]


class A:
    def run(self, x):
        return x + 1


class B(A):
    def run(self, x):
        return super().run(x) * 2


class C(A):
    def run(self, x):
        return super().run(x) * 3


class D(B, C):
    def run(self, x):
        return super().run(x) - 1


DOBJ = D()


@changes(lambda s: setattr(C, "run", lambda self, x: x))
def super_chain(x):
    return DOBJ.run(x)


class Mixin:
    def extra(self, x):
        return x * 100


class E2(A):
    pass


EOBJ = E2()


@changes(lambda s: setattr(E2, "__bases__", (Mixin, A)), raises=(0, 1, 2))
def bases_change(x):
    return EOBJ.extra(x)


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self, x):
        ...

    @classmethod
    def __subclasshook__(cls, other):
        return NotImplemented


class Square(Shape):
    def area(self, x):
        return x * x


class Duck:
    def area(self, x):
        return x


DUCK = Duck()


@changes(lambda s: Shape.register(Duck))
def abc_registration(x):
    return x + isinstance(DUCK, Shape), Square().area(x), issubclass(Duck, Shape)


@case(raises=tuple(range(6)))
def abstract_class_refuses(x):
    return Shape()


@case(args=lambda i, s: (T(i, 3), (1, 1.0, True, "s", None, [1])[i]), again=5)
def isinstance_chain(x, v):
    if isinstance(v, bool):
        return x, "bool"
    if isinstance(v, (int, float)):
        return x * v
    if isinstance(v, str | list):
        return x + len(v)
    return x


class Liar:
    @property
    def __class__(self):
        return LIE


LIE = int
LIAR = Liar()


@case(mutate=glob(3, LIE=str))
def class_property_lies(x):
    return x + isinstance(LIAR, int), type(LIAR) is Liar


@dataclasses.dataclass
class Batch:
    data: torch.Tensor
    scale: float = 2.0
    tags: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.tags.append("made")


@case()
def dataclass_made_inside(x):
    b = Batch(x)
    c = dataclasses.replace(b, scale=3.0)
    return b, c.data * c.scale, len(c.tags)


@case(args=lambda i, s: (Batch(T(i, 3), 1.0 if i < 3 else 2.0),), again=1)
def dataclass_argument(b):
    b.data = b.data * b.scale
    b.tags.append("seen")
    return b


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Key:
    a: int
    b: str = "x"


@case()
def dataclass_frozen(x):
    k, m = Key(1), Key(2, "y")
    try:
        k.a = 5
    except dataclasses.FrozenInstanceError as e:
        msg = str(e)
    return x * m.a, k < m, hash(k) == hash(Key(1)), {k: "v"}[Key(1)], msg, dataclasses.asdict(m)


Pair = collections.namedtuple("Pair", "left right", defaults=[1])


class Triple(typing.NamedTuple):
    a: torch.Tensor
    b: int = 2


@case(args=lambda i, s: (Pair(T(i, 3), 1 if i < 3 else 2),), again=1)
def namedtuples(p):
    t = Triple(p.left * p.right)
    l, r = p._replace(right=5)
    return t, Pair(l), r, t._asdict(), p._fields


class Mode(enum.Enum):
    ADD = 1
    MUL = 2


class Bits(enum.IntFlag):
    R = 1
    W = 2


@case(args=lambda i, s: (T(i, 3), Mode.ADD if i < 3 else Mode(2)), again=1)
def enums(x, m):
    if m is Mode.ADD:
        return x + m.value
    return x * m.value, m.name, Mode["ADD"], Bits.R | Bits.W


@case()
def typing_cast_and_generics(x):
    y = typing.cast(torch.Tensor, x * 2)
    n: int = 3
    return y + n, typing.get_origin(list[int])


@case(args=lambda i, s: ({"x": T(i, 2), "l": [1, [2]]},))
def copies(d):
    a, b = copy.copy(d), copy.deepcopy(d)
    a["l"].append(3)
    b["l"][1].append(9)
    return a, b, a["l"] is d["l"], b["x"] is d["x"]


class Counter2:
    total = 0

    def __init__(self):
        type(self).total += 1
        self.n = 0


COUNTER = Counter2()


@case(again=2, replays=1)
def counts_in_class_and_instance(x):
    Counter2.total += 1
    COUNTER.n += 2
    return x + 1


@case(args=lambda i, s: (T(i, 3), Config()))
def mutates_argument_object(x, cfg):
    cfg.width += 1
    cfg.child.depth = cfg.width * 2
    cfg.cache = x * cfg.width
    return cfg.cache


@case()
def constructs_objects(x):
    c = Config()
    c.width = x.shape[0]
    v = Vec(c.apply(x), c)
    return v, c


@changes(lambda s: setattr(Config, "__getattribute__", lambda self, name: 42 if name == "width" else
                           object.__getattribute__(self, name)))
def getattribute_appears(x):
    return x + CFG.width


@changes(lambda s: setattr(Config, "__setattr__", lambda self, n, v: object.__setattr__(self, n, v * 2)))
def setattr_appears(x):
    CFG.width = 3
    return x + CFG.width


class Del:
    log = []

    def __init__(self, n):
        self.n = n

    def __del__(self):
        Del.log.append(self.n)


@case(replays=0)
def finaliser_runs_in_time(x):
    a = Del(1)
    before = len(Del.log)
    a = None   # noqa: F841
    middle = len(Del.log)
    Del(2)
    return x + (middle - before), len(Del.log) - middle


@built(mutate=do(3, lambda s: setattr(s.obj, "k", 9)))
def bound_method_compiled(s):
    class Model:
        k = 2

        def step(self, x):
            return x * self.k
    s.obj = Model()
    return s.obj.step


@built(mutate=attr(3, lambda s: s.cls, gain=-1.0))
def callable_object_through_function(s):
    class Gain:
        gain = 2.0

        def __call__(self, x):
            return x * self.gain
    s.cls = Gain
    g = Gain()
    return lambda x: g(x)


class View:
    """As collections.abc.Sequence iterates: by index, until IndexError."""

    def __init__(self, items):
        self.items = items

    def __getitem__(self, i):
        if i >= len(self.items):
            raise IndexError(i)
        return self.items[i]

    def __iter__(self):
        i = 0
        try:
            while True:
                yield self[i]
                i += 1
        except IndexError:
            return


class Rows:
    def __init__(self, *rows):
        self.rows = rows

    def __iter__(self):
        for row in self.rows:
            yield row


VIEW = View([1.0, 2.0])
ROWS = Rows(3.0, 4.0)


@case(mutate=do(3, lambda s: VIEW.items.append(5.0)))
def iterates_a_view(x):
    for v in VIEW:
        x = x * v
    return x, [v for v in View([x, x + 1])]


@case(mutate=do(3, lambda s: setattr(ROWS, "rows", (7.0,))))
def iterates_by_generator_method(x):
    total = x
    for row in ROWS:
        total = total + row
    for row in Rows(x, x * 2):
        total = total * row
        if row is not x:
            break
    return total


class Adder:
    """Operators in place, written in Python."""

    def __init__(self, *items):
        self.items = list(items)

    def __iadd__(self, other):
        if isinstance(other, str):
            return NotImplemented
        print("iadd", len(self.items))
        self.items.append(other)
        return self

    def __add__(self, other):
        return ("plain", other) if other == "text" else NotImplemented

    def __imul__(self, factor):
        return factor

    def __ior__(self, other):
        return ANSWERS[0](self, other)


class Right:
    def __radd__(self, left):
        return ("right", type(left).__name__)


ANSWERS = [lambda left, right: left]


@case()
def operator_in_place(x):
    made = Adder()
    kept = made
    made += x
    made += 2
    y = made.items[0] + made.items[1]
    made *= 3
    return y, made, kept.items[1]


@case()
def operator_in_place_not_implemented(x):
    made = Adder(x)
    made += "text"
    return made


@case()
def operator_in_place_refused(x):
    made = Adder(x)
    try:
        made += "other"
    except TypeError as error:
        return str(error)


@case(mutate=do(3, lambda s: ANSWERS.__setitem__(0, lambda left, right: NotImplemented)))
def operator_in_place_changes_its_mind(x):
    made = Adder(x)
    try:
        made |= 1
    except TypeError as error:
        return str(error)
    return made.items


def answer(left, right):
    print("answers")
    return NotImplemented if right == "n" else right


@case(args=lambda i, s: (T(i, 3), "n" if i == 3 else i), replays=2)
def operator_in_place_answers_by_argument(x, right):
    ANSWERS[0] = answer
    made = Adder(x)
    try:
        made |= right
    except TypeError as error:
        return str(error)
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class Spec:
    kind: object
    parts: list
    size: int = dataclasses.field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "size", 1 + sum(p.size for p in self.parts))


LEAF = Spec(None, [])


@changes(lambda s: object.__setattr__(LEAF, "size", 5))
def frozen_slots(x):
    inner = Spec(tuple, [LEAF, LEAF])
    return x * Spec(dict, [inner, LEAF]).size, inner


class Named:
    pass


@changes(lambda s: setattr(Named, "_fields", ("a",)))
def class_without_an_attribute(x):
    found = [getattr(c, "_fields", None) for c in (tuple, Named, list)]
    try:
        found.append(Named.missing)
    except AttributeError as error:
        found.append(str(error))
    return x + 1, found, list[int], tuple[int, ...].__args__


@case(setup=lambda s: setattr(SDPBackend, "limit", 2.0), mutate=do(3, lambda s: setattr(SDPBackend, "limit", 3.0)))
def class_of_pybind(x):
    y = x * SDPBackend.limit
    backend = SDPBackend.MATH
    return y + 1 if backend is SDPBackend.MATH else y, hasattr(SDPBackend, "nothing")
