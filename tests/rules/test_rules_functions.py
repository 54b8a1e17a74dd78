"""Section 4: functions, cells, code."""
import functools
import importlib
import sys
import types

import torch
from two_worlds import T, rule

SCALE = 2


def helper(x, n=2, *, k=1):
    return x * n * k


@rule
def test_rule_39_closures_made_on_each_call_hit(w):
    def make(n):
        def inner(x):
            return x * n
        return inner

    def f(x, fn):
        return fn(x)

    g = w.compile(f)
    w.call(g, T(), make(2))
    w.call(g, T(), make(3))
    w.call(g, T(), make(4))
    w.hit(g, T(), make(4))
    w.hit(g, T(), make(4))
    w.call(g, T(), make(2.5))


@rule
def test_rule_39_code_replaced(w):
    def callee(x):
        return x * 2

    def other(x):
        return x * 3

    def f(x):
        return callee(x)

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    old = callee.__code__
    callee.__code__ = other.__code__
    w.call(g, T())
    callee.__code__ = old
    w.call(g, T())


@rule
def test_rule_39_same_code_other_globals(w):
    def callee(x):
        return x * SCALE

    def f(x, fn):
        return fn(x)

    g = w.compile(f)
    mine = dict(globals(), SCALE=5)
    other = types.FunctionType(callee.__code__, mine)
    w.call(g, T(), callee)
    w.hit(g, T(), callee)
    w.call(g, T(), other)
    w.call(g, T(), other)
    mine["SCALE"] = 6
    w.call(g, T(), other)
    bare = types.FunctionType((lambda x: x * abs(-2)).__code__, {"__builtins__": {"abs": lambda v: 50}})
    w.call(g, T(), bare)
    w.call(g, T(), types.FunctionType(bare.__code__, {}))


@rule
def test_rule_40_defaults_in_place(w):
    def callee(x, n=2, *, k=1):
        return x * n * k

    def f(x):
        return callee(x)

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    callee.__kwdefaults__["k"] = 3
    w.call(g, T())
    callee.__defaults__ = (5,)
    w.call(g, T())
    callee.__kwdefaults__ = {"k": 7}
    w.call(g, T())
    callee.__defaults__ = None
    w.call(g, T())
    callee.__defaults__ = (1, 2)
    w.call(g, T())
    callee.__defaults__, callee.__kwdefaults__ = (1,), None
    w.call(g, T())


@rule
def test_rule_40_mutable_default(w):
    def callee(x, seen=[]):
        seen.append(len(seen))
        return x * len(seen)

    def f(x):
        return callee(x)

    g = w.compile(f)
    for _ in range(5):
        w.call(g, T())
        w.see(callee.__defaults__)
    w.hit(g, T())


@rule
def test_rule_40_defaults_of_the_compiled_function(w):
    def f(x, n=2, *args, k=3, **kw):
        return x * n * k + len(args) + len(kw)

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    f.__defaults__ = (4,)
    w.call(g, T())
    f.__kwdefaults__["k"] = 5
    w.call(g, T())
    f.__kwdefaults__ = {}
    w.call(g, T())
    w.call(g, T(), k=2)


@rule
def test_rule_41_binding(w):
    def callee(x, n=2, *args, k=1, **kw):
        return x * n * k + len(args) + sum(kw.values()), list(kw)

    def f(x, args, kw):
        return callee(x, *args, **kw)

    g = w.compile(f)
    for args, kw in (((), {}), ((), {}), ((3,), {}), ((3, 4), {}), ((), {"k": 2}), ((), {"z": 2, "a": 1}),
                     ((), {"a": 1, "z": 2}), ((3,), {"n": 2}), ([3], {"k": 2}), ((), {1: 2})):
        w.call(g, T(), args, kw)


@rule
def test_rule_41_keyword_order(w):
    def f(x, **kw):
        for v in kw.values():
            x = x * 2 + v
        return x, list(kw)

    g = w.compile(f)
    w.call(g, T(), a=1, b=2)
    w.hit(g, T(), a=1, b=2)
    w.call(g, T(), b=2, a=1)
    w.call(g, T(), a=1)
    w.call(g, x=T(), b=1)


@rule
def test_rule_42_shared_cells(w):
    def make():
        n = 1

        def get():
            return n

        def put(v):
            nonlocal n
            n = v

        def drop():
            nonlocal n
            del n
        return get, put, drop

    get, put, drop = make()
    get2, put2, _ = make()

    def f(x, reader, writer):
        a = reader()
        writer(a + 1)
        return x * reader() + a

    g = w.compile(f)
    w.call(g, T(), get, put)
    w.call(g, T(), get, put)
    w.call(g, T(), get, put2)
    w.call(g, T(), get2, put)
    w.call(g, T(), get2, put2)
    w.see(get(), get2())
    drop()
    w.call(g, T(), get, put2)
    w.call(g, T(), get, put)


@rule
def test_rule_42_own_cell(w):
    n = 2

    def f(x):
        return x * n

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    n = 3
    w.call(g, T())
    del n
    w.call(g, T())
    n = 4
    w.call(g, T())


@rule
def test_rule_43_code_of_the_compiled_function(w):
    def f(x):
        return x * 2

    def other(x):
        return x * 3

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    old = f.__code__
    f.__code__ = other.__code__
    w.call(g, T())
    w.call(g, T())
    f.__code__ = old
    w.call(g, T())


@rule
def test_rule_43_compiled_callee(w):
    def inner(x):
        return x * 2

    def other(x):
        return x * 3

    holder = {"fn": w.compile(inner)}

    def f(x):
        return holder["fn"](x) + 1

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    holder["fn"] = w.compile(other)
    w.call(g, T())
    inner.__defaults__ = (T(),)
    holder["fn"] = w.compile(inner)
    w.call(g, T())
    inner.__code__ = other.__code__
    w.call(g, T())


@rule
def test_rule_44_globals_and_builtins(w):
    def f(x):
        return x * len([1, 2]) + max(1, 2)

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    globals()["len"] = lambda v: 50
    try:
        w.call(g, T())
    finally:
        del globals()["len"]
    w.call(g, T())
    import builtins
    old = builtins.max
    builtins.max = lambda *a: 70
    try:
        w.call(g, T())
    finally:
        builtins.max = old
    w.call(g, T())


@rule
def test_rule_45_import(w):
    def f(x):
        import rules_made_up
        from rules_made_up import factor
        from rules_made_up import part
        return x * rules_made_up.factor * factor, part

    def module(factor, **more):
        mod = types.ModuleType("rules_made_up")
        mod.factor, mod.part = factor, "part"
        mod.__dict__.update(more)
        return mod

    g = w.compile(f)
    try:
        w.call(g, T())                       # no such module
        sys.modules["rules_made_up"] = module(2)
        w.call(g, T())
        w.call(g, T())
        sys.modules["rules_made_up"].factor = 3
        w.call(g, T())
        sys.modules["rules_made_up"] = module(4)
        w.call(g, T())
        del sys.modules["rules_made_up"].part
        w.call(g, T())
        sys.modules["rules_made_up"].__getattr__ = lambda name: name + " made"
        w.call(g, T())
        sys.modules["rules_made_up"] = module(4, __path__=[])
        del sys.modules["rules_made_up"].part
        sys.modules["rules_made_up.part"] = types.ModuleType("rules_made_up.part")
        w.call(g, T())
        sys.modules["rules_made_up"] = None
        w.call(g, T())
        del sys.modules["rules_made_up"]
        w.call(g, T())
    finally:
        sys.modules.pop("rules_made_up", None)
        sys.modules.pop("rules_made_up.part", None)


@rule
def test_rule_45_import_hook(w):
    import builtins

    def f(x):
        import math
        return x * math.floor(2.5)

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    old = builtins.__import__
    log = []

    def hook(name, *args):
        if name != "math":
            return old(name, *args)
        log.append(name)
        return types.SimpleNamespace(floor=lambda v: 9)

    builtins.__import__ = hook
    try:
        value = g(T())
    finally:
        builtins.__import__ = old
    w.see(value, log)
    w.call(g, T())
    w.call(lambda x: importlib.import_module("math").floor(2.5) * g(x), T())


@rule
def test_rule_46_lru_cache(w):
    ran = []

    @functools.lru_cache(maxsize=2)
    def cached(n):
        ran.append(n)
        return n + 1

    def f(x, n):
        return x * cached(n)

    g = w.compile(f)
    for n in (1, 1, 1, 2, 3, 1, 1, 4, 1):
        w.call(g, T(), n)
        w.see(ran, cached.cache_info())
    cached.cache_clear()
    w.call(g, T(), 1)
    w.see(ran, cached.cache_info())


@rule
def test_rule_46_python_cache(w):
    table = {}

    def cached(n):
        if n not in table:
            table[n] = n + 1
        return table[n]

    def f(x, n):
        return x * cached(n)

    g = w.compile(f)
    for n in (1, 1, 1, 2, 2, 1):
        w.call(g, T(), n)
        w.see(table)
    table[1] = 50
    w.call(g, T(), 1)
    table.clear()
    w.call(g, T(), 1)
    w.see(table)


@rule
def test_rule_47_function_attributes(w):
    def callee(x):
        return x

    callee.scale = 2

    def f(x):
        return x * callee.scale, callee.__name__, callee.__doc__, callee.__qualname__, callee.__annotations__

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    callee.scale = 3
    w.call(g, T())
    callee.__name__ = "renamed"
    w.call(g, T())
    callee.__doc__ = "text"
    w.call(g, T())
    callee.__annotations__ = {"x": int}
    w.call(g, T())
    callee.__annotations__["y"] = 1
    w.call(g, T())
    del callee.scale
    w.call(g, T())


@rule
def test_rule_47_wrapped(w):
    def deco(fn):
        @functools.wraps(fn)
        def inner(*args, **kw):
            return fn(*args, **kw) * inner.__wrapped__.factor
        return inner

    @deco
    def callee(x):
        return x + 1

    callee.__wrapped__.factor = 2

    def f(x):
        return callee(x)

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    callee.__wrapped__.factor = 3
    w.call(g, T())
    callee.__wrapped__ = types.SimpleNamespace(factor=9)
    w.call(g, T())


@rule
def test_rule_47_exec_and_eval(w):
    space = {"n": 2}

    def f(x, text):
        exec("m = n + 1", space)
        return x * eval(text, space) + space["m"]

    g = w.compile(f)
    w.call(g, T(), "n * 2")
    w.call(g, T(), "n * 2")
    space["n"] = 5
    w.call(g, T(), "n * 2")
    w.call(g, T(), "n * 3")
    w.call(g, T(), "n *")
