"""Section 10: C code."""
import bisect
import enum
import functools
import heapq
import itertools
import json
import math
import operator
import re
import sys

import torch
from two_worlds import T, rule


@rule
def test_rule_88_pure_by_content(w):
    class Odd:
        text = "one"

        def __str__(self):
            return Odd.text

        __repr__ = __str__

        def __format__(self, spec):
            return Odd.text + spec

        def __hash__(self):
            return len(Odd.text)

        def __float__(self):
            return float(len(Odd.text))

        def __index__(self):
            return len(Odd.text)

    def f(x, odd, items):
        return (x * math.floor(odd.__float__()), str(odd), f"{odd:>3}", hash(odd), float(odd), math.sqrt(odd), sum(items),
                max(items), "-".join(map(str, items)), tuple(items), repr(items), "%s" % odd, hex(odd), int.__add__(1, 2))

    g = w.compile(f)
    items = [1, 2]
    odd = Odd()
    w.call(g, T(), odd, items)
    w.call(g, T(), odd, items)
    Odd.text = "three"
    w.call(g, T(), odd, items)
    items[0] = 9
    w.call(g, T(), odd, items)
    items.append(4)
    w.call(g, T(), odd, items)


@rule
def test_rule_88_text_of_constants(w):
    mode = ["one"]

    class Kind(enum.Enum):
        A = 1

        def __str__(self):
            return mode[0]

    class Meta(type):
        def __repr__(cls):
            return mode[0]

    class Made(metaclass=Meta):
        pass

    def fn():
        pass

    texts = [
        lambda x: (x, str(Kind.A), f"{Kind.A}"),
        lambda x: (x, format(Kind.A), "".join([str(Kind.A)])),
        lambda x: (x, repr(Made), repr([Made])),
        lambda x: (x, repr(fn).split(" at ")[0]),
        lambda x: (x, "%s" % Kind.A, "{}".format(Kind.A)),
        lambda x: (x, "%s" % (Kind.A,), str((Kind.A, 1))),
    ]
    for text in texts:
        mode[0], fn.__qualname__ = "one", "fn"
        g = w.compile(text)
        w.call(g, T())
        w.call(g, T())
        mode[0], fn.__qualname__ = "three", "other"
        w.call(g, T())


@rule
def test_rule_88_members_compared(w):
    class Kind(enum.Enum):
        A = 1
        B = 2

    def f(x, kind):
        return x * 2 if kind == Kind.A else x * 3

    g = w.compile(f)
    w.call(g, T(), Kind.B)
    w.hit(g, T(), Kind.B)
    w.call(g, T(), Kind.A)
    Kind.__eq__ = lambda self, other: True
    w.call(g, T(), Kind.B)
    del Kind.__eq__
    w.call(g, T(), Kind.B)


@rule
def test_rule_88_int_to_str_limit(w):
    def f(x, n):
        return x + 1, len(str(n))

    g = w.compile(f)
    big = 10 ** 1000

    def call():
        w.call(lambda: g(T(), big))

    call()
    call()
    old = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(700)
    try:
        call()
    finally:
        sys.set_int_max_str_digits(old)
    call()


@rule
def test_rule_89_patched_names(w):
    def f(x):
        return x * math.floor(2.5) * abs(-2) * operator.add(1, 2)

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    old = math.floor
    math.floor = math.ceil
    try:
        w.call(g, T())
        math.floor = lambda v: 9
        w.call(g, T())
    finally:
        math.floor = old
    operator.add, old = operator.mul, operator.add
    try:
        w.call(g, T())
    finally:
        operator.add = old
    w.call(g, T())


@rule
def test_rule_89_same_method_other_self(w):
    def f(x, push, get):
        push(5)
        return x * get("k", 3)

    g = w.compile(f)
    a, b, d, e = [1], [2], {"k": 2}, {}
    for push, get in ((a.append, d.get), (a.append, d.get), (b.append, d.get), (b.append, e.get), (a.append, e.get)):
        w.call(g, T(), push, get)
        w.see(a, b)
    w.call(g, T(), {1}.add, e.get)


@rule
def test_rule_90_callbacks(w):
    calls = []

    def key(v):
        calls.append(v)
        return v % 3

    class Odd:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            calls.append((self.n, other.n))
            return self.n < other.n

    def f(x, items):
        groups = [(k, list(v)) for k, v in itertools.groupby(items, key)]
        kept = list(filter(key, items))
        best = min(items, key=key)
        heap = [Odd(v) for v in items]
        heapq.heapify(heap)
        pairs = list(zip(map(key, items), itertools.count()))
        text = re.sub(r"\d", lambda m: str(key(int(m[0]))), "".join(map(str, items)))
        return x * best, groups, kept, [o.n for o in heap], pairs, text, bisect.bisect(sorted(items), 2)

    g = w.compile(f)
    for items in ([3, 1, 2], [3, 1, 2], [1, 2, 4], [5, 4], [3, 1, 2]):
        w.call(g, T(), items)
        w.see(calls)


@rule
def test_rule_90_json_and_default(w):
    class Odd:
        pass

    log = []

    def default(o):
        log.append(type(o).__name__)
        return len(log)

    def f(x, data):
        text = json.dumps(data, default=default)
        back = json.loads(text, object_hook=lambda d: (log.append(sorted(d)), d)[1])
        return x * len(text), back

    g = w.compile(f)
    odd = Odd()
    for data in ({"a": odd}, {"a": odd}, {"a": 1}, {"b": [odd, {"c": 2}]}):
        w.call(g, T(), data)
        w.see(log)


@rule
def test_rule_90_partial_and_attrgetter(w):
    class Box:
        def __init__(self, n):
            self.n = n

    pick = operator.attrgetter("n")
    first = operator.itemgetter(0)
    scale = functools.partial(operator.mul, 2)

    def f(x, box, items):
        return x * pick(box) + first(items) + scale(3)

    g = w.compile(f)
    w.call(g, T(), Box(2), [1])
    w.call(g, T(), Box(2), [1])
    w.call(g, T(), Box(3), [1])
    w.call(g, T(), Box(3), [4])
    Box.n = property(lambda self: 50, lambda self, v: None)
    w.call(g, T(), Box(3), [4])


@rule
def test_rule_91_opaque_code_changes_what_escaped(w):
    class Node:
        pass

    def mutate(target):
        exec("target.items.append(9); target.n = 50; target.__class__ = other", {"target": target, "other": Other})

    class Other(Node):
        @property
        def kind(self):
            return "other"

    Node.kind = "node"

    def f(x, run):
        node = Node()
        node.items = items = [1]
        node.n = 1
        private = [2]
        before = node.kind
        if run:
            eval("mutate(node)", {"mutate": mutate, "node": node})
        return x * node.n + len(items) + len(private), before, node.kind, node

    g = w.compile(f)
    for run in (1, 1, 0, 0, 1):
        w.call(g, T(), run)


@rule
def test_rule_91_setattr_and_vars_by_name(w):
    class Node:
        n = 1

    def f(x, node, name):
        a = node.n
        setattr(node, name, 5)
        b = node.n
        vars(node)["n"] = 7
        c = node.n
        node.__dict__.update(n=8)
        d = node.n
        object.__setattr__(node, "n", 9)
        delattr(node, "n") if name == "m" else None
        return x * a + b, c, d, node.n

    g = w.compile(f)
    for name in ("n", "n", "m", "m", "n"):
        w.call(g, T(), Node(), name)
