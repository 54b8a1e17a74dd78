"""Single reads and facts on live objects: every access and every fact kind, holding and not holding."""

import collections
import copy
import enum
import functools
import gc
import math
import pickle
import struct
import sys
import types

import pytest

NAN_A = struct.unpack("d", struct.pack("Q", 0x7FF8000000000000))[0]
NAN_B = struct.unpack("d", struct.pack("Q", 0x7FF8000000000001))[0]


class Plain:
    pass


class Slotted:
    __slots__ = ("a", "b")


def absent(probe, access, key, parent):
    with pytest.raises(KeyError):
        probe.read(access, key, parent)
    return True


def fact(kind, ref=None, num=0):
    return (kind, 0, 1, 0, ref, num)


# ---- references ----


def test_refs_number_by_identity(probe):
    a, b = [1], [1]
    assert probe.number([a, b, a, None, b]) == [1, 2, 1, 3, 2]


def test_refs_grow_and_release(probe):
    objs = [object() for _ in range(1000)]
    counts = [sys.getrefcount(o) for o in objs]
    assert probe.number(objs + objs) == list(range(1, 1001)) * 2
    assert [sys.getrefcount(o) for o in objs] == counts


# ---- exact comparison ----


@pytest.mark.parametrize(
    "a, b",
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (NAN_A, NAN_B),
        ("a", b"a"),
        ("ab", "ac"),
        (10**30, 10**30 + 1),
        ((1, 2), (1, 2.0)),
        ((1,), [1]),
        (complex(0.0, 0.0), complex(0.0, -0.0)),
        (slice(1, 2), slice(1, 3)),
        (range(3), range(4)),
        (frozenset([1]), frozenset([1, 2])),
        (None, False),
        ([], []),
    ],
)
def test_exact_unequal(probe, a, b):
    assert probe.exact_equal(a, b) is False
    assert probe.exact_equal(b, a) is False


def test_exact_equal(probe):
    pairs = [
        (10**30, 10**29 * 10),
        (1.5, float("1.5")),
        (math.nan, float(struct.unpack("d", struct.pack("d", math.nan))[0])),
        ("abc" * 5, "".join(["abc"] * 5)),
        (b"xyz" * 2, b"xyz" + b"xyz"),
        ((1, "a", (2.0,)), (int("1"), "a", (float("2"),))),
        (slice(1, 300, None), slice(1, int("300"), None)),
        (range(0, 1000), range(0, int("1000"))),
        (frozenset(["a", 1]), frozenset(["a", 1])),
        (3 + 4j, complex("3+4j")),
    ]
    for a, b in pairs:
        assert probe.exact_equal(a, b) is True, (a, b)
    assert probe.exact_equal(Plain, Plain)


def test_sets_that_iterate_differently_are_unequal(probe):
    # 8 and 16 fall on the same place in a small table: insertion decides the order.
    a, b = frozenset([0, 8]), frozenset([8, 0])
    assert a == b
    assert probe.exact_equal(a, b) is (list(a) == list(b))


def test_is_immutable(probe):
    for obj in (1, "a", None, ..., NotImplemented, True, 1.0, 1j, b"", (1, (2,)), slice(1), range(3), frozenset([1])):
        assert probe.is_immutable(obj), obj
    for obj in ([], {}, set(), Plain(), (1, []), slice([], None), frozenset([Plain()]), type("I", (int,), {})(1)):
        assert not probe.is_immutable(obj), obj


# ---- instances ----


def test_inline_values_are_read_without_a_dict(probe):
    obj = Plain()
    obj.a = 1
    assert probe.instance_attr(obj, "a") == 1
    with pytest.raises(KeyError):
        probe.instance_dict(obj)
    absent(probe, "INSTDICT", 0, obj)
    absent(probe, "IATTR", "nope", obj)
    assert probe.holds(fact("LACKS_ATTR", "nope"), obj)
    assert not probe.holds(fact("LACKS_ATTR", "a"), obj)
    other = Plain()
    other.zzz = 1  # adds the name to the keys that both share
    absent(probe, "IATTR", "zzz", obj)
    assert probe.holds(fact("LACKS_ATTR", "zzz"), obj)


def test_materialised_dict(probe):
    obj = Plain()
    obj.a = 1
    d = obj.__dict__
    assert probe.instance_dict(obj) is d
    assert probe.read("IATTR", "a", obj) == 1
    d["b"] = 2
    assert probe.read("IATTR", "b", obj) == 2
    del obj.a
    absent(probe, "IATTR", "a", obj)
    assert probe.holds(fact("LACKS_ATTR", "a"), obj)


def test_dicts_of_other_objects(probe):
    assert probe.instance_dict(math) is math.__dict__
    assert probe.read("IATTR", "pi", math) == math.pi

    class Table(dict):
        pass

    t = Table()
    t.x = 5
    assert probe.read("IATTR", "x", t) == 5

    class Big(int):
        pass

    n = Big(10**40)
    n.x = 7
    assert probe.read("IATTR", "x", n) == 7
    absent(probe, "IATTR", "x", 3)
    assert probe.holds(fact("LACKS_ATTR", "x"), 3)
    fn = lambda: 0
    fn.note = "n"
    assert probe.read("IATTR", "note", fn) == "n"
    if sys.version_info < (3, 12):
        assert probe.read("IATTR", "instance_method", type("C", (), {"instance_method": 3})) == 3


# ---- paths ----


def test_function_paths(probe):
    x = [1]

    def fn(a, b=10, *, k=20):
        return x

    assert probe.read("GLOBALS", 0, fn) is globals()
    assert probe.read("BUILTINS", 0, fn) is fn.__builtins__
    assert probe.read("DEFAULT", 0, fn) == 10
    absent(probe, "DEFAULT", 1, fn)
    assert probe.read("KWDEFAULT", "k", fn) == 20
    absent(probe, "KWDEFAULT", "j", fn)
    cell = probe.read("CLOSURE", 0, fn)
    assert cell is fn.__closure__[0]
    assert probe.read("CELL", 0, cell) is x
    absent(probe, "CELL", 0, types.CellType())
    absent(probe, "CLOSURE", 1, fn)
    for access in ("GLOBALS", "BUILTINS", "DEFAULT", "CLOSURE", "CELL"):
        absent(probe, access, 0, "not a function")


def test_class_paths(probe):
    class Base:
        attr = [1]

    class Child(Base):
        pass

    assert probe.read("TYPE", 0, Child()) is Child
    assert probe.read("TYPEATTR", "attr", Child) is Base.attr
    absent(probe, "TYPEATTR", "nope", Child)
    absent(probe, "TYPEATTR", "attr", Child())


def test_member_path(probe):
    obj = Slotted()
    obj.b = [1]
    size = Plain.__basicsize__
    offsets = range(object.__basicsize__, Slotted.__basicsize__, 8)
    assert [o for o in offsets if found_at(probe, o, obj) is obj.b] and size
    absent(probe, "MEMBER", offsets[0], obj)  # a is not set
    absent(probe, "MEMBER", Slotted.__basicsize__, obj)
    absent(probe, "MEMBER", 0, obj)


def found_at(probe, offset, obj):
    try:
        return probe.read("MEMBER", offset, obj)
    except KeyError:
        return None


def test_container_paths(probe):
    d = {"a": 1, 2: "b", (1, "x"): 3, None: 4, Plain: 5}
    for key, value in d.items():
        assert probe.read("DICT_ITEM", key, d) == value
    absent(probe, "DICT_ITEM", "zz", d)
    assert [probe.read("DICT_KEY", i, d) for i in range(5)] == list(d)
    absent(probe, "DICT_KEY", 5, d)
    del d["a"]
    assert probe.read("DICT_KEY", 0, d) == 2
    assert probe.read("LIST_ITEM", 1, [1, 2]) == 2
    absent(probe, "LIST_ITEM", 2, [1, 2])
    absent(probe, "LIST_ITEM", 0, (1, 2))
    assert probe.read("TUPLE_ITEM", 1, (1, 2)) == 2
    absent(probe, "TUPLE_ITEM", 2, (1, 2))
    assert probe.read("DICT_ITEM", "a", collections.OrderedDict(a=1)) == 1


def test_method_and_partial_paths(probe):
    obj = Plain()
    bound = types.MethodType(Plain, obj)
    assert probe.read("METHOD_FUNC", 0, bound) is Plain
    assert probe.read("METHOD_SELF", 0, bound) is obj
    items = []
    assert probe.read("METHOD_SELF", 0, items.append) is items
    absent(probe, "METHOD_FUNC", 0, items.append)
    part = functools.partial(max, 1, key=str)
    assert probe.read("PARTIAL_FUNC", 0, part) is max
    assert probe.read("PARTIAL_ARGS", 0, part) == (1,)
    assert probe.read("PARTIAL_KW", 0, part) == {"key": str}
    absent(probe, "PARTIAL_FUNC", 0, bound)
    assert probe.read("COMPILED_FUNC", 0, probe.Wrapper(max)) is max
    absent(probe, "COMPILED_FUNC", 0, bound)


# ---- keys ----


class Sly:
    """Equal to anything with the same hash, and tells when it is asked."""

    asked = 0

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return hash(self.value)

    def __eq__(self, other):
        Sly.asked += 1
        return other == self.value


def test_user_keys_are_never_asked(probe):
    d = {Sly("a"): 1, "b": 2}
    Sly.asked = 0
    assert probe.read("DICT_ITEM", "b", d) == 2
    absent(probe, "DICT_ITEM", "a", d)
    assert not probe.holds(fact("HAS_KEY", "a"), d)
    assert not probe.holds(fact("LACKS_KEY", "a"), d)
    assert not probe.holds(fact("LACKS_KEY", Sly("b")), d)
    assert Sly.asked == 0


def test_equal_numbers_are_one_key(probe):
    d = {True: "one", 2.0: "two", "s": 0}
    for key in (1, True, 1.0, 1 + 0j):
        assert probe.read("DICT_ITEM", key, d) == "one"
        assert probe.holds(fact("HAS_KEY", key), d)
    assert probe.read("DICT_ITEM", 2, d) == "two"
    assert probe.holds(fact("LACKS_KEY", 3), d)


class Point(collections.namedtuple("Point", "x y")):
    pass


class Colour(enum.Enum):
    RED = 1


class Loud(enum.Enum):
    RED = 1

    def __hash__(self):
        raise AssertionError("guards run no user code")


def again(key):
    """The key, made anew."""
    return key.__self__.append if isinstance(key, types.BuiltinMethodType) and isinstance(key.__self__, list) else copy.copy(pickle.loads(pickle.dumps(key)))


KEYS = [len, math.sin, [1].append, (), (1,), (1, (2.5, ("a", b"a"))), (None, ..., Plain), (Colour.RED, 1), (len, (Colour.RED,)), Point(1, 2),
        frozenset(), frozenset([1]), frozenset(["a", b"a", 2.0, None, (1, Colour.RED)]), frozenset([frozenset([1]), frozenset(range(100))]),
        (frozenset("ab"), ("c",)), tuple(range(50)), (-1, -2, 1 << 70), Colour.RED]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: type(key).__name__)
def test_keys_are_hashed_and_compared_as_dicts_do_it(probe, key):
    table = {k: i for i, k in enumerate(KEYS)}
    for same in (key, again(key)):
        assert probe.read("DICT_ITEM", same, table) == KEYS.index(key)
        assert probe.holds(fact("HAS_KEY", same), table)
        assert not probe.holds(fact("LACKS_KEY", same), table)
    del table[key]
    absent(probe, "DICT_ITEM", key, table)
    assert probe.holds(fact("LACKS_KEY", key), table)
    assert not probe.holds(fact("HAS_KEY", key), table)


def test_equal_keys_of_different_classes(probe, torch):
    d = {(1, 2): "pair", frozenset([1, (2,)]): "set", (torch.device("cpu"), torch.float32): "device"}
    for key in (Point(1, 2), (True, 2.0), torch.Size([1, 2])):
        assert d[key] == "pair" == probe.read("DICT_ITEM", key, d)
    assert probe.read("DICT_ITEM", frozenset([(2.0,), True]), d) == "set"
    assert probe.read("DICT_ITEM", (torch.device("cpu"), torch.float32), d) == "device"
    assert probe.read("DICT_ITEM", (1, 2), {torch.Size([1, 2]): 5}) == 5
    assert probe.holds(fact("LACKS_KEY", torch.Size([2, 1])), d)
    assert probe.read("DICT_ITEM", torch.sin, {torch.sin: 1, torch.cos: 2}) == 1


def test_sets_in_another_order(probe):
    """Items that share a place in the table lie in the order in which they came."""
    one, other = frozenset([0, 8, 16]), frozenset([16, 8, 0])
    assert list(one) != list(other)
    assert probe.read("DICT_ITEM", other, {one: 1}) == 1
    assert probe.read("DICT_ITEM", (other,), {(one,): 1}) == 1
    assert probe.holds(fact("LACKS_KEY", frozenset([0, 8, 24])), {one: 1})


def test_user_items_of_keys_are_never_asked(probe):
    Sly.asked = 0
    for mine, theirs in (((Sly(1), 2), (1, 2)), ((1, 2), (Sly(1), 2)), (frozenset([1]), frozenset([Sly(1)])), ((3, ("a",)), (3, (Sly("a"),)))):
        assert hash(mine) == hash(theirs)
        for kind in ("HAS_KEY", "LACKS_KEY"):
            assert not probe.holds(fact(kind, mine), {theirs: 1})
    assert not probe.holds(fact("LACKS_KEY", (Loud.__members__["RED"],)), {})
    assert Sly.asked == 0


def test_lookup_agrees_with_dict(probe):
    for n in (0, 1, 5, 100, 300, 70000):
        d = {f"k{i}": i for i in range(n)}
        m = {i: -i for i in range(n)}
        for i in range(0, n + 2, max(1, n // 50)):
            assert probe.holds(fact("HAS_KEY", f"k{i}"), d) is (i < n)
            assert probe.holds(fact("LACKS_KEY", i), m) is (i >= n)
        for i in range(0, n, 3):
            del d[f"k{i}"]
            del m[i]
        for i in range(0, n, max(1, n // 50)):
            assert probe.holds(fact("HAS_KEY", "".join(["k", str(i)])), d) is (f"k{i}" in d)
            assert probe.holds(fact("HAS_KEY", i), m) is (i in m)


# ---- facts ----


def test_type_facts(probe):
    class C:
        pass

    class D:
        pass

    obj = C()
    tag = probe.type_tag(C)
    assert tag
    assert probe.holds(fact("TYPE", C), obj)
    assert probe.holds(fact("TYPE_VERSION", C, tag), obj)
    assert probe.holds(fact("TYPE_TAG", None, tag), C)
    assert not probe.holds(fact("TYPE_TAG", None, tag), obj)
    assert probe.holds(fact("CLASS_LACKS", "attr"), C)
    assert not probe.holds(fact("CLASS_LACKS", "__init__"), C)
    assert not probe.holds(fact("CLASS_LACKS", "attr"), obj)
    C.attr = 1
    assert not probe.holds(fact("CLASS_LACKS", "attr"), C)
    assert not probe.holds(fact("TYPE_VERSION", C, tag), obj)
    assert not probe.holds(fact("TYPE_TAG", None, tag), C)
    assert not probe.holds(fact("TYPE_VERSION", C, 0), obj)
    obj.__class__ = D
    assert not probe.holds(fact("TYPE", C), obj)


def test_value_facts(probe):
    assert probe.holds(fact("ID", Plain), Plain)
    assert not probe.holds(fact("ID", None), Plain)
    assert probe.holds(fact("ID", None), None)
    assert probe.holds(fact("NOT_ID", None), 3)
    assert not probe.holds(fact("NOT_ID", None), None)
    assert probe.holds(fact("EQ", 7), 7)
    assert not probe.holds(fact("EQ", 7), 7.0)
    assert probe.holds(fact("EQ", None), None)


def test_length_and_truth(probe):
    filled = [[1], (1,), {1: 1}, {1}, frozenset([1]), "a", b"a", bytearray(b"a"), range(1), collections.OrderedDict(a=1)]
    empty = [[], (), {}, set(), frozenset(), "", b"", bytearray(), range(0), collections.OrderedDict()]
    for obj in filled:
        assert probe.holds(fact("LEN", None, 1), obj), obj
        assert not probe.holds(fact("LEN", None, 2), obj)
        assert probe.holds(fact("TRUE", None, 1), obj)
        assert not probe.holds(fact("TRUE", None, 0), obj)
    for obj in empty:
        assert probe.holds(fact("LEN", None, 0), obj), obj
        assert probe.holds(fact("TRUE", None, 0), obj), obj
    for obj in (0, 0.0, 0j, False, None):
        assert probe.holds(fact("TRUE", None, 0), obj)
    for obj in (5, 0.5, 1j, True, math.nan, -1):
        assert probe.holds(fact("TRUE", None, 1), obj)

    class Sized(list):
        def __len__(self):
            raise AssertionError("guards run no user code")

    assert not probe.holds(fact("LEN", None, 0), Sized())
    assert not probe.holds(fact("TRUE", None, 0), Sized())


def test_key_facts_want_exact_dicts(probe):
    class Table(dict):
        def __contains__(self, key):
            raise AssertionError("guards run no user code")

    assert not probe.holds(fact("HAS_KEY", "a"), Table(a=1))
    assert not probe.holds(fact("LACKS_KEY", "b"), Table(a=1))
    assert not probe.holds(fact("LACKS_KEY", "b"), collections.defaultdict(int))
    assert not probe.holds(fact("LACKS_KEY", "b"), "text")
    assert probe.holds(fact("LACKS_KEY", "b"), collections.OrderedDict(a=1))


def test_key_order(probe):
    d = {"a": 1, 2: 2, Plain: 3}
    assert probe.holds(fact("DICT_KEYS", ("a", 2, Plain)), d)
    assert not probe.holds(fact("DICT_KEYS", (2, "a", Plain)), d)
    assert not probe.holds(fact("DICT_KEYS", ("a", 2)), d)
    del d["a"]
    d["a"] = 1
    assert probe.holds(fact("DICT_KEYS", (2, Plain, "a")), d)
    ordered = collections.OrderedDict(a=1, b=2)
    assert probe.holds(fact("DICT_KEYS", ("a", "b")), ordered)
    ordered.move_to_end("a")
    assert not probe.holds(fact("DICT_KEYS", ("a", "b")), ordered)
    assert probe.holds(fact("DICT_KEYS", ("b", "a")), ordered)
    assert probe.holds(fact("DICT_KEYS", ("a",)), collections.defaultdict(int, a=1))
    assert not probe.holds(fact("DICT_KEYS", ("b",)), collections.defaultdict(int, a=1))


def test_function_facts(probe):
    def fn(a, b=1, *, k=2):
        pass

    def plain():
        pass

    assert probe.holds(fact("CODE", fn.__code__), fn)
    assert not probe.holds(fact("CODE", fn.__code__), plain)
    assert probe.holds(fact("NDEFAULTS", None, 1), fn)
    assert probe.holds(fact("NDEFAULTS", None, 0), plain)
    assert not probe.holds(fact("NDEFAULTS", None, 0), fn)
    assert probe.holds(fact("KWDEFAULT_LACKS", "z"), fn)
    assert not probe.holds(fact("KWDEFAULT_LACKS", "k"), fn)
    assert probe.holds(fact("KWDEFAULT_LACKS", "k"), plain)
    for kind, ref, num in (("CODE", fn.__code__, 0), ("NDEFAULTS", None, 0), ("KWDEFAULT_LACKS", "k", 0)):
        assert not probe.holds(fact(kind, ref, num), "text")


def test_cell_and_alias_facts(probe):
    assert probe.holds(fact("CELL_EMPTY"), types.CellType())
    assert not probe.holds(fact("CELL_EMPTY"), types.CellType(1))
    a, b = [], []
    assert probe.holds(("SAME", 0, 1, 2, None, 0), a, a)
    assert not probe.holds(("SAME", 0, 1, 2, None, 0), a, b)
    assert probe.holds(("NOT_SAME", 0, 1, 2, None, 0), a, b)
    assert not probe.holds(("NOT_SAME", 0, 1, 2, None, 0), a, a)


def test_state_facts(probe):
    assert probe.holds(fact("CALL_IS", (len, "abc", 3)), None)
    assert not probe.holds(fact("CALL_IS", (len, "abc", 4)), None)
    assert not probe.holds(fact("CALL_IS", (len, 3, 4)), None)  # raises
    assert probe.holds(fact("CALL_IS", (gc.isenabled, gc.isenabled())), None)


def test_reads_leave_reference_counts_alone(probe):
    obj = Plain()
    obj.a = value = ["v"]
    d = {"k": value, 5: value}
    before = sys.getrefcount(value)
    for _ in range(1000):
        probe.read("IATTR", "a", obj)
        probe.read("DICT_ITEM", "k", d)
        probe.read("DICT_ITEM", 5, d)
        probe.holds(fact("HAS_KEY", 5.0), d)
        probe.holds(fact("EQ", 10**30), 10**30 + 1)
    assert sys.getrefcount(value) == before
