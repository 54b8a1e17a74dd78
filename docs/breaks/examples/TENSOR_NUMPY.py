"""TENSOR_NUMPY: NumPy in the middle of tensor code; fixed with the torch function of the same name."""

import numpy as np
import torch

from support import check


def f(x):
    y = x * 2
    return torch.from_numpy(np.sort(y)) + 1  # <- break


def fixed(x):
    y = x * 2
    return torch.sort(y).values + 1


if __name__ == "__main__":
    check("TENSOR_NUMPY", f, lambda: (torch.tensor([3.0, 1.0, 2.0]),), fixed)
