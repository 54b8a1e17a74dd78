"""EXCEPTION_ESCAPED: a name that may be missing is tried; fixed by asking for it."""

import torch

from support import check


def f(x):
    y = x.sin()
    try:
        factor = FACTOR  # <- break
    except NameError:
        factor = 2
    return y * factor


def fixed(x):
    return x.sin() * globals().get("FACTOR", 2)


if __name__ == "__main__":
    check("EXCEPTION_ESCAPED", f, lambda: (torch.ones(3),), fixed)
