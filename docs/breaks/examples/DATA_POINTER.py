"""DATA_POINTER: The address of a tensor is asked for; fixed with `is`."""

import torch

from support import check


def f(x):
    y = x.view(-1)
    return y * 2 if y.data_ptr() != 0 else y  # <- break


def fixed(x):
    return x.view(-1) * 2


if __name__ == "__main__":
    check("DATA_POINTER", f, lambda: (torch.ones(3),), fixed)
