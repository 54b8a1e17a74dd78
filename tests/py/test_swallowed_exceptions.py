"""Exceptions that a hit raises again: one that nothing can look at leaves no frames behind, all others have their traceback."""
import sys

import pytest
import torch

import kintsugi


class Lazy:
    def __getattr__(self, name):
        raise AttributeError(f"no {name}")


class Watched(AttributeError):
    seen = []

    def __del__(self):
        Watched.seen.append(depth(self.__traceback__))


class Stored:
    def __init__(self, error):
        self.error = error

    @property
    def part(self):
        raise self.error


class Reports:
    @property
    def part(self):
        raise Watched("part")


def depth(tb):
    names = []
    while tb is not None:
        names.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    return names


def hits(function, *args, calls=5):
    """The compiled function's last result, after hits."""
    compiled = kintsugi.compile(function)
    for _ in range(calls):
        result = compiled(*args)
    entries = kintsugi.stats(compiled)["variants"]
    assert sum(v["hits"] for v in entries if v) >= calls - 2
    return result


def test_swallowed_in_c():
    def f(x, obj):
        return x + (1 if getattr(obj, "part", None) is None else 2), hasattr(obj, "other"), sys.exc_info()

    x = torch.ones(3)
    result, has, info = hits(f, x, Lazy())
    assert torch.equal(result, x + 1) and has is False and info == (None, None, None)


def test_stored_instance_keeps_its_traceback():
    error = AttributeError("kept")

    def f(x, obj):
        try:
            return x + obj.part
        except AttributeError:
            return x + 3

    f(torch.ones(3), Stored(error))
    eager = depth(error.__traceback__)
    obj, compiled = Stored(error), kintsugi.compile(f)
    for _ in range(4):
        error.__traceback__ = None
        assert torch.equal(compiled(torch.ones(3), obj), torch.ones(3) + 3)
        assert depth(error.__traceback__) == eager == ["f", "part"]


class Deeper(Stored):
    @property
    def part(self):
        try:
            return self.deeper()
        except KeyError:
            return 0

    def deeper(self):
        raise self.error

    def __getattr__(self, name):
        return 5


DROPPED = [] if sys.version_info < (3, 12) else ["part"]  # 3.11 hands an exception its traceback only when it is taken up


@pytest.mark.parametrize("ask, kind, frames", [
    (lambda obj: getattr(obj, "part", 5), Stored, DROPPED),
    (lambda obj: 5 if not hasattr(obj, "part") else 6, Stored, DROPPED),
    (lambda obj: obj.part, Deeper, ["part", "deeper"]),
    (lambda obj: getattr(obj, "part"), Deeper, ["part", "deeper"])], ids=["default", "hasattr", "fallback", "getattr"])
def test_stored_instance_dropped_in_c(ask, kind, frames):
    """C drops the exception, with CPython 3.11 before its object has got the frames since the last handler."""
    def f(x, obj):
        return x + ask(obj)

    def traced(fn):
        out = []
        obj = kind(AttributeError("kept"))
        for _ in range(4):
            assert torch.equal(fn(torch.ones(3), obj), torch.ones(3) + 5)
            out.append(depth(obj.error.__traceback__))    # grows: raised again, it keeps the old entries
        return out

    eager, compiled = traced(f), kintsugi.compile(f)
    assert eager[0] == frames
    assert traced(compiled) == eager


def test_finalizer_sees_what_eager_shows():
    def f(x, obj):
        try:
            return x + obj.part
        except AttributeError:
            return x + 3

    Watched.seen.clear()
    f(torch.ones(3), Reports())
    compiled = kintsugi.compile(f)
    for _ in range(5):
        compiled(torch.ones(3), Reports())
    assert Watched.seen == [["f", "part"]] * 6


def test_caught_and_kept():
    def f(x, obj):
        try:
            obj.part
        except AttributeError as error:
            kept = error
        return x + 1, kept

    _, eager = f(torch.ones(3), Lazy())
    compiled = kintsugi.compile(f)
    for _ in range(5):
        _, kept = compiled(torch.ones(3), Lazy())
        assert str(kept) == "no part" and depth(kept.__traceback__) == depth(eager.__traceback__) != []


@pytest.mark.parametrize("n", [1, 300])
def test_nothing_is_left_behind(n):
    def f(x, obj):
        return x + getattr(obj, "part", n)

    compiled = kintsugi.compile(f)
    obj, x = Lazy(), torch.ones(3)
    for _ in range(4):
        compiled(x, obj)
    before = sys.getrefcount(obj), sys.getrefcount(AttributeError)
    for _ in range(n):
        compiled(x, obj)
    assert (sys.getrefcount(obj), sys.getrefcount(AttributeError)) == before
