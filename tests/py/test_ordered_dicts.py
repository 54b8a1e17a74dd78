"""OrderedDicts that come from outside, of any class: what they hold and in which order is a fact of the recording, as it is for plain dicts."""

import collections

import pytest
import torch

import kintsugi


class Output(collections.OrderedDict):
    """As model outputs are made: keys are attributes, numbers index the values."""

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else tuple(self[k] for k in self.keys())[key]


class Classes(collections.OrderedDict):
    """Makes an instance of what it holds."""

    def __getitem__(self, key):
        return super().__getitem__(key)()


def by_keys(d):
    return sum(i * d[k] for i, k in enumerate(d.keys()))


def by_items(d):
    return sum(i * v for i, (_, v) in enumerate(d.items()))


def by_values(d):
    return sum(i * v for i, v in enumerate(d.values()))


def by_itself(d):
    return sum(i * d[k] for i, k in enumerate(d))


def by_index(d):
    return d[1] + len(d)


def as_dict(d):
    return list(dict(d)), dict(d)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return list(a) == list(b) if not isinstance(a, tuple) else a[0] == b[0] and all(torch.equal(a[1][k], b[1][k]) for k in a[1])


@pytest.mark.parametrize("kind", [collections.OrderedDict, Output])
@pytest.mark.parametrize("fn", [by_keys, by_items, by_values, by_itself, by_index, as_dict])
def test_contents_and_order_are_known(fn, kind):
    if fn is by_index and kind is not Output:
        return
    compiled = kintsugi.compile(fn)
    table = kind(a=torch.randn(3), b=torch.randn(3), c=torch.randn(3))
    for _ in range(3):
        assert same(fn(table), compiled(table))
    stats = compiled.stats()
    assert stats["recordings"] == 1 and stats["bail_outs"] == 0
    assert stats["variants"][0]["epochs"] == 1  # nothing runs code that nobody watched
    table.move_to_end("a")
    assert same(fn(table), compiled(table))
    table["a"] = torch.randn(3)
    assert same(fn(table), compiled(table))
    del table["b"]
    table["b"] = torch.randn(3)
    assert same(fn(table), compiled(table))
    assert compiled.stats()["recordings"] == 3  # one for each order


def test_another_order_in_the_same_memory():
    def fn(d, x):
        return x * list(d.keys()).index("a")

    compiled = kintsugi.compile(fn)
    d, x = collections.OrderedDict(a=1, b=2, c=3), torch.ones(2)
    for i in range(40):
        d.move_to_end(("a", "b", "c")[i % 3], last=i % 2 == 0)
        assert torch.equal(fn(d, x), compiled(d, x)), i


def test_dict_getitem_by_super():
    table = Classes(relu=torch.nn.ReLU, silu=torch.nn.SiLU)

    def fn(x, name):
        return table[name](x) * 2

    compiled = kintsugi.compile(fn)
    x = torch.randn(4)
    for _ in range(2):
        assert torch.equal(fn(x, "relu"), compiled(x, "relu"))
    (only,) = compiled.stats()["variants"]
    assert only["graphs"] == 1
    table["relu"] = torch.nn.Tanh
    for name in ("relu", "silu", "relu"):
        assert torch.equal(fn(x, name), compiled(x, name))
    with pytest.raises(KeyError):
        compiled(x, "gelu")
