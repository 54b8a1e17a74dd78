"""DISABLE_INSIDE: disable() is called at every call; fixed by a function that is not disabled."""

import torch

from support import check


def double(x):
    return x * 2


def f(x):
    outside = torch.compiler.disable(double)  # <- break
    return outside(x.sin())


def fixed(x):
    return double(x.sin())


if __name__ == "__main__":
    check("DISABLE_INSIDE", f, lambda: (torch.ones(3),), fixed)
