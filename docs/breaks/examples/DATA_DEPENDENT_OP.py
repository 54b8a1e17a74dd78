"""DATA_DEPENDENT_OP: torch.equal returns a Python bool; fixed by comparing on tensors."""

import torch

from support import check


def f(x, y):
    z = x + y
    if torch.equal(z, x):  # <- break
        return z * 2
    return z


def fixed(x, y):
    z = x + y
    return torch.where((z == x).all(), z * 2, z)


if __name__ == "__main__":
    check("DATA_DEPENDENT_OP", f, lambda: (torch.ones(3), torch.zeros(3)), fixed)
