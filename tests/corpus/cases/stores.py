"""Stores to objects that are older than the call: what is read again after them, and who else could have been meant."""
import gc
import sys
import weakref

import torch

from kincorpus.case import T, built, case, do, glob

LEVEL = 1
TABLE = {"a": 1.0, "b": 2.0}
ROWS = [1.0, 2.0, 3.0]
LOG = []


class Box:
    def __init__(self, n=1.0):
        self.n = n
        self.m = None


class Slots:
    __slots__ = ("n", "m")

    def __init__(self, n):
        self.n = n


class Loud:
    """Its death is heard."""

    def __del__(self):
        global LEVEL
        LEVEL += 1
        LOG.append("gone")


def pair(first):
    """args: two boxes, that are one from call 3 on (or until call 3)."""
    def make(i, s):
        a, b = Box(1.0), Box(2.0)
        return T(i, 3), a, a if (i < 3) == first else b
    return make


@case(args=pair(False), again=1)
def two_boxes_become_one(x, a, b):
    a.n = 5.0
    return x * b.n


@case(args=pair(True), again=1)
def one_box_becomes_two(x, a, b):
    a.n = 5.0
    return x * b.n, a.n


@case(args=pair(False), again=1)
def order_of_two_stores(x, a, b):
    a.n = 5.0
    b.n = 7.0
    return x * a.n + b.n, a.__dict__


def share(s):
    s.b.__dict__ = s.a.__dict__


@built(mutate=do(3, share), args=lambda i, s: (T(i, 3),), replays=3)
def dict_is_shared_later(s):
    s.a, s.b = Box(1.0), Box(2.0)

    def f(x):
        s.a.n = s.a.n + 1
        return x * s.b.n
    return f


@built(mutate=do(3, share), args=lambda i, s: (T(i, 3),), replays=3)
def dict_that_was_there_is_shared(s):
    s.a, s.b = Box(1.0), Box(2.0)
    vars(s.a), vars(s.b)

    def f(x):
        s.a.n = 3.0
        return x * s.b.n
    return f


@built(mutate=do(3, lambda s: vars(s.a)), inert=True, args=lambda i, s: (T(i, 3),), replays=3)
def dict_appears(s):
    s.a = Box(1.0)

    def f(x):
        s.a.n = 3.0
        return x * s.a.n
    return f


@built(mutate=do(3, lambda s: setattr(s.a, "n", Loud())), args=lambda i, s: (T(i, 3),), replays=3)
def death_of_what_is_replaced(s):
    s.a = Box(1.0)

    def f(x):
        s.a.n = 3.0
        return x * LEVEL, len(LOG)
    return f


@built(mutate=do(3, lambda s: setattr(s.a, "n", [[Loud()]])), args=lambda i, s: (T(i, 3),), replays=3)
def death_inside_what_is_replaced(s):
    s.a = Box(1.0)

    def f(x):
        s.a.n = 3.0
        return x * LEVEL, len(LOG)
    return f


def watch(s):
    s.a.n = torch.zeros(2)
    s.ref = weakref.ref(s.a.n, lambda ref: globals().update(LEVEL=7))


@built(mutate=do(3, watch), args=lambda i, s: (T(i, 3),), replays=3)
def weak_reference_to_what_is_replaced(s):
    s.a = Box(1.0)

    def f(x):
        s.a.n = x
        return x * LEVEL
    return f


@built(args=lambda i, s: (T(i, 3),), replays=2)
def tensor_state(s):
    s.a = Box(None)

    def f(x):
        if s.a.n is None:
            s.a.n = x
        else:
            s.a.n = torch.cat([s.a.n[-4:], x])
        s.a.m = s.a.n * 2
        return s.a.m.sum() + s.a.n.shape[0]
    return f


@built(args=lambda i, s: (T(i, 3),), calls=8, replays=4)
def several_counters(s):
    s.boxes = [Box(0) for _ in range(4)]

    def f(x):
        for k, box in enumerate(s.boxes):
            box.n += k + 1
            x = x + box.n
        return x, [box.n for box in s.boxes]
    return f


@built(mutate=do(3, lambda s: s.d.update(z=9.0)), args=lambda i, s: (T(i, 3),))
def dict_grows_in_the_call(s):
    s.d = {"a": 1.0}

    def f(x):
        s.d["k"] = 5.0
        n, keys = len(s.d), list(s.d)
        del s.d["k"]
        return x * n, keys, list(s.d), "k" in s.d, s.d.get("k")
    return f


@case(args=lambda i, s: (T(i, 3), {"a": 1.0}, {"a": 2.0} if i != 3 else TABLE), replays=4)
def item_of_another_dict(x, d, e):
    TABLE["a"] = 8.0
    d["a"] = 4.0
    return x * e["a"], TABLE["a"], d["a"], len(d)


@case(args=lambda i, s: (T(i, 3), ROWS if i == 3 else [4.0, 5.0]), replays=3)
def item_of_another_list(x, rows):
    ROWS[1] = 9.0
    rows[0] = 7.0
    ROWS[-1] = 3.5
    return x * rows[1], rows[0], ROWS[0], ROWS[2], len(ROWS)


@case(replays=3, mutate=do(3, lambda s: ROWS.append(1.0)), inert=True)
def negative_index(x):
    ROWS[-1] = 5.0
    return x + ROWS[2]


@case(replays=5)
def numbers_that_are_one_key(x):
    d = TABLE
    d[1] = 2.0
    d[True] = 3.0
    d[1.0] = x
    return d[1], len(d), d[True] is x


@built(args=lambda i, s: (T(i, 3),), replays=4)
def two_functions_share_a_cell(s):
    n = 1.0

    def put(v):
        nonlocal n
        n = v

    def get():
        return n

    def f(x):
        put(4.0)
        y = x * get()
        put(x)
        return y, get()
    return f


@case(replays=4)
def global_and_its_dict(x):
    global LEVEL
    LEVEL = 3
    y = x * LEVEL
    globals()["LEVEL"] = 4
    y = y + LEVEL
    setattr(sys.modules[__name__], "LEVEL", 5)
    return y, LEVEL, globals()["LEVEL"], "LEVEL" in globals()


def slots(i, s):
    a, b = Slots(1.0), Slots(2.0)
    return T(i, 3), a, a if i == 3 else b


@case(args=slots, replays=3)
def slots_of_two(x, a, b):
    a.n = 5.0
    y = x * b.n
    b.n = x
    return y, a.n


class Default:
    n = 2.0


@built(args=lambda i, s: (T(i, 3),), replays=4)
def class_shows_through(s):
    s.a = Default()

    def f(x):
        s.a.n = 7.0
        y = x * s.a.n
        del s.a.n
        return y + s.a.n, hasattr(s.a, "n"), "n" in vars(s.a)
    return f


def gain_setter(s):
    Default.n = property(lambda self: 11.0, lambda self, v: LOG.append(v))


@built(mutate=do(3, gain_setter), args=lambda i, s: (T(i, 3),), replays=1)
def class_gains_a_setter(s):
    s.a = Default()

    def f(x):
        s.a.n = 7.0
        return x * s.a.n, list(LOG)
    return f


@built(args=lambda i, s: (T(i, 3),), replays=4)
def made_here_and_kept(s):
    s.a = Box()

    def f(x):
        s.a.m = d = {}
        d["k"] = x
        s.a.m["l"] = 1.0
        d["k"] = x + s.a.m["l"]
        return s.a.m["k"], len(s.a.m), list(d), s.a.m is d
    return f


@built(args=lambda i, s: (T(i, 3),), replays=4)
def items_are_replaced_in_a_loop(s):
    s.d = {"a": 1.0, "b": 2.0, "c": 3.0}

    def f(x):
        for k in s.d:
            s.d[k] = s.d[k] * 1.0
        for k, v in s.d.items():
            x = x * v
        return x, dict(s.d)
    return f


@built(args=lambda i, s: (T(i, 3),), replays=4)
def opaque_code_between(s):
    s.a = Box()

    def f(x):
        s.a.n = 3.0
        seen = eval("s.a.n", {"s": s})
        exec("s.a.n = 6.0", {"s": s})
        y = x * s.a.n
        s.a.n = 1.0
        return y, seen, gc.is_tracked(s.a)
    return f


@built(args=lambda i, s: (T(i, 3),), raises=(2,), mutate=do(2, lambda s: setattr(s, "bad", True)), replays=2)
def store_before_an_error(s):
    s.a, s.bad = Box(), False

    def f(x):
        s.a.n = 3.0
        if s.bad:
            s.bad = False
            raise ValueError("after the store")
        s.a.m = s.a.n
        return x * s.a.m
    return f


class Ring:
    def __init__(self):
        self.rows = [None, None]
        self.at = 0


@built(args=lambda i, s: (T(i, 3),), calls=10, replays=4)
def ring_of_two(s):
    s.ring = Ring()

    def f(x):
        r = s.ring
        old = r.rows[r.at % 2]
        r.rows[r.at % 2] = x
        r.at += 1
        return x if old is None else x + old, r.rows
    return f


@case(args=lambda i, s: (T(i, 3) if i < 3 else torch.nn.Parameter(T(i, 3)), {"b": 1.0}), again=1, replays=3)
def store_behind_opaque_code(x, d):
    d |= {"z": 26}
    del d["b"]
    return x + 1, list(d)


# -- one more item of an older list -------------------------------------------------------------------------------------


@case(args=lambda i, s: (T(i, 3), [T(9, 3)]))
def appends_to_an_older_list(x, rows):
    rows.append(x)
    rows.append(x + 1)
    return rows[0] + x, len(rows), rows[-1] * 2, rows[1]


def two_lists(i, s):
    """Two lists, that are one from call 3 on."""
    a, b = [1.0, 2.0], [3.0]
    return T(i, 3), a, a if i >= 3 else b


@case(args=two_lists, again=1)
def appends_to_one_of_two_lists(x, a, b):
    a.append(x)
    return x * len(b), bool(b)


@case(args=lambda i, s: (T(i, 3), [1.0] * (i + 1)), again=3)
def appends_to_lists_of_different_length(x, rows):
    rows.append(x)
    return x * len(rows)


@case(args=lambda i, s: (T(i, 3), [1.0] * (i + 1)))
def appends_and_asks_nothing(x, rows):
    rows.append(x * 2)
    return x


@case(args=lambda i, s: (T(i, 3), [1.0, 2.0]))
def appends_while_iterating(x, rows):
    total = x
    for n in rows:
        if len(rows) < 5:
            rows.append(n + 1)
        total = total * n
    return total


# -- objects made in the call that other code has changed ------------------------------------------------------------


def meddle(holder):
    for value in holder.values():
        value.append(len(value))
    holder["new"] = [7]


@case(setup=lambda s: setattr(s, "log", []), args=lambda i, s: (T(i, 3), s))
def reads_what_others_changed(x, s):
    made = {"a": [1], "b": [2, 3]}
    box = Box()
    box.n = made
    s.log.append(box)
    exec("meddle(box.n)", {"meddle": meddle, "box": box})
    made["a"].append(x)
    return x * len(made["a"]) + made["b"][-1], list(made), box.n["new"][0] + x, len(box.n)


@case(setup=lambda s: setattr(s, "log", []), args=lambda i, s: (T(i, 3), s), mutate=glob(3, LEVEL=7), again=1)
def keyword_arguments_others_may_change(x, s):
    options = {"alpha": 2}
    s.log.append(options)
    exec("options['alpha'] += level", {"options": options, "level": LEVEL})
    return torch.add(x, x, **options)


# -- what a store leaves known does not hang on how things lie at the moment -----------------------------------------------


class Open:
    """Its attributes come one by one."""


def again_and_again(i, s):
    """A new object, that has the attribute in some of the calls, and a dict in others."""
    o = Open()
    if i % 2:
        o.n = 1.0
    if i % 3 == 2:
        o.__dict__
    return T(i, 3), o


@case(args=again_and_again, calls=8, replays=7)
def new_attribute_or_old(x, o):
    o.n = 4.0
    o.m = x * o.n
    o.k = o.m + 1
    return o.k * o.n, o.m


@case(args=again_and_again, calls=8, replays=4)
def attributes_are_counted(x, o):
    o.n = 4.0
    o.m = 5.0
    return x * len(o.__dict__), list(vars(o)), "n" in o.__dict__


def hold(s):
    s.held = vars(s.a)


@built(mutate=do(3, hold), args=lambda i, s: (T(i, 3),), replays=3)
def somebody_gets_hold_of_the_dict(s):
    s.a, s.held = Box(1.0), {"n": 5.0}

    def f(x):
        s.a.n = s.a.n + 1.0
        s.held["n"] = s.held["n"] * 2
        return x * s.a.n + s.held["n"]
    return f


@built(mutate=do(3, lambda s: setattr(s, "held", {"n": 5.0})), args=lambda i, s: (T(i, 3),), replays=3)
def somebody_lets_go_of_the_dict(s):
    s.a = Box(1.0)
    s.held = vars(s.a)

    def f(x):
        s.a.n = 2.0
        s.held["n"] = s.held["n"] * 2
        return x * s.a.n + s.held["n"]
    return f


@built(args=lambda i, s: (T(i, 3),), replays=3)
def attribute_goes_and_comes(s):
    s.a = Box(1.0)
    vars(s.a)

    def f(x):
        first = list(s.a.__dict__)
        del s.a.n
        s.a.n = 3.0
        return x * s.a.n, first, list(s.a.__dict__), len(vars(s.a))
    return f


@built(args=lambda i, s: (T(i, 3),), replays=4)
def items_are_overwritten_in_a_loop(s):
    s.d = {"a": 1.0, "b": 2.0, "c": 3.0}

    def f(x):
        for k in s.d:
            s.d[k] = 4.0
        s.d["a"] = 5.0
        return x * len(s.d), list(s.d), s.d["a"]
    return f


@built(args=lambda i, s: (T(i, 3),), replays=4)
def key_goes_and_comes(s):
    s.d = {"a": 1.0, "b": 2.0}

    def f(x):
        n = s.d["a"]
        del s.d["a"]
        s.d["a"] = n
        return x * len(s.d), list(s.d)
    return f


def crowded(i, s):
    """Two objects of one class; the first has a name more than there is room for inline, from call 3 on."""
    a, b = Open(), Open()
    for k in range(40 if i >= 3 else 2):
        setattr(b, f"n{k}", k)
    return T(i, 3), a, b


@case(args=crowded, again=1)
def names_need_a_dict(x, a, b):
    a.n0 = 1.0
    a.late = 2.0
    y = x * a.n0
    b.late = 3.0
    return y + b.late * b.n1, a.late


@case(args=lambda i, s: (T(i, 3), Open()), calls=5, replays=4)
def dict_is_looked_at_between(x, o):
    o.n = x + 1
    d = o.__dict__
    y = o.n * 2
    o.m = y
    return len(d), d["m"] + d["n"], list(d)


def lists_of_lengths(i, s):
    """The list is longer in some calls: its length before the call is a fact, whatever is added."""
    return T(i, 3), [T(i + 9, 3)] * (1 + (i >= 4))


@case(args=lists_of_lengths, calls=6, again=1)
def reads_what_was_appended(x, rows):
    for k in range(3):
        rows.append(x * k)
        x = rows[-1] + rows[0] + rows[len(rows) - 2]
    return x, len(rows)


@case(args=lambda i, s: (lambda one: (T(i, 3), one, one if i in (3, 4) else [T(i, 3)]))([T(7, 3)]), calls=6, again=1)
def appends_to_two_and_reads_both(x, a, b):
    a.append(x)
    b.append(x + 1)
    return a[-1] + b[-1], len(a), len(b)


@case(args=lists_of_lengths, calls=6, again=1)
def replaces_what_was_appended(x, rows):
    rows.append(x)
    rows[-1] = x * 2
    rows.append(3)
    return rows[-2] + rows[0], rows[-1]


@case(args=lists_of_lengths, calls=6, again=1)
def goes_over_a_list_that_was_appended_to(x, rows):
    rows.append(x)
    return sum(rows), torch.stack(rows), [row + 1 for row in rows]


@case(args=lists_of_lengths, calls=6, again=1)
def appends_while_something_else_is_gone_over(x, rows):
    scales = {"a": 2.0, "b": 3.0}
    for k, (name, scale) in enumerate(scales.items()):
        rows.append(x * scale + k)
        x = rows[-1]
    for row, scale in zip(rows, (1.0, 2.0)):
        x = x + row * scale
    return x


@case(args=lists_of_lengths, calls=6, again=1)
def removes_after_appending(x, rows):
    rows.append(x)
    if rows:
        x = x + 1
    rows.pop()
    rows.append(x)
    rows.insert(0, x * 2)
    return rows[-1] + rows[0], len(rows)


# -- stores by functions that C functions call: they happen when the C function is through


@case(args=pair(False), again=2)
def mapped_function_counts(x, a, b):
    def work(t):
        a.n += 1
        b.n *= 2
        return t * a.n + b.n

    out = list(map(work, [x, x + 1, x]))
    return out, a.n, b.n, list(vars(a))


@case(args=lambda i, s: (T(i, 3), Box(float(i))), again=1)
def mapped_function_adds_attributes(x, box):
    def work(t):
        box.z = t
        box.y = 2
        box.z = t * 2
        return t + box.z

    return tuple(map(work, [x, x + 1])), list(vars(box)), box.z


@case(args=lambda i, s: (T(i, 3), dict(TABLE)), again=1)
def mapped_function_stores_items(x, table):
    def work(t):
        table["a"] += 1
        table["new"] = t.shape[0]
        return t * table["a"]

    return list(map(work, [x, x])), list(table.items())


@case(args=lambda i, s: (T(i, 3),), again=1)
def mapped_function_writes_globals(x):
    global LEVEL

    def work(t):
        global LEVEL
        LEVEL += 1
        return t * LEVEL

    before = LEVEL
    out = sum(map(work, [x, x, x]))
    after, LEVEL = LEVEL, 1
    return out, before, after


@case(args=lambda i, s: (T(i, 3), Box(float(i))), raises=(4, 5), again=2, replays=0)
def mapped_function_raises_after_a_store(x, box):
    def work(t):
        box.n += 1
        LOG.append(box.n)
        if box.n > 5:
            raise ValueError(box.n)
        return t * 2

    try:
        return list(map(work, [x, x])), box.n
    finally:
        LOG.append(box.n)


@case(args=lambda i, s: (T(i, 3), Box(Loud())), again=1, replays=0)
def mapped_function_replaces_what_is_heard(x, box):
    def work(t):
        box.n = 1
        return t * LEVEL

    return list(map(work, [x, x])), LEVEL


@case(args=lambda i, s: (T(i, 3), Box(float(i))), again=1, replays=0)
def mapped_function_is_looked_at(x, box):
    def work(t):
        box.n += 1
        return t * vars(box)["n"] + len(vars(box))

    return list(map(work, [x, x])), repr(sorted(vars(box).items(), key=str))


@case(args=lambda i, s: (T(i, 3),))
def mapped_function_changes_what_is_made_here(x):
    box, table = Box(2.0), {"a": 1}

    def work(t):
        box.n += 1
        table["a"] += 2
        table["b"] = t
        return t * box.n + table["a"]

    return [list(map(work, [x, x + 1])), box.n, table]


@case(args=lambda i, s: (T(i, 3), [1, 2]))
def mapped_function_appends(x, rows):
    def work(t):
        rows.append(t)
        rows.append((t.shape[0], t * 2))
        return t * 2

    before = len(rows)
    out = list(map(work, [x, x + 1]))
    return out, rows[before:], len(rows) - before


@case(args=lambda i, s: (T(i, 3), Box([]) if i < 4 else Box([1])), again=2, replays=0)
def mapped_function_looks_at_what_it_appends(x, box):
    def work(t):
        box.n.append(len(box.n))
        return t * box.n[-1]

    return list(map(work, [x, x + 1])), box.n
