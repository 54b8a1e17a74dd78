"""What C code finds in a dict of a program's class that it copies: the entries, or what keys() and __getitem__ of the class give."""

import collections

import pytest
import torch

import kintsugi


class Doubled(dict):
    def __getitem__(self, key):
        return dict.__getitem__(self, key) * 2


class FewKeys(dict):
    def keys(self):
        return ["a"]


class FewItems(dict):
    def __iter__(self):
        return iter(["a"])


class FewDoubled(Doubled):
    def __iter__(self):
        return iter(["a"])


class Ordered(collections.OrderedDict):
    pass


class OrderedDoubled(collections.OrderedDict):
    def __getitem__(self, key):
        return collections.OrderedDict.__getitem__(self, key) * 2


class OrderedFew(collections.OrderedDict):
    def keys(self):
        return ["a"]


class OrderedOutput(collections.OrderedDict):
    def __getitem__(self, key):
        return dict(self.items())[key]


class OrderedCounted(OrderedOutput):
    """One store after the other into an older object can't be done again: such a copy ends the graph, and says so."""
    asked = 0

    def __getitem__(self, key):
        self.asked += 1
        return super().__getitem__(key)


def copies(x, m):
    def keywords(**found):
        return found
    filled = {}
    filled.update(m)
    return {**m}, {"z": 1, **m}, keywords(**m), keywords(z=2, **m), dict(m), dict(m, c=1), filled


CLASSES = [Doubled, FewKeys, FewItems, FewDoubled, Ordered, OrderedDoubled, OrderedFew, OrderedOutput]


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("inside", [False, True])
def test_copies_of_a_derived_dict(cls, inside):
    def fn(x, m):
        if inside:
            m = cls(a=x, b=x + 1)
        return copies(x, m)
    compiled = kintsugi.compile(fn, fullgraph=True)
    for i in range(4):
        args = [(torch.ones(3) * i, cls(a=torch.ones(3) + i, b=torch.ones(2))) for _ in range(2)]
        assert str(compiled(*args[0])) == str(fn(*args[1]))
    stats = kintsugi.stats(compiled)
    assert stats["breaks"] == 0 and stats["recordings"] == 1
    steps = [s for entry in compiled.entries() for s in kintsugi._kintsugi.dump(entry)["steps"]]
    assert not [s["text"] for s in steps if "opaque" in s.get("flags", [])]


def test_methods_that_are_not_followed_are_reported():
    def fn(x, m):
        return {**m}, dict(m), x + 1
    compiled = kintsugi.compile(fn)
    for i in range(4):
        mine, other = (OrderedCounted(a=torch.ones(3) + i) for _ in range(2))
        assert str(compiled(torch.ones(3), mine)) == str(fn(torch.ones(3), other)) and mine.asked == other.asked == 2
    assert kintsugi.stats(compiled)["breaks"] == 2


def test_a_keyword_given_twice():
    def keywords(**found):
        return found

    def fn(x, m):
        return keywords(a=1, **m)
    compiled = kintsugi.compile(fn)
    for i in range(3):
        with pytest.raises(TypeError, match="multiple values for keyword argument 'a'"):
            compiled(torch.ones(2), Doubled(a=torch.ones(2)))
        assert list(compiled(torch.ones(2), Doubled(b=torch.ones(2)))) == ["a", "b"]
