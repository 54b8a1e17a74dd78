"""DATA_DEPENDENT_BRANCH: A branch on tensor data; fixed with torch.where."""

import torch

from support import check


def f(x):
    y = x.sin()
    if y.sum() > 0:  # <- break
        y = y * 2
    return y + 1


def fixed(x):
    y = x.sin()
    y = torch.where(y.sum() > 0, y * 2, y)
    return y + 1


if __name__ == "__main__":
    check("DATA_DEPENDENT_BRANCH", f, lambda: (torch.ones(3),), fixed)
