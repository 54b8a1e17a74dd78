"""inspect.signature and importlib.util.find_spec in recorded code are one step each, and what they say is true in each call."""

import importlib.util
import inspect
import sys

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


class Finder:
    def __init__(self):
        self.asked, self.found = 0, None

    def find_spec(self, name, path=None, target=None):
        if name == "kintsugi_has_no_such_module":
            self.asked += 1
            return self.found
        return None


def scaled_if_there(x):
    there = importlib.util.find_spec("kintsugi_has_no_such_module") is not None
    return (x * 2 if there else x * 3) + 1


def test_finders_are_asked_in_each_call(monkeypatch):
    finder, seen = Finder(), []
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    compiled = kintsugi.compile(scaled_if_there, backend=lambda gm, inputs: seen.append(gm) or gm)
    x = torch.randn(3)
    for call in range(1, 6):
        assert torch.equal(compiled(x), x * 3 + 1) and finder.asked == call
    assert [kintsugi.stats(compiled)[n] for n in ("recordings", "replays")] == [1, 4] and len(seen) == 1
    finder.found = importlib.util.spec_from_loader("kintsugi_has_no_such_module", None)
    assert torch.equal(compiled(x), x * 2 + 1)
    finder.found = None
    assert torch.equal(compiled(x), x * 3 + 1)
