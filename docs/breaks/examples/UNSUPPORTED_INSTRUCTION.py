"""UNSUPPORTED_INSTRUCTION: an instruction meets values that none of its rules covers; fixed by writing it in another way."""

import torch

from support import check


class Entered:
    """A context manager whose methods are no plain functions."""

    __enter__ = staticmethod(lambda: None)
    __exit__ = staticmethod(lambda *error: None)


def f(x):
    y = x.sin()
    with Entered():  # <- break
        return y.cos()


def fixed(x):
    return x.sin().cos()


if __name__ == "__main__":
    check("UNSUPPORTED_INSTRUCTION", f, lambda: (torch.ones(3),), fixed)
