"""Section 3: containers."""
import array
import collections
import types

import torch
from two_worlds import T, rule


@rule
def test_rule_27_dict_versions(w):
    d = {"k": 2}

    def f(x):
        return x * d["k"], "gone" in d

    g = w.compile(f)
    w.call(g, T())
    w.hit(g, T())
    d["other"] = 1
    w.hit(g, T())
    d["k"] = 3
    w.call(g, T())
    d["gone"] = None
    w.call(g, T())
    d.clear()
    w.call(g, T())


@rule
def test_rule_28_move_to_end(w):
    od = collections.OrderedDict(a=1, b=2, c=3)

    def f(x):
        out = []
        for k, v in od.items():
            x = x * v + 1
            out.append(k)
        return x, out, next(iter(od)), list(reversed(od))

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    od.move_to_end("a")
    w.call(g, T())
    od.move_to_end("c", last=False)
    w.call(g, T())
    od["a"] = 5
    w.call(g, T())


@rule
def test_rule_28_mutable_keys(w):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return 1

        def __eq__(self, other):
            return self.n == other.n

    key = Key(1)
    d = {key: "one"}

    def f(x, probe):
        return x + 1, d.get(probe), probe in d

    g = w.compile(f)
    w.call(g, T(), Key(1))
    w.call(g, T(), Key(1))
    w.call(g, T(), Key(2))
    key.n = 2
    w.call(g, T(), Key(1))
    w.call(g, T(), Key(2))
    w.call(g, T(), key)


@rule
def test_rule_29_unrelated_change_is_no_miss(w):
    d = {"k": [2], "n": 0}

    def f(x):
        d["n"] += 1
        return x * d["k"][0]

    g = w.compile(f)
    for i in range(4):
        w.call(g, T())
    for i in range(6):
        d[i] = i
        w.hit(g, T())
        w.see(d)


@rule
def test_rule_30_dict_written_by_the_call(w):
    d = {"a": 1, "b": 2}

    def f(x, key):
        d[key] = d["a"] + 1
        d["c"] = d.pop("b", 0)
        return x * d["a"], list(d), len(d)

    g = w.compile(f)
    for key in ("b", "b", "a", "d", "a", "b", "b"):
        w.call(g, T(), key)
        w.see(d)


@rule
def test_rule_31_order(w):
    def f(x, d):
        for v in d.values():
            x = x * 2 + v
        return x, [*d], dict(**d), str(d), next(iter(d))

    g = w.compile(f)
    w.call(g, T(), {"a": 1, "b": 2})
    w.call(g, T(), {"a": 1, "b": 2})
    w.call(g, T(), {"b": 2, "a": 1})
    d = {"c": 1, "a": 1, "b": 2}
    del d["c"]
    w.call(g, T(), d)
    w.call(g, T(), {"a": 1})


@rule
def test_rule_32_lists(w):
    items = [1, 2, 3]

    def f(x, i):
        return x * items[i], len(items) > 2

    g = w.compile(f)
    w.call(g, T(), -1)
    w.hit(g, T(), -1)
    items.append(9)
    w.call(g, T(), -1)
    items[-1] = 8
    w.call(g, T(), -1)
    items[0], items[-1] = items[-1], items[0]
    w.call(g, T(), 0)
    w.call(g, T(), -1)
    items.clear()
    w.call(g, T(), -1)


@rule
def test_rule_32_other_sequences(w):
    deque = collections.deque([1, 2], maxlen=3)
    numbers = array.array("i", [1, 2])
    raw = bytearray(b"ab")
    view = memoryview(raw)

    def f(x):
        return x * deque[0] + numbers[1] + raw[0] + view[1], len(deque), 2 in deque

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    deque[0] = 7
    w.call(g, T())
    deque.append(3)
    deque.append(4)
    w.call(g, T())
    numbers[1] = 5
    w.call(g, T())
    raw[0] = 9
    w.call(g, T())
    raw[1] = 10
    w.call(g, T())
    w.call(g, T())


@rule
def test_rule_33_set_order(w):
    def f(x, s):
        out = []
        for v in s:
            x = x * 2 + v
            out.append(v)
        return x, out, 8 in s, len(s)

    g = w.compile(f)
    a = {0, 8}
    b = {8, 0}
    assert a == b and list(a) != list(b)
    for s in (a, a, b, b, a, {16, 8, 0}, {0, 16, 8}, frozenset([8, 0]), frozenset([0, 8])):
        w.call(g, T(), s)


@rule
def test_rule_33_set_of_users_objects(w):
    class Key:
        equal = True

        def __hash__(self):
            return 5

        def __eq__(self, other):
            return Key.equal

    held = Key()
    s = {held}

    def f(x, probe):
        return x * 2 if probe in s else x * 3

    g = w.compile(f)
    probe = Key()
    w.call(g, T(), probe)
    w.call(g, T(), probe)
    Key.equal = False
    w.call(g, T(), probe)
    w.call(g, T(), held)
    s.discard(held)
    w.call(g, T(), held)


@rule
def test_rule_34_user_hash(w):
    log = []

    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            log.append(("hash", self.n))
            return hash(self.n)

        def __eq__(self, other):
            log.append(("eq", self.n))
            return self.n == getattr(other, "n", None)

    d = {Key(1): 2, Key(2): 3}

    def f(x, key):
        return x * d[key]

    g = w.compile(f)
    w.call(g, T(), Key(1))
    for _ in range(3):
        w.call(g, T(), Key(1))
        w.see(log)
    w.call(g, T(), Key(2))
    w.call(g, T(), Key(3))
    w.see(log)


@rule
def test_rule_35_subclasses_of_builtins(w):
    class D(dict):
        def __getitem__(self, key):
            return 100

        def __len__(self):
            return 50

    class L(list):
        def __iter__(self):
            return iter([7, 8])

        def __getitem__(self, i):
            return 9

    class S(str):
        def __eq__(self, other):
            return True

        __hash__ = str.__hash__

    def f(x, d, items, s):
        total = 0
        for v in items:
            total += v
        return (x * d["k"] + len(d) + total + items[0], s == "other", dict(d), list(items), dict.__getitem__(d, "k"),
                "%s" % s, [*items])

    g = w.compile(f)
    args = {"k": 2}, [1, 2], "s"
    w.call(g, T(), *args)
    w.call(g, T(), *args)
    w.call(g, T(), D(k=2), L([1, 2]), S("s"))
    w.call(g, T(), D(k=2), L([1, 2]), S("s"))
    D.__missing__ = lambda self, key: 5
    w.call(g, T(), D(k=2), L([1, 2]), S("s"))


@rule
def test_rule_36_views_and_proxies(w):
    d = {"a": 2}
    proxy, keys, values = types.MappingProxyType(d), d.keys(), d.values()
    items = [1]
    push = items.append

    def f(x):
        push(len(items))
        return x * proxy["a"] + sum(values), list(keys), "b" in keys, len(items)

    g = w.compile(f)
    for i in range(3):
        w.call(g, T())
        w.see(items)
    d["a"] = 3
    w.call(g, T())
    d["b"] = 4
    w.call(g, T())
    w.see(items)


@rule
def test_rule_37_two_lists_that_are_one(w):
    def f(x, a, b):
        a.append(5)
        return x * len(b) + b[-1], a, b

    g = w.compile(f)
    w.call(g, T(), [1], [2])
    w.hit(g, T(), [1], [2])
    same = [1]
    w.call(g, T(), same, same)
    w.call(g, T(), same, same)
    w.call(g, T(), [1], [2])


@rule
def test_rule_37_one_list_that_becomes_two(w):
    def f(x, a, b):
        n = len(b)
        a.append(5)
        m = len(b)
        a[0] = 9
        return x * n + m + b[0], a is b

    g = w.compile(f)
    same = [1]
    w.call(g, T(), same, same)
    same = [1]
    w.hit(g, T(), same, same)
    w.call(g, T(), [1], [2])
    w.call(g, T(), [1], [2])
    same = [1]
    w.call(g, T(), same, same)


@rule
def test_rule_37_read_before_and_after(w):
    def f(x, a, b):
        n = b["n"]
        a["n"] = 10
        y = x * n + b["n"]
        b["n"] = 20
        return y + a["n"]

    g = w.compile(f)
    for pair in (False, False, True, True, False, True):
        a = {"n": 1}
        b = a if pair else {"n": 2}
        w.call(g, T(), a, b)
        w.see(a, b)


@rule
def test_rule_37_objects(w):
    class Box:
        def __init__(self, n):
            self.n = n
            self.items = [n]

    def f(x, a, b):
        n = b.n
        a.n = n + 1
        a.items.append(n)
        del a.extra
        return x * b.n + n + len(b.items), hasattr(b, "extra")

    g = w.compile(f)
    for kind in (0, 0, 1, 1, 2, 2, 0, 1):
        a = Box(1)
        b = a if kind == 1 else Box(2)
        a.extra = b.extra = 1
        if kind == 2:
            b.items = a.items
            b.__dict__.pop("n")
            b.n = 5
        w.call(g, T(), a, b)
        w.see(a, b)


@rule
def test_rule_37_shared_instance_dict(w):
    class Box:
        pass

    def f(x, a, b):
        a.n = 5
        n = b.n
        b.n = 6
        return x * n + a.n

    g = w.compile(f)
    for shared in (False, False, True, True, False):
        a, b = Box(), Box()
        a.n, b.n = 1, 2
        if shared:
            b.__dict__ = a.__dict__
        w.call(g, T(), a, b)


@rule
def test_rule_37_global_and_argument(w):
    held = [1, 2]

    def f(x, items):
        first = held[0]
        items[0] = 50
        held.append(1)
        return x * held[0] + first, len(items)

    g = w.compile(f)
    w.call(g, T(), [3])
    w.hit(g, T(), [3])
    held[:] = [1, 2]
    w.call(g, T(), held)
    held[:] = [1, 2]
    w.call(g, T(), held)
    held[:] = [1, 2]
    w.call(g, T(), [3])


@rule
def test_rule_37_nested_aliasing(w):
    def f(x, outer, inner):
        outer["items"].append(1)
        inner.append(2)
        outer["items"] = inner
        outer["items"].append(3)
        return x * len(inner), len(outer["items"])

    g = w.compile(f)
    for kind in (0, 0, 1, 1, 0):
        inner = []
        outer = {"items": inner if kind else []}
        w.call(g, T(), outer, inner)
        w.see(outer, inner)


@rule
def test_rule_37_iterating_what_is_changed(w):
    def f(x, a, b):
        for v in a:
            x = x + v
            if len(b) < 6:
                b.append(v + 1)
        return x, len(a)

    g = w.compile(f)
    w.call(g, T(), [1, 2], [])
    w.call(g, T(), [1, 2], [])
    same = [1, 2]
    w.call(g, T(), same, same)
    same = [1, 2]
    w.call(g, T(), same, same)
    w.call(g, T(), [1, 2], [])


@rule
def test_rule_37_fresh_list_escapes_and_is_changed(w):
    class Owner:
        pass

    owner = Owner()

    def touch(o):
        o.items.append(9)

    def f(x):
        items = [1]
        owner.items = items
        touch(owner)
        items.append(2)
        n = len(owner.items)
        owner.items.pop(0)
        return x * n + len(items), items, owner.items is items

    g = w.compile(f)
    for _ in range(3):
        w.call(g, T())
        w.see(owner)
    w.hit(g, T())


@rule
def test_rule_37_identity_without_change(w):
    def f(x, a, b, c):
        return x * 2 if a is b else x * 3, [a, b] == [b, c]

    g = w.compile(f)
    p, q = [1], [1]
    for args in ((p, p, q), (p, p, q), (p, q, q), (p, q, q), (q, p, p), (p, p, p)):
        w.call(g, T(), *args)


@rule
def test_rule_37_tensors_that_are_one(w):
    def f(a, b):
        a.add_(1)
        return b * 2, a is b

    g = w.compile(f)
    w.call(g, T(), T())
    w.hit(g, T(), T())
    x = T()
    w.call(g, x, x)
    w.call(g, x, x)
    w.call(g, x, x[:2])
    w.call(g, T(), T())


@rule
def test_rule_38_older_iterator(w):
    it = iter([2, 3, 4, 5])

    def f(x):
        return x * next(it)

    g = w.compile(f)
    for _ in range(6):
        w.call(g, T())


@rule
def test_rule_38_older_generator_and_zip(w):
    log = []

    def gen():
        for i in range(5):
            log.append(i)
            yield i

    held, pairs, numbers = gen(), zip([1, 2, 3, 4, 5, 6], "abcdef"), map(abs, [-1, -2, -3, -4, -5])

    def f(x):
        n, letter = next(pairs)
        return x * next(held) + n + next(numbers), letter

    g = w.compile(f)
    for _ in range(6):
        w.call(g, T())
        w.see(log)


@rule
def test_rule_38_iterator_passed_on(w):
    def f(x, it):
        for n in it:
            x = x * n
            if n > 2:
                break
        return x, next(it, None)

    g = w.compile(f)
    for items in ([1, 3, 5], [1, 3, 5], [3], [1, 1, 1, 4, 6], [], [1, 2]):
        w.call(g, T(), iter(items))
    it = iter([5])
    w.call(g, T(), it)
    w.call(g, T(), it)
    w.call(g, T(), (n for n in (1, 2, 3)))
