"""CLOCK: a clock is read, a break only under strict_breaks; fixed by measuring outside."""

import time

import torch

from support import check


def f(x):
    start = time.perf_counter()  # <- break
    y = x.sin().cos()
    return y if start > 0 else x


def fixed(x):
    return x.sin().cos()


if __name__ == "__main__":
    check("CLOCK", f, lambda: (torch.ones(3),), fixed, strict=True)
