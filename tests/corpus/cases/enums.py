"""Members of enums: as keys of dicts and elements of sets, compared, and as the texts and numbers that some of them are as well."""
import enum

import torch

from kincorpus.case import T, attr, case, do, glob

SCALE = 2.0


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def scale(self):
        return self.value * SCALE


class Mode(str, enum.Enum):
    A = "a"
    B = "b"


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Bits(enum.Flag):
    X = enum.auto()
    Y = enum.auto()


class Odd(enum.Enum):
    ONE = 1
    TWO = 2

    def __hash__(self):
        return 7

    def __eq__(self, other):
        return isinstance(other, Odd)


TABLE = {Color.RED: 2.0, Color.BLUE: 3.0}
MODES = {Mode.A: torch.sin, Mode.B: torch.cos}
NUMBERS = {Number.ONE: 1.5, 2: 2.5}
TEXTS = {"a": 1, "b": 2}


def members(cls):
    return lambda i, s: (T(i, 4, 3), list(cls)[i % 2])


@case(args=members(Color), mutate=do(3, lambda s: TABLE.update({Color.RED: 5.0, Color.BLUE: 6.0})), replays=2)
def member_in_a_table(x, c):
    return x * TABLE[c] + TABLE.get(c, 1), c in TABLE, Mode.A in TABLE, TABLE.get(Mode.B)


@case(args=members(Mode), mutate=glob(3, SCALE=3.0), replays=1)
def text_member_in_a_table(x, m):
    return MODES[m](x) * SCALE, TEXTS[m], m in MODES, "a" in MODES, MODES.get("b"), TEXTS.get(m)


@case(args=members(Number), mutate=glob(3, SCALE=3.0), replays=1)
def number_member_in_a_table(x, n):
    return x * NUMBERS[n] * SCALE, NUMBERS[1], 2.0 in NUMBERS, n in NUMBERS, {n: x}.get(1), {1: x, 2: x + 1}[n]


@case(args=members(Color), mutate=glob(3, SCALE=3.0), replays=1)
def table_made_inside(x, c):
    table = {Color.RED: x, Color.BLUE: x * SCALE}
    table[c] = table[c] + 1
    table[Mode.A] = x
    return table[Color.RED] - table[Color.BLUE], list(table), table.pop(Color.RED), "a" in table, table.get("a"), c in table, len(table)


@case(args=members(Color), mutate=glob(3, SCALE=3.0), replays=1)
def members_of_a_set(x, c):
    known = {Color.RED, Mode.B}
    if c in known:
        x = x * SCALE
    return x + 1, c in {Color.BLUE}, len(known | {c}), Color.RED in known


@case(args=members(Odd), mutate=glob(3, SCALE=3.0), replays=0)
def members_that_are_equal(x, c):
    table = {Odd.ONE: x}
    table[Odd.TWO] = x * SCALE
    return len(table), table[c], c == Odd.ONE, table.get(c)


@case(args=members(Color), mutate=attr(3, lambda s: Color, __hash__=lambda self: 3), replays=0)
def class_gets_another_hash(x, c):
    table = {Color.RED: x, Color.BLUE: x * 2}
    return table[c], hash(c), len({c, Color.RED})


@case(args=members(Color), mutate=glob(3, SCALE=3.0), replays=1)
def member_decides(x, c):
    y = x * c.scale
    match c:
        case Color.RED:
            y = y + 1
        case Color.BLUE:
            y = y + 2
    return y * Color(2).value + Color["RED"].value, c.name, [m.value for m in Color], c is Color.RED, c == Color.BLUE


@case(args=members(Mode), mutate=glob(3, SCALE=3.0), replays=1)
def text_member_decides(x, m):
    y = x * SCALE if m == "a" else x
    return y + len(m), str(m), f"{m}", m.upper(), m.value, Mode("b"), m in ("a", "c")


@case(args=members(Bits), mutate=glob(3, SCALE=3.0), replays=1)
def bits_decide(x, b):
    if Bits.X in b | Bits.Y:
        x = x * SCALE
    return x + (b & Bits.X).value, b | Bits.Y, {b: 1}[b]
