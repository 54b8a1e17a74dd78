"""Paths, facts and misses in Python words."""

import functools
import types

import pytest


class MyModule:
    def forward(self, x):
        return x


class Slotted:
    __slots__ = ("a", "b")


free = 1


def outer():
    captured = [1]

    def fn(self, x, n=7, *, k=2):
        return captured, free

    return fn


FN = outer()


def source(probe, *vals):
    """Text of the last of a chain of values, each read from the one before."""
    chain = []
    for i, (access, key) in enumerate(vals):
        chain.append(("src", access, 0, i, key))
    facts = [("TYPE", 0, i + 1, 0, Slotted, 0) for i, (a, _) in enumerate(vals[:-1]) if vals[i + 1][0] == "MEMBER"]
    return probe.Entry(FN, chain, facts).source(len(chain))


@pytest.mark.parametrize(
    "chain, text",
    [
        ([("LOCAL", 1)], "L['x']"),
        ([("LOCAL", 0), ("IATTR", "_modules"), ("DICT_ITEM", "lin")], "L['self']._modules['lin']"),
        ([("LOCAL", 0), ("INSTDICT", 0), ("DICT_ITEM", "lin")], "L['self'].lin"),
        ([("LOCAL", 0), ("INSTDICT", 0), ("DICT_ITEM", 3)], "L['self'].__dict__[3]"),
        ([("LOCAL", 0), ("INSTDICT", 0)], "L['self'].__dict__"),
        ([("FUNC", 0), ("GLOBALS", 0), ("DICT_ITEM", "torch"), ("INSTDICT", 0), ("DICT_ITEM", "nn")], "G['torch'].nn"),
        ([("FUNC", 0), ("GLOBALS", 0)], "G"),
        ([("FUNC", 0), ("BUILTINS", 0), ("DICT_ITEM", "len")], "__builtins__['len']"),
        ([("FUNC", 0), ("CLOSURE", 0), ("CELL", 0), ("LIST_ITEM", 2)], "L['captured'][2]"),
        ([("FUNC", 0), ("CLOSURE", 0)], "fn.__closure__[0]"),
        ([("FUNC", 0), ("DEFAULT", 0)], "fn.__defaults__[0]"),
        ([("FUNC", 0), ("KWDEFAULT", "k")], "fn.__kwdefaults__['k']"),
        ([("LOCAL", 0), ("TYPE", 0), ("TYPEATTR", "limit")], "type(L['self']).limit"),
        ([("LOCAL", 1), ("TUPLE_ITEM", 0), ("DICT_KEY", 1)], "list(L['x'][0])[1]"),
        ([("LOCAL", 1), ("METHOD_FUNC", 0), ("CLOSURE", 1)], "L['x'].__func__.__closure__[1]"),
        ([("LOCAL", 1), ("METHOD_SELF", 0)], "L['x'].__self__"),
        ([("LOCAL", 1), ("PARTIAL_FUNC", 0), ("GLOBALS", 0), ("DICT_ITEM", "a")], "L['x'].func.__globals__['a']"),
        ([("LOCAL", 1), ("PARTIAL_ARGS", 0)], "L['x'].args"),
        ([("LOCAL", 1), ("PARTIAL_KW", 0)], "L['x'].keywords"),
        ([("LOCAL", 1), ("COMPILED_FUNC", 0)], "L['x'].__wrapped__"),
        ([("LOCAL", 1), ("CELL", 0)], "L['x'].cell_contents"),
        ([("LOCAL", 1), ("MEMBER", Slotted.__basicsize__ - 8)], "L['x'].b"),
        ([("LOCAL", 1), ("DICT_ITEM", (1, "a"))], "L['x'][(1, 'a')]"),
        ([("LOCAL", 1), ("DICT_ITEM", MyModule)], "L['x'][MyModule]"),
    ],
)
def test_sources(probe, chain, text):
    assert source(probe, *chain) == text


@pytest.mark.parametrize(
    "kind, ref, num, text",
    [
        ("TYPE", MyModule, 0, "type(L['x']) is MyModule"),
        ("TYPE", dict, 0, "type(L['x']) is dict"),
        ("TYPE_VERSION", MyModule, 5, "type(L['x']) is MyModule, and no attribute of the class was set or deleted"),
        ("TYPE_TAG", None, 5, "no attribute of class L['x'] or its bases was set or deleted"),
        ("ID", None, 0, "L['x'] is None"),
        ("ID", MyModule, 0, "L['x'] is MyModule"),
        ("NOT_ID", None, 0, "L['x'] is not None"),
        ("EQ", 7, 0, "L['x'] == 7"),
        ("EQ", "relu", 0, "L['x'] == 'relu'"),
        ("EQ", None, 0, "L['x'] is None"),
        ("LEN", None, 3, "len(L['x']) == 3"),
        ("TRUE", None, 1, "bool(L['x']) is True"),
        ("TRUE", None, 0, "bool(L['x']) is False"),
        ("HAS_KEY", "a", 0, "'a' in L['x']"),
        ("LACKS_KEY", "a", 0, "'a' not in L['x']"),
        ("LACKS_ATTR", "hooks", 0, "'hooks' not in vars(L['x'])"),
        ("CLASS_LACKS", "hooks", 0, "L['x'] has no attribute 'hooks'"),
        ("DICT_KEYS", ("a", 2), 0, "list(L['x']) == ['a', 2]"),
        ("CODE", FN.__code__, 0, f"L['x'] runs {FN.__qualname__} (test_guard_words.py:{FN.__code__.co_firstlineno})"),
        ("NDEFAULTS", None, 2, "L['x'] has 2 defaults"),
        ("NDEFAULTS", None, 1, "L['x'] has 1 default"),
        ("KWDEFAULT_LACKS", "k", 0, "L['x'] has no default for 'k'"),
        ("CELL_EMPTY", None, 0, "L['x'] is unbound"),
    ],
)
def test_facts(probe, kind, ref, num, text):
    v = probe.Entry(FN, [("src", "LOCAL", 0, 0, 1)], [(kind, 0, 1, 0, ref, num)])
    assert v.fact(0) == text


def test_facts_about_two_values_and_state(probe):
    vals = [("src", "LOCAL", 0, 0, 0), ("src", "LOCAL", 0, 0, 1)]
    facts = [("SAME", 0, 1, 2, None, 0), ("NOT_SAME", 0, 1, 2, None, 0), ("CALL_IS", 0, 0, 0, (len, "ab", 2), 0)]
    v = probe.Entry(FN, vals, facts)
    assert [v.fact(i) for i in range(3)] == ["L['self'] is L['x']", "L['self'] is not L['x']", "len('ab') == 2"]


def miss(probe, kind, ref, num, obj):
    v = probe.Entry(FN, [("src", "LOCAL", 0, 0, 1)], [(kind, 0, 1, 0, ref, num)])
    ok, _, _, _, text = v.eval(0, {1: obj})
    assert not ok
    return text


def test_misses_tell_old_and_new(probe):
    assert miss(probe, "EQ", 7, 0, 8) == "x == 7 (now 8)"
    assert miss(probe, "EQ", "a", 0, MyModule()) == "x == 'a' (now <MyModule object>)"
    assert miss(probe, "TYPE", dict, 0, [1]) == "type(x) is dict (now list)"
    assert miss(probe, "LEN", None, 3, [1]) == "len(x) == 3 (now 1)"
    assert miss(probe, "ID", None, 0, 5) == "x is None (now 5)"
    assert miss(probe, "DICT_KEYS", ("a",), 0, {"b": 1, 2: 3}) == "list(x) == ['a'] (now ['b', 2])"
    assert miss(probe, "HAS_KEY", "a", 0, {}) == "'a' in x"
    places = [f"test_guard_words.py:{code.co_firstlineno}" for code in (FN.__code__, outer.__code__)]
    assert miss(probe, "CODE", FN.__code__, 0, outer) == f"x runs {FN.__qualname__} ({places[0]}) (now the code of outer, {places[1]})"
    assert miss(probe, "TYPE_VERSION", MyModule, 1, MyModule()) == "an attribute of MyModule, the class of x, was set or deleted"
    assert miss(probe, "TYPE_VERSION", MyModule, 1, 3) == "type(x) is MyModule (now int)"


def test_misses_below_the_root(probe):
    vals = [("src", "LOCAL", 0, 0, 0), ("src", "IATTR", 0, 1, "table"), ("src", "DICT_ITEM", 0, 2, "k")]
    facts = [("TYPE", 0, 1, 0, MyModule, 0), ("TYPE", 0, 2, 0, dict, 0), ("EQ", 0, 3, 0, 1, 0)]
    v = probe.Entry(FN, vals, facts)
    obj = MyModule()
    assert v.eval(0, {1: obj})[4] == "self.table is no longer there"
    obj.table = {"k": 2}
    assert v.eval(0, {1: obj})[4] == "self.table['k'] == 1 (now 2)"
    obj.table = {}
    assert v.eval(0, {1: obj})[4] == "self.table['k'] is no longer there"


def test_long_values_are_cut(probe):
    text = miss(probe, "EQ", "a" * 1000, 0, "b")
    assert len(text) < 200 and "..." in text


def test_no_user_code_in_texts(probe):
    class Loud:
        def __repr__(self):
            raise AssertionError("no user code")

    assert miss(probe, "EQ", 7, 0, Loud()).endswith("Loud object>)")
    assert miss(probe, "EQ", 7, 0, (Loud(),)) == "x == 7 (now <tuple object>)"
    part = functools.partial(max)
    assert miss(probe, "ID", len, 0, part) == "x is len (now <partial object>)"
    assert miss(probe, "ID", len, 0, types) == "x is len (now types)"
