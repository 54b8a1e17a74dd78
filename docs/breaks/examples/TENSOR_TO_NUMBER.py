"""TENSOR_TO_NUMBER: int(tensor) decided on; fixed by taking the number from the shape."""

import torch

from support import check


def f(x, n):
    y = x * 2
    return y[:2] + 1 if int(n) > 1 else y  # <- break


def fixed(x, n):
    y = x * 2
    return y[:2] + 1 if x.shape[0] > 1 else y


if __name__ == "__main__":
    check("TENSOR_TO_NUMBER", f, lambda: (torch.arange(4.0), torch.tensor(2)), fixed)
