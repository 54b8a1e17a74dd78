"""Section 8: exceptions."""
import abc
import contextlib
import sys
import traceback

import torch
from two_worlds import T, rule


class Problem(Exception):
    pass


@rule
def test_rule_77_raised_anew(w):
    def f(x, n):
        if n > 1:
            raise Problem("too many", n)
        return x * n

    g = w.compile(f)
    kept = []
    for n in (1, 2, 2, 3, 2, 1):
        w.call(g, T(), n)
        try:
            g(T(), n)
        except Problem as e:
            kept.append(e)
    w.see(kept, [len(traceback.extract_tb(e.__traceback__)) for e in kept])
    for e in kept:
        e.args = ("changed",)
    w.call(g, T(), 2)


@rule
def test_rule_77_an_instance_from_outside(w):
    held = Problem("held")

    def f(x, n):
        if n:
            raise held
        return x

    g = w.compile(f)
    for n in (0, 1, 1, 1):
        w.call(g, T(), n)
        w.see(len(traceback.extract_tb(held.__traceback__)) if held.__traceback__ else None)
        held.__traceback__ = None
        held.__context__ = None


@rule
def test_rule_77_context_of_the_caller(w):
    def f(x):
        try:
            x.nothing
        except AttributeError:
            raise Problem("inner")

    g = w.compile(f)

    def outer():
        try:
            raise KeyError("outer")
        except KeyError:
            g(T())

    for _ in range(3):
        w.call(g, T())
        w.call(lambda: outer())


@rule
def test_rule_77_cause_and_notes(w):
    def f(x, n):
        try:
            [][n]
        except IndexError as e:
            e.add_note("note")
            raise Problem(n) from e
        finally:
            x.add_(1)

    g = w.compile(f)
    for n in (0, 0, 1):
        w.call(g, T(), n)


@rule
def test_rule_78_failing_calls(w):
    def f(x, n, log):
        log.append("a")
        y = x.view(n)
        log.append("b")
        z = int("5" * n if n < 4 else "x")
        log.append("c")
        return y * z

    g = w.compile(f)
    for n in (3, 3, 2, 2, 3, 4, 1, 3):
        w.call(g, T(), n, [])
    g = w.compile(f)
    for n in (2, 2, 3, 3, 2):
        w.call(g, T(), n, [])


@rule
def test_rule_78_caught_failure(w):
    def f(x, index):
        try:
            y = x.index_select(0, index)
        except IndexError as e:
            return x, str(e)[:20]
        except RuntimeError as e:
            return x * 2, type(e).__name__
        return y, "fine"

    g = w.compile(f)
    for index in ([9], [9], [0], [0], [1], [9]):
        w.call(g, T(), torch.tensor(index))
    w.call(g, T(), torch.ones(2))


@rule
def test_rule_78_dict_and_int(w):
    table = {"a": 1}

    def f(x, key, text):
        try:
            n = table[key]
        except KeyError as e:
            n = len(e.args)
        try:
            m = int(text)
        except ValueError as e:
            m = len(str(e))
        return x * n + m

    g = w.compile(f)
    for key, text in (("b", "x"), ("b", "x"), ("a", "x"), ("a", "4"), ("b", "4"), ("c", "yy")):
        w.call(g, T(), key, text)
    table["b"] = 9
    w.call(g, T(), "b", "x")


@rule
def test_rule_79_traceback_escapes(w):
    kept = []

    def helper(x, n):
        local = x * 3
        if n:
            raise Problem(n)
        return local

    def f(x, n):
        try:
            return helper(x, n)
        except Problem as e:
            kept.append(e)
            return x

    g = w.compile(f)
    for n in (1, 1, 0, 2, 2):
        w.call(g, T(), n)
        if kept:
            tb = kept[-1].__traceback__
            w.see([(t.tb_frame.f_code.co_name, t.tb_lineno) for t in (tb, tb.tb_next)],
                  tb.tb_next.tb_frame.f_locals["local"], sorted(tb.tb_frame.f_locals))


@rule
def test_rule_79_exc_info_and_format(w):
    def f(x, n):
        try:
            x.view(n)
        except RuntimeError:
            kind, value, tb = sys.exc_info()
            return kind, tb.tb_lineno, traceback.format_exc().splitlines()[-1], tb.tb_frame.f_code.co_name
        return x

    g = w.compile(f)
    for n in (2, 2, 3, 2):
        w.call(g, T(), n)


@rule
def test_rule_79_returned_exception(w):
    def f(x):
        try:
            raise Problem("p")
        except Problem as e:
            return e, x + 1

    g = w.compile(f)
    for _ in range(3):
        e, _ = w.call(g, T())
        w.see([(t.name, t.lineno) for t in traceback.extract_tb(e.__traceback__)], e.__context__)


@rule
def test_rule_80_swallowed_in_c(w):
    class Thing:
        pass

    thing = Thing()

    def f(x, it, d):
        a = getattr(thing, "n", 5)
        b = hasattr(thing, "m")
        c = next(it, 7)
        e = d.get("k", 9)
        with contextlib.suppress(KeyError, AttributeError):
            a = d["gone"]
            b = thing.absent
        return x * a + c + e, b

    g = w.compile(f)
    w.call(g, T(), iter([]), {})
    w.call(g, T(), iter([]), {})
    w.call(g, T(), iter([3]), {})
    w.call(g, T(), iter([]), {"k": 1, "gone": 2})
    thing.n = thing.m = 1
    w.call(g, T(), iter([]), {})
    Thing.__getattr__ = lambda self, name: name
    w.call(g, T(), iter([]), {"gone": 1})
    Thing.__getattr__ = lambda self, name: 1 / 0
    w.call(g, T(), iter([]), {"gone": 1})


@rule
def test_rule_80_except_clauses(w):
    class A(Exception):
        pass

    class B(A):
        pass

    class C(Exception):
        pass

    kinds = {"tuple": (C, B)}

    def f(x, e):
        try:
            raise e
        except kinds["tuple"]:
            return x * 2
        except A:
            return x * 3

    g = w.compile(f)
    for kind in (B, B, A, C, A, KeyError):
        w.call(g, T(), kind())
    kinds["tuple"] = (C,)
    w.call(g, T(), B())
    kinds["tuple"] = C
    w.call(g, T(), B())
    B.__bases__ = (C,)
    w.call(g, T(), B())
    kinds["tuple"] = "no class"
    w.call(g, T(), B())


@rule
def test_rule_80_abc_does_not_matter_to_except(w):
    class Kind(Exception, metaclass=abc.ABCMeta):
        pass

    class Other(Exception):
        pass

    def f(x):
        try:
            raise Other("o")
        except Kind:
            return x * 2
        except Other:
            return x * 3

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    Kind.register(Other)
    w.call(g, T())
