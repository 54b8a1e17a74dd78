"""PRINT: print is a break only under strict_breaks; otherwise it is replayed without ending the graph."""

import torch

import kintsugi
from support import check


def f(x):
    y = x.sin()
    print("shape", tuple(y.shape))  # <- break
    return y.cos()


def fixed(x):
    y = x.sin()
    if not kintsugi.is_compiling():
        print("shape", tuple(y.shape))
    return y.cos()


if __name__ == "__main__":
    check("PRINT", f, lambda: (torch.ones(3),), fixed, strict=True)
