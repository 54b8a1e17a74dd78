"""DATA_DEPENDENT_BOOL_METHOD: An object whose truth is decided by tensor data."""

import torch

from support import check


class Mask:
    def __init__(self, t):
        self.t = t

    def __bool__(self):
        return bool(self.t.any())  # <- break


def f(x):
    y = x.relu()
    if Mask(y > 0):  # <- break
        y = y * 2
    return y


def fixed(x):
    y = x.relu()
    return torch.where((y > 0).any(), y * 2, y)


if __name__ == "__main__":
    check("DATA_DEPENDENT_BOOL_METHOD", f, lambda: (torch.ones(3),), fixed)
