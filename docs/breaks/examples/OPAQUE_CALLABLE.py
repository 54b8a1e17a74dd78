"""OPAQUE_CALLABLE: an object that is neither a Python nor a C function is called on a tensor; fixed with plain indexing."""

import operator

import torch

from support import check


first = operator.itemgetter(0)


def f(x):
    y = x.sin()
    return first(y).cos()  # <- break


def fixed(x):
    return x.sin()[0].cos()


if __name__ == "__main__":
    check("OPAQUE_CALLABLE", f, lambda: (torch.ones(3),), fixed)
