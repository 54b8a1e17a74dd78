"""DATA_DEPENDENT_LOOP: A loop that ends when tensor data says so; fixed by a fixed number of masked iterations."""

import torch

from support import check


def f(x):
    while x.sum() < 10:  # <- break
        x = x * 2
    return x + 1


def fixed(x):
    for _ in range(4):
        x = torch.where(x.sum() < 10, x * 2, x)
    return x + 1


if __name__ == "__main__":
    check("DATA_DEPENDENT_LOOP", f, lambda: (torch.full((2,), 2.0),), fixed, count=2)
