"""OPAQUE_PYTHON: torch.autograd.grad runs autograd's own Python; fixed by writing the derivative down."""

import torch

from support import check


def f(x):
    y = (x * x).sum()
    slope, = torch.autograd.grad(y, x)  # <- break
    return slope * 3


def fixed(x):
    return 2 * x * 3


if __name__ == "__main__":
    check("OPAQUE_PYTHON", f, lambda: (torch.tensor([1.0, 2.0], requires_grad=True),), fixed)
