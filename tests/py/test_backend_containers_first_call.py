"""What a custom backend gives is used in the very call that it was called in, also where that call removes items, changes sets, dicts and deques by their
methods, takes locks, prints, logs or warns: what containers held is put back before the call is made once more, and nothing is told twice."""
import collections
import functools
import io
import logging
import sys
import threading
import warnings

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi")
from counting_backend import Counting  # noqa: E402


def v(i=0):
    return torch.arange(4.0) / 3 + i


class State:
    def __init__(self):
        self.items, self.table = list(range(20)), {"n": 0, "m": torch.ones(4)}
        self.seen, self.queue = {1, 2}, collections.deque([0.5, 1.5, 2.5], maxlen=3)
        self.ordered, self.lock = collections.OrderedDict(a=1, b=2, c=3), threading.RLock()
        self.groups = collections.defaultdict(list)

    def leaves(self):
        return [repr({name: list(held.items()) if isinstance(held, dict) else list(held) for name, held in vars(self).items() if name != "lock"})]


def pops(s, x):
    return (x * 2).sin() + s.items.pop()


def pops_and_appends(s, x):
    s.items.append(x * 2)
    n = s.items.pop(0)
    s.items.append(n)
    return s.items[-2] + s.items.pop(1)


def removes(s, x):
    y = x * 2
    s.items.insert(0, 7)
    s.items.remove(3) if 3 in s.items else None
    del s.items[-1]
    s.items.reverse()
    return y.sin() + len(s.items)


def pops_key(s, x):
    n = s.table.pop("n")
    s.table["n"] = n + 1
    return (x * 2).sin() + n


def deletes_and_adds_keys(s, x):
    s.table.pop("k", None)
    s.table["k"] = x * 2
    del s.table["m"]
    s.table["m"] = s.table["k"] + 1
    return s.table["m"].sin()


def merges(s, x):
    y = x * 2
    s.table |= {"a": y, "n": 3}
    return y.sin() + s.table["n"]


def adds_to_set(s, x):
    s.seen.add(len(s.seen) + 1)
    return (x * 2).sin() + len(s.seen)


def set_in_place(s, x):
    s.seen |= {5, 6}
    s.seen -= {1}
    return (x * 2).sin() + len(s.seen)


def window(s, x):
    s.queue.append(x * 2)
    return s.queue[0] + s.queue[-1]


def rotates(s, x):
    a = s.queue.popleft()
    s.queue.append(a)
    return (x * a).sin()


def moves_to_end(s, x):
    s.ordered.move_to_end("a")
    s.ordered["d"] = 1
    return (x * 2).sin()


def groups(s, x):
    s.groups["k"].append(1)
    return (x * 2).sin() + len(s.groups["k"])


def locked(s, x):
    with s.lock:
        s.items.append(1)
        y = x * 2
    return y.sin()


class Cached:
    def __init__(self, w):
        self.w = w

    @functools.cached_property
    def twice(self):
        return self.w * 2


def cached_property(s, x):
    made = Cached(x)
    return (x + made.twice).sin() + made.twice


CHANGES = [locked, cached_property, pops, pops_and_appends, removes, pops_key, deletes_and_adds_keys, merges, adds_to_set, set_in_place, window, rotates, moves_to_end, groups]


@pytest.mark.parametrize("fn", CHANGES, ids=lambda fn: fn.__name__)
def test_used_in_the_first_call(fn):
    backend = Counting()
    compiled, ours, eager = kintsugi.compile(fn, backend=backend), State(), State()
    held = {name: value for name, value in vars(ours).items()}
    for i in range(5):
        assert torch.equal(compiled(ours, v(i)), fn(eager, v(i))), i
        assert ours.leaves() == eager.leaves(), i
        assert i > 0 or backend.runs == len(backend.inputs) > 0
    assert all(getattr(ours, name) is value for name, value in held.items())


def printing(x):
    y = x * 2
    print("shape", y.shape, y.sum(), sep="; ")
    print(f"{y.mean():.3f}")
    return y.sin()


LOG = logging.getLogger("kintsugi.first_call")
LOG.propagate = False


def logs(x):
    y = x * 2
    LOG.warning("shape %s, sum %s", y.shape, y.sum())
    return y.sin()


def warns(x):
    y = x * 2
    warnings.warn("careful")
    return y.sin()


@pytest.mark.parametrize("fn", [printing, logs, warns], ids=lambda fn: fn.__name__)
def test_told_once(fn, monkeypatch):
    told = {}
    for engine in ("eager", "kintsugi"):
        stream, backend = io.StringIO(), Counting()
        LOG.handlers[:] = [logging.StreamHandler(stream)]
        monkeypatch.setattr(sys, "stdout", stream)
        run = fn if engine == "eager" else kintsugi.compile(fn, backend=backend)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for i in range(4):
                assert torch.equal(run(v(i)), (v(i) * 2).sin())
                assert engine == "eager" or backend.runs == i + 1
        told[engine] = stream.getvalue(), [str(w.message) for w in warned]
    assert told["eager"] == told["kintsugi"] and any(told["eager"])


class Shown:
    """Its text is made by code of the program's."""

    def __init__(self):
        self.times = 0

    def __str__(self):
        self.times += 10
        return f"shown {self.times}"


def test_what_the_program_shows_itself_is_shown_once(capsys):
    def fn(s, x):
        s.times += 1
        y = x * 2
        print(s)
        return y.sin() + s.times
    ours, eager, compiled = Shown(), Shown(), kintsugi.compile(fn, backend=Counting())
    for i in range(4):
        assert torch.equal(compiled(ours, v(i)), fn(eager, v(i))) and ours.times == eager.times
        first, second = capsys.readouterr().out.splitlines()
        assert first == second


def test_handler_of_the_program_is_called_once():
    records = []

    class Handler(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())
    LOG.handlers[:] = [Handler()]

    def fn(x):
        y = x * 2
        LOG.warning("here")
        return y.sin() + len(records)
    compiled = kintsugi.compile(fn, backend=Counting())
    for i in range(4):
        assert torch.equal(compiled(v(i)), (v(i) * 2).sin() + (i + 1))
    assert records == ["here"] * 4


def test_a_decision_on_data_beside_what_is_told(capsys):
    """A backend whose results differ sends the program another way: nothing is told for a way that it does not go."""
    def fn(x):
        y = x * 2
        if y.sum() > 0:
            print("positive")
            return y + 1
        print("negative")
        return y - 1
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: lambda *args: [-t for t in gm.forward(*args)])
    compiled(v(1))
    assert capsys.readouterr().out == "positive\n"


class Noted:
    """Its death is noted."""

    def __init__(self, number, dead):
        self.number, self.dead = number, dead

    def __del__(self):
        self.dead.append(self.number)


@pytest.mark.parametrize("where", ["item", "attribute", "inside"])
def test_objects_die_where_they_do_in_eager(where):
    """What is held to be put back would die later."""
    def fn(s, x):
        if where == "item":
            s.items.pop()
            s.items.append(Noted(len(s.dead), s.dead))
        elif where == "inside":
            s.items.pop()
            s.items.append([Noted(len(s.dead), s.dead)])
        else:
            s.held = Noted(len(s.dead), s.dead)
        return x + len(s.dead)
    ours, eager = State(), State()
    for s in (ours, eager):
        s.dead, s.held = [], None
        s.held = Noted(-1, s.dead)
        s.items = [Noted(-2, s.dead)] if where == "item" else [[Noted(-2, s.dead)]]
    compiled = kintsugi.compile(fn, backend=Counting())
    for i in range(4):
        assert torch.equal(compiled(ours, v(i)), fn(eager, v(i))), i
        assert ours.dead == eager.dead, i
