"""TENSOR_ITEM: A number taken out of a tensor and decided on; fixed by staying on tensors."""

import torch

from support import check


def f(x):
    n = x.sum().item()
    if n > 2:  # <- break
        return x / n
    return x


def fixed(x):
    n = x.sum()
    return torch.where(n > 2, x / n, x)


if __name__ == "__main__":
    check("TENSOR_ITEM", f, lambda: (torch.ones(3),), fixed)
