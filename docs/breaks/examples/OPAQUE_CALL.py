"""OPAQUE_CALL: A C function without a rule is handed a tensor; fixed by leaving the call to the caller."""

import gc

import torch

from support import check


def f(x):
    y = x.sin()
    if gc.is_tracked(y):  # <- break
        y = y + 0
    return y.cos()


def fixed(x):
    return x.sin().cos()


if __name__ == "__main__":
    check("OPAQUE_CALL", f, lambda: (torch.ones(3),), fixed)
