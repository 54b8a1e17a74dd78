"""CLASS_STATEMENT: A class statement in compiled code; fixed by a class at module level."""

import torch

from support import check


class Outside:
    factor = 3


def f(x):
    y = x + 1

    class Inside:  # <- break
        factor = 3

    return y * Inside.factor


def fixed(x):
    y = x + 1
    return y * Outside.factor


if __name__ == "__main__":
    check("CLASS_STATEMENT", f, lambda: (torch.ones(3),), fixed)
