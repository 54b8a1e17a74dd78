"""WEAK_REFERENCE: a weak reference to a tensor of this call; fixed by keeping no track of it."""

import weakref

import torch

from support import check


died = []


def f(x):
    y = x.sin()
    reference = weakref.ref(y, died.append)  # <- break
    return y.cos() if reference() is y else y


def fixed(x):
    return x.sin().cos()


if __name__ == "__main__":
    check("WEAK_REFERENCE", f, lambda: (torch.ones(3),), fixed)
