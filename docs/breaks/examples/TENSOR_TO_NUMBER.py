"""TENSOR_TO_NUMBER: int(tensor) used as a Python number; fixed by taking the number from the shape."""

import torch

from support import check


def f(x, n):
    y = x * 2
    return y[: int(n)] + 1  # <- break


def fixed(x, n):
    y = x * 2
    return y[: x.shape[0] // 2] + 1


if __name__ == "__main__":
    check("TENSOR_TO_NUMBER", f, lambda: (torch.arange(4.0), torch.tensor(2)), fixed)
