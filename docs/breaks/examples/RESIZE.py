"""RESIZE: A tensor is resized in place; fixed with a new tensor."""

import torch

from support import check


def f(x):
    y = x * 2
    y.resize_(2)  # <- break
    return y + 1


def fixed(x):
    y = x * 2
    return y[:2] + 1


if __name__ == "__main__":
    check("RESIZE", f, lambda: (torch.ones(3),), fixed)
