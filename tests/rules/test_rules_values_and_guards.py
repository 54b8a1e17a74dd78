"""Section 1: values and guards."""
import torch
from two_worlds import T, rule

SCALE = 2.0
BOX = {}


@rule
def test_rule_01_own_store_hides_the_path(w):
    class Box:
        n = 1

    box = Box()
    box.n = 3

    def f(x):
        box.n = box.n + 1
        y = x * box.n
        box.n = 7
        return y * box.n

    g = w.compile(f)
    for n in (3, 3, 5, 6, 6):
        box.n = n
        w.call(g, T())
        w.see(box.n)
    box.n = 6
    w.hit(g, T())


@rule
def test_rule_02_path_is_consumed(w):
    class Inner:
        pass

    class Outer:
        pass

    outer = Outer()
    outer.inner = Inner()
    outer.inner.leaf = ["a"]

    def f(x):
        return x + 1, outer.inner.leaf

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    outer.inner.leaf = {"b": 1}        # only the leaf is free
    w.call(g, T())
    other = Inner()
    other.leaf = "other"
    outer.inner = other
    w.call(g, T())

    class Odd:
        @property
        def leaf(self):
            return "property"

    outer.inner = Odd()
    w.call(g, T())
    outer.inner = {"leaf": 1}
    w.call(g, T())
    del outer.inner
    w.call(g, T())


@rule
def test_rule_03_free_leaf_is_loaded_once(w):
    box = {"old": T(), "list": [1]}

    def f(x):
        old = box["old"]
        items = box["list"]
        box["old"] = x
        box["list"] = [2]
        return old + box["old"], items, box["list"]

    g = w.compile(f)
    for i in range(4):
        w.call(g, T() * i)
        w.see(box)
    w.hit(g, T())


@rule
def test_rule_04_class_leaf_gains_get(w):
    class Leaf:
        pass

    class Owner:
        leaf = Leaf()

    owner = Owner()

    def f(x):
        return x * 2, owner.leaf

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    Leaf.__get__ = lambda self, obj, cls: "bound"
    w.call(g, T())
    w.call(g, T())
    del Leaf.__get__
    w.call(g, T())

    class Other:
        def __get__(self, obj, cls):
            return "other"

    Owner.leaf = Other()
    w.call(g, T())
    w.call(g, T())


@rule
def test_rule_04_class_leaf_of_another_type(w):
    class Owner:
        leaf = ["a"]

    owner = Owner()

    def f(x):
        return x * 2, owner.leaf

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    Owner.leaf = property(lambda self: "computed")
    w.call(g, T())
    Owner.leaf = lambda self: "function"
    w.call(lambda x: g(x)[1](), T())
    Owner.leaf = classmethod(lambda cls: cls.__name__)
    w.call(lambda x: g(x)[1](), T())


@rule
def test_rule_05_exact_type_of_operands(w):
    class Loud(int):
        def __add__(self, other):
            return "left"

        def __radd__(self, other):
            return "right"

        def __bool__(self):
            return False

    def f(x, n):
        total = n + 1
        other = 1 + n
        return (x * 2 if n else x * 3), total, other

    g = w.compile(f)
    w.call(g, T(), 5)
    w.hit(g, T(), 5)
    w.call(g, T(), Loud(5))
    w.call(g, T(), Loud(5))
    w.call(g, T(), True)
    w.call(g, T(), 5.0)


@rule
def test_rule_05_reflected_order(w):
    class Base:
        def __add__(self, other):
            return "base add"

    class Derived(Base):
        pass

    def f(x, a, b):
        return x + 1, a + b

    g = w.compile(f)
    w.call(g, T(), Base(), Derived())
    w.hit(g, T(), Base(), Derived())
    Derived.__radd__ = lambda self, other: "derived radd"
    w.call(g, T(), Base(), Derived())
    w.call(g, T(), Derived(), Base())
    Base.__add__ = lambda self, other: NotImplemented
    w.call(g, T(), Derived(), Base())
    w.call(g, T(), Base(), Derived())


@rule
def test_rule_06_scalars_by_type_and_bits(w):
    def f(x, n):
        return x * n, str(n)

    g = w.compile(f)
    nan = float("nan")
    for n in (1, 1, True, 1.0, 0.0, -0.0, 0, False, nan, nan, -nan, 10**30, 10**30 + 1, 1 + 0j):
        w.call(g, T(), n)


@rule
def test_rule_06_two_nans_are_two_keys(w):
    """Containers ask for identity before they ask for equality."""
    def f(x, n, table, row):
        return x + table.get(n, 5), n in row, row.count(n), (n, 1) == (row[0], 1), {n: 1} == table, n in table, [
            table[k] for k in table]

    g = w.compile(f)
    one, two = float("nan"), float("nan")
    for n, key in ((one, one), (one, one), (two, one), (two, two), (one, two), (one, one)):
        w.call(g, T(), n, {key: 1}, [key])
    pair = w.compile(lambda x, n, keys: (x, n in keys, keys.index(n) if n in keys else -1))
    for n in (one, one, two, two, one):
        w.call(pair, T(), n, (0.0, one))
        w.call(pair, T(), complex(n, 1), (0.0, one))


@rule
def test_rule_06_compound_constants(w):
    def f(x, key):
        return x + 1, {(1, 2): "ints", "s": "str"}.get(key, "none"), repr(key)

    g = w.compile(f)
    for key in ((1, 2), (1, 2), (True, 2), (1.0, 2), "s", b"s", (0.0,), (-0.0,), slice(1), range(3), frozenset([1])):
        w.call(g, T(), key)


@rule
def test_rule_07_absence_in_instance(w):
    class Owner:
        n = 2

    owner = Owner()

    def f(x):
        return x * owner.n

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    owner.n = 5
    w.call(g, T())
    del owner.n
    w.call(g, T())


@rule
def test_rule_07_absence_in_mro(w):
    class A:
        n = 2

    class B(A):
        pass

    class C(B):
        pass

    c = C()

    def f(x):
        return x * c.n

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    B.n = 3
    w.call(g, T())
    C.n = 4
    w.call(g, T())
    C.n = property(lambda self: 9)
    w.call(g, T())
    del C.n, B.n
    w.call(g, T())
    C.__bases__ = (type("D", (), {"n": 11}),)
    w.call(g, T())


@rule
def test_rule_07_absence_in_metaclass_and_globals(w):
    class Meta(type):
        pass

    class A(metaclass=Meta):
        n = 2

    def f(x):
        return x * A.n + abs(-1)

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    Meta.n = property(lambda cls: 7)
    w.call(g, T())
    del Meta.n
    w.call(g, T())
    try:
        globals()["abs"] = lambda v: 100
        w.call(g, T())
        w.call(g, T())
    finally:
        del globals()["abs"]
    w.call(g, T())


@rule
def test_rule_07_absence_in_tensor_dict(w):
    x = T()

    def f(x):
        return x * getattr(x, "scale", 2), hasattr(x, "scale")

    g = w.compile(f)
    w.call(g, x)
    w.hit(g, x)
    x.scale = 5
    w.call(g, x)
    w.call(g, T())
    torch.Tensor.scale = 7
    try:
        w.call(g, T())
    finally:
        del torch.Tensor.scale
    w.call(g, T())


@rule
def test_rule_08_protocols(w):
    class Thing:
        def __len__(self):
            return 0

    thing = Thing()

    def f(x):
        return x * 2 if thing else x * 3

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    Thing.__bool__ = lambda self: True
    w.call(g, T())
    del Thing.__bool__
    w.call(g, T())
    Thing.__len__ = lambda self: 4
    w.call(g, T())
    del Thing.__len__
    w.call(g, T())
    thing.__bool__ = lambda: False       # special methods are looked up on the type
    w.call(g, T())


@rule
def test_rule_08_iteration_falls_back_to_getitem(w):
    class Seq:
        def __getitem__(self, i):
            if i > 2:
                raise IndexError
            return i

    seq = Seq()

    def f(x):
        for n in seq:
            x = x + n
        return x, 2 in seq

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    Seq.__iter__ = lambda self: iter([10])
    w.call(g, T())
    Seq.__contains__ = lambda self, v: False
    w.call(g, T())
    Seq.__iter__ = None
    w.call(g, T())


@rule
def test_rule_09_derived_that_raises(w):
    def f(x, n, seen):
        seen.append("before")
        n / (n - 3)
        seen.append("after")
        return x * n

    g = w.compile(f)
    for n in (1, 2, 3, 4, 5, 3):
        w.call(g, T(), n, [])
    w.call(g, T(), "s", [])


@rule
def test_rule_10_mutator_result_decides(w):
    stack = []

    def f(x):
        n = stack.pop()
        if n > 2:
            return x * 2
        return x * 3

    g = w.compile(f)
    for n in (5, 5, 1, 1, 7, 3, 2, 1):
        stack[:] = [n]
        w.call(g, T())
        w.see(stack)
    w.call(g, T())


@rule
def test_rule_11_no_effect_twice(w):
    log = []

    def f(x, state):
        log.append("begin")
        state["n"] += 1
        if x.sum() > 10:
            log.append("big")
            return x * 2
        log.append(len(log))
        return x * state["k"]

    g = w.compile(f)
    state = {"n": 0, "k": 2}
    for i in range(8):
        state["k"] = 2 + i // 3
        w.call(g, T() * (i % 4), state)
        w.see(log, state)


@rule
def test_rule_12_counter_converges(w):
    class Counter:
        n = 0

    counter = Counter()
    counter.n = 0

    def f(x):
        counter.n += 1
        return x * counter.n

    g = w.compile(f)
    for _ in range(6):
        w.call(g, T())
        w.see(counter.n)
    for _ in range(20):
        w.hit(g, T())


@rule
def test_rule_12_alternating_floats_converge(w):
    def f(x, lr):
        return x * lr

    g = w.compile(f)
    for i in range(6):
        w.call(g, T(), 0.1 * i)
    for i in range(20):
        w.hit(g, T(), 0.37 * i)


@rule
def test_rule_13_guards_run_no_python(w):
    ran = []

    class Noisy:
        def __eq__(self, other):
            ran.append("eq")
            return True

        def __hash__(self):
            ran.append("hash")
            return 1

        def __bool__(self):
            ran.append("bool")
            return True

        def __getattr__(self, name):
            ran.append(name)
            raise AttributeError(name)

    noisy = Noisy()

    def f(x, thing):
        return x + 1, thing

    g = w.compile(f)
    for _ in range(3):
        w.call(g, T(), noisy)
        w.see(ran)
    w.hit(g, T(), Noisy())
    w.see(ran)


@rule
def test_rule_14_question_not_snapshot(w):
    def f(x, items, mapping):
        return x * items[0], "k" in mapping

    g = w.compile(f)
    w.call(g, T(), [2, 3], {"k": 1})
    w.hit(g, T(), [2, 4], {"k": 1})
    w.hit(g, T(), [2, 4], {"k": 2, "other": 3})
    w.call(g, T(), [2], {})
    w.call(g, T(), [], {})
