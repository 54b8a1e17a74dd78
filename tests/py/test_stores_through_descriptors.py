"""obj.name = value where the class has a property with a setter, or an object with a __set__ in Python: what that computes is part of the graph."""

import pytest
import torch
from torch import nn

import kintsugi


class Shifted:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, cls=None):
        return self if obj is None else getattr(obj, self.name) * 2

    def __set__(self, obj, value):
        setattr(obj, self.name, value + 1)

    def __delete__(self, obj):
        delattr(obj, self.name)


class Holder:
    shifted = Shifted()

    def __init__(self):
        self.log = []

    @property
    def scaled(self):
        return self._scaled * 2

    @scaled.setter
    def scaled(self, value):
        if value.ndim != 1:
            raise ValueError("one dim")
        self._scaled = value + 1
        self.log.append("set")

    @scaled.deleter
    def scaled(self):
        self.log.append("deleted")
        del self._scaled

    @property
    def fixed(self):
        return 1


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self._scale = torch.ones(1)

    @property
    def scale(self):
        return self._scale

    @scale.setter
    def scale(self, value):
        self._scale = value.detach() * 2

    def forward(self, x):
        self.scale = x.sum()
        return self.scale + x


def inside(x):
    h = Holder()
    h.shifted, h.scaled = x, x * 3
    h.scaled += 1
    setattr(h, "shifted", h.shifted * 2)
    both = h.shifted, h.scaled
    del h.shifted
    delattr(h, "scaled")
    return both, vars(h)


def raising(x):
    h = Holder()
    h.scaled = x
    try:
        h.scaled = x.sum()
    except ValueError:
        return h.scaled, h.log


OLDER, MODULE = Holder(), Module()


def older(x):
    OLDER.shifted, OLDER.scaled = x, x * 3
    OLDER.scaled += 1
    return OLDER.shifted, OLDER.scaled


def in_module(x):
    return MODULE(x), MODULE._scale


@pytest.mark.parametrize("fn", [inside, raising, older, in_module])
def test_setters_are_part_of_the_graph(fn):
    compiled = kintsugi.compile(fn, fullgraph=True)
    for i in range(4):
        x = torch.ones(3 + (i == 2)) + i
        expected = str(fn(x))
        assert str(compiled(x)) == expected
    steps = [s for entry in compiled.entries() for s in kintsugi._kintsugi.dump(entry)["steps"]]
    assert not [s["text"] for s in steps if "opaque" in s["flags"]]
    assert kintsugi.stats(compiled)["breaks"] == 0


def test_a_setter_that_is_not_followed_is_reported():
    class Exec:
        def __setattr__(self, name, value):
            exec("self.__dict__[name] = value * 2")

    def fn(x):
        e = Exec()
        e.v = x
        return e.v + 1
    compiled = kintsugi.compile(fn)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert kintsugi.stats(compiled)["breaks"] >= 1


def test_a_property_without_a_setter_raises():
    def fn(x):
        Holder().fixed = x
    compiled = kintsugi.compile(fn)
    for _ in range(3):
        with pytest.raises(AttributeError, match="fixed"):
            compiled(torch.ones(2))
