"""State outside of the arguments, of every kind, changed between the calls. Each kind is read in three ways: directly, behind a
call that ends all knowledge of the heap, and in a module's forward together with another kind that changes at another call.

A kind is a function of the state `s` that prepares it and returns (read, change): read(x) gives a tensor or a number from x and
the state; change() is what happens before call 3 (or 4, or 2).
"""
import builtins
import collections
import contextvars
import dataclasses
import decimal
import enum
import functools
import os
import random
import sys
import types
import warnings
import weakref

import torch
from torch import nn

from kincorpus.case import T, built, do, seeded, seq

KINDS = {}
VAR = contextvars.ContextVar("HIDDEN_VAR", default=2)
NUMBER = 2
TEXT = "mul"
SHADOWED = 0


def kind(fn):
    KINDS[fn.__name__] = fn
    return fn


def assign(owner, name, value):
    return lambda: setattr(owner, name, value)


def set_global(name, value):
    return lambda: globals().__setitem__(name, value)


def ignore(x):
    """Goes through C code that could do anything: what was known of the heap ends."""
    sorted([2, 1], key=functools.cmp_to_key(lambda a, b: a - b))
    return eval("x", {"x": x})


# -- names -----------------------------------------------------------------------------------------------------------

@kind
def global_number(s):
    return lambda x: x * NUMBER, set_global("NUMBER", 3)


@kind
def global_text(s):
    return lambda x: getattr(x, TEXT)(2), set_global("TEXT", "add")


@kind
def global_type(s):
    return lambda x: (x * 8).int() * NUMBER, set_global("NUMBER", 2.0)


@kind
def global_shadows_builtin(s):
    return lambda x: x * len((1, 2, 3)), set_global("len", lambda v: 7)


@kind
def builtin_replaced(s):
    builtins.kin_hidden = 2
    return lambda x: x * kin_hidden, assign(builtins, "kin_hidden", 5)   # noqa: F821


@kind
def closure_cell(s):
    k = 2

    def change():
        nonlocal k
        k = 3
    return lambda x: x * k, change


@kind
def sys_modules_entry(s):
    sys.modules["world_hidden"] = types.SimpleNamespace(k=2)

    def read(x):
        import world_hidden
        return x * world_hidden.k
    return read, lambda: sys.modules.__setitem__("world_hidden", types.SimpleNamespace(k=3))


@kind
def module_attribute(s):
    s.module = types.ModuleType("world_part")
    s.module.k = 2
    return lambda x: x * s.module.k, assign(s.module, "k", 3)


# -- functions ---------------------------------------------------------------------------------------------------------

@kind
def default_argument(s):
    def f(x, k=2):
        return x * k
    return lambda x: f(x), assign(f, "__defaults__", (3,))


@kind
def keyword_default(s):
    def f(x, *, k=2):
        return x * k
    return lambda x: f(x), lambda: f.__kwdefaults__.__setitem__("k", 3)


@kind
def default_removed(s):
    def f(x, *rest, k=2):
        return x * k + len(rest)
    return lambda x: f(x), assign(f, "__kwdefaults__", {"k": 5})


@kind
def mutable_default(s):
    def f(x, k=[1, 2]):   # noqa: B006
        return x * sum(k)
    return lambda x: f(x), lambda: f.__defaults__[0].append(4)


@kind
def function_code(s):
    def f(x):
        return x * 2

    def g(x):
        return x + 2
    return lambda x: f(x), assign(f, "__code__", g.__code__)


@kind
def partial_arguments(s):
    s.part = functools.partial(torch.mul, torch.full((3,), 2.0))
    return lambda x: s.part(x), assign(s, "part", functools.partial(torch.add, torch.full((3,), 2.0)))


@kind
def partial_state(s):
    s.part = functools.partial(torch.mul, torch.full((3,), 2.0))
    return lambda x: s.part(x), lambda: s.part.__setstate__((torch.sub, (torch.full((3,), 1.0),), {}, {}))


@kind
def bound_method_target(s):
    class C:
        def __init__(self, k):
            self.k = k

        def apply(self, x):
            return x * self.k
    s.method = C(2).apply
    return lambda x: s.method(x), assign(s, "method", C(3).apply)


# -- classes ---------------------------------------------------------------------------------------------------------------

def make_class():
    class Base:
        offset = 1

    class C(Base):
        k = 2

        def apply(self, x):
            return x * self.k

        @property
        def prop(self):
            return self.k + 1

        @classmethod
        def of_class(cls, x):
            return x * cls.k

        @staticmethod
        def static(x):
            return x * 2
    return Base, C, C()


@kind
def class_attribute(s):
    base, cls, obj = make_class()
    return lambda x: obj.apply(x) * obj.k, assign(cls, "k", 3)


@kind
def base_attribute(s):
    base, cls, obj = make_class()
    return lambda x: x * obj.offset, assign(base, "offset", 4)


@kind
def base_attribute_hidden(s):
    base, cls, obj = make_class()
    return lambda x: x * obj.offset, assign(cls, "offset", 5)


@kind
def class_attribute_deleted(s):
    base, cls, obj = make_class()
    cls.offset = 7
    return lambda x: x * obj.offset, lambda: delattr(cls, "offset")


@kind
def method_replaced(s):
    base, cls, obj = make_class()
    return lambda x: obj.apply(x), assign(cls, "apply", lambda self, x: x - self.k)


@kind
def method_on_instance(s):
    base, cls, obj = make_class()
    return lambda x: obj.apply(x), assign(obj, "apply", lambda x: x + 9)


@kind
def property_replaced(s):
    base, cls, obj = make_class()
    return lambda x: x * obj.prop, assign(cls, "prop", property(lambda self: 8))


@kind
def property_getter_in_place(s):
    base, cls, obj = make_class()
    if sys.version_info >= (3, 12):  # CPython goes on with the old getter then (3.14 crashes), where its specialised instructions have met the property
        return lambda x: x * obj.prop, assign(cls, "prop", property(lambda self: 9))
    return lambda x: x * obj.prop, lambda: cls.__dict__["prop"].__init__(lambda self: 9)


@kind
def classmethod_replaced(s):
    base, cls, obj = make_class()
    return lambda x: obj.of_class(x), assign(cls, "of_class", classmethod(lambda cls, x: x + cls.k))


@kind
def staticmethod_replaced(s):
    base, cls, obj = make_class()
    return lambda x: obj.static(x), assign(cls, "static", staticmethod(lambda x: x + 2))


@kind
def getattr_added(s):
    base, cls, obj = make_class()
    return lambda x: x * getattr(obj, "missing", 2), assign(cls, "__getattr__", lambda self, name: len(name))


@kind
def getattribute_added(s):
    base, cls, obj = make_class()
    return lambda x: x * obj.k, assign(cls, "__getattribute__", lambda self, name: 6)


@kind
def bases_replaced(s):
    base, cls, obj = make_class()
    other = type("Other", (), {"offset": 8})
    return lambda x: x * obj.offset, assign(cls, "__bases__", (other,))


@kind
def instance_class(s):
    base, cls, obj = make_class()
    other = type("Other", (cls,), {"k": 9})
    return lambda x: obj.apply(x), assign(obj, "__class__", other)


@kind
def metaclass_attribute(s):
    meta = type("Meta", (type,), {"power": 2})
    cls = meta("WithMeta", (), {})
    return lambda x: x * cls.power, assign(meta, "power", 4)


@kind
def metaclass_instancecheck(s):
    meta = type("Meta", (type,), {})
    cls = meta("WithMeta", (), {})
    return lambda x: x * (2 if isinstance(3, cls) else 5), assign(meta, "__instancecheck__", lambda c, o: True)


@kind
def metaclass_of_a_pattern(s):
    meta = type("Meta", (type,), {})
    cls = meta("WithMeta", (), {})

    def read(x):
        match s.value:
            case cls():
                return x * 3
        return x * 2
    s.value = 3
    return read, assign(meta, "__instancecheck__", lambda c, o: True)


@kind
def class_that_lies(s):
    base, cls, obj = make_class()

    def read(x):
        match obj:
            case int():
                return x * 3
        return x * 2 if isinstance(obj, base) else x
    return read, assign(obj, "__class__", type("Liar", (cls,), {"__class__": property(lambda self: int)}))


@kind
def truth_of_instances(s):
    base, cls, obj = make_class()
    return lambda x: x * 2 if obj else x * 3, assign(cls, "__bool__", lambda self: False)


@kind
def length_of_instances(s):
    base, cls, obj = make_class()
    cls.__len__ = lambda self: 2
    return lambda x: x * len(obj), assign(cls, "__len__", lambda self: 5)


@kind
def equality_of_instances(s):
    base, cls, obj = make_class()
    return lambda x: x * 2 if obj == 1 else x * 3, assign(cls, "__eq__", lambda self, other: True)


@kind
def call_of_instances(s):
    base, cls, obj = make_class()
    cls.__call__ = lambda self, x: x * 2
    return lambda x: obj(x), assign(cls, "__call__", lambda self, x: x * 7)


@kind
def constructor_replaced(s):
    base, cls, obj = make_class()
    return lambda x: x * cls().k, assign(cls, "__init__", lambda self: setattr(self, "k", 6))


@kind
def descriptor_class(s):
    class D:
        def __get__(self, obj, owner):
            return 2
    cls = type("Holder", (), {"d": D()})
    obj = cls()
    return lambda x: x * obj.d, assign(D, "__get__", lambda self, obj, owner: 3)


# -- objects -----------------------------------------------------------------------------------------------------------

@kind
def instance_attribute(s):
    s.cfg = types.SimpleNamespace(k=2)
    return lambda x: x * s.cfg.k, assign(s.cfg, "k", 3)


@kind
def nested_attribute(s):
    s.cfg = types.SimpleNamespace(a=types.SimpleNamespace(b=types.SimpleNamespace(k=2)))
    return lambda x: x * s.cfg.a.b.k, assign(s.cfg.a.b, "k", 3)


@kind
def nested_object(s):
    s.cfg = types.SimpleNamespace(a=types.SimpleNamespace(k=2))
    return lambda x: x * s.cfg.a.k, assign(s.cfg, "a", types.SimpleNamespace(k=3))


@kind
def attribute_deleted(s):
    base, cls, obj = make_class()
    obj.k = 5
    return lambda x: x * obj.k, lambda: delattr(obj, "k")


@kind
def instance_dict_replaced(s):
    base, cls, obj = make_class()
    obj.q = 5
    return lambda x: x * obj.q, assign(obj, "__dict__", {"q": 6})


@kind
def slot_value(s):
    cls = type("Slotted", (), {"__slots__": ("k",)})
    obj = cls()
    obj.k = 2
    return lambda x: x * obj.k, assign(obj, "k", 3)


@kind
def dataclass_field(s):
    cls = dataclasses.make_dataclass("Data", [("k", int, 2)])
    obj = cls()
    return lambda x: x * obj.k, assign(obj, "k", 3)


@kind
def named_tuple(s):
    row = collections.namedtuple("Row", "a b")
    s.row = row(1, 2)
    return lambda x: x * s.row.b + s.row[0], assign(s, "row", row(1, 3))


@kind
def enum_member(s):
    mode = enum.Enum("Mode", "FAST SLOW")
    s.mode = mode.FAST
    return lambda x: x * 2 if s.mode is mode.FAST else x * s.mode.value + 5, assign(s, "mode", mode.SLOW)


@kind
def weakref_target(s):
    s.target = make_class()[2]
    ref = weakref.ref(s.target)

    def read(x):
        target = ref()
        return x + 1 if target is None else x * target.k
    return read, lambda: delattr(s, "target")


# -- containers -----------------------------------------------------------------------------------------------------------

@kind
def dict_item(s):
    s.table = {"a": 2, "b": 3}
    return lambda x: x * s.table["a"], lambda: s.table.update(a=5)


@kind
def dict_size(s):
    s.table = {"a": 2, "b": 3}
    return lambda x: x * len(s.table), lambda: s.table.update(c=5)


@kind
def dict_order(s):
    s.table = {"a": 2, "b": 3}

    def read(x):
        for k in s.table.values():
            x = x * k + 1
        return x
    return read, lambda: s.table.update(a=s.table.pop("a"))


@kind
def dict_key_appears(s):
    s.table = {"a": 2}
    return lambda x: x * s.table.get("b", 4) if "b" in s.table else x, lambda: s.table.update(b=6)


@kind
def ordered_dict_order(s):
    s.table = collections.OrderedDict(a=2, b=3)

    def read(x):
        return x * next(iter(s.table.values()))
    return read, lambda: s.table.move_to_end("a")


@kind
def keywords_from_dict(s):
    s.table = {"alpha": 2}
    return lambda x: torch.add(x, x, **s.table), lambda: s.table.update(alpha=3)


@kind
def list_item(s):
    s.row = [2, 3]
    return lambda x: x * s.row[1], lambda: s.row.__setitem__(1, 5)


@kind
def list_length(s):
    s.row = [2, 3]

    def read(x):
        for k in s.row:
            x = x * k
        return x
    return read, lambda: s.row.append(4)


@kind
def set_content(s):
    s.names = {"a"}
    return lambda x: x * 2 if "b" in s.names else x, lambda: s.names.add("b")


@kind
def list_of_functions(s):
    s.row = [torch.sin, torch.cos]
    return lambda x: s.row[0](x), lambda: s.row.reverse()


# -- tensors and modules ----------------------------------------------------------------------------------------------------

def linear():
    return seeded(1, lambda: nn.Linear(3, 3))


@kind
def parameter_identity(s):
    s.m = linear()
    return lambda x: s.m(x), assign(s.m, "weight", nn.Parameter(T(8, 3, 3)))


@kind
def parameter_data(s):
    s.m = linear()
    return lambda x: s.m(x), assign(s.m.weight, "data", T(8, 3, 3))


@kind
def parameter_written(s):
    s.m = linear()
    return lambda x: s.m(x), lambda: s.m.weight.data.mul_(2)


@kind
def parameter_stride(s):
    s.m = linear()
    return lambda x: s.m(x) * s.m.weight.stride(0), assign(s.m.weight, "data", T(8, 3, 6)[:, ::2])


@kind
def parameter_requires_grad(s):
    s.m = linear()
    return lambda x: s.m(x), lambda: s.m.requires_grad_(False)


@kind
def parameter_dtype(s):
    s.m = linear()
    return lambda x: s.m(x.to(s.m.weight.dtype)), lambda: s.m.double()


@kind
def tensor_shape(s):
    s.t = T(5, 3)
    return lambda x: x * s.t, assign(s, "t", T(6, 2, 3))


@kind
def tensor_attribute(s):
    s.t = T(5, 3)
    s.t.k = 2
    return lambda x: x * s.t.k, assign(s.t, "k", 3)


@kind
def buffer_registered(s):
    s.m = linear()
    s.m.register_buffer("scale", torch.full((3,), 2.0))
    return lambda x: s.m(x) * s.m.scale, lambda: s.m.register_buffer("scale", torch.full((3,), 3.0))


@kind
def hook_added(s):
    s.m = linear()
    return lambda x: s.m(x), lambda: s.m.register_forward_hook(lambda m, a, out: out * 2) and None


@kind
def hook_removed(s):
    s.m = linear()
    handle = s.m.register_forward_hook(lambda m, a, out: out * 2)
    return lambda x: s.m(x), handle.remove


@kind
def pre_hook_added(s):
    s.m = linear()
    return lambda x: s.m(x), lambda: s.m.register_forward_pre_hook(lambda m, a: (a[0] + 1,)) and None


@kind
def train_to_eval(s):
    s.m = nn.Dropout(0.5)
    return lambda x: s.m(x), lambda: s.m.eval() and None


@kind
def training_flag_read(s):
    s.m = linear()
    return lambda x: s.m(x) if s.m.training else x, lambda: s.m.eval() and None


@kind
def modulelist_entry(s):
    s.row = nn.ModuleList([linear(), nn.ReLU()])

    def read(x):
        for m in s.row:
            x = m(x)
        return x
    return read, lambda: s.row.__setitem__(1, nn.Tanh())


@kind
def sequential_grows(s):
    s.m = nn.Sequential(linear(), nn.ReLU())
    return lambda x: s.m(x), lambda: s.m.append(nn.Tanh()) and None


@kind
def submodule_none(s):
    s.m = nn.Module()
    s.m.act = nn.ReLU()
    return lambda x: x if s.m.act is None else s.m.act(x), assign(s.m, "act", None)


@kind
def forward_replaced(s):
    s.m = linear()
    return lambda x: s.m(x), assign(s.m, "forward", lambda x: x * 2)


@kind
def module_number(s):
    s.m = nn.LeakyReLU(0.5)
    return lambda x: s.m(x), assign(s.m, "negative_slope", 0.25)


# -- the surroundings -----------------------------------------------------------------------------------------------------------

@kind
def grad_mode(s):
    s.w = T(5, 3, grad=True)
    return lambda x: x * s.w, lambda: torch.set_grad_enabled(False) and None


@kind
def default_dtype(s):
    return lambda x: torch.ones(3) * x.sum(), lambda: torch.set_default_dtype(torch.float64)


@kind
def autocast(s):
    s.w = T(5, 3, 3)
    return lambda x: torch.mm(x[None], s.w), lambda: torch.set_autocast_enabled("cpu", True)


@kind
def seed(s):
    return lambda x: x + torch.rand(3), lambda: torch.manual_seed(99) and None


@kind
def python_generator(s):
    return lambda x: x * random.random(), lambda: random.seed(7)


@kind
def environment_flag(s):
    def read(x):
        return x * 3 if os.environ.get("KINCORPUS_HIDDEN") == "1" else x
    return read, lambda: os.environ.__setitem__("KINCORPUS_HIDDEN", "1")


@kind
def context_variable(s):
    VAR.set(2)
    return lambda x: x * VAR.get(), lambda: VAR.set(3) and None


@kind
def deterministic_flag(s):
    def read(x):
        return x * 3 if torch.are_deterministic_algorithms_enabled() else x
    return read, lambda: torch.use_deterministic_algorithms(True)


@kind
def warnings_filter(s):
    def read(x):
        warnings.warn("hidden state", stacklevel=1)
        return x * 2
    return read, lambda: warnings.simplefilter("ignore")


@kind
def decimal_precision(s):
    def read(x):
        return x * float(decimal.Decimal(1) / decimal.Decimal(3))

    def change():
        decimal.getcontext().prec = 3
    decimal.getcontext().prec = 28
    return read, change


# -- the cases --------------------------------------------------------------------------------------------------------------

def declare(name, mutate, make, again):
    make.__name__ = name
    built(args=lambda i, s: (T(i, 3),), mutate=mutate, again=again)(make)


def direct(make):
    def build(s):
        read, s.change = make(s)
        return lambda x: read(x)
    return build


def late(make):
    def build(s):
        read, s.change = make(s)

        def f(x):
            y = ignore(x) + 1
            return read(y), read(x)
        return f
    return build


class Holder(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.parts = [first, second]

    def forward(self, x):
        y = self.parts[0](x)
        return y, self.parts[1](x)


def mixed(first, second):
    def build(s):
        s.a, s.b = types.SimpleNamespace(), types.SimpleNamespace()
        read, s.a.change = first(s.a)
        other, s.b.change = second(s.b)
        return Holder(read, other)
    return build


NAMES = list(KINDS)
for number, name in enumerate(NAMES):
    declare(name, do(3, lambda s: s.change()), direct(KINDS[name]), 1)
    if number % 2:
        declare(name + "_late", do(4, lambda s: s.change()), late(KINDS[name]), 1)
    else:
        partner = NAMES[(number * 7 + 5) % len(NAMES)]
        declare(f"{name}_and_{partner}", seq(do(2, lambda s: s.a.change()), do(4, lambda s: s.b.change())),
                mixed(KINDS[name], KINDS[partner]), 2)
