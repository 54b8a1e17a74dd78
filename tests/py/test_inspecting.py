"""inspect.signature in recorded code is one step, and what it says is true in each call."""

import inspect

import kintsugi
import torch
from kintsugi import _kintsugi


def add(x, y=1, *, scale=2):
    return (x + y) * scale


class Part:
    def forward(self, x, mask=None):
        return x + 1


def count(x, part):
    y = x.sin()
    names = list(inspect.signature(add).parameters)
    n = len(inspect.signature(part.forward).parameters)
    return y * n, names


def steps(compiled):
    return [s["text"] for s in _kintsugi.dump(compiled.entries()[0])["steps"]]


def agree(compiled, *args):
    result, names = compiled(*args)
    expected, wanted = count(*args)
    assert torch.equal(result, expected) and names == wanted


def test_one_step_each():
    compiled, part = kintsugi.compile(count, backend="eager"), Part()
    for i in range(4):
        agree(compiled, torch.randn(3), part)
    assert compiled.stats()["replays"] == 3
    assert sum("inspect.signature(" in text for text in steps(compiled)) == 2


def test_attributes_that_change_the_answer():
    compiled, part = kintsugi.compile(count, backend="eager"), Part()
    for i in range(3):
        agree(compiled, torch.randn(3), part)
    try:
        add.__wrapped__ = lambda a, b, c, d: None
        for i in range(3):
            agree(compiled, torch.randn(3), part)
    finally:
        del add.__wrapped__
    try:
        add.__signature__ = inspect.signature(lambda q: None)
        for i in range(3):
            agree(compiled, torch.randn(3), part)
    finally:
        del add.__signature__
    part.forward = lambda x: x
    for i in range(3):
        agree(compiled, torch.randn(3), part)


class Box:
    pass


def pops(x, box, table):
    mine = {}
    box.mine = mine
    box.fill(mine)
    y = x.sin()
    gone = table.pop("key", None), mine.pop("key", 7), mine.pop("other", y)
    return y * 2, gone, list(mine), list(table)


def fill_nothing(table):
    pass


def fill_key(table):
    table["key"] = 1


def test_pop_of_what_is_not_there():
    compiled = kintsugi.compile(pops, backend="eager")
    box = Box()
    for fill, entries in [(fill_nothing, {})] * 3 + [(fill_key, {}), (fill_nothing, {"key": 3}), (fill_key, {"key": 4, "b": 1})] * 2:
        box.fill = fill
        x, table, other = torch.randn(3), dict(entries), dict(entries)
        result, wanted = compiled(x, box, table), pops(x, box, other)
        assert torch.equal(result[0], wanted[0]) and torch.equal(result[1][2], wanted[1][2])
        assert result[1][:2] == wanted[1][:2] and result[2:] == wanted[2:] and table == other
    assert compiled.stats()["replays"] >= 2
