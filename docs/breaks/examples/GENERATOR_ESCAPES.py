"""GENERATOR_ESCAPES: a suspended generator is handed to C code that resumes it later; fixed with a list."""

import itertools

import torch

from support import check


def pieces(x):
    for i in range(3):
        yield x * i


def f(x):
    chosen = itertools.compress(pieces(x), (0, 1, 1))  # <- break
    return next(chosen).cos() + sum(chosen)


def fixed(x):
    first, *others = list(pieces(x))[1:]
    return first.cos() + sum(others)


if __name__ == "__main__":
    check("GENERATOR_ESCAPES", f, lambda: (torch.ones(3),), fixed)
