"""SET_DATA: set_() exchanges the memory of a tensor; fixed with copy_()."""

import torch

from support import check


def f(x):
    y = torch.zeros(3)
    y.set_(x.clone())  # <- break
    return y * 2


def fixed(x):
    y = torch.zeros(3)
    y.copy_(x)
    return y * 2


if __name__ == "__main__":
    check("SET_DATA", f, lambda: (torch.ones(3),), fixed)
