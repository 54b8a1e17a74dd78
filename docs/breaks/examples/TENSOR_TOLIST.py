"""TENSOR_TOLIST: Numbers of a tensor in a Python list; fixed with unbind()."""

import torch

from support import check


def f(x):
    total = 0.0
    for value in x.tolist():  # <- break
        if value > 1:
            total += value
    return x * total


def fixed(x):
    total = torch.zeros(())
    for value in x.unbind():
        total = total + torch.where(value > 1, value, torch.zeros(()))
    return x * total


if __name__ == "__main__":
    check("TENSOR_TOLIST", f, lambda: (torch.arange(4.0),), fixed)
