"""[*thing], {**thing}: in the rest of a call that was left, a display that was begun before is read by path until it grows."""

import collections

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


class Refused:
    """C code asks it, and the recording does not follow: each answer runs code that it does not know."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(eval("self.items"))


def grows_behind_a_decision(x, a, b):
    made = [1, *(a if x.sum() > 0 else b), 3]
    return x * made[1], made, len(made)


def grows_twice(x, a, b):
    made = [1, *(a if x.sum() > 0 else b), *a, *b]
    return x + made[-1], made


def dict_grows(x, a, b):
    made = {"first": 1, **(a if x.sum() > 0 else b), "last": 2}
    return x * made["first"], made


LISTS = [(Refused([5, 6]), Refused([7])), (Refused([5]), [7, 8]), (collections.deque([5]), Refused([]))]
DICTS = [(collections.UserDict(first=5), collections.UserDict(other=6)), (collections.ChainMap({"first": 5}, {"x": 1}), {"first": 9})]


@pytest.mark.parametrize("fn, operands", [(fn, pair) for fn in (grows_behind_a_decision, grows_twice) for pair in LISTS] + [(dict_grows, pair) for pair in DICTS])
def test_as_eager(fn, operands):
    compiled = kintsugi.compile(fn)
    for n in range(8):
        x = torch.full((2,), 1.0 if n % 3 else -1.0)
        if isinstance(operands[0], Refused):
            operands[0].items.append(n)
        got, expected = compiled(x, *operands), fn(x, *operands)
        assert torch.equal(got[0], expected[0]) and got[1:] == expected[1:]
