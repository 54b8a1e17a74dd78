"""A class that was changed and changed back is the same class (src/py/guardeval/class_same.c): torch.fx replaces methods of
torch.nn.Module while it traces. A class that says something else is noticed.
"""

import gc
import weakref

import pytest
import torch

import kintsugi


def make():
    class Base(torch.nn.Module):
        names = ["a"]
        sizes = (1, 2)

        def bias(self):
            return 1

    class Model(Base):
        @property
        def scale(self):
            return 2

        @staticmethod
        def shift(x):
            return x + 1

        def forward(self, x):
            return self.shift(x) * self.scale + self.bias()

    return Base, Model


def check(c, m, recordings):
    x = torch.ones(3)
    assert torch.equal(c(x), m.forward(x))
    assert kintsugi.stats(c)["recordings"] == recordings


def start():
    Base, Model = make()
    m = Model()
    c = kintsugi.compile(m)
    check(c, m, 1)
    check(c, m, 1)
    return Base, Model, m, c


def test_changes_that_were_undone():
    Base, Model, m, c = start()
    before = torch.nn.Module.__call__
    torch.nn.Module.__call__ = lambda self, *args: before(self, *args)
    torch.nn.Module.__call__ = before
    check(c, m, 1)
    Model.more = 1
    del Model.more
    check(c, m, 1)
    for cls, name in ((Model, "scale"), (Model, "shift"), (Base, "bias"), (Base, "names"), (Base, "sizes")):
        value = cls.__dict__[name]
        setattr(cls, name, None)
        setattr(cls, name, value)
        check(c, m, 1)


def test_tracing_elsewhere_costs_no_recording():
    _, _, m, c = start()
    for _ in range(3):
        torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2)))
        check(c, m, 1)


@pytest.mark.parametrize("name,value", [
    ("scale", property(lambda self: 5)), ("shift", staticmethod(lambda x: x - 3)), ("bias", lambda self: 7),
    ("forward", lambda self, x: x * 11), ("__getattr__", lambda self, name: 3)])
def test_changes_that_stay(name, value):
    _, Model, m, c = start()
    setattr(Model, name, value)
    x = torch.ones(3)
    for _ in range(3):
        assert torch.equal(c(x), m.forward(x))


def test_one_value_after_the_other():
    """Each dies before the next one is made, so that they may lie at one address."""
    _, Model, m, c = start()
    x = torch.ones(3)
    for i in range(12):
        Model.shift = staticmethod(eval(f"lambda x: x + {i}"))
        assert torch.equal(c(x), m.forward(x))
        Model.scale = property(eval(f"lambda self: {i} + 2"))
        assert torch.equal(c(x), m.forward(x))


def test_another_base():
    Base, Model, m, c = start()

    class Other(Base):
        def bias(self):
            return 100

    Model.__bases__ = (Other,)
    check(c, m, 2)


def test_classes_are_not_kept_alive():
    Base, Model, m, c = start()
    refs = weakref.ref(Base), weakref.ref(Model)
    del Base, Model, m, c
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
