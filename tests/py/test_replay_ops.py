"""Every kind of step against the statement that it repeats: result, changed operands, exception and message."""

import copy
import os
import shutil
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "replay"))
import program  # noqa: E402
from program import Program  # noqa: E402

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11) or shutil.which("cc") is None,
                                reason="frames are made on CPython 3.11 only; needs a C compiler")

OPERATORS = "+ & // << @ * % | ** >> - / ^".split()


class Matrix:
    def __init__(self, v):
        self.v = v

    def __matmul__(self, other):
        return self.v * 100 + other.v

    def __eq__(self, other):
        return self.v == other.v


class Loud:
    def __getattr__(self, name):
        raise LookupError(name)

    def __len__(self):
        return -1

    def __bool__(self):
        raise OSError("bool")


class Mapping:
    def keys(self):
        return ["a", "b"]

    def __getitem__(self, key):
        return key * 2


@pytest.fixture(scope="module", autouse=True)
def extension(tmp_path_factory):
    Program.ext = program.build(str(tmp_path_factory.mktemp("replay")))


def owner(*args):
    pass


def outcome(call, args):
    """("value", result, operands afterwards) or ("error", type, message, operands)."""
    args = [copy.deepcopy(a) if isinstance(a, (list, dict, set)) and a is not globals() else a for a in args]
    try:
        return "value", call(*args), args
    except Exception as e:
        return "error", type(e), str(e), args


def check(kind, eager, *args, **more):
    def replay(*operands):
        p = Program(owner)
        vids = [p.local(i) for i in range(len(operands))]
        made = p.step(kind, *[0 if a is None and more.get("none_is_0") else v for v, a in zip(vids, operands)],
                      flags=more.get("flags", ""), **{k: v for k, v in more.items() if k not in ("none_is_0", "flags")})
        p.step("return", made, out=False)
        return p.run(*operands)

    want, got = outcome(eager, args), outcome(replay, args)
    assert got == want, (kind, args, more)
    assert type(got[1]) is type(want[1])


@pytest.mark.parametrize("number", range(26))
def test_binary(number):
    op = OPERATORS[number % 13]
    space = {}
    body = f"a {op}= b\n    return a" if number >= 13 else f"return a {op} b"
    exec(f"def eager(a, b):\n    {body}", space)
    pairs = [(7, 3), (2.5, 0.5), ([1], [2]), ({1, 2}, {2, 3}), ("a", "b"), (1, "x"), (True, 0), (Matrix(2), Matrix(3))]
    for a, b in pairs:
        check("binary", space["eager"], a, b, imm=number)


def test_unary_compare_contains_is():
    for a in (3, -2.5, True, "s", [], None, Loud()):
        for imm, eager in enumerate([lambda x: -x, lambda x: +x, lambda x: ~x, lambda x: not x]):
            check("unary", eager, a, imm=imm)
        check("truth", bool, a)
        check("len", len, a)
    compare = [lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a > b,
               lambda a, b: a >= b]
    for a, b in [(1, 2), (2.0, 2), ("a", 1), ([1], [1]), (float("nan"), 1.0)]:
        for imm, eager in enumerate(compare):
            check("compare", eager, a, b, imm=imm)
        check("is", lambda x, y: x is y, a, b)
        check("is", lambda x, y: x is not y, a, b, imm=1)
    for a, b in [(1, [1]), (3, {1}), ("x", "xyz"), (1, 5), ([], {1: 2})]:
        check("contains", lambda x, y: x in y, a, b)
        check("contains", lambda x, y: x not in y, a, b, imm=1)


def put(a, b, c):
    a[b] = c


def remove(a, b):
    del a[b]


def test_access():
    for a, b in [([1, 2], 1), ([1], 5), ({"k": 3}, "k"), ({}, "k"), (5, 0), ((1, 2, 3), slice(0, 2))]:
        check("subscr", lambda x, y: x[y], a, b)
        check("set_subscr", put, a, b, 9)
        check("del_subscr", remove, a, b)
    for a in (1j, [], Loud(), None):
        check("getattr", lambda x: x.real, a, ref="real")
    check("getattr", lambda x: x.real, Loud(), ref="real")
    holder = Matrix(1)
    check("setattr", lambda x, v: setattr(x, "v", v), holder, 5, ref="v")
    assert holder.v == 5
    check("delattr", lambda x: delattr(x, "nothing"), holder, ref="nothing")
    check("setattr", lambda x, v: setattr(x, "v", v), 3, 5, ref="v")


def test_calls():
    def f(*args, **kwargs):
        return args, kwargs

    check("call", lambda g, a, b: g(a, k=b), f, 1, 2, ref=("k",))
    check("call", lambda g: g(), f)
    check("call", lambda g, a: g(a), 5, 1)
    check("call", lambda g, *a: g(*a), f, *range(40))
    check("call_ex", lambda g, a: g(*a), f, (1, 2))
    check("call_ex", lambda g, a, k: g(*a, **k), f, [1, 2], {"x": 1})
    check("call_ex", lambda g, a: g(*a), f, 5)
    check("call_ex", lambda g, a: g(*a), print, 5)


def test_format():
    for value in ("text", 3.14159, [1, "é"], None):
        check("format", lambda v: f"{v}", value, imm=0)
        check("format", lambda v: f"{v!s}", value, imm=1)
        check("format", lambda v: f"{v!r}", value, imm=2)
        check("format", lambda v: f"{v!a}", value, imm=3)
        check("format", lambda v, s: f"{v:{s}}", value, ">9", imm=4)
        check("format", lambda v, s: f"{v!r:{s}}", value, ">9", imm=6)


def test_builds():
    check("tuple", lambda *a: a, 1, 2, 3)
    check("torch.Size", lambda *a: a, 1, 2, 3)
    check("size", lambda a: a[0], (5, 6))
    check("list", lambda *a: [*a], 1, 2)
    check("set", lambda *a: {*a}, 1, 1, 2)
    check("set", lambda a: {a}, [])
    check("dict", lambda a, b, c, d: {a: b, c: d}, 1, 2, 3, 4)
    check("dict", lambda a, b: {a: b}, [], 2)
    check("slice", lambda a, b: slice(a, b), 1, 2)
    check("slice", lambda a, b, c: slice(a, b, c), 1, 2, 3)
    check("string", lambda a, b: f"{a}{b}", "é", "x")
    check("list_to_tuple", tuple, [1, 2])
    check("iter", iter, 5)


def append(a, b):
    a.append(b)


def extend(a, b):
    a[:] = [*a, *b]


def update(a, b):
    a.update({*b})


def dict_update(a, b):
    a.update({**a, **b})


def test_changes():
    check("list_append", append, [1], 2)
    check("list_extend", extend, [1], (2, 3))
    check("list_extend", extend, [1], 5)
    check("set_add", lambda s, x: s.add(x), {1}, 2)
    check("set_add", lambda s, x: s.add(x), {1}, [])
    check("set_update", update, {1}, [2, 3])
    check("set_update", update, {1}, 5)
    check("dict_update", dict_update, {1: 2}, {3: 4})
    check("dict_update", dict_update, {1: 2}, Mapping())
    check("dict_update", dict_update, {1: 2}, 5)


def test_dict_merge():
    def callee(**kwargs):
        return kwargs

    def replay(a, b):
        p = Program(owner)
        va, vb, f, none = p.local(0), p.local(1), p.const(callee), p.step("tuple", flags="pure")
        all_ = p.step("dict", flags="pure")
        p.step("dict_merge", all_, va, f, flags="mutates", out=False)
        p.step("dict_merge", all_, vb, f, flags="mutates", out=False)
        p.step("return", p.step("call_ex", f, none, all_), out=False)
        return p.run(a, b)

    for a, b in [({"x": 1}, {"y": 2}), ({"x": 1}, {"x": 2}), ({}, Mapping()), ({"a": 0}, Mapping()), ({}, 5), ({}, {3: 4}),
                 ({3: 4}, {3: 5})]:
        assert outcome(replay, (a, b)) == outcome(lambda x, y: callee(**x, **y), (a, b))


def test_imports_and_globals():
    check("import", lambda l, f, g: __import__("os.path", g, None, f, l), 0, ("join",), globals(), ref="os.path")
    check("import", lambda l, f, g: __import__("no_such_module", g, None, f, l), 0, (), globals(), ref="no_such_module")
    space = {}
    exec("def pull(m):\n    from os import path\n    return path\n"
         "def miss(m):\n    from os import nothing\n", space)
    check("import_from", space["pull"], os, ref="path")
    check("import_from", space["miss"], os, ref="nothing")
    names = {"a": 1}
    check("global_set", lambda g, v: g.__setitem__("b", v), names, 2, ref="b")
    check("global_set", lambda g: g.__delitem__("a"), names, ref="a")
    error = outcome(lambda: _delete_global({}), ())
    assert error[:3] == ("error", NameError, "name 'zzz' is not defined")


def _delete_global(namespace):
    p = Program(owner)
    made = p.step("global_set", p.local(0), 0, ref="zzz")
    p.step("return", made, out=False)
    return p.run(namespace)


def raise_it(a):
    raise a


def raise_from(a, b):
    raise a from b


def test_raise():
    class NotExc:
        pass

    def strange(*args):
        return 5

    Strange = type("Strange", (Exception,), {"__new__": strange})
    for a in (ValueError, ValueError("x"), 5, NotExc, Strange):
        check("raise", raise_it, a)
    for a, b in [(ValueError, None), (ValueError("x"), KeyError), (ValueError, 5), (ValueError, KeyError("k"))]:
        check("raise", raise_from, a, b)
    try:
        p = Program(owner)
        p.step("return", p.step("raise", p.local(0), p.local(1)), out=False)
        p.run(ValueError, KeyError)
    except ValueError as e:
        assert type(e.__cause__) is KeyError and e.__suppress_context__
    assert outcome(lambda: _bare_raise(), ())[:3] == ("error", RuntimeError, "No active exception to reraise")


def _bare_raise():
    p = Program(owner)
    p.step("return", p.step("raise"), out=False)
    return p.run()


def test_functions_methods_objects():
    def eager(a, b: int = 2, *, k: str = "d"):
        return a + b, k

    p = Program(owner)
    parts = [p.const(eager.__code__), p.const(globals()), p.const((2,)), p.const({"k": "d"}),
             p.const(("b", int, "k", str)), 0]
    made = p.step("function", *parts, ref="here.eager")
    method = p.step("method", made, p.const(5))
    obj = p.step("object", p.const(Matrix))
    p.step("return", p.step("tuple", made, method, obj), out=False)
    func, bound, thing = p.run()
    assert func(1) == eager(1) and func.__annotations__ == {"b": int, "k": str}
    assert (func.__name__, func.__qualname__, func.__module__) == ("eager", "here.eager", __name__)
    assert bound(1, k=3) == (6, 3) and bound.__self__ == 5
    assert type(thing) is Matrix and thing.__dict__ == {}
