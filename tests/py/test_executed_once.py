"""What runs code of the program runs once, whichever way it turns out at replay.

Every instruction that can call a method of an object is recorded while the method raises, and later does not, or the
other way round; conditions are recorded with one outcome and meet the other one. The methods count their calls.
"""
import io

import pytest
import torch

from kintsugi._kintsugi import Compiled


class Base:
    """`answer` None: every method raises."""

    def __init__(self, answer):
        self.answer, self.calls = answer, 0

    def ask(self, answer=None):
        self.calls += 1
        if self.answer is None:
            raise ValueError
        return self.answer if answer is None else answer

    def rows(self):
        self.ask()
        yield 1
        yield 2


class Object(Base):
    def __len__(self): return self.ask(3)
    def __contains__(self, item): return self.ask()
    def __format__(self, spec): return self.ask("x")
    def __iter__(self): self.ask(); return iter((1, 2))
    def __getattr__(self, name): return self.ask(7)
    def __getitem__(self, key): return self.ask(8)
    def __setitem__(self, key, value): self.ask()
    def __delitem__(self, key): self.ask()
    def __delattr__(self, name): self.ask()
    def keys(self): self.ask(); return []
    def __eq__(self, other): return self.ask()
    def __lt__(self, other): return self.ask()
    def __call__(self, *args, **kwargs): return self.ask((args, kwargs))
    def __neg__(self): return self.ask(9)
    def __add__(self, other): return self.ask(10)
    def __iadd__(self, other): return self.ask(11)
    def __index__(self): return self.ask(1)
    def __int__(self): return self.ask(1)

    def __setattr__(self, name, value):
        if name == "new":
            self.ask()
        object.__setattr__(self, name, value)

    @property
    def prop(self): return self.ask(12)

    @torch.compiler.disable
    def __enter__(self): return self.ask(13)
    def __exit__(self, *info): object.__setattr__(self, "calls", self.calls + 100)


class Truthy(Base):
    def __bool__(self): return self.ask()


class Sized(Base):
    def __len__(self): return self.ask(2) if self.answer in (None, True) else self.ask() or 0


class Matched(Base):
    __match_args__ = ("part",)

    @property
    def part(self): return self.ask()


class Iterator(Base):
    def __iter__(self): return self

    def __next__(self):
        self.ask()
        if self.answer is False or self.calls > 2:
            raise StopIteration
        return self.calls


class List(list):
    pass


def function(body):
    lines = "".join(f"        {line}\n" for line in body.split("\n"))
    space = {"torch": torch, "List": List, "Matched": Matched}
    exec(f"def f(p, *more):\n    l = [1, 2, 3]\n    try:\n{lines}        return r\n    except ValueError:\n"
         f"        return 'raised'\n", space)
    return space["f"]


OBJECT = ["r = p.prop", "r = p.absent", "r = getattr(p, 'absent', 1)", "r = hasattr(p, 'absent')", "p.new = 1; r = 1",
          "del p.gone; r = 1", "p[1] = 2; r = 1", "del p[1]; r = 2", "r = p[3]", "r = len(p)", "r = 1 in p",
          "r = 1 not in p", "r = f'{p}'", "r = f'{p:3}'", "r = format(p)", "r = [*p]", "r = (*p, 1)", "r = {*p}", "r = {**p}",
          "r = {'a': 1, **p}", "r = dict(p)", "r = list(p)", "r = List(p)", "r = sum(p)", "r = p == 1", "r = p < 2", "r = 1 > p",
          "r = p(1)", "r = p(1, k=2)", "r = p(*l)", "r = p(*l, **{'k': 3})", "r = -p", "r = p + 1", "q = p\nq += 1\nr = q",
          "r = l[p]", "r = l[p:]", "l[p] = 9; r = l", "r = range(p)", "r = int(p)", "a, b = p\nr = a", "a, *b = p\nr = b",
          "for r in p: pass", "r = [i for i in p]", "r = list(zip(p, l))", "r = next(iter(p))", "with p as r: pass",
          "r = torch.zeros(3)[p].item()", "r = torch.zeros(p).shape", "r = [p].index(3)", "r = isinstance(p.prop, int)"]
TRUTH = ["if p: r = 1\nelse: r = 2", "r = 1 if not p else 2", "r = not p", "r = bool(p)", "r = (p and 3) == 3",
         "r = (p or 3) == 3", "r = 0\nwhile p:\n    r += 1\n    if r == 2: break", "r = any([p])", "r = all([p, p])",
         "r = 3\nassert not (p and False)", "r = [i for i in l if p]", "r = list(filter(None, [p, p])) == [p, p]"]
MATCH = ["match p:\n    case Matched(True): r = 'true'\n    case Matched(x): r = x"]
ITERATE = ["r = []\nfor i in p: r.append(i)\nelse: r.append('end')", "r = [*p]", "r = next(p, 'none')", "r = list(map(int, p))",
           "r = sum(p)", "r = [i for i in p]", "a = b = 0\nr = [a for a in p]"]
ROWS = ["r = []\nfor i in p.rows(): r.append(i)\nelse: r.append('end')", "r = list(p.rows())", "r = next(p.rows())",
        "r = sum(i for i in p.rows())"]
ORDERS = [(None, None, True, True, None, False, True), (True, True, None, False, None, False, True),
          (False, False, True, None, True, False), (None, None, False, True, None)]


def plain(value):
    return value if isinstance(value, (int, str, float, tuple, list, set, dict, type(None))) else type(value).__name__


def calls(fn, kind, order):
    out = []
    for answer in order:
        p = kind(answer)
        try:
            result = plain(fn(p))
        except Exception as e:
            result = type(e).__name__, str(e)
        out.append((answer, result, p.calls))
    return out


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("kind, body", [(k, b) for k, bodies in (
    (Object, OBJECT), (Truthy, TRUTH), (Sized, TRUTH), (Matched, MATCH), (Iterator, ITERATE), (Base, ROWS)) for b in bodies])
def test_methods_are_called_once(kind, body, order):
    expected = calls(function(body), kind, order)
    compiled = Compiled(function(body))
    assert calls(compiled, kind, order) == expected
    assert not any("internal error" in v["reason"] for v in compiled.stats()["variants"])


def test_context_manager_in_c():
    def f(stream):
        try:
            with stream as s:
                return s.read()
        except ValueError:
            return "closed"

    compiled = Compiled(f)
    for closed in (True, True, False, False, True):
        stream = io.StringIO("text")
        if closed:
            stream.close()
        assert compiled(stream) == ("closed" if closed else "text")
        assert stream.closed


def test_two_answers_are_two_branches():
    """The other outcome of a condition becomes a branch: neither leaves the replay any more."""
    def f(p, x):
        return x + 1 if p else x - 1

    compiled, x, asked = Compiled(f), torch.ones(2), 0
    p = Truthy(True)
    for answer in (True, False) * 4:
        p.answer = answer
        asked += 1
        assert torch.equal(compiled(p, x), x + 1 if answer else x - 1)
        assert p.calls == asked
    (entry,) = compiled.stats()["variants"]
    assert compiled.stats()["recordings"] == 1 and entry["exits"] == 1 and entry["hits"] == 6
