"""TENSOR_DEEPCOPY: copy.deepcopy of a tensor; fixed with clone()."""

import copy

import torch

from support import check


def f(x):
    y = copy.deepcopy(x)  # <- break
    y.mul_(2)
    return y + x


def fixed(x):
    y = x.detach().clone()
    y.mul_(2)
    return y + x


if __name__ == "__main__":
    check("TENSOR_DEEPCOPY", f, lambda: (torch.ones(3),), fixed)
