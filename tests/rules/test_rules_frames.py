"""Section 12: frames."""
import gc
import logging
import sys
import traceback
import warnings
import weakref

import torch
import torch.nn.functional as F
from two_worlds import T, rule

LOG = logging.getLogger("kincorpus.rules")


@rule
def test_rule_95_lines_in_inlined_frames(w):
    def deep(x, level):
        warnings.warn("deep", stacklevel=level)
        LOG.warning("here")
        LOG.warning("there", stacklevel=2)
        return x + 1

    def middle(x, level):
        x = deep(x, level)
        return x * 2

    def f(x, level):
        y = middle(x, level)
        return y + 1

    g = w.compile(f)
    for level in (1, 1, 2, 2, 3, 3, 1):
        w.call(g, T(), level)


@rule
def test_rule_95_registry_of_the_module(w):
    def f(x):
        warnings.warn("once here")
        return x + 1

    g = w.compile(f)
    for action in ("default", "module", "once"):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            for _ in range(3):
                g(T())
            w.see([(str(c.message), c.lineno) for c in caught])
        w.see("__warningregistry__" in globals())
        globals().pop("__warningregistry__", None)


@rule
def test_rule_95_python_stream(w):
    lines = []

    class Stream:
        def write(self, text):
            frame = sys._getframe(1)
            lines.append((frame.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno, text))

        def flush(self):
            pass

    stream = Stream()

    def helper(x):
        print("helper", file=stream)
        return x * 2

    def f(x):
        x = helper(x)
        print("f", x.shape, file=stream)
        return x

    g = w.compile(f)
    for _ in range(3):
        w.call(g, T())
        w.see(lines)


@rule
def test_rule_96_exit_in_inlined_frames(w):
    def inner(x, log):
        log.append("inner")
        if x.sum() > 10:
            log.append("big")
            names = [t.name for t in traceback.extract_stack(sys._getframe())][-3:]
            return x * 2, names
        return x, None

    def middle(x, log):
        a, names = inner(x, log)
        log.append("middle")
        return a + 1, names

    def f(x, log):
        b, names = middle(x, log)
        log.append("outer")
        return b * 3, names

    g = w.compile(f)
    for k in (1, 1, 5, 1, 5, 5):
        w.call(g, T() * k, [])


@rule
def test_rule_96_exit_below_c_code(w):
    log = []

    class Node:
        def __init__(self, x):
            log.append("init")
            self.big = True if x.sum() > 10 else False

        def __len__(self):
            return 3 if self.big else 2

        def __contains__(self, v):
            log.append("contains")
            return 5 if self.big else 0

        def __getattr__(self, name):
            log.append(name)
            if self.big:
                raise AttributeError(name)
            return name

        def __iter__(self):
            log.append("iter")
            yield 1
            if self.big:
                yield 2

    def key(v):
        log.append(v)
        return -v if STATE["x"].sum() > 10 else v

    STATE = {}

    def f(x):
        STATE["x"] = x
        node = Node(x)
        items = sorted([2, 3, 1], key=key)
        total = sum(v * (2 if x.sum() > 10 else 1) for v in node)
        return x * len(node), 1 in node, getattr(node, "absent", "default"), list(node), items, total

    g = w.compile(f)
    for k in (1, 1, 5, 1, 5, 5):
        w.call(g, T() * k)
        w.see(log)


@rule
def test_rule_97_recursion(w):
    def down(x, n):
        return down(x, n - 1) if n else x + 1

    def f(x, n):
        return down(x, n)

    g = w.compile(f)
    old = sys.getrecursionlimit()
    w.call(g, T(), 20)
    w.call(g, T(), 20)
    depth = 0
    frame = sys._getframe()
    while frame is not None:
        frame, depth = frame.f_back, depth + 1

    def outcome():
        try:
            g(T(), 20)
            return "result"
        except RecursionError:
            return "error"

    sys.setrecursionlimit(depth + 15)
    try:
        few = outcome()
    finally:
        sys.setrecursionlimit(old)
    sys.setrecursionlimit(depth + 60)
    try:
        many = outcome()
    finally:
        sys.setrecursionlimit(old)
    w.see(few, many)

    def endless(x):
        return endless(x + 1)

    h = w.compile(endless)
    for _ in range(2):
        try:
            h(T())
        except RecursionError as e:
            w.see(type(e))


@rule
def test_rule_98_finalisers_in_the_middle(w):
    state = {"n": 1}

    class Loud:
        def __del__(self):
            state["n"] += 1

    def f(x, things):
        a = state["n"]
        things.clear()
        b = state["n"]
        thing = Loud()
        thing = None
        return x * a + b, state["n"], thing

    g = w.compile(f)
    for n in (1, 1, 0, 3, 1, 1):
        w.call(g, T(), [Loud() for _ in range(n)])
        w.see(state)


@rule
def test_rule_98_weakref_callback_and_gc(w):
    state = {"n": 1}

    class Node:
        pass

    def cycle():
        node = Node()
        node.me = node
        refs.append(weakref.ref(node, lambda r: state.__setitem__("n", state["n"] + 1)))

    refs = []

    def f(x):
        a = state["n"]
        cycle()
        gc.collect()
        return x * a + state["n"]

    g = w.compile(f)
    for _ in range(4):
        w.call(g, T())
        w.see(state)


@rule
def test_rule_98_settrace_and_profile(w):
    events = []

    def helper(x):
        return x * 2

    def f(x):
        return helper(x) + 1

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())

    def profile(frame, event, arg):
        if frame.f_code.co_name in ("helper", "f") and event in ("call", "return"):
            events.append((event, frame.f_code.co_name))

    sys.setprofile(profile)
    try:
        g(T())
    finally:
        sys.setprofile(None)
    w.see(events)
    w.hit(g, T())


@rule
def test_rule_99_no_override_frames(w):
    def f(x, p):
        F.softmax(x)
        return F.dropout(x, p)

    g = w.compile(f)
    for p in (0.5, 0.5, 2.0, 2.0):
        w.call(g, T(), p)
    for p in (2.0, 0.5):
        try:
            g(T(), p)
        except ValueError as e:
            w.see([(t.name, t.line) for t in traceback.extract_tb(e.__traceback__) if t.name != "_run"][1:])
