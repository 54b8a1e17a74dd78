"""Programs to be watched: every construct of the language, and a cut through the standard library.

Each function in CASES takes nothing and returns something that does not depend on being watched. Run as a script with the folder of
the compiled `watchcheck` as argument: runs each case plain and watched, prints one line, exits 1 on any mismatch.
"""

import argparse
import ast
import asyncio
import base64
import bisect
import calendar
import collections
import configparser
import contextlib
import copy
import csv
import dataclasses
import datetime
import decimal
import difflib
import dis
import enum
import fnmatch
import fractions
import functools
import gc
import heapq
import html.parser
import importlib.machinery
import importlib.util
import inspect
import io
import itertools
import json
import locale
import operator
import pickle
import pprint
import random
import re
import shlex
import statistics
import string
import sys
import textwrap
import tokenize
import traceback
import types
import typing
import urllib.parse

CASES = []


def case(function):
    CASES.append(function)
    return function


# ---- constructs -----------------------------------------------------------------------------------------------


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


# ---- the standard library --------------------------------------------------------------------------------------


@case
def lib_json():
    data = {"a": [1, 2.5, None, True, "é\n"], "b": {"c": [[], {}]}, "d": list(range(20))}
    text = json.dumps(data, indent=2, sort_keys=True)
    encoder = json.JSONEncoder(default=str, separators=(",", ":"))
    json.encoder.c_make_encoder, saved = None, json.encoder.c_make_encoder
    try:
        slow = json.dumps(data, indent=1)
    finally:
        json.encoder.c_make_encoder = saved
    try:
        json.loads("{bad}")
    except json.JSONDecodeError as e:
        error = str(e)
    return json.loads(text) == data, slow, encoder.encode({1: datetime.date(2020, 1, 1)}), error


@case
def lib_re():
    re.purge()
    p = re.compile(r"(?P<a>\w+)\s*=\s*(?P<b>[^;]*?)(;|$)|(?<!x)y{2,3}[a-z]?", re.I | re.M)
    return p.sub(lambda m: str(m.groupdict()), "k = v; l=w\nyyy"), re.split(r"[,;]+", "a,b;;c"), re.escape("a.b*c")


@case
def lib_dataclasses():
    @dataclasses.dataclass(order=True, frozen=True)
    class P:
        x: int
        y: list = dataclasses.field(default_factory=list, compare=False)

        def __post_init__(self):
            object.__setattr__(self, "z", self.x * 2)

    @dataclasses.dataclass
    class Q(P.__base__):
        a: P = None
        b: dict = dataclasses.field(default_factory=dict)

    q = Q(P(1, [2]), {"k": P(3)})
    return repr(P(1)), P(1) < P(2), repr(dataclasses.asdict(q)), repr(dataclasses.replace(q.a, x=7)), hash(P(1)) == hash(P(1))


@case
def lib_text():
    text = "The quick brown fox jumps over the lazy dog. " * 8
    return (textwrap.fill(text, 40, initial_indent="* ", subsequent_indent="  "), textwrap.dedent("  a\n    b\n  c"),
            textwrap.shorten(text, 30), string.Template("$a ${b}").substitute(a=1, b=2), string.capwords("a b c"),
            pprint.pformat({"k" * 20: list(range(30)), "nested": {"a": ("x" * 50,) * 3}}, width=60),
            shlex.split("a 'b c' \"d e\" f\\ g"), "{0!r:>{1}} {x[k]}".format("a", 8, x={"k": 1}))


@case
def lib_argparse():
    p = argparse.ArgumentParser(prog="p", description="d" * 100)
    p.add_argument("files", nargs="*")
    p.add_argument("-v", "--verbose", action="count", default=0)
    p.add_argument("--level", type=int, choices=[1, 2, 3])
    sub = p.add_mutually_exclusive_group()
    sub.add_argument("--x", action="store_true")
    sub.add_argument("--y", action="store_false")
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        try:
            p.parse_args(["--level", "9"])
        except SystemExit as e:
            code = e.code
    return vars(p.parse_args(["a", "-vv", "--level", "2", "--x"])), len(p.format_help()) > 100, code


@case
def lib_ast():
    source = inspect.getsource(pprint)
    tree = ast.parse(source)
    names = sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)})

    class Doubler(ast.NodeTransformer):
        def visit_Constant(self, node):
            return ast.Constant(node.value * 2) if isinstance(node.value, int) else node

    small = ast.fix_missing_locations(Doubler().visit(ast.parse("x = 1 + f(2, k=3)")))
    return len(names), ast.unparse(small), len(ast.dump(tree)), len(ast.unparse(tree)), ast.literal_eval("{'a': [1, (2,)]}")


@case
def lib_difflib():
    a = [f"line {i % 7}" for i in range(40)]
    b = [f"line {i % 5}" for i in range(45)]
    return (list(difflib.unified_diff(a, b)), list(difflib.ndiff(a[:6], b[:6])), difflib.get_close_matches("appel", ["ape", "apple"]),
            difflib.SequenceMatcher(None, "abcd" * 5, "bcde" * 5).ratio())


@case
def lib_inspect():
    sig = inspect.signature(argparse.ArgumentParser.add_argument)
    bound = inspect.signature(lambda a, *b, c=1, **d: 0).bind(1, 2, c=3, e=4)
    members = inspect.getmembers(collections.OrderedDict, callable)
    return str(sig), bound.arguments, len(members) > 20, inspect.getdoc(dict)[:10], len(list(dis.get_instructions(lib_ast)))


@case
def lib_containers():
    c = collections.Counter("abracadabra")
    od = collections.OrderedDict(sorted(c.items()))
    od.move_to_end("a")
    dq = collections.deque(range(5), maxlen=3)
    chain = collections.ChainMap({"a": 1}, {"b": 2})
    h = [5, 2, 8]
    heapq.heapify(h)
    ud = collections.UserDict(x=1)
    ud["y"] = 2
    T = collections.namedtuple("T", "a b", defaults=[9])
    return (c.most_common(2), list(od), list(dq), dict(chain), heapq.nsmallest(2, h), list(heapq.merge([1, 4], [2, 3])), dict(ud),
            T(1)._replace(b=3), bisect.bisect([1, 3, 5], 4), copy.deepcopy({"a": [1, {"b": (2,)}]}),
            list(itertools.groupby("aab"))[0][0], list(itertools.accumulate(range(5), lambda p, q: p + q)))


@case
def lib_numbers():
    with decimal.localcontext() as ctx:
        ctx.prec = 30
        d = decimal.Decimal(2).sqrt()
    rng = random.Random(5)
    return (fractions.Fraction(3, 7) + fractions.Fraction("0.25"), str(d), statistics.stdev([1, 2, 3, 4.5]), rng.sample(range(50), 5),
            rng.choices("abc", [1, 2, 3], k=5), rng.gauss(0, 1), statistics.quantiles(range(10)))


@case
def lib_formats():
    out = io.StringIO()
    w = csv.DictWriter(out, ["a", "b"])
    w.writeheader()
    w.writerows([{"a": 1, "b": "x,y"}, {"a": 2, "b": '"q"'}])
    cp = configparser.ConfigParser()
    cp.read_string("[s]\nk = 1\nl = %(k)s2\n[t]\nm: yes\n")

    class H(html.parser.HTMLParser):
        seen = []

        def handle_starttag(self, tag, attrs):
            self.seen.append((tag, attrs))

    h = H()
    h.feed("<a href='x'>t<b>&amp;</b></a><!-- c --><br/>")
    url = urllib.parse.urlsplit("http://u:p@h:80/p/a?q=1&r=%20#f")
    tokens = list(tokenize.generate_tokens(io.StringIO("def f(x):\n    return x + 1\n").readline))
    return (out.getvalue(), cp["s"]["l"], cp.getboolean("t", "m"), h.seen, url.port, urllib.parse.parse_qs(url.query), len(tokens),
            list(csv.reader(['a,"b,c"'])), urllib.parse.urljoin("http://a/b/c", "../d"), base64.b64encode(b"x" * 10),
            fnmatch.filter(["a.py", "b.c"], "*.py"))


@case
def lib_pickle():
    buffer = io.BytesIO()
    data = {"a": [1, 2, (3, "x")], "b": {4, 5}, "d": datetime.datetime(2020, 1, 2), "n": None, "f": 1.5}
    pickle._Pickler(buffer, 4).dump(data)
    buffer.seek(0)
    return pickle._Unpickler(buffer).load() == data


@case
def lib_dates():
    d = datetime.datetime(2024, 2, 28) + datetime.timedelta(days=2, hours=5)
    return (d.isoformat(), d.strftime("%Y-%j"), calendar.month(2024, 2), datetime.date.fromisoformat("2020-01-05").isocalendar()[1],
            locale.format_string("%d", 1234), calendar.monthrange(2023, 2))


@case
def lib_traceback():
    try:
        try:
            {}["missing"]
        except KeyError as e:
            raise RuntimeError("outer") from e
    except RuntimeError as e:
        text = "".join(traceback.format_exception(e))
    return "missing" in text and "direct cause" in text


@case
def lib_functools():
    @functools.singledispatch
    def show(x):
        return "object"

    @show.register
    def _(x: int):
        return "int"

    @show.register(list)
    def _(x):
        return "list"

    class C:
        @functools.cached_property
        def slow(self):
            return [1]

        @functools.singledispatchmethod
        def m(self, x):
            return "any"

        @m.register
        def _(self, x: str):
            return "str"

    @functools.total_ordering
    class O:
        def __init__(self, v):
            self.v = v

        def __eq__(self, o):
            return self.v == o.v

        def __lt__(self, o):
            return self.v < o.v

    @functools.wraps(show)
    def wrapped(*a):
        return show(*a)

    c = C()
    return show(1), show([]), show(""), c.slow is c.slow, c.m("x"), c.m(1), O(1) >= O(0), wrapped(2), wrapped.__name__


# ---- running ------------------------------------------------------------------------------------------------------


def run(watchcheck):
    """Runs every case plain, then watched; returns the sums and the texts of what was wrong."""
    sums = collections.Counter()
    wrong = []
    for function in CASES:
        plain = repr(function())
        report = watchcheck.run(function)
        wrong += [f"{function.__name__}: {text}" for text in report["first"]]
        if repr(report["result"]) != plain:
            wrong.append(f"{function.__name__}: another result when watched")
        if report["lost"] != (function in (throw_through_yield_from,) and sys.version_info < (3, 12)):
            wrong.append(f"{function.__name__}: lost is {report['lost']}")
        for key in ("instructions", "values", "depths", "frames", "mismatches"):
            sums[key] += report[key]
    return sums, wrong


def check_restored(watchcheck):
    """After a watch nothing of it is left: no tracer, no flags on a frame that lives on."""
    wrong = []

    def gen():
        yield 1
        yield 2

    g = gen()
    watchcheck.run(lambda: next(g))
    if sys.gettrace() is not None or sys.getprofile() is not None or watchcheck.foreign_tool():
        wrong.append("a tracer is left behind")
    if g.gi_frame.f_trace_opcodes or not g.gi_frame.f_trace_lines:
        wrong.append("a suspended generator keeps its trace flags")
    seen = []
    if watchcheck.run(sys.gettrace)["result"] is not None:
        wrong.append("the watched program sees the tracer")
    sys.settrace(lambda *a: seen.append(a[1]))
    try:
        watchcheck.run(lambda: 1)
        wrong.append("a foreign tracer is not refused")
    except RuntimeError:
        pass
    finally:
        sys.settrace(None)
    return wrong


def check_debugger_inside(watchcheck):
    """sys.settrace() in the watched program: its tracer works as if nobody had watched."""

    def program():
        events = []

        def tracer(frame, event, arg):
            events.append(event)
            return tracer

        def traced():
            x = 1
            return x

        sys.settrace(tracer)
        sys._getframe().f_trace = tracer
        traced()
        y = 2
        sys.settrace(None)
        return events, y

    def program_below():
        """The same with the call of sys.settrace() out of the watcher's sight, as under a breakpoint()."""
        events = []

        def tracer(frame, event, arg):
            events.append(event)
            return tracer

        def skipped_start(frame):
            frame.f_trace = tracer
            sys.settrace(tracer)

        def skipped_stop():
            sys.settrace(None)

        skipped_start(sys._getframe())
        y = len("ab")
        y += 1
        skipped_stop()
        return events, y

    wrong = []
    for function in (program, program_below):
        plain = function()
        report = watchcheck.run(function)
        if report["result"] != plain:
            wrong.append(f"{function.__name__}: events {report['result']} instead of {plain}")
        if sys.version_info < (3, 12) and not report["lost"]:
            wrong.append(f"{function.__name__}: the taken-away tracer was not noticed")
    return wrong


def main():
    sys.path.insert(0, sys.argv[1])
    import watchcheck

    sums, wrong = run(watchcheck)
    wrong += check_restored(watchcheck) + check_debugger_inside(watchcheck)
    for text in wrong[:40]:
        print("   ", text)
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"watcher on {version}: {len(CASES)} programs, {sums['instructions']} instructions, {sums['frames']} frames, "
          f"{sums['values']} values and {sums['depths']} depths compared, {sums['mismatches']} mismatches")
    enough = sums["instructions"] > 300_000 and sums["values"] > 100_000
    return 0 if enough and not wrong and not sums["mismatches"] else 1


if __name__ == "__main__":
    sys.exit(main())
