"""Section 7: effects and their order."""
import functools
import gc
import json
import logging
import random
import re
import sys
import warnings
import weakref

import torch
from two_worlds import T, rule

COUNT = 0
LOG = logging.getLogger("kincorpus.rules")


@rule
def test_rule_68_stores(w):
    log = []

    class Plain:
        pass

    class Slots:
        __slots__ = ("n",)

    class Hook:
        def __setattr__(self, name, value):
            log.append((name, value))
            object.__setattr__(self, name, value)

    class Data:
        @property
        def n(self):
            return self._n

        @n.setter
        def n(self, value):
            log.append(value)
            self._n = value + 1

    def f(x, thing, n):
        thing.n = n
        return x * thing.n

    g = w.compile(f)
    for cls in (Plain, Plain, Slots, Slots, Hook, Hook, Data, Data):
        w.call(g, T(), cls(), 2)
        w.call(g, T(), cls(), 3)
        w.see(log)
    Plain.n = property(lambda self: 50, lambda self, value: log.append("set"))
    w.call(g, T(), Plain(), 3)
    w.see(log)
    del Plain.n
    Plain.__setattr__ = lambda self, name, value: self.__dict__.__setitem__(name, value * 10)
    w.call(g, T(), Plain(), 3)


@rule
def test_rule_68_item_stores(w):
    log = []

    class D(dict):
        def __setitem__(self, key, value):
            log.append(key)
            dict.__setitem__(self, key, value * 2)

    class L(list):
        pass

    def f(x, d, items):
        d["k"] = 5
        items[0] = 6
        del items[-1]
        return x * d["k"] + items[0], len(items)

    g = w.compile(f)
    for make in (dict, dict, D, D):
        for kind in (list, L):
            w.call(g, T(), make(), kind([1, 2, 3]))
            w.see(log)
    L.__delitem__ = lambda self, i: log.append("del")
    w.call(g, T(), {}, L([1, 2]))
    w.see(log)


@rule
def test_rule_68_death_of_the_old_value(w):
    log = []

    class Loud:
        def __init__(self, n):
            self.n = n

        def __del__(self):
            log.append(("died", self.n, len(holder)))
            holder["count"] = holder.get("count", 0) + 1

    holder = {}

    def f(x):
        holder["thing"] = None
        n = holder.get("count", 0)
        return x * n, len(log)

    g = w.compile(f)
    for i in range(5):
        holder["thing"] = Loud(i) if i != 1 else 3
        w.call(g, T())
        w.see(log, holder)


@rule
def test_rule_69_mutators_are_repeated(w):
    def f(x, d, items, s):
        a = d.setdefault("k", 5)
        b = d.pop("gone", 7)
        d.update(items=len(items))
        items.extend([a, b])
        items.sort()
        c = items.pop()
        s.add(1)
        s.discard(2)
        d |= {"z": c}
        items += [b]
        return x * a + b + c, d.get("items")

    g = w.compile(f)
    for d, items, s in (({}, [], set()), ({}, [], set()), ({"k": 1}, [9, 3], {2}), ({"gone": 3}, [4], {1, 2}),
                        ({"k": 1, "gone": 2}, [], {True})):
        w.call(g, T(), d, items, s)
        w.see(d, items, s)


@rule
def test_rule_69_key_kept_on_equal_insert(w):
    def f(x, d, key):
        d[key] = 1
        return x + len(d), [type(k).__name__ for k in d]

    g = w.compile(f)
    for d, key in (({1: 0}, 1), ({1: 0}, 1), ({1: 0}, True), ({True: 0}, 1), ({1.0: 0}, 1), ({}, 1.0), ({}, True)):
        w.call(g, T(), d, key)
        w.see(d)


@rule
def test_rule_70_fresh_list_changed_after_escape(w):
    kept = []

    def f(x):
        row = [1]
        kept.append(row)
        row.append(len(kept))
        y = x * 2
        kept.append(y)
        y.add_(1)
        shape = list(x.shape)
        kept.append(tuple(row))
        row.clear()
        return y, shape

    g = w.compile(f)
    for _ in range(3):
        w.call(g, T())
        w.see(kept)
        kept.clear()
    w.hit(g, T())
    w.see(kept)


@rule
def test_rule_70_printed_before_it_is_changed(w):
    def f(x):
        y = x * 2
        print(y.sum().item(), y.tolist())
        y.mul_(3)
        items = [1]
        print(items)
        items.append(2)
        return y, items

    g = w.compile(f)
    for k in range(3):
        w.call(g, T() + k)


@rule
def test_rule_71_arguments_of_torch_calls(w):
    sizes = [1, 3]

    def f(x):
        a = x.reshape(sizes)
        sizes.reverse()
        b = x.reshape(sizes)
        parts = [a, a]
        c = torch.cat(parts)
        parts.append(a)
        d = torch.cat(parts, dim=0)
        sizes.reverse()
        return a, b, c, d

    g = w.compile(f)
    w.call(g, T())
    w.call(g, T())
    sizes[:] = [3, 1]
    w.call(g, T())
    w.call(g, T())


@rule
def test_rule_71_list_of_tensors_from_outside(w):
    def f(parts, index):
        y = torch.cat(parts)
        parts.append(y)
        index["i"] += 1
        return torch.stack([p.sum() for p in parts]), y[index["i"]]

    g = w.compile(f)
    for n in (1, 1, 2, 2, 3, 1):
        w.call(g, [T() for _ in range(n)], {"i": 0})
    x = T()
    w.call(g, [x, x], {"i": 1})


@rule
def test_rule_72_effects_that_raise(w):
    log = []

    class Stream:
        broken = False

        def write(self, text):
            if self.broken:
                raise OSError("stream")
            log.append(text)

        def flush(self):
            pass

    stream = Stream()

    def f(x):
        print("before", file=stream)
        x.add_(1)
        r = torch.rand(1)
        log.append("between")
        print("after", file=stream)
        x.mul_(2)
        return x, r

    g = w.compile(f)
    for broken in (False, False, True, True, False):
        stream.broken = broken
        x = T()
        w.call(g, x)
        w.see(x, log)


@rule
def test_rule_72_warning_turned_into_an_error(w):
    def f(x, log):
        log.append(1)
        warnings.warn("careful")
        x.add_(1)
        log.append(2)
        return x

    g = w.compile(f)
    for action in ("always", "always", "error", "error", "always"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            w.call(g, T(), [])


@rule
def test_rule_73_foreign_code_sees_everything(w):
    class Holder:
        pass

    holder = Holder()
    seen = []

    class Key:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            seen.append((holder.n, list(holder.items), COUNT))
            return self.n < other.n

    def look(match):
        seen.append((holder.n, list(holder.items), COUNT))
        return "x"

    def f(x, keys):
        global COUNT
        holder.items = items = [1]
        holder.n = 1
        COUNT = 1
        keys.sort()
        items.append(2)
        holder.n = 2
        COUNT += 1
        re.sub("a", look, "banana")
        items.append(3)
        gc.collect()
        return x * len(items)

    g = w.compile(f)
    for _ in range(3):
        w.call(g, T(), [Key(2), Key(1)])
        w.see(seen, holder)


@rule
def test_rule_73_globals_and_frames(w):
    seen = []

    def spy():
        frame = sys._getframe(1)
        seen.append((sorted(k for k in frame.f_locals if k != "seen"), frame.f_lineno - frame.f_code.co_firstlineno,
                     frame.f_locals["n"]))

    def f(x):
        n = 1
        spy()
        y = x * 2
        n = n + 1
        spy()
        return y * n

    g = w.compile(f)
    for _ in range(3):
        w.call(g, T())
        w.see(seen)


@rule
def test_rule_74_one_order(w):
    log = []

    def f(x):
        a = torch.rand(1)
        log.append(random.random())
        x.add_(a)
        b = torch.rand(2)
        del b
        torch.rand(3)
        x.mul_(torch.rand(1))
        random.random()
        log.append(float(x.sum()))
        torch.nn.functional.dropout(x)
        return x, torch.rand(1)

    g = w.compile(f)
    for _ in range(4):
        w.call(g, T())
        w.see(log)


@rule
def test_rule_74_unused_calls_that_fail(w):
    def f(x, index, other):
        x.add_(1)
        torch.gather(x, 0, index)
        x.mul_(2)
        x.view(-1)[other]
        return x + 1

    g = w.compile(f)
    for index, other in (([0], 0), ([1], 1), ([7], 0), ([7], 0), ([0], 5), ([0], 0)):
        x = T()
        w.call(g, x, torch.tensor(index), other)
        w.see(x)


@rule
def test_rule_75_facts_after_foreign_code(w):
    state = {"n": 1}

    class Odd:
        def __index__(self):
            state["n"] += 1
            SPACE["k"] = state["n"] * 10
            if state["n"] == 4:
                Box.factor = 100
            return 0

    class Box:
        factor = 2

    def f(x, odd):
        a = SPACE["k"] * Box.factor
        items = [5, 6][odd]
        b = SPACE["k"] * Box.factor
        return x * a + b + items, a, b

    SPACE = {"k": 1}
    g = w.compile(f)
    for _ in range(6):
        w.call(g, T(), Odd())
        w.see(state, SPACE)


@rule
def test_rule_75_break_changes_what_was_read(w):
    box = {"n": 2, "fn": lambda v: v}

    def change(k):
        exec("box['n'] = k", {"box": box, "k": k})

    def f(x, k):
        a = box["n"]
        eval("change(k)", {"change": change, "k": k})
        return x * a + box["n"]

    g = w.compile(f)
    for k in (3, 3, 4, 3, 5, 5):
        w.call(g, T(), k)


@rule
def test_rule_76_callbacks_run_once(w):
    log = []

    def key(v):
        log.append(v)
        return -v

    class Odd:
        def __eq__(self, other):
            log.append("eq")
            return False

        def __repr__(self):
            log.append("repr")
            return "odd"

    def f(x, items, odd):
        a = sorted(items, key=key)
        b = list(map(key, items))
        c = functools.reduce(lambda p, q: (log.append((p, q)), p + q)[1], items)
        d = odd in [odd, 1], 5 in [odd, 5], items.count(odd)
        e = "%s %r" % (odd, [odd])
        h = max(items, key=key), json.dumps({"k": 1}, default=key), re.sub("a", lambda m: str(key(1)), "aa")
        return x * a[0] + c, b, d, e, h

    g = w.compile(f)
    for items in ([3, 1, 2], [3, 1, 2], [1, 2], [5, 5, 5]):
        w.call(g, T(), items, Odd())
        w.see(log)


@rule
def test_rule_76_weak_containers_and_finalisers(w):
    log = []

    class Thing:
        pass

    def f(x):
        thing = Thing()
        ref = weakref.ref(thing, lambda r: log.append("callback"))
        alive = ref() is thing
        thing = None
        log.append("after")
        return x + 1, alive, ref() is None

    g = w.compile(f)
    for _ in range(3):
        w.call(g, T())
        w.see(log)
