"""Generators that are suspended inside try or with: used up they are part of the graph; closed, dropped or left before their end they run code of
their own, and what they do is what eager shows."""

import itertools

import pytest
import torch

import kintsugi

pytestmark = pytest.mark.usefixtures("no_failure_of_our_own")

LOG = []


def with_finally(x):
    try:
        for i in range(3):
            yield x * i
    finally:
        LOG.append("finally")


def with_handlers(x):
    for i in range(3):
        try:
            yield x + i
        except ValueError:
            LOG.append("handler")
            yield x


class Block:
    def __enter__(self):
        LOG.append("enter")
        return 2

    def __exit__(self, kind, error, traceback):
        LOG.append(kind and kind.__name__)


def with_block(x):
    with Block() as factor:
        for i in range(3):
            yield x * factor + i


def delegating(x):
    try:
        yield from with_finally(x)
    finally:
        LOG.append("outer")


GENERATORS = [with_finally, with_handlers, with_block, delegating]


def summed(make, x, stop):
    for v in make(x):
        x = x + v
    return x


def listed(make, x, stop):
    return list(make(x)), x + 1


def numbered(make, x, stop):
    return [v * i for i, v in enumerate(make(x))]


def unpacked(make, x, stop):
    a, b, c = make(x)
    return a + b * c, torch.stack([*make(x)])


def kept(make, x, stop):
    d = {"it": make(x)}
    y = next(d["it"])
    LOG.append("between")
    return y, sum(d["it"])


WHOLE = [summed, listed, numbered, unpacked, kept]


def left(make, x, stop):
    for v in make(x):
        x = x + v
        if stop:
            break
    LOG.append("after")
    return x * 2


def dropped(make, x, stop):
    it = make(x)
    y = next(it)
    del it
    LOG.append("after")
    return y.sin()


def dropped_at_the_end(make, x, stop):
    it = make(x)
    next(it)
    return next(it) * 2


def replaced(make, x, stop):
    it = make(x)
    y = next(it)
    it = make(x + 1)
    z = next(it)
    LOG.append("after")
    return y + z, next(it)


def closed(make, x, stop):
    it = make(x)
    y = next(it)
    it.close()
    LOG.append("after")
    return y + 1


def of_a_callee(make, x, stop):
    def first():
        it = make(x)
        return next(it)
    y = first()
    LOG.append("after")
    return y + first()


def left_by_c(make, x, stop):
    return any(v.dim() == 1 for v in make(x)), list(itertools.islice(make(x), 2)), [a * b for a, b in zip(make(x), range(2))]


def left_by_an_exception(make, x, stop):
    try:
        for v in make(x):
            x = x + v
            if stop:
                raise KeyError
    except KeyError:
        LOG.append("caught")
    return x


def given_back(make, x, stop):
    it = make(x)
    next(it)
    return it


PARTLY = [left, dropped, dropped_at_the_end, replaced, closed, of_a_callee, left_by_c, left_by_an_exception, given_back]


def run(fn, *args):
    LOG.clear()
    result = fn(*args)
    before = list(LOG)
    return str(list(result) if hasattr(result, "send") else result), before, list(LOG)


@pytest.mark.parametrize("make", GENERATORS)
@pytest.mark.parametrize("program", WHOLE + PARTLY)
def test_they_do_what_eager_does(program, make):
    compiled = kintsugi.compile(program)
    for call, stop in enumerate((0, 0, 1, 1, 0, 1, 1, 0, 0)):
        x = torch.arange(4.) + call
        assert run(compiled, make, x, stop) == run(program, make, x, stop), call


@pytest.mark.parametrize("make", GENERATORS)
@pytest.mark.parametrize("program", WHOLE)
def test_one_that_is_used_up_ends_no_graph(program, make):
    compiled = kintsugi.compile(program, fullgraph=True)
    for call in range(3):
        x = torch.arange(4.) + call
        assert run(compiled, make, x, 0) == run(program, make, x, 0)


@pytest.mark.parametrize("make", GENERATORS)
@pytest.mark.parametrize("program", [left, dropped, dropped_at_the_end, replaced, closed, of_a_callee])
def test_one_that_is_left_ends_no_graph(program, make):
    compiled = kintsugi.compile(program, fullgraph=True)
    for call in range(3):
        x = torch.arange(4.) + call
        assert run(compiled, make, x, 1) == run(program, make, x, 1)
