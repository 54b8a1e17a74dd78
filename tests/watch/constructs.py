"""Programs to be watched: every construct of the language.

Each function in CASES takes nothing and returns something that does not depend on being watched.
"""

import asyncio
import collections
import contextlib
import dataclasses
import enum
import functools
import gc
import importlib.machinery
import importlib.util
import operator
import sys
import types
import typing

CASES = []


def case(function):
    CASES.append(function)
    return function


@case
def arithmetic_and_jumps():
    out = []
    for i in range(50):
        x = -i if i % 3 else +i
        x = ~x if i & 1 else not x
        out.append((x, i // 3, i % 7, i << 2, i >> 1, i ^ 5, i | 2, i**2, i / 3, 1 < i <= 30, i in (1, 2), i is None))
        if i > 40:
            continue
        if i == 45:
            break
    else:
        out.append("else")
    while len(out) > 20:
        out.pop()
    y = 1
    y += 2; y -= 1; y *= 5; y //= 2; y %= 3; y <<= 1; y |= 4; y &= 7; y ^= 1; y **= 2
    return out, y, out[1:3], [*out[:2], *out[2:4]], {**{"a": 1}, "b": 2}, f"{y!r:>5} {y} {out[0]!s}"


@case
def many_constants():
    """More than 256 names and constants, so that EXTENDED_ARG is everywhere, jumps included."""
    lines = ["def f(n):", "    t = 0"]
    lines += [f"    v{i} = {i * 1000 + 7}.5" for i in range(400)]
    lines += ["    for k in range(n):"]
    lines += [f"        t += v{i} if k != {i} else g{i % 300}" for i in range(400)]
    lines += ["        if t is None: break"]
    lines += ["    return t"]
    scope = {f"g{i}": i for i in range(300)}
    exec("\n".join(lines), scope)
    return scope["f"](8)


@case
def unpacking():
    a, b, *c = range(8)
    *d, e = "xyz"
    (f, [g, h]) = 1, (2, 3)
    first, *_, last = {1: 2, 3: 4, 5: 6}
    x = [[0, 1], [2, 3]]
    x[0][1], x[1][0] = x[1][0], x[0][1]
    s = list(range(10))
    s[2:5] = [9]
    del s[0], s[1:2]
    return a, b, c, d, e, f, g, h, first, last, x, s


@case
def calls():
    def f(a, /, b, *args, c=3, **kw):
        return a, b, args, c, sorted(kw.items())

    class C:
        def m(self, *a, **k):
            return len(a) + len(k)

        @classmethod
        def cm(cls, x=1):
            return cls.__name__, x

        @staticmethod
        def sm(x):
            return x

        @property
        def p(self):
            return self.m(1, 2, z=3)

        def __call__(self, x):
            return x + 1

        def __getattr__(self, name):
            return name.upper()

    o = C()
    part = functools.partial(f, 1, c=9)
    return (f(1, 2), f(1, 2, 3, 4, c=5, d=6), f(*[1, 2, 3], **{"q": 1}), f(1, *[2], c=1, **{"z": 2}), o.m(1, k=2), o.cm(x=2),
            o.sm(3), o.p, o(4), o.missing, part(2, e=1), sorted([3, 1, 2], key=lambda v: -v),
            list(map(o, [1, 2])), functools.reduce(operator.add, [1, 2, 3]), max([1, 5], key=lambda v: v))


@case
def closures_and_scopes():
    total = 0

    def outer(n):
        nonlocal total
        local = [n]

        def inner(k):
            nonlocal n
            n += k
            local.append(n)
            return lambda: (n, k, local)

        total += n
        del n
        n = 5
        return inner

    global _corpus_global
    _corpus_global = 3
    r = outer(4)(2)()
    del _corpus_global

    class Scope:
        x = total
        y = [total for _ in range(2)]

        def method(self):
            return __class__, super().__repr__ is not None

    return r, total, Scope.x, Scope.y, Scope().method()[1], [(lambda q=q: q)() for q in range(3)]


@case
def comprehensions():
    m = [[i * j for j in range(4) if j != 2] for i in range(4)]
    s = {i % 3 for i in range(10)}
    d = {k: [v for v in range(k)] for k in range(4)}
    g = sum(x for row in m for x in row if x)
    return m, s, d, g, any(x > 3 for x in s), list(zip(*m)), [y := 1, y**2], dict(zip("ab", range(2)))


class Boom(Exception):
    pass


@case
def exceptions():
    log = []

    def risky(n):
        try:
            if n == 0:
                raise Boom("zero")
            if n == 1:
                return 1 / 0
            if n == 2:
                return {}["k"]
            if n == 3:
                raise ValueError from KeyError("c")
            if n == 4:
                return [].missing
            return n
        except ZeroDivisionError as e:
            log.append(type(e).__name__)
            return "zde"
        except (KeyError, Boom):
            log.append("caught")
            raise
        except ValueError as e:
            try:
                raise TypeError("in handler") from e
            except TypeError as t:
                log.append(repr(t.__cause__))
        else:
            log.append("else")
        finally:
            log.append(("finally", n))

    def swallow(n):
        try:
            return risky(n)
        except Exception as e:
            return type(e).__name__

    def finally_overrides():
        for i in range(3):
            try:
                continue
            finally:
                log.append(i)
        try:
            return 1
        finally:
            return 2

    results = [swallow(n) for n in range(7)]
    assert finally_overrides() == 2
    assert len(results) == 7, "never"
    return results, log


@case
def exception_groups():
    out = []
    for group in ([ValueError(1), TypeError(2)], [KeyError(3)], [ValueError(4), OSError(5)]):
        try:
            try:
                raise ExceptionGroup("g", group)
            except* ValueError as e:
                out.append(("value", len(e.exceptions)))
            except* (TypeError, KeyError) as e:
                out.append(("type", len(e.exceptions)))
        except ExceptionGroup as rest:
            out.append(("rest", len(rest.exceptions)))
    return out


@case
def with_statements():
    log = []

    class CM:
        def __init__(self, name, swallow=False):
            self.name, self.swallow = name, swallow

        def __enter__(self):
            log.append(("in", self.name))
            return self.name

        def __exit__(self, *exc):
            log.append(("out", self.name, exc[0] and exc[0].__name__))
            return self.swallow

    @contextlib.contextmanager
    def generated(x):
        try:
            yield x
        except KeyError:
            log.append("handled")
        finally:
            log.append("closed")

    with CM("a") as a, CM("b", True), generated(1):
        log.append(a)
        raise ValueError
    with generated(2), contextlib.suppress(ValueError):
        int("x")
    with generated(3):
        raise KeyError
    with contextlib.ExitStack() as stack:
        for i in range(3):
            stack.enter_context(generated(i))
        stack.callback(log.append, "callback")
    for i in range(3):
        with CM("loop"):
            if i == 1:
                break

    def early():
        with CM("ret"):
            return len(log)

    return early(), log


@case
def generators():
    def count(n):
        for i in range(n):
            got = yield i
            if got is not None:
                yield ("got", got)

    def delegate(n):
        r = yield from count(n)
        try:
            yield from inner_return()
        except Boom:
            yield "boom"
        return r

    def inner_return():
        try:
            x = yield "inner"
            return x
        except GeneratorExit:
            raise
        except Boom:
            yield "inner boom"
            raise

    def catcher():
        while True:
            try:
                yield 1
            except ValueError:
                yield "value"
            finally:
                pass

    out = [list(count(3)), list(delegate(2)), sum(i for i in range(5))]
    g = count(5)
    out += [next(g), g.send("hi"), next(g), g.close()]
    c = catcher()
    out += [next(c), c.throw(ValueError), next(c)]
    c.close()
    unfinished = count(4)
    next(unfinished)
    del unfinished
    gc.collect()
    return out


@case
def throw_through_yield_from():
    """3.11 resumes the delegating frame without a `call` event here: the watch must say that it is lost."""

    def inner():
        try:
            yield 1
        except ValueError:
            yield 2
            return "result"

    def outer():
        got = yield from inner()
        yield got
        yield from inner()

    o = outer()
    out = [next(o), o.throw(ValueError), next(o), next(o)]
    try:
        o.throw(KeyError)
    except KeyError:
        out.append("key")
    return out


@case
def coroutines():
    log = []

    class ACM:
        async def __aenter__(self):
            await asyncio.sleep(0)
            return self

        async def __aexit__(self, *exc):
            log.append(exc[0] and exc[0].__name__)
            return True

    async def agen(n):
        try:
            for i in range(n):
                await asyncio.sleep(0)
                yield i
        finally:
            log.append("agen closed")

    async def worker(queue, results):
        while True:
            item = await queue.get()
            if item is None:
                return
            async with ACM():
                if item == 3:
                    raise ValueError
                results.append([x async for x in agen(item) if x % 2 == 0])

    async def main():
        queue, results = asyncio.Queue(), []
        tasks = [asyncio.create_task(worker(queue, results)) for _ in range(3)]
        for i in range(8):
            await queue.put(i)
        for _ in tasks:
            await queue.put(None)
        await asyncio.gather(*tasks)
        async for x in agen(5):
            if x == 2:
                break
        try:
            await asyncio.wait_for(asyncio.sleep(10), 0.001)
        except asyncio.TimeoutError:
            log.append("timeout")
        async with asyncio.timeout(5):
            lock = asyncio.Lock()
            async with lock:
                log.append("locked")
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        g = agen(3)
        await g.__anext__()
        await g.aclose()
        return sorted(map(tuple, results))

    return asyncio.run(main()), sorted(map(str, log))


@case
def pattern_matching():
    @dataclasses.dataclass
    class Point:
        x: int
        y: int

    def where(p):
        match p:
            case Point(x=0, y=0):
                return "origin"
            case Point(0, y) if y > 5:
                return "high", y
            case Point(x, y):
                return x, y
            case [1, *rest, {"k": v, **kw}]:
                return rest, v, kw
            case [a, b] | (a, b, _):
                return a, b
            case {"type": "t", "n": int(n) | float(n)}:
                return n
            case str() as s if s.isupper():
                return s
            case None | True:
                return "const"
            case -1.5 | 2 + 3j:
                return "number"
            case _:
                return "other"

    return [where(p) for p in (Point(0, 0), Point(0, 9), Point(1, 2), [1, 2, 3, {"k": 4, "z": 5}], (7, 8), [7, 8, 9],
                               {"type": "t", "n": 3}, "ABC", "abc", None, True, -1.5, 2 + 3j, 17, {"type": "t"})]


@case
def dunders():
    class Num:
        def __init__(self, v):
            self.v = v

        def __add__(self, o):
            return Num(self.v + getattr(o, "v", o))

        __radd__ = __iadd__ = __add__

        def __eq__(self, o):
            return self.v == o.v

        def __lt__(self, o):
            return self.v < o.v

        def __hash__(self):
            return hash(self.v)

        def __bool__(self):
            return self.v != 0

        def __len__(self):
            return 3

        def __getitem__(self, i):
            if i >= 3:
                raise IndexError
            return self.v * i

        def __setitem__(self, i, v):
            self.v = i + v

        def __delitem__(self, i):
            self.v = 0

        def __contains__(self, x):
            return x == self.v

        def __format__(self, spec):
            return f"<{self.v}{spec}>"

        def __repr__(self):
            return f"Num({self.v})"

        def __neg__(self):
            return Num(-self.v)

        def __index__(self):
            return self.v

        def __setattr__(self, n, v):
            object.__setattr__(self, n, v)

        def __del__(self):
            dunders.deleted = getattr(dunders, "deleted", 0) + 1

        def __matmul__(self, o):
            return "matmul"

    a, b = Num(2), Num(5)
    c = a + b + 1
    c += 3
    a[4] = 5
    out = [1 + a, c, sorted([b, a]), b in {b: 1}, bool(Num(0)), list(b), 5 in b, f"{b:x}", -b, [0, 1, 2, 3, 4, 5][b], a @ b,
           "x" if Num(0) else "y", [*b], max(a, b), not b]
    del a[0]
    while b:
        b = Num(0)
    return repr(out), sum([Num(1), Num(2)]).v


class Meta(type):
    def __new__(mcs, name, bases, ns, **kw):
        ns["made"] = sorted(kw)
        return super().__new__(mcs, name, bases, ns)

    def __call__(cls, *args):
        return super().__call__(*args)

    @classmethod
    def __prepare__(mcs, name, bases, **kw):
        return collections.OrderedDict()


@case
def classes():
    class Base(metaclass=Meta, flag=1):
        slots: typing.ClassVar[int] = 3

        def __init_subclass__(cls, **kw):
            cls.sub = True

        def hello(self, x=1):
            return "base", x

    class Child(Base):
        def hello(self, x=2):
            return ("child",) + super().hello(x) + super(Child, self).hello()

    class Descriptor:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, obj, owner):
            return self.name, obj is None

        def __set__(self, obj, value):
            obj.__dict__["stored"] = value

    class User:
        d = Descriptor()
        __slots__ = ("__dict__", "y")

    u = User()
    u.d = 5
    u.y = 6
    del u.y

    class Color(enum.Enum):
        RED = 1
        BLUE = enum.auto()

    class Perm(enum.Flag):
        R = 1
        W = 2

    return (Child().hello(), Base.made, Child.sub, u.d, User.d, u.__dict__, hasattr(u, "y"), list(Color), Perm.R | Perm.W,
            types.new_class("N", (), {}).__name__, typing.NamedTuple("T", [("a", int)])(3).a)


@case
def frames_not_wanted():
    """Functions called skipped* report no instruction; what they call does, and so do generators in between."""

    def skipped(n):
        total = 0
        for i in range(n):
            total += wanted(i) + sum(skipped_generator(i))
        return total

    def skipped_generator(n):
        for i in range(n):
            yield wanted(i)

    def skipped_raise():
        raise KeyError(wanted(1))

    def wanted(i):
        return i * 2 if i % 2 else i

    try:
        skipped_raise()
    except KeyError as e:
        return skipped(5), wanted(3), e.args


@case
def deep_recursion():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    @functools.lru_cache(maxsize=None)
    def cached(n):
        return n if n < 2 else cached(n - 1) + cached(n - 2)

    def overflow(n):
        return overflow(n + 1) + 1

    try:
        overflow(0)
    except RecursionError:
        pass
    return fib(12), down(200), cached(50)


@case
def imports_and_exec():
    import xml.etree.ElementTree as tree
    from os import path as p

    scope = {}
    exec("from string import *\nclass C:\n    x: int = 1\n    y = x + 1\n", scope)
    fresh = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("fresh", None))
    sys.modules.pop("colorsys", None)
    import colorsys

    return tree.__name__, p.join("a", "b"), scope["digits"], scope["C"].y, fresh.__name__, colorsys.rgb_to_hsv(1, 0, 0)


@case
def finalizers_in_the_middle():
    class Noisy:
        def __init__(self):
            self.me = self

        def __del__(self):
            self.text = "gone".upper()

    for i in range(200):
        Noisy()
        if i % 50 == 0:
            gc.collect()
    return i
