"""FILE_ACCESS: a file is read, a break only under strict_breaks; fixed by reading it outside."""

import os

import torch

from support import check


def f(x):
    y = x.sin()
    file = open(os.devnull)  # <- break
    text = file.read()  # <- break
    file.close()  # <- break
    return y.cos() + len(text)


def fixed(x):
    return x.sin().cos()


if __name__ == "__main__":
    check("FILE_ACCESS", f, lambda: (torch.ones(3),), fixed, count=3, strict=True)
