"""GENERATOR_ESCAPES: a suspended generator is handed to C code that resumes it later; fixed with a list."""

import collections

import torch

from support import check


def pieces(x):
    for i in range(3):
        yield x * i


def f(x):
    last = collections.deque(pieces(x), maxlen=1)  # <- break
    return last[0].cos()


def fixed(x):
    last = list(pieces(x))
    return last[-1].cos()


if __name__ == "__main__":
    check("GENERATOR_ESCAPES", f, lambda: (torch.ones(3),), fixed)
