"""hasattr of what a class in C always has, and accumulate() whose operands are given by keyword or as None: one graph, and guarded."""
import functools
import itertools

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


class Slots:
    __slots__ = ("maybe",)


def one_graph(fn, *inputs):
    """Three calls equal eager's, and the backend gets one graph."""
    graphs = []

    def backend(gm, example):
        graphs.append(gm)
        return gm.forward

    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(*inputs), fn(*inputs))
    assert len(graphs) == 1
    return compiled


@pytest.mark.parametrize("name", ["func", "args", "keywords", "__dict__", "__init_subclass__", "__subclasshook__", "missing"])
def test_hasattr_of_a_partial_made_inside(name):
    def fn(x):
        p = functools.partial(torch.add, x, alpha=2)
        return p(x.sin()) if hasattr(p, name) else x - 1

    one_graph(fn, torch.randn(5))


@pytest.mark.parametrize("name", ["args", "keywords", "__subclasshook__", "missing"])
def test_hasattr_of_an_older_partial(name):
    p = functools.partial(torch.add, alpha=2)
    compiled = one_graph(lambda x: p(x, x) if hasattr(p, name) else x - 1, torch.randn(5))
    p.missing = 1
    assert torch.equal(compiled(torch.ones(5)), torch.full((5,), 3.0))


def test_hasattr_of_an_empty_slot_is_still_asked():
    box = Slots()

    def fn(x):
        return x + 1 if hasattr(box, "maybe") else x - 1

    compiled = kintsugi.compile(fn)
    for i in range(6):
        if i % 2:
            box.maybe = i
        elif i:
            del box.maybe
        assert torch.equal(compiled(torch.ones(3)), fn(torch.ones(3)))


ACCUMULATED = {
    "func by keyword": lambda x: list(itertools.accumulate([x, x + 1, x + 2], func=lambda a, b: a * b))[-1],
    "initial is None": lambda x: list(itertools.accumulate([x, x + 1, x + 2], lambda a, b: a * b, initial=None))[-1],
    "func is None": lambda x: list(itertools.accumulate([x, x + 1], None, initial=x))[-1],
}


@pytest.mark.parametrize("name", ACCUMULATED)
def test_accumulate_with_keywords(name):
    one_graph(ACCUMULATED[name], torch.randn(4))


def test_accumulate_with_both_by_keyword():
    def fn(x):
        return list(itertools.accumulate([x, x + 1], initial=x, func=lambda a, b: a - b))[-1]

    compiled, x = kintsugi.compile(fn, fullgraph=True), torch.randn(4)
    for _ in range(3):
        assert torch.equal(compiled(x), fn(x))
    assert kintsugi.explain(fn)(x).graph_break_count == 0


def test_accumulate_whose_start_changes_to_none():
    def fn(x, start):
        return len(list(itertools.accumulate([x, x + 1], lambda a, b: a * b, initial=start)))

    compiled = kintsugi.compile(fn)
    x = torch.ones(2)
    for start in (None, x, None, x, None):
        assert compiled(x, start) == fn(x, start)
