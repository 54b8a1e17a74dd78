"""WARNING: a warning is a break only under strict_breaks; fixed by warning outside."""

import warnings

import torch

from support import check


def f(x):
    y = x.sin()
    warnings.warn("an example")  # <- break
    return y.cos()


def fixed(x):
    return x.sin().cos()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    check("WARNING", f, lambda: (torch.ones(3),), fixed, strict=True)
