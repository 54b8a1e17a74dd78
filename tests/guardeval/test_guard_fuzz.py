"""Random changes of a small world: the fast array must agree with a fresh explicit program after each of them."""

import random
import types

import pytest

from guard_builder import Build


class Meta(type):
    pass


class Part(metaclass=Meta):
    shared = ["class attribute"]

    def __init__(self, n):
        self.n = n
        self.name = "part"


class SlotPart:
    __slots__ = ("left", "right")


def other_code(a, b=1, *, k=2):
    return k


class World:
    """Objects, a guard about their first state, and changes that can be undone."""

    def __init__(self, probe, rng, epoch=0):
        self.rng, self.epoch = rng, epoch
        self.one, self.two = ["one"], ["two"]
        captured = {"deep": (1, ["x"])}

        def fn(a, b=1, *, k=2):
            return captured, a, b, k

        self.fn = types.FunctionType(fn.__code__, {"part": None, "mode": "fast"}, "fn", (7,), fn.__closure__)
        self.fn.__kwdefaults__ = {"k": 2.5}
        self.cell = fn.__closure__[0]
        self.inline, self.dicted = Part(1), Part(2)
        self.dicted.__dict__["tail"] = {1: "a", "b": (2, 3)}
        self.slotted = SlotPart()
        self.slotted.left, self.slotted.right = self.one, {"k": self.inline}
        self.items = [self.inline, {"a": self.dicted, "b": None}, (self.one, 5)]
        self.fn.__globals__["part"] = self.slotted
        self.empty = types.CellType()
        self.describe(probe)

    def describe(self, probe):
        b = self.b = Build(probe, self.fn, self.epoch)
        f = b.src("FUNC")
        b.fact("CODE", f, self.fn.__code__)
        b.fact("NDEFAULTS", f, None, 1)
        b.fact("KWDEFAULT_LACKS", f, "other")
        b.fact("EQ", b.src("DEFAULT", f, 0), 7)
        b.fact("EQ", b.src("KWDEFAULT", f, "k"), 2.5)
        captured = b.src("CELL", b.src("CLOSURE", f, 0))
        b.fact("TYPE", captured, dict)
        deep = b.src("DICT_ITEM", captured, "deep")
        b.fact("LEN", deep, None, 2)
        self.used = [b.src("TUPLE_ITEM", deep, 1)]
        g = b.src("GLOBALS", f)
        b.fact("EQ", b.src("DICT_ITEM", g, "mode"), "fast")
        b.fact("LACKS_KEY", g, "late")
        slotted = b.src("DICT_ITEM", g, "part")
        b.fact("TYPE", slotted, SlotPart)
        offset = SlotPart.__basicsize__ - 16
        left, right = b.src("MEMBER", slotted, offset), b.src("MEMBER", slotted, offset + 8)
        self.used.append(left)
        b.fact("TYPE", right, dict)
        b.fact("HAS_KEY", right, "k")
        self.guard_part(b.src("DICT_ITEM", right, "k"), self.inline)
        items = b.src("LOCAL", key=0) if self.epoch == 0 else b.step()
        b.fact("TYPE", items, list)
        b.fact("LEN", items, None, 3)
        inline = b.src("LIST_ITEM", items, 0)
        self.guard_part(inline, self.inline)
        table = b.src("LIST_ITEM", items, 1)
        b.fact("TYPE", table, dict)
        b.fact("DICT_KEYS", table, ("a", "b"))
        dicted = b.src("DICT_ITEM", table, "a")
        self.guard_part(dicted, self.dicted)
        b.fact("NOT_SAME", inline, vid2=dicted)
        b.fact("ID", b.src("DICT_ITEM", table, "b"), None)
        tail = b.src("DICT_ITEM", b.src("INSTDICT", dicted), "tail")
        b.fact("TYPE", tail, dict)
        b.fact("TRUE", tail, None, 1)
        b.fact("LACKS_KEY", tail, 2)
        self.used.append(b.src("DICT_KEY", tail, 1))
        pair = b.src("LIST_ITEM", items, 2)
        b.fact("TYPE", pair, tuple)
        first = b.src("TUPLE_ITEM", pair, 0)
        b.fact("SAME", first, vid2=left)
        b.fact("EQ", b.src("TUPLE_ITEM", pair, 1), 5)
        empty = b.src("LOCAL", key=1)
        b.fact("CELL_EMPTY", empty)
        self.slots = lambda: {f: self.fn, items: self.items, empty: self.empty}
        self.make = lambda: b.make(used=self.used)

    def guard_part(self, vid, part):
        b = self.b
        b.type_version(vid, Part)
        n = b.src("IATTR", vid, "n")
        b.fact("EQ", n, part.n)
        b.fact("LACKS_ATTR", vid, "hook")
        cls = b.src("TYPE", vid)
        b.fact("TYPE_TAG", cls, None, b.probe.type_tag(Part))
        b.fact("TYPE_VERSION", cls, Meta, b.probe.type_tag(Meta))
        self.used += [b.src("IATTR", vid, "name"), b.src("TYPEATTR", cls, "shared")]

    def set_attr(self):
        obj, value = self.rng.choice([self.inline, self.dicted]), self.rng.choice(["x", ["y"], 4])
        name = self.rng.choice(["n", "name", "hook", "free"])
        old = obj.__dict__.get(name, self) if self.rng.random() < 0.3 else getattr(obj, name, self)
        setattr(obj, name, value)
        return lambda: delattr(obj, name) if old is self else setattr(obj, name, old)

    def same_value(self):
        """Another equal int, str, float: the guard still holds."""
        self.inline.n, self.dicted.n = int("1"), int("2")
        self.fn.__defaults__ = (int("7"),)
        self.fn.__kwdefaults__ = {"k": float("2.5")}
        return lambda: None

    def materialise(self):
        self.inline.__dict__
        return lambda: None

    def swap_dict(self):
        obj = self.rng.choice([self.inline, self.dicted])
        obj.__dict__ = dict(obj.__dict__)
        return lambda: None

    def change_class(self):
        obj = self.rng.choice([self.inline, self.dicted])
        obj.__class__ = Meta("Fake", (Part,), {})
        return lambda: setattr(obj, "__class__", Part)

    def change_item(self):
        i = self.rng.randrange(3)
        old, self.items[i] = self.items[i], self.rng.choice([None, {}, ["one"], Part(1)])
        return lambda: self.items.__setitem__(i, old)

    def resize(self):
        self.items.append(1)
        return lambda: self.items.pop()

    def fresh_list(self):
        self.items = list(self.items)
        return lambda: None

    def fresh_tuple(self):
        self.items[2] = tuple([self.one, int("5")])
        return lambda: None

    def order(self):
        table = self.items[1]
        if not isinstance(table, dict) or "a" not in table:
            return lambda: None
        table["a"] = table.pop("a")
        if self.rng.random() < 0.5:
            table["b"] = table.pop("b", None)
            return lambda: None
        return lambda: table.__setitem__("b", table.pop("b", None))

    def fill_cell(self):
        self.empty.cell_contents = self.rng.choice([None, 3])
        return lambda: delattr(self.empty, "cell_contents")

    def change_captured(self):
        old = self.cell.cell_contents
        self.cell.cell_contents = self.rng.choice([{"deep": (1, ["z"])}, {"deep": (1, 2, 3)}, {}, dict(old), None])
        return lambda: setattr(self.cell, "cell_contents", old)

    def change_function(self):
        which = self.rng.randrange(5)
        fn, code, defaults, kw = self.fn, self.fn.__code__, self.fn.__defaults__, self.fn.__kwdefaults__
        if which == 0:
            fn.__code__ = code.replace(co_name="other")
        elif which == 1:
            fn.__defaults__ = self.rng.choice([None, (8,), (7, 7)])
        elif which == 2:
            fn.__kwdefaults__ = self.rng.choice([None, {"k": 3.5}, {"k": 2.5, "other": 1}])
        elif which == 3:
            kw["other"] = 1
            return lambda: kw.pop("other", None)
        else:
            kw["free"] = 1
            return lambda: kw.pop("free", None)

        def undo():
            fn.__code__, fn.__defaults__, fn.__kwdefaults__ = code, defaults, kw

        return undo

    def change_global(self):
        table = self.fn.__globals__
        name = self.rng.choice(["late", "unrelated", "mode", "part"])
        old = table.get(name, self)
        table[name] = self.rng.choice(["fast", "slow", None])
        return lambda: table.pop(name, None) if old is self else table.__setitem__(name, old)

    def change_slot(self):
        name = self.rng.choice(["left", "right"])
        old = getattr(self.slotted, name)
        if self.rng.random() < 0.3:
            delattr(self.slotted, name)
        else:
            setattr(self.slotted, name, self.rng.choice([["one"], {"k": self.inline}, {"k": self.dicted}, {}]))
        return lambda: setattr(self.slotted, name, old)

    def change_tail(self):
        tail = self.dicted.__dict__.get("tail")
        which = self.rng.randrange(3)
        if which == 0:
            tail[2] = 1
            return lambda: tail.pop(2, None)
        if which == 1:
            self.dicted.__dict__["tail"] = dict(tail)
            return lambda: None
        self.dicted.__dict__["tail"] = {}
        return lambda: self.dicted.__dict__.__setitem__("tail", tail)

    def nothing(self):
        return lambda: None

    CHANGES = [
        set_attr, same_value, materialise, swap_dict, change_class, change_item, resize, fresh_list, fresh_tuple, order,
        fill_cell, change_captured, change_function, change_global, change_slot, change_tail, nothing,
    ]


def outcome(v, slots, epoch):
    ok, fact, vid, loaded, _ = v.eval(epoch, slots)
    return ok, fact, vid, {k: id(o) for k, o in loaded.items()}


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("seed", range(40))
def test_fast_array_agrees_with_explicit_program(probe, seed, epoch):
    rng = random.Random(seed)
    world = World(probe, rng, epoch)
    v = world.make()
    assert outcome(v, world.slots(), epoch)[0]
    held = failed = 0
    for _ in range(150):
        undo = []
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            try:
                undo.append(rng.choice(World.CHANGES)(world))
            except (AttributeError, KeyError, TypeError):
                pass  # an earlier change of this round is in the way
            # Between the changes too: arrays are made in states of every sort.
            fast, explicit = outcome(v, world.slots(), epoch), outcome(world.make(), world.slots(), epoch)
            assert fast == explicit
        if rng.random() < 0.2:
            junk = [bytearray(b"\xa5" * rng.randrange(16, 600)) for _ in range(50)]
            del junk
        assert outcome(v, world.slots(), epoch) == fast
        failed += not fast[0]
        for step in reversed(undo):
            step()
        world.items[:] = world.items[:3]
        fast, explicit = outcome(v, world.slots(), epoch), outcome(world.make(), world.slots(), epoch)
        assert fast == explicit
        held += fast[0]
        if not fast[0]:
            world = World(probe, rng, epoch)
            v = world.make()
    assert held > 100 and failed > 20
    assert v.stats()["fast" if epoch == 0 else "later_fast"] > 0
