"""Programs to be watched: a cut through the standard library, after those of constructs.py. Run as a script with the folder of
the compiled `watchcheck` as argument: runs each case plain and watched, prints one line, exits 1 on any mismatch.
"""

import argparse
import ast
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
import fnmatch
import fractions
import functools
import heapq
import html.parser
import inspect
import io
import itertools
import json
import locale
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
import urllib.parse

from constructs import CASES, case, throw_through_yield_from

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
