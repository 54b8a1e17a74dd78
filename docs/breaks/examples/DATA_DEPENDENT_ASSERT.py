"""DATA_DEPENDENT_ASSERT: An assert on tensor data that fails and is caught; fixed with torch.where."""

import torch

from support import check


def f(x):
    y = x.exp()
    try:
        assert (y > 5).all()  # <- break
    except AssertionError:
        y = y + 5
    return y + 1


def fixed(x):
    y = x.exp()
    return torch.where((y > 5).all(), y, y + 5) + 1


if __name__ == "__main__":
    check("DATA_DEPENDENT_ASSERT", f, lambda: (torch.ones(3),), fixed)
