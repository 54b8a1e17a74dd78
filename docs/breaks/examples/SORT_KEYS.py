"""SORT_KEYS: sorted() compares tensors; fixed with torch.sort."""

import torch

from support import check


def f(x, y):
    small, large = sorted([x * 2, y * 2])  # <- break
    return large - small


def fixed(x, y):
    ordered = torch.sort(torch.stack([x * 2, y * 2])).values
    return ordered[1] - ordered[0]


if __name__ == "__main__":
    check("SORT_KEYS", f, lambda: (torch.tensor(3.0), torch.tensor(1.0)), fixed)
