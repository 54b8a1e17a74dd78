"""Exceptions inside recordings: raised and handled while a call is recorded, replayed as steps that raise again.

Every case runs in eager, while recording, replayed, and left before each point at which a replay can be left; results,
effects and what is seen of exceptions (type, arguments, context, cause, traceback lines) must be the same in all of them.
"""

import contextlib
import gc
import os
import traceback
import weakref

import pytest
import torch

from kintsugi import _kintsugi
from kintsugi._kintsugi import Compiled


@pytest.fixture(autouse=True)
def fresh():
    _kintsugi.events()
    yield
    _kintsugi.force_exit(None)


def describe(exc, seen=()):
    """All that counts of an exception, as plain data."""
    if exc is None or exc in seen:
        return None
    lines = [(f.name, f.lineno) for f in traceback.extract_tb(exc.__traceback__) if f.filename == __file__]
    lines = [line for line in lines if line[0] not in ("outcome",)]
    seen = (*seen, exc)
    return (type(exc).__name__, repr(exc.args), lines, describe(exc.__context__, seen), describe(exc.__cause__, seen),
            exc.__suppress_context__)


def plain(value):
    if isinstance(value, BaseException):
        return describe(value)
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def outcome(fn, make):
    """Result or exception of one call, and the arguments afterwards."""
    args = make()
    try:
        result = fn(*args)
    except BaseException as e:
        return "raised", describe(e), plain(args)
    return "returned", plain(result), plain(args)


def check(fn, make, complete=True):
    """`complete`: the recording must reach the end of the call and later calls must not leave it."""
    expected = outcome(fn, make)
    compiled = Compiled(fn)
    assert outcome(compiled, make) == expected
    for _ in range(3):
        assert outcome(compiled, make) == expected
    stats = compiled.stats()
    (entry,) = stats["variants"]
    assert stats["recordings"] == 1
    assert "internal error" not in entry["reason"]
    if complete:
        assert entry["reason"] == ""
        assert entry["hits"] == 3 and entry["exits"] == 0
    else:
        assert entry["reason"] != ""
        assert entry["exits"] == 3
    for k in range(400):
        forced = Compiled(fn)
        assert outcome(forced, make) == expected
        _kintsugi.force_exit(k)
        try:
            assert outcome(forced, make) == expected, f"left at {k}"
        finally:
            _kintsugi.force_exit(None)
        if forced.stats()["variants"][0]["exits"] == 0 or not complete:
            break
    else:
        raise AssertionError("too many points")
    return compiled


def tensor():
    return (torch.tensor([1.0, 2.0]),)


class Odd(Exception):
    pass


class Strange(Odd):
    def __init__(self, code):
        super().__init__(code)
        self.code = code


# -- one frame ------------------------------------------------------------------------------------------------------


def missing_key(x, d):
    try:
        y = d["absent"]
    except KeyError as e:
        y = x + len(str(e))
    return y * 2


def nothing_raised(x, d):
    try:
        y = x + d["a"]
    except KeyError:
        y = x
    else:
        y = y + 1
    finally:
        d["done"] = True
    return y


def raise_and_handle(x):
    try:
        raise ValueError("no", 3)
    except (TypeError, ValueError) as e:
        return x * e.args[1]


def raise_class(x):
    try:
        raise LookupError
    except Exception:
        return x + 1


def wrong_clause_first(x):
    try:
        [][3]
    except KeyError:
        return x
    except IndexError:
        return x + 2


def finally_runs(x, log):
    try:
        try:
            log.append(1)
            int("x")
        finally:
            log.append(2)
    except ValueError:
        log.append(3)
    return x + len(log)


def nested_handlers(x, log):
    try:
        raise KeyError("outer")
    except KeyError:
        try:
            raise ValueError("inner")
        except ValueError as e:
            log.append(type(e.__context__).__name__ if False else "inner")
        try:
            {}["again"]
        except KeyError:
            log.append("again")
    return x * 2


def raise_again(x, log):
    try:
        try:
            raise ValueError("again")
        except ValueError:
            log.append("seen")
            raise
    except ValueError as e:
        log.append(str(e))
    return x + 1


def raise_from(x, log):
    try:
        try:
            raise KeyError("k")
        except KeyError as e:
            raise ValueError("v") from e
    except ValueError as e:
        log.append(repr(e))
    return x + 1


def raise_from_none(x):
    try:
        raise KeyError("k") from None
    except KeyError:
        return x + 1


def assertion(x, log):
    try:
        assert len(log) > 5, "short"
    except AssertionError as e:
        log.append(str(e))
    return x + 1


def own_classes(x, log):
    for make in (Odd, Strange):
        try:
            raise make(7)
        except Odd as e:
            log.append(e.args[0])
    return x + 1


def absent_attribute(x, log):
    try:
        log.nothing
    except AttributeError as e:
        log.append(str(e))
    return x + 1


def unhashable(x, d):
    try:
        d[[]] = 1
    except TypeError as e:
        d["error"] = str(e)
    return x + 1


def loop_with_handlers(x):
    total = 0
    for text in ("1", "x", "3", ""):
        try:
            total += int(text)
        except ValueError:
            total += 100
    return x * total


def torch_error(x):
    try:
        return x + torch.zeros(3)
    except RuntimeError:
        return x * 2


def torch_graphs_around(x):
    y = torch.sin(x)
    try:
        y = torch.cos(y)
        {}[1]
    except KeyError:
        y = torch.exp(y)
    return torch.tanh(y)


# -- several frames ---------------------------------------------------------------------------------------------------


def thrower(value):
    if value:
        raise ValueError("thrown", value)
    return value


def between(value, log):
    try:
        return thrower(value)
    finally:
        log.append("between")


def across_frames(x, log):
    y = x + 1
    try:
        between(4, log)
    except ValueError as e:
        log.append(e.args)
    return y


def handler_calls(x, log):
    try:
        thrower(1)
    except ValueError:
        try:
            between(2, log)
        except ValueError as e:
            log.append(e.args[1])
    return x * 3


class Guarded:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(kind.__name__ if kind else None)
        return self.swallow


def with_swallows(x, log):
    with Guarded(log, True):
        thrower(3)
    return x + 1


def with_passes_on(x, log):
    try:
        with Guarded(log, False):
            thrower(3)
    except ValueError:
        log.append("out")
    return x + 1


def with_two(x, log):
    with Guarded(log, True), Guarded(log, False):
        {}[0]
    return x + 1


def no_grad_left_by_error(x):
    try:
        with torch.no_grad():
            thrower(5)
    except ValueError:
        pass
    return x * (2 if torch.is_grad_enabled() else 3)


def suppressed(x):
    with contextlib.suppress(KeyError):
        {}["k"]
    return x + 1


# -- swallowed in C ---------------------------------------------------------------------------------------------------


class Config:
    def __init__(self):
        self.names = {"alias": "size"}
        self.size = 4

    def __getattribute__(self, key):
        if key != "names" and key in super().__getattribute__("names"):
            key = super().__getattribute__("names")[key]
        return super().__getattribute__(key)


class Lazy:
    def __getattr__(self, name):
        if name.startswith("known"):
            return 6
        raise AttributeError(name)

    @property
    def known_broken(self):
        return self.nothing

    @property
    def broken(self):
        raise AttributeError("broken")


class Broken:
    @property
    def value(self):
        return self.missing

    @property
    def strange(self):
        raise Strange(4)


def attributes(x, config):
    return x * getattr(config, "alias", 1) + getattr(config, "absent", 2) + hasattr(config, "size") + hasattr(config, "no")


def lazy_attributes(x, lazy):
    return x * getattr(lazy, "known", 1) + getattr(lazy, "unknown", 2) + hasattr(lazy, "unknown") * 10


def property_with_default(x, broken):
    return x + getattr(broken, "value", 3) + hasattr(broken, "value")


def property_raises_other(x, broken):
    try:
        return x + getattr(broken, "strange", 3)
    except Strange as e:
        return x + e.code


def property_falls_back(x, lazy):
    return x + getattr(lazy, "broken", 3)


def property_falls_back_by_name(x, lazy):
    try:
        return x + lazy.broken
    except AttributeError as e:
        return x + len(str(e))


def getattr_falls_back(x, lazy):
    try:
        return x + getattr(lazy, "broken")
    except AttributeError as e:
        return x - len(str(e))


def property_answered_by_fallback(x, lazy):
    return x + lazy.known_broken + getattr(lazy, "known_broken")


def environment(x):
    return x + len(os.environ.get("KINTSUGI_NO_SUCH_VARIABLE", "four"))


def next_default(x):
    it = iter([1])
    return x + next(it) + next(it, 5)


def next_stops(x):
    try:
        next(iter(()))
    except StopIteration:
        return x + 1


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


def own_iterator(x):
    for i in Countdown(3):
        x = x + i
    return x


def with_list():
    return torch.tensor([1.0, 2.0]), []


def with_dict():
    return torch.tensor([1.0, 2.0]), {"a": 5}


CASES = [
    (missing_key, with_dict), (nothing_raised, with_dict), (raise_and_handle, tensor), (raise_class, tensor),
    (wrong_clause_first, tensor), (finally_runs, with_list), (nested_handlers, with_list), (raise_again, with_list),
    (raise_from, with_list), (raise_from_none, tensor), (assertion, with_list), (own_classes, with_list),
    (absent_attribute, with_list), (unhashable, with_dict), (loop_with_handlers, tensor), (torch_error, tensor),
    (torch_graphs_around, tensor), (across_frames, with_list), (handler_calls, with_list), (with_swallows, with_list),
    (with_passes_on, with_list), (with_two, with_list), (no_grad_left_by_error, tensor), (suppressed, tensor),
    (attributes, lambda: (torch.ones(2), Config())), (lazy_attributes, lambda: (torch.ones(2), Lazy())),
    (property_with_default, lambda: (torch.ones(2), Broken())),
    (property_raises_other, lambda: (torch.ones(2), Broken())),
    (property_falls_back, lambda: (torch.ones(2), Lazy())),
    (property_falls_back_by_name, lambda: (torch.ones(2), Lazy())), (getattr_falls_back, lambda: (torch.ones(2), Lazy())),
    (property_answered_by_fallback, lambda: (torch.ones(2), Lazy())), (environment, tensor), (next_default, tensor),
    (next_stops, tensor), (own_iterator, tensor),
]


@pytest.mark.parametrize("fn, make", CASES, ids=[fn.__name__ for fn, _ in CASES])
def test_handled_exceptions(fn, make):
    def stable():
        args = make()
        return tuple(SAME.setdefault((fn, type(a)), a) if isinstance(a, (Config, Lazy, Broken)) else a for a in args)

    check(fn, stable)


SAME = {}


# -- exceptions that get out --------------------------------------------------------------------------------------------


def leaves(x):
    y = x + 1
    thrower(9)
    return y


def leaves_from_handler(x, log):
    try:
        {}["first"]
    except KeyError:
        log.append("handling")
        thrower(2)
    return x


def leaves_chained(x, log):
    try:
        thrower(2)
    except ValueError as e:
        log.append("chained")
        raise Odd("out") from e


def returned(x):
    try:
        thrower(1)
    except ValueError as e:
        return e


def stored(x, log):
    try:
        thrower(1)
    except ValueError as e:
        log.append(e)
    return x


def traceback_kept(x, log):
    try:
        thrower(1)
    except ValueError as e:
        tb = e.__traceback__
    log.append(tb.tb_lineno)
    return x


@pytest.mark.parametrize("fn, make", [(leaves, tensor), (leaves_from_handler, with_list), (leaves_chained, with_list),
                                      (returned, tensor), (stored, with_list)],
                         ids=lambda v: getattr(v, "__name__", ""))
def test_exceptions_that_get_out(fn, make):
    check(fn, make, complete=False)


def test_frames_of_an_exception_that_gets_out_are_the_real_ones():
    def fn(x):
        note = 1
        try:
            thrower(x)
        except ValueError as e:
            kept = e
        note = 2
        return kept

    compiled = Compiled(fn)
    for _ in range(3):
        frame = compiled(3).__traceback__.tb_frame
        assert frame.f_code is fn.__code__
        assert frame.f_locals["note"] == 2


# -- what may differ at replay --------------------------------------------------------------------------------------------


def pick(d, key):
    try:
        return d[key]
    except KeyError:
        return "absent"


def test_not_raising_leaves_after_the_instruction():
    compiled = Compiled(pick)
    assert [compiled({}, "k"), compiled({}, "k"), compiled({"k": 3}, "k"), compiled({}, "k")] == ["absent", "absent", 3, "absent"]


def convert(value):
    try:
        return torch.tensor(1.0) / torch.tensor(value).reshape(7)
    except RuntimeError:
        return "shape"
    except TypeError:
        return "type"


def test_another_type_of_exception_takes_its_own_handler():
    class Fails:
        def __init__(self, exc):
            self.exc = exc

        def __getitem__(self, key):
            raise self.exc

    def fn(value):
        try:
            return value[0]
        except LookupError:
            return "lookup"
        except TypeError:
            return "type"

    compiled = Compiled(fn)
    for _ in range(2):
        for exc, expected in ((KeyError(1), "lookup"), (IndexError(1), "lookup"), (TypeError(1), "type"),
                              (KeyError(2), "lookup")):
            assert compiled(Fails(exc)) == expected
        with pytest.raises(ZeroDivisionError):
            compiled(Fails(ZeroDivisionError()))


def test_raising_where_nothing_was_raised():
    compiled = Compiled(pick)
    assert [compiled({"k": 1}, "k") for _ in range(3)] == [1] * 3
    assert compiled({}, "k") == "absent"


def context_of(log):
    try:
        try:
            {}["inner"]
        except KeyError:
            log()
    except ValueError as e:
        return type(e.__context__).__name__
    log()


def test_an_exception_that_is_handled_by_the_caller():
    import sys

    def fn(x):
        try:
            thrower(1)
        except ValueError:
            y = x + 1
        probe(sys.exc_info()[0])
        return y

    seen = []

    def probe(kind):
        seen.append(kind)

    compiled = Compiled(fn)
    compiled(1)
    compiled(1)
    try:
        raise OSError
    except OSError:
        compiled(1)
        compiled(1)
        assert sys.exc_info()[0] is OSError
    compiled(1)
    assert seen == [None, None, OSError, OSError, None]
    assert sys.exc_info()[0] is None


def test_tensors_of_a_handled_exception_die():
    def fn(x, log):
        y = x + 1
        log.append(weakref.ref(y))
        try:
            thrower(1)
        except ValueError:
            pass
        return x

    compiled = Compiled(fn)
    for _ in range(3):
        log = []
        compiled(torch.ones(2), log)
        gc.collect()
        assert log[0]() is None
