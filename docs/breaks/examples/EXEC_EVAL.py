"""EXEC_EVAL: eval() of a text with tensors at hand; fixed with plain code."""

import torch

from support import check


def f(x):
    y = x + 1
    return eval("t * 2", {"t": y})  # <- break


def fixed(x):
    y = x + 1
    return y * 2


if __name__ == "__main__":
    check("EXEC_EVAL", f, lambda: (torch.ones(3),), fixed)
