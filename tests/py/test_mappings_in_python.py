"""OrderedDict(mapping), cls(mapping) of classes derived from dict, OrderedDict.update(mapping) and update(mapping, **more), where the mapping's methods are Python."""

import collections
import collections.abc

import pytest
import torch

import kintsugi

LOG = []


class Table(collections.abc.Mapping):
    def __init__(self, items):
        self.held = items

    def __getitem__(self, key):
        LOG.append(key)
        return self.held[key] * 2

    def __len__(self):
        return len(self.held)

    def __iter__(self):
        for key in self.held:
            LOG.append("next")
            yield key


class Keyed:
    def __init__(self, **items):
        self.held = items

    def keys(self):
        return list(self.held)

    def __getitem__(self, key):
        return self.held[key] + 1


class Derived(dict):
    def __setitem__(self, key, value):
        raise AssertionError("C code does not ask this")


class Initialised(dict):
    def __init__(self, *args):
        super().__init__(*args)
        self.made = 1


class Failing(Table):
    def __getitem__(self, key):
        raise ValueError(key)


def ordered(x):
    made = collections.OrderedDict(Table({"a": x, "b": x + 1}))
    made.update(Table({"b": x, "c": x}))
    return made, list(made), made["a"] + made["c"], collections.OrderedDict(Keyed(a=x)), collections.OrderedDict(Table({"a": x}), z=x), collections.OrderedDict(collections.ChainMap({"b": x}, {"a": x}))


def derived(x):
    made = Derived(Table({"a": x, "b": x + 1}))
    return made, type(made), made["a"] * 3, Derived(Keyed(a=x), b=x), Derived(collections.UserDict({"u": x})), dict(Table({"a": x}))


def updated(x):
    plain, made, initialised = {"a": x}, Derived(b=x), Initialised(Table({"a": x, "k": x}))
    plain.update(Table({"k": x, "a": x + 1}), z=x, k=x - 1)
    made.update(Table({"a": x, "b": x + 1}), c=x)
    made.update(Keyed(z=x))
    return plain, made, list(made), made["a"] * plain["k"], initialised, initialised.made + 1


def keeps(x):
    made = Derived()
    try:
        made.update(Failing({"a": x}), b=x)
    except ValueError as e:
        return made, str(e), x.sin()


@pytest.mark.parametrize("fn", [ordered, derived, updated], ids=lambda fn: fn.__name__)
def test_stays_in_one_graph(fn):
    compiled = kintsugi.compile(fn, fullgraph=True)
    for i in range(4):
        asked = []
        for f in (fn, compiled):
            LOG.clear()
            asked.append((str(f(torch.ones(2) + i)), list(LOG)))
        assert asked[0] == asked[1]
    assert kintsugi.stats(compiled)["breaks"] == 0


def test_an_update_that_fails_adds_nothing_behind_it():
    compiled = kintsugi.compile(keeps)
    for i in range(3):
        assert str(compiled(torch.ones(2) + i)) == str(keeps(torch.ones(2) + i))


def test_what_it_raises():
    def fn(x, cls):
        return cls(Failing({"a": x}))
    compiled = kintsugi.compile(fn)
    for cls in (collections.OrderedDict, Derived) * 2:
        with pytest.raises(ValueError, match="a"):
            compiled(torch.ones(2), cls)
