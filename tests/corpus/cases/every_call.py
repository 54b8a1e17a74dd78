"""State that changes before every call: recording must come to an end all the same, with a program that reads what changes."""
import enum
import functools
import itertools
import json
import random
import types

import torch
from torch import nn

from kincorpus.case import T, built, case, seeded

PARTS = [0]


def every(action, **options):
    """A case of ten calls; action(i, s) changes something before each but the first."""
    def mutate(i, s):
        if i:
            action(i, s)
    mutate.changes = options.pop("misses", 1)
    return case(mutate=mutate, calls=10, **options)


def built_every(action, **options):
    def mutate(i, s):
        if i:
            action(i, s)
    mutate.changes = options.pop("misses", 1)
    return built(mutate=mutate, calls=10, **options)


class Box:
    rate = 1
    bias = torch.zeros(3)

    def apply(self, x):
        return x * 2

    @property
    def factor(self):
        return 3

    @classmethod
    def shift(cls, x):
        return x + cls.rate

    @staticmethod
    def twist(x):
        return -x


BOX = Box()


@every(lambda i, s: setattr(Box, "rate", i), misses=2)
def class_number(x):
    return BOX.apply(x) * BOX.rate


@every(lambda i, s: setattr(Box, "rate", i), misses=2)
def class_number_through_class(x):
    return x * Box.rate, Box.shift(x)


@every(lambda i, s: setattr(Box, "bias", T(i, 3)))
def class_tensor(x):
    return BOX.apply(x) + BOX.bias


@every(lambda i, s: setattr(Box, "apply", lambda self, x: x - self.rate), misses=3)
def class_method(x):
    return BOX.apply(x)


@every(lambda i, s: setattr(Box, "factor", property(lambda self: self.rate + 1)), misses=3)
def class_property(x):
    return x * BOX.factor


@every(lambda i, s: setattr(Box, "twist", staticmethod(lambda x: x * 5)), misses=3)
def class_staticmethod(x):
    return BOX.twist(x), Box.twist(x)


@every(lambda i, s: setattr(Box, f"extra{i}", i), misses=2)
def class_gains_attributes(x):
    return x * getattr(BOX, "extra9", 1), BOX.apply(x)


@every(lambda i, s: setattr(Box, "__call__", lambda self, x: x * self.rate) if i > 4 else setattr(Box, "rate", i), misses=4)
def class_gains_call(x):
    return BOX(x) if callable(BOX) else x + BOX.rate


class Base:
    step = 1

    def run(self, x):
        return x + self.step


class Derived(Base):
    def run(self, x):
        return super().run(x) * 2


DERIVED = Derived()


@every(lambda i, s: setattr(Derived, "step", i), misses=2)
def subclass_number_behind_super(x):
    return DERIVED.run(x), isinstance(DERIVED, Base)


class Meta(type):
    power = 2


class WithMeta(metaclass=Meta):
    pass


@every(lambda i, s: setattr(Meta, "power", i), misses=2)
def metaclass_number(x):
    return x * WithMeta.power


class Counting(nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.seen = 0

    def forward(self, x):
        type(self).calls += 1
        self.seen += 1
        return self.lin(x) * Counting.calls


@built_every(lambda i, s: None, misses=4, inert=True)
def module_counts_its_calls(s):
    s.model = seeded(0, Counting)
    return lambda x: s.model(x)


@case(again=3, calls=10)
def class_counter_inside(x):
    Box.count = getattr(Box, "count", 0) + 1
    return x * Box.count


SCALE = 1
NAME = "a"
FN = torch.sin


def _global(name, make):
    def action(i, s):
        globals()[name] = make(i)
    return action


@every(_global("SCALE", lambda i: i))
def global_number(x):
    return x * SCALE


@every(_global("SCALE", lambda i: i * 0.5), misses=2)
def global_number_after_opaque_call(x):
    text = json.dumps({"a": 1})
    return x * SCALE, text


@every(_global("NAME", lambda i: f"n{i}"))
def global_text(x):
    return x + 1, NAME + "!", f"<{NAME}>", NAME.upper(), {NAME: 1}


@every(_global("FN", lambda i: lambda v: v * 2 - i), misses=2)
def global_function(x):
    return FN(x)


@every(_global("FN", lambda i: lambda v: v * 2), misses=2)
def global_function_after_opaque_call(x):
    text = json.dumps([1])
    return FN(x), text


@case(calls=10, again=1, args=lambda i, s: (T(i, 3), lambda v: v * 3 + 1))
def function_argument(x, f):
    return f(x)


@case(calls=10, again=1, args=lambda i, s: (T(i, 3), (lambda k: lambda v: v * k)(i)))
def closure_argument(x, f):
    return f(x)


@case(calls=10, again=1, args=lambda i, s: (T(i, 3), functools.partial(torch.add, alpha=i)))
def partial_argument(x, f):
    return f(x, x)


def with_default(x, k=1):
    return x * k


@every(lambda i, s: setattr(with_default, "__defaults__", (i,)))
def default_number(x):
    return with_default(x)


@built_every(lambda i, s: s.set(i))
def cell_number(s):
    k = 1

    def put(v):
        nonlocal k
        k = v
    s.set = put
    return lambda x: x * k


@built_every(lambda i, s: setattr(s.ns, "k", i))
def attribute_number(s):
    s.ns = types.SimpleNamespace(k=0)
    return lambda x: x * s.ns.k


@built_every(lambda i, s: setattr(s.ns, "k", i), misses=2)
def attribute_after_opaque_call(s):
    s.ns = types.SimpleNamespace(k=0)

    def f(x):
        json.dumps({})
        y = x * s.ns.k
        json.dumps({})
        return y + s.ns.k
    return f


@built_every(lambda i, s: s.table.update({f"k{i}": i}), inert=True)
def dict_grows_beside_the_item(s):
    s.table = {"a": 2}
    return lambda x: x * s.table["a"]


@built_every(lambda i, s: s.table.update({f"k{i}": i}))
def dict_size(s):
    s.table = {"a": 2}
    return lambda x: x * len(s.table)


@built_every(lambda i, s: s.row.append(i))
def list_size(s):
    s.row = []
    return lambda x: x * len(s.row)


@built_every(lambda i, s: s.row.append(i), misses=2)
def list_size_after_opaque_call(s):
    s.row = []

    def f(x):
        json.dumps({})
        return x * len(s.row)
    return f


class Slotted:
    __slots__ = ("k",)


@built_every(lambda i, s: setattr(s.obj, "k", i))
def slot_number(s):
    s.obj = Slotted()
    s.obj.k = 0
    return lambda x: x * s.obj.k


@built_every(lambda i, s: setattr(s, "obj", types.SimpleNamespace(k=i)))
def object_replaced(s):
    s.obj = types.SimpleNamespace(k=0)
    return lambda x: x * s.obj.k


class Mode(enum.Enum):
    A = 1
    B = 2
    C = 3


@built_every(lambda i, s: setattr(s, "mode", list(Mode)[i % 3]), misses=3)
def enum_member(s):
    s.mode = Mode.A
    return lambda x: x * s.mode.value


@built_every(lambda i, s: setattr(s.lin, "weight", nn.Parameter(T(i, 3, 3))))
def parameter_replaced(s):
    s.lin = seeded(0, lambda: nn.Linear(3, 3))
    return lambda x: s.lin(x)


@built_every(lambda i, s: s.lin.weight.data.copy_(T(i, 3, 3)))
def parameter_data(s):
    s.lin = seeded(0, lambda: nn.Linear(3, 3))
    return lambda x: s.lin(x)


@built_every(lambda i, s: s.lin.train(i % 2 == 0), misses=2)
def train_and_eval(s):
    s.lin = seeded(0, lambda: nn.Dropout(0.5))
    return lambda x: s.lin(x)


@built_every(lambda i, s: setattr(s.lin, "forward", lambda x: nn.Linear.forward(s.lin, x) * 2), misses=2)
def forward_replaced(s):
    s.lin = seeded(0, lambda: nn.Linear(3, 3))
    return lambda x: s.lin(x)


@case(calls=10, again=2)
def number_from_a_counter(x):
    return {next(PARTICLES): x}, x


PARTICLES = itertools.count()


@case(calls=10, again=2)
def random_number_in_text(x):
    r = random.random()
    return x * r, f"{r:.3f}", [r]


@every(_global("SCALE", lambda i: i), misses=2)
def seeded_inside(x):
    torch.manual_seed(SCALE)
    return torch.rand(3) + x, torch.initial_seed()
