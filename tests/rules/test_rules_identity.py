"""Section 9: identity and lifetime."""
import copy
import gc
import types
import weakref

import torch
from torch import nn
from two_worlds import T, rule


class Node:
    pass


@rule
def test_rule_81_guards_keep_nothing_alive(w):
    def f(x, layer, node):
        return layer(x) * node.n

    g = w.compile(f)
    for _ in range(3):
        layer, node = nn.Linear(3, 3), Node()
        node.n = 2
        weight, data = weakref.ref(layer.weight), weakref.ref(node)
        w.call(g, T(1, 3), layer, node)
        w.call(g, T(1, 3), layer, node)
        del layer, node
        gc.collect()
        w.see(weight() is None, data() is None)


@rule
def test_rule_81_globals_die(w):
    holder = {"node": Node()}
    holder["node"].n = 2

    def f(x):
        return x * holder["node"].n

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    ref = weakref.ref(holder["node"])
    holder["node"] = types.SimpleNamespace(n=4)
    w.see(ref() is None)
    w.call(g, T())


@rule
def test_rule_81_compiled_closure_dies(w):
    def make():
        node = Node()
        node.n = 3
        fn = w.compile(lambda x: x * node.n, count=False)
        fn(T())
        fn(T())
        return fn, weakref.ref(node)

    fn, ref = make()
    w.call(lambda: fn(T()))
    del fn
    gc.collect()
    w.see(ref() is None)


@rule
def test_rule_82_new_object_at_an_old_address(w):
    def f(x, node):
        return x * node.n, isinstance(node, Node), node is KEPT

    KEPT = None
    g = w.compile(f)
    for i in range(12):
        node = Node() if i % 3 else types.SimpleNamespace()
        node.n = i % 4
        w.call(g, T(), node)
        del node
    for i in range(8):
        cls = type("Node", (), {"n": i, "scale": lambda self, i=i: i})
        w.call(lambda: w.compile(lambda x, node: x * node.n * node.scale())(T(), cls()))
        w.call(lambda: g(T(), cls()))
        del cls
        gc.collect()


@rule
def test_rule_83_dead_levels(w):
    root = {"a": {"b": {"c": 2}}}

    def f(x):
        return x * root["a"]["b"]["c"]

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    for value in ({"b": 1}, {}, None, {"b": {"c": 3}}, {"b": {"c": {}}}):
        root["a"] = value
        gc.collect()
        w.call(g, T())
    root.clear()
    w.call(g, T())


@rule
def test_rule_84_death_in_the_recording_call(w):
    log = []

    class Loud:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            log.append(self.name)

    def f(x):
        a = Loud("a")
        log.append("made")
        a = Loud("b")
        log.append("replaced")
        Loud("c")
        log.append("dropped")
        items = [Loud("d"), Loud("e")]
        items.pop(0)
        log.append("popped")
        del a
        log.append("deleted")
        return x * len(items)

    g = w.compile(f)
    for _ in range(3):
        w.call(g, T())
        w.see(log)
        log.clear()


@rule
def test_rule_84_tensors_die_on_time(w):
    log = []

    def f(x):
        y = x * 2
        ref = weakref.ref(y, lambda r: log.append("died"))
        z = y + 1
        log.append("before")
        del y
        log.append("after")
        return z, ref() is None

    g = w.compile(f)
    for _ in range(3):
        w.call(g, T())
        w.see(log)


@rule
def test_rule_85_objects_whose_birth_shows(w):
    log = []

    class Meta(type):
        def __call__(cls, *args):
            log.append(("call", args))
            return super().__call__(*args)

    class Made(metaclass=Meta):
        count = 0

        def __new__(cls, n):
            Made.count += 1
            log.append("new")
            return super().__new__(cls)

        def __init__(self, n):
            log.append("init")
            self.n = n

        def __init_subclass__(cls):
            log.append(("subclass", cls.__name__))

    def f(x):
        made = Made(2)

        class Local(Made):
            k = made.n

        def gen():
            yield made.n
            log.append("resumed")
            yield 3

        it = gen()
        return x * made.n + next(it), Local.k, Made.count

    g = w.compile(f)
    for _ in range(5):
        w.call(g, T())
        w.see(log, Made.count)
    Made.__init__ = lambda self, n: setattr(self, "n", n * 5)
    w.call(g, T())
    w.see(log)


@rule
def test_rule_85_new_that_returns_something_else(w):
    pool = {}

    class Pooled:
        def __new__(cls, key):
            if key not in pool:
                pool[key] = object.__new__(cls)
            return pool[key]

        def __init__(self, key):
            self.n = getattr(self, "n", 0) + 1

    def f(x, key):
        return x * Pooled(key).n, Pooled("a") is Pooled(key)

    g = w.compile(f)
    for key in ("a", "a", "b", "b", "a"):
        w.call(g, T(), key)
        w.see(pool)


@rule
def test_rule_86_results_are_fresh(w):
    def f(x):
        shared = [1]
        loop = [shared, shared]
        loop.append(loop)
        node = Node()
        node.me = node
        node.items = shared

        def fn():
            return shared

        def other():
            nonlocal shared
            shared = None
        return loop, node, fn, other, {"k": shared}, x + 1

    g = w.compile(f)
    results = [w.call(g, T()) for _ in range(3)]
    for r in results:
        w.see(r[0][2] is r[0], r[0][0] is r[0][1], r[1].me is r[1], r[1].items is r[0][0], r[2]() is r[0][0])
        r[3]()
        w.see(r[2](), r[4]["k"] is r[0][0])
        r[0].append("mine")
    w.see([len(r[0]) for r in results], [a[1] is b[1] for a, b in zip(results, results[1:])])


@rule
def test_rule_86_no_user_protocol_runs(w):
    log = []

    class Odd:
        def __init__(self, n):
            log.append("init")
            self.n = n

        def __copy__(self):
            log.append("copy")
            return self

        def __reduce_ex__(self, protocol):
            log.append("reduce")
            return Odd, (1,)

        def __setattr__(self, name, value):
            log.append(name)
            object.__setattr__(self, name, value)

    def f(x, n):
        odd = Odd(n)
        return odd, x * odd.n, copy.copy(odd) is odd

    g = w.compile(f)
    for n in (1, 1, 2):
        w.call(g, T(), n)
        w.see(log)


@rule
def test_rule_87_weak_references(w):
    node = Node()
    holder = {"ref": weakref.ref(node), "set": weakref.WeakSet([node]), "values": weakref.WeakValueDictionary(n=node)}

    def f(x):
        alive = holder["ref"]()
        return (x * 2 if alive is not None else x * 3), len(holder["set"]), holder["values"].get("n") is None

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    del node
    w.call(g, T())
    node = Node()
    holder["ref"] = weakref.ref(node)
    w.call(g, T())
    other = Node()
    holder["set"].add(other)
    holder["values"]["n"] = other
    w.call(g, T())


@rule
def test_rule_87_proxy(w):
    node = Node()
    node.n = 2
    proxy = weakref.proxy(node)

    def f(x):
        return x * proxy.n

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    node.n = 3
    w.call(g, T())
    del node
    w.call(g, T())
