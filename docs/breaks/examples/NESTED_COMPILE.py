"""NESTED_COMPILE: a function that PyTorch's own compiler made; fixed by Kintsugi's compile, which is inlined."""

import torch

import kintsugi
from support import check


def double(x):
    return x * 2


stock, ours = torch.compile(double, backend="eager"), kintsugi.compile(double)


def f(x):
    return stock(x.sin())  # <- break


def fixed(x):
    return ours(x.sin())


if __name__ == "__main__":
    check("NESTED_COMPILE", f, lambda: (torch.ones(3),), fixed)
