"""TENSOR_REPR: The text of a tensor is used; fixed by taking the text of its shape."""

import torch

from support import check


def f(x):
    y = x + 1
    if "2." in str(y):  # <- break
        return y * 2
    return y


def fixed(x):
    y = x + 1
    return torch.where((y == 2).any(), y * 2, y)


if __name__ == "__main__":
    check("TENSOR_REPR", f, lambda: (torch.ones(3),), fixed)
