"""FRAME_INSPECTION: the program looks at its own running frames; fixed by passing what it looks for."""

import sys

import torch

from support import check


def name_of_caller():
    return sys._getframe(1).f_code.co_name  # <- break


def f(x):
    y = x.sin()
    return y.cos() if name_of_caller() == "f" else y


def names_of(x):
    y = x.sin()
    return y.cos() if "y" in dir() else y  # <- break


def fixed(x):
    return x.sin().cos()


if __name__ == "__main__":
    check("FRAME_INSPECTION", f, lambda: (torch.ones(3),), fixed)
    check("FRAME_INSPECTION", names_of, lambda: (torch.ones(3),), fixed)
