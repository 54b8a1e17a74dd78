"""Generators that are closed, thrown into or dropped while they are suspended inside try or with: what they do then is part of the graph, in eager's
order, and also where a replay leaves in the middle of it."""

import contextlib
import itertools
import sys

import pytest
import torch
from torch import nn

import kintsugi
from kintsugi._engine import engine

pytestmark = pytest.mark.usefixtures("no_failure_of_our_own")

LOG = []


def guarded(xs):
    try:
        for x in xs:
            yield x.sin()
    finally:
        LOG.append("closed")


class Block:
    def __init__(self, swallows=False):
        self.swallows = swallows

    def __enter__(self):
        LOG.append("enter")

    def __exit__(self, kind, error, traceback):
        LOG.append(kind.__name__ if kind else None)
        return self.swallows


@contextlib.contextmanager
def block():
    LOG.append("in")
    try:
        yield
    finally:
        LOG.append("out")


def break_from_loop(x):
    for y in guarded([x, x + 1]):
        if y.dim() == 1:
            break
    LOG.append("after")
    return y * 2


def break_from_enumerate(x):
    for i, y in enumerate(guarded([x, x + 1, x + 2])):
        if i == 1:
            break
    LOG.append("after")
    return y * i


def break_from_zip(x):
    total = 0
    for i, y in zip(range(2), guarded([x, x + 1, x + 2])):
        total = total + y * i
    LOG.append("after")
    return total


def return_from_loop(x):
    for y in guarded([x, x + 1]):
        return y * 2


def break_in_callee(x):
    def first(items):
        for y in items:
            return y
    y = first(guarded([x, x + 1]))
    LOG.append("after")
    return y + 1


def left_in_callee(x):
    def first():
        items = guarded([x, x + 1])
        return next(items)
    y = first()
    LOG.append("after")
    return y + 1


def left_at_the_end(x):
    items = guarded([x, x + 1])
    LOG.append("before")
    return next(items) + 1


def deleted(x):
    items = guarded([x, x + 1])
    y = next(items)
    del items
    LOG.append("after")
    return y + 1


def replaced(x):
    items = guarded([x, x + 1])
    y = next(items)
    items = guarded([x + 2, x])
    LOG.append("between")
    z = next(items)
    items = None
    LOG.append("after")
    return y + z


def of_a_call(x):
    y = next(guarded([x, x + 1]))
    LOG.append("after")
    return y


def stopped_by_c(x):
    found = any(y.dim() == 1 for y in guarded([x, x + 1])), list(itertools.islice(guarded([x, x + 1, x + 2]), 2))
    LOG.append("after")
    return found


def nested(x):
    def outer():
        for y in guarded([x, x + 1]):
            yield y + 1
    for y in outer():
        break
    LOG.append("after")
    return y


def delegating(x):
    def outer():
        try:
            yield from guarded([x, x + 1])
        finally:
            LOG.append("outer")
    for y in outer():
        break
    LOG.append("after")
    return y


def closed(x):
    items = guarded([x, x + 1])
    y = next(items)
    items.close()
    LOG.append("between")
    items.close()
    return y + 1, list(items)


def closed_new_and_done(x):
    new, done = guarded([x]), guarded([x])
    new.close()
    LOG.append("new")
    y, = done
    done.close()
    return y, list(new)


def closed_with_work(x):
    kept = []

    def items():
        try:
            yield x + 1
        finally:
            kept.append(x.cos())
    it = items()
    y = next(it)
    it.close()
    return y + kept[0]


def closed_inside_with(x):
    def items():
        with block(), Block():
            yield x + 1
            yield x + 2
    for y in items():
        break
    LOG.append("after")
    return y


def closed_without_gradients(x):
    def items():
        with torch.no_grad():
            yield x * 2
            yield x * 3
    it = items()
    y = next(it)
    inside = torch.is_grad_enabled()
    it.close()
    return y, inside, torch.is_grad_enabled(), x * 2


def close_is_seen(x):
    def items():
        try:
            yield x + 1
        except GeneratorExit:
            LOG.append("exit")
            raise
    for y in items():
        break
    LOG.append("after")
    return y


def close_returns(x):
    def items():
        try:
            yield x + 1
        except GeneratorExit:
            LOG.append("exit")
            return
    it = items()
    y = next(it)
    it.close()
    LOG.append("after")
    return y


def close_raises(x):
    def items():
        try:
            yield x + 1
        finally:
            raise KeyError("in finally")
    it = items()
    y = next(it)
    try:
        it.close()
    except KeyError:
        LOG.append("caught")
    return y


def sent_and_closed(x):
    def items():
        try:
            got = yield x + 1
            while True:
                got = yield got * 2
        finally:
            LOG.append("closed")
    it = items()
    y = next(it)
    z = it.send(y)
    it.close()
    LOG.append("after")
    return y + z


def throw_handled(x):
    def items():
        try:
            yield x + 1
        except ValueError:
            LOG.append("handled")
        yield x * 3
    it = items()
    return next(it) + it.throw(ValueError("a")), list(it)


def throw_class(x):
    def items():
        try:
            yield x + 1
        except (KeyError, ValueError):
            LOG.append("handled")
        yield x * 3
    it = items()
    return next(it) + it.throw(ValueError)


def throw_passes(x):
    it = guarded([x, x + 1])
    y = next(it)
    try:
        it.throw(ValueError("a"))
    except ValueError:
        LOG.append("caught")
    return y * 2, list(it)


def throw_ends(x):
    def items():
        try:
            yield x + 1
        except ValueError:
            pass
    it = items()
    y = next(it)
    try:
        it.throw(ValueError())
    except StopIteration:
        LOG.append("stop")
    return y


def block_passes_on(x):
    def items():
        try:
            with Block():
                raise ValueError("a")
        except ValueError:
            LOG.append("handled")
        yield x + 1
    return sum(items())


def block_swallows(x):
    def items():
        with Block(True):
            yield x + 1
            raise ValueError("a")
        yield x + 2
    return sum(items())


def suppressed(x):
    def items():
        for i in range(3):
            with contextlib.suppress(KeyError):
                yield x + {0: 1, 2: 3}[i]
    return list(items())


def translated_inside(x):
    @contextlib.contextmanager
    def translating():
        try:
            yield
        except KeyError as error:
            LOG.append("seen")
            raise ValueError from error

    def items():
        try:
            with translating():
                {}["a"]
        except ValueError:
            LOG.append("translated")
            yield x
        yield x + 1
    return sum(items())


def handling(xs):
    key = 1
    for x in xs:
        try:
            yield x + {0: 1, 2: 3}[key]
        except KeyError:
            yield x * 3
            LOG.append("handled")
        key = (key + 1) % 3


def yields_while_it_handles(x):
    return sum(handling([x, x + 1, x + 2])), list(handling([x + 1, x]))


def loop_while_it_handles(x):
    total = 0
    for y in handling([x, x + 1, x + 2]):
        total = total + y
        LOG.append(sys.exc_info()[0])
    return total


def left_while_it_handles(x):
    for i, y in enumerate(handling([x, x + 1, x + 2])):
        if i == 1:
            break
    LOG.append("after")
    return y


def raises_again(x):
    def items():
        try:
            raise ValueError("a")
        except ValueError:
            yield x + 1
            raise
    it = items()
    y = next(it)
    try:
        next(it)
    except ValueError:
        LOG.append("caught")
    return y


def used_while_another_is_handled(x):
    try:
        raise ValueError("outer")
    except ValueError:
        total = 0
        for y in handling([x, x + 1, x + 2]):
            total = total + y
        LOG.append(sys.exc_info()[0])
    return total


def sent_while_it_handles(x):
    def items():
        while True:
            try:
                got = yield x + 1
                raise KeyError
            except KeyError:
                got = yield got * 2
    it = items()
    y = next(it)
    z = it.send(y)
    it.send(z)
    w = it.send(z + 1)
    it.close()
    return y + z + w


def words_of_exceptions(x):
    def items():
        for i in range(3):
            try:
                if i == 1:
                    raise ValueError("bad", i)
                yield x + i
            except ValueError as error:
                LOG.append(f"{error}|{error!r}|{str(error)}|{error.args}")
                yield x
        raise KeyError("end")
    total = 0
    try:
        for y in items():
            total = total + y
    except KeyError as error:
        LOG.extend([str(error), repr(error), error.args])
    return total


def what_a_generator_returns(x):
    def items():
        yield x + 1
        return x + 5
    it = items()
    y = next(it)
    try:
        next(it)
    except StopIteration as error:
        y = y + error.value
    try:
        next(it)
    except StopIteration as error:
        LOG.append(error.value)
    return y


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def stream(self, x):
        try:
            for layer in self.layers:
                x = layer(x)
                yield x
        finally:
            LOG.append("end")

    def forward(self, x):
        for i, y in enumerate(self.stream(x)):
            if i == 1:
                break
        LOG.append("after")
        return y


PROGRAMS = [break_from_loop, break_from_enumerate, break_from_zip, return_from_loop, break_in_callee, left_in_callee, left_at_the_end, deleted, replaced,
            of_a_call, stopped_by_c, nested, delegating, closed, closed_new_and_done, closed_with_work, closed_inside_with, closed_without_gradients,
            close_is_seen, close_returns, close_raises, sent_and_closed, throw_handled, throw_class, throw_passes, throw_ends, block_passes_on,
            block_swallows, suppressed, translated_inside, yields_while_it_handles, loop_while_it_handles, left_while_it_handles, raises_again,
            used_while_another_is_handled, sent_while_it_handles, words_of_exceptions, what_a_generator_returns]


def run(fn, *args):
    LOG.clear()
    result = fn(*args)
    return str(result), list(LOG)


@pytest.mark.parametrize("program", PROGRAMS)
def test_they_are_part_of_the_graph(program):
    compiled = kintsugi.compile(program, fullgraph=True)
    for size in (4, 4, 4, 6, 3, 4):
        x = torch.arange(float(size), requires_grad=True)
        assert run(compiled, x) == run(program, x), size
    out = kintsugi.explain(program)(torch.arange(4.))
    assert (out.graph_count, out.graph_break_count) == (1, 0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_exit(program):
    x = torch.arange(4.)
    expected = run(program, x)
    for k in range(60):
        compiled = kintsugi.compile(program)
        assert run(compiled, x) == run(compiled, x) == expected
        engine.force_exit(k)
        left = run(compiled, x)
        engine.force_exit(None)
        assert left == expected, k


def stepped_by_method(x):
    def items():
        yield x + 1
        yield x + 2
    it, numbers, pairs = items(), iter([x, x * 2]), zip([x], [x + 3])
    a, b = pairs.__next__()
    first = it.__next__() * map(torch.sin, [x, x + 1]).__next__() + numbers.__next__()
    total = sum(it.__iter__()) + sum([x, x * 3].__iter__())
    try:
        pairs.__next__()
    except StopIteration:
        total = total + numbers.__next__()
    return first + a * b, total, list(enumerate([x]).__iter__())


def test_the_methods_behind_next_and_iter():
    compiled = kintsugi.compile(stepped_by_method, fullgraph=True)
    for size in (3, 3, 4, 5):
        x = torch.arange(float(size))
        assert run(compiled, x) == run(stepped_by_method, x)


def extends_older(x, older):
    older.extend(y + 1 for y in [x, x * 2])
    older += (y * 2 for y in older[:2])
    older.append(len(older))
    return x + older[0], sum(older[1:3])


def looks_at_what_it_extends(x, older):
    older.extend(len(older) + y for y in [x, x * 2])
    return x + older[1]


@pytest.mark.parametrize("program", [extends_older, looks_at_what_it_extends])
def test_older_lists_grow_by_generators(program):
    compiled = kintsugi.compile(program, fullgraph=program is extends_older)
    for size in (3, 3, 5, 4):
        x, own, other = torch.arange(float(size)), [1], [1]
        assert str(compiled(x, own)) == str(program(x, other)) and str(own) == str(other)


def test_of_a_module():
    torch.manual_seed(0)
    module, x = Layers(), torch.randn(2, 4)
    compiled = kintsugi.compile(module, fullgraph=True)
    for _ in range(3):
        assert run(compiled, x) == run(module, x)
