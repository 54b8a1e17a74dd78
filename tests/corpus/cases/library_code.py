"""Code as libraries have it: dispatch by type, dataclasses, named tuples, exit stacks, match statements, metaclasses, classes in their MRO."""
import collections
import contextlib
import dataclasses
import enum
import functools
import typing

import torch

from kincorpus.case import case, glob

SCALE = 2.0
LOG = []


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    mask: typing.Optional[torch.Tensor] = None
    meta: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.meta["n"] = self.x.shape[0]

    def masked(self):
        return self.x if self.mask is None else self.x * self.mask


class Point(typing.NamedTuple):
    x: torch.Tensor
    n: int = 2

    def scaled(self):
        return self.x * self.n


class Mode(enum.Enum):
    MEAN = "mean"
    SUM = "sum"

    @classmethod
    def _missing_(cls, value):
        return cls[value.upper()] if value.upper() in cls.__members__ else None


@functools.singledispatch
def encode(value):
    raise TypeError(f"no {type(value).__name__}")


@encode.register
def _(value: float):
    return torch.full((2,), value)


@encode.register(list)
@encode.register(tuple)
def _(value):
    return torch.stack([encode(item) for item in value]).sum(0)


class Registered(type):
    def __call__(cls, *args):
        LOG.append(cls.__name__)
        return super().__call__(*args)

    def __getitem__(cls, item):
        return cls(item)

    def __len__(cls):
        return 5


class Base(metaclass=Registered):
    def __init__(self, by):
        self.by = by

    def go(self, x):
        return x * self.by


class Derived(Base):
    def go(self, x):
        return super().go(x) + 1


@contextlib.contextmanager
def entered(n):
    LOG.append(("in", n))
    try:
        yield n
    finally:
        LOG.append(("out", n))


@case(mutate=glob(3, SCALE=3.0))
def replaces_fields_of_a_dataclass(x):
    batch = Batch(x, x > 0)
    other = dataclasses.replace(batch, x=x * SCALE)
    return other.masked(), other.meta, [f.name for f in dataclasses.fields(batch)]


@case(mutate=glob(3, SCALE=3.0))
def makes_named_tuples_of_others(x):
    point = Point(x, SCALE)
    return point._replace(n=SCALE + 1).scaled(), Point(**point._asdict()), Point._make([x + 1, 7]), point._fields


@case(mutate=glob(3, SCALE=3.0))
def dispatches_by_type(x):
    try:
        encode("text")
    except TypeError as error:
        return encode(SCALE), encode([SCALE, (SCALE, 1.0)]), str(error), Mode("SUM" if SCALE > 2 else "mean").name


@case(mutate=glob(3, SCALE=3.0))
def leaves_an_exit_stack(x):
    del LOG[:]
    with contextlib.ExitStack() as stack:
        for n in range(2):
            x = x + stack.enter_context(entered(n))
        stack.callback(LOG.append, "callback")
        later = stack.pop_all()
    x = x * len(LOG) * SCALE
    later.close()
    return x, list(LOG)


@case(mutate=glob(3, SCALE=3.0))
def goes_by_the_classes_of_an_mro(x):
    del LOG[:]
    n = int(SCALE) - 2
    return Derived.__mro__[n](SCALE).go(x), Derived.__mro__[n].__name__, Derived[SCALE].go(x), len(Derived), list(LOG)


@case(mutate=glob(3, SCALE=3.0))
def matches_shapes_and_commands(x):
    out = []
    for command in ({"by": SCALE, "more": 1}, ["add", 1, 2], Point(x), ("none",), None):
        match command:
            case {"by": float(by), **rest}:
                out.append((x * by, rest))
            case ["add", *numbers] if numbers:
                out.append(x + sum(numbers))
            case Point(x=tensor, n=2):
                out.append(tensor.sum())
            case None:
                out.append(tuple(x.shape))
            case _:
                out.append("other")
    return out


@case(mutate=glob(3, SCALE=3.0))
def counts_and_chains(x):
    counter = collections.Counter("abca")
    counter["z"] -= 1
    chain = collections.ChainMap({"a": SCALE}, {"a": 1.0, "b": 2.0}).new_child({"q": 5})
    return x * counter["a"] * chain["a"], counter.most_common(1), +counter, sorted(chain), "b" in chain
