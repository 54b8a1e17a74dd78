"""Exceptions, handlers, finally, with statements, tracebacks, frames, warnings, logging."""
import contextlib
import logging
import sys
import traceback
import warnings

import torch

from kincorpus.case import T, attr, built, case, do, glob, seq

LOG = logging.getLogger("kincorpus.errors")
STRICT = False
EVENTS = []
SUPPRESSED = (ValueError,)


class Custom(ValueError):
    def __init__(self, message, code):
        super().__init__(message, code)
        self.code = code


@case(raises=(3, 4, 5), mutate=glob(3, STRICT=True))
def raises_on_flag(x):
    y = x * 2
    if STRICT:
        raise Custom("strict", y.shape[0])
    return y


def deep(x, n):
    if n == 0:
        raise KeyError("deep")
    return deep(x, n - 1)


@case(raises=tuple(range(6)))
def raises_through_frames(x):
    y = x + 1
    return deep(y,
                2)


@case()
def catches_and_goes_on(x):
    try:
        deep(x, 2)
    except KeyError as e:
        y = x * len(e.args)
    return y + 1


@case(raises=tuple(range(6)))
def raise_from(x):
    try:
        int("no number")
    except ValueError as e:
        raise RuntimeError("outer") from e


@case(raises=tuple(range(6)))
def raise_from_none(x):
    try:
        {}["missing"]
    except KeyError:
        raise TypeError("hidden") from None


@case(raises=tuple(range(6)))
def raise_in_handler(x):
    try:
        x.reshape(7, 7)
    except RuntimeError:
        [][1]


@case()
def finally_order(x):
    order = []
    try:
        try:
            order.append("body")
            raise ValueError(1)
        except ValueError:
            order.append("handler")
        else:
            order.append("else")
        finally:
            order.append("finally")
    finally:
        order.append("outer")
    return x * len(order), order


@case()
def return_in_finally(x):
    for _ in range(2):
        try:
            return x + 1
        finally:
            EVENTS.append("f")
            x = x * 5
    return x


@case(args=lambda i, s: (T(i, 3), i % 3), again=2, replays=2)
def except_chain(x, which):
    try:
        if which == 0:
            raise KeyError("a")
        if which == 1:
            raise Custom("b", 5)
        y = x + 1
    except (KeyError, IndexError) as e:
        return x, type(e).__name__
    except ValueError as e:
        return x * e.code
    else:
        return y, "else"


@case(mutate=glob(3, SUPPRESSED=(ValueError, LookupError)), raises=(0, 1, 2))
def except_clause_from_global(x):
    try:
        deep(x, 0)
    except SUPPRESSED:
        return x + 1


@case(raises=tuple(range(6)))
def torch_error(x):
    y = x.sin()
    return y @ torch.ones(7,
                          2)


@case(args=lambda i, s: (T(i, 2, 3 if i % 2 else 4), T(i, 3, 2)), again=1)
def torch_error_caught(x, y):
    try:
        return x @ y
    except RuntimeError as e:
        return type(e).__name__, x.sum()


@case(replays=0)
def reraise(x):
    try:
        try:
            deep(x, 1)
        except KeyError:
            raise
    except LookupError as e:
        return x * 2, [f.name for f in traceback.extract_tb(e.__traceback__)]


@case(raises=tuple(range(6)))
def exception_group(x):
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), ValueError(3)])
    except* ValueError as g:
        EVENTS.append(len(g.exceptions))


@case(raises=tuple(range(6)))
def notes_on_exceptions(x):
    e = ValueError("with notes")
    e.add_note(f"shape {tuple(x.shape)}")
    raise e


@case()
def context_is_kept(x):
    try:
        try:
            raise ValueError("first")
        except ValueError:
            raise KeyError("second")
    except KeyError as e:
        c = e.__context__
        return x + 1, repr(c), sys.exc_info()[0].__name__


class Tracker:
    def __init__(self, name, swallow=()):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        EVENTS.append(("enter", self.name))
        return self

    def __exit__(self, kind, value, tb):
        EVENTS.append(("exit", self.name, kind.__name__ if kind else None))
        return kind is not None and issubclass(kind, self.swallow) if self.swallow else False


@case(mutate=attr(3, lambda s: Tracker, __enter__=lambda self: 7))
def with_class(x):
    with Tracker("a") as a, Tracker("b"):
        y = x + (a if isinstance(a, int) else 1)
    return y


@case()
def with_suppresses(x):
    with Tracker("s", (KeyError,)):
        x = x * 2
        deep(x, 1)
        x = x * 100
    return x


@case(raises=tuple(range(6)))
def with_raises(x):
    with Tracker("r"):
        with Tracker("q", (ValueError,)):
            deep(x, 1)


@contextlib.contextmanager
def scope(name):
    EVENTS.append(name)
    try:
        yield name.upper()
    finally:
        EVENTS.append(name + " end")


@case()
def with_contextmanager(x):
    with scope("one") as n:
        y = x * len(n)
    return y


@case()
def exit_stack(x):
    with contextlib.ExitStack() as stack:
        names = [stack.enter_context(scope(n)) for n in ("p", "q")]
        stack.callback(EVENTS.append, "callback")
        x = x + len(names)
    return x


@case(mutate=do(3, lambda s: SUPPRESS.append(RuntimeError)), raises=(0, 1, 2))
def suppress_errors(x):
    with contextlib.suppress(*SUPPRESS):
        x.view(-1, 1000)
    return x


SUPPRESS = [KeyError]


def where():
    f = sys._getframe(1)
    return f.f_code.co_name, f.f_lineno, sorted(f.f_locals)


@case()
def getframe(x):
    y = x + 1
    a = where()
    b = where()
    return y, a, b


def caller_chain():
    names, f = [], sys._getframe()
    while f is not None and f.f_code.co_filename == __file__:
        names.append((f.f_code.co_name, f.f_lineno))
        f = f.f_back
    return names


def middle():
    return caller_chain()


@case()
def getframe_chain(x):
    return x, middle(), (lambda: middle())()


@case()
def frame_locals(x):
    n = 3
    y = x * n
    return y, sorted(locals()), sys._getframe().f_code.co_varnames[:2]


def warn_here(message, level):
    warnings.warn(message, UserWarning, stacklevel=level)


@case()
def warns(x):
    warnings.warn("direct")
    warn_here("two", 2)
    warn_here("three", 3)
    return x + 1


@case(warn="default")
def warns_once_per_place(x):
    warn_here("only once", 2)
    return x + 1


@case(mutate=do(3, lambda s: warnings.simplefilter("error")), raises=(3, 4, 5))
def warning_becomes_error(x):
    y = x.sin()
    warnings.warn("careful", RuntimeWarning)
    return y


@case(mutate=do(3, lambda s: warnings.simplefilter("ignore")), again=0)
def warning_is_silenced(x):
    warnings.warn("noise", DeprecationWarning)
    return x * 2


@case()
def catches_warnings(x):
    with warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("always")
        warn_here("inside", 2)
    return x, len(got), str(got[0].message)


@case(mutate=do(3, lambda s: LOG.setLevel(logging.ERROR)), again=0, replays=4)
def logs(x):
    LOG.info("shape %s", tuple(x.shape))
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("debug %d", x.dim())
    LOG.error("sum %.3f", x.sum())
    return x


@case()
def logs_exception(x):
    try:
        deep(x, 1)
    except KeyError:
        LOG.exception("failed")
    return x - 1


@case(replays=0)
def traceback_lines(x):
    try:
        deep(
            x,
            1)
    except KeyError as e:
        return x, [(f.name, f.lineno) for f in traceback.extract_tb(e.__traceback__)]


@case(after=lambda i, s, r: (r.__traceback__ is not None, sorted(r.__traceback__.tb_frame.f_locals)))
def returns_an_exception(x):
    y = x + 2   # noqa: F841
    try:
        raise ValueError("kept")
    except ValueError as e:
        return e.with_traceback(e.__traceback__)


@case()
def stack_summary(x):
    return x, [(f.name, f.lineno) for f in traceback.extract_stack() if f.filename == __file__]


@case(raises=tuple(range(6)))
def error_in_comprehension(x):
    return [x / k if k else {}["zero"]
            for k in (2, 1, 0)]


def failing_gen(x):
    yield x
    raise OSError(5, "in generator")


@case(raises=tuple(range(6)))
def error_in_generator(x):
    total = 0
    for v in failing_gen(x):
        total = total + v
    return total


@case(raises=tuple(range(6)))
def stop_iteration_in_generator(x):
    def g():
        yield next(iter([]))
    return list(g())


@case(raises=tuple(range(6)))
def system_exit_like(x):
    EVENTS.append("before")
    raise KeyboardInterruptLike(x.shape[0])


class KeyboardInterruptLike(Exception):
    pass


@case(raises=tuple(range(6)), args=lambda i, s: (T(i, 3), 0 if i % 2 else "s"), again=1)
def error_by_operand(x, v):
    n = 1 / v
    return x * n


@built(raises=(2, 3), again=0, replays=3, calls=8)
def error_depends_on_counter(s):
    s.n = 0

    def f(x):
        s.n += 1
        y = x * 2
        if s.n in (3, 4):
            raise RuntimeError(f"call {s.n}")
        return y
    return f
