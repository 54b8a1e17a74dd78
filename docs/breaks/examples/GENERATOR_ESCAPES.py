"""GENERATOR_ESCAPES: a suspended generator is handed to C code that resumes it later; fixed with a list."""

import itertools

import torch

from support import check


def pieces(x):
    for i in range(3):
        yield x * i


def f(x):
    first, second = itertools.tee(pieces(x))  # <- break
    return next(first).cos() + sum(second)


def fixed(x):
    all_pieces = list(pieces(x))
    return all_pieces[0].cos() + sum(all_pieces)


if __name__ == "__main__":
    check("GENERATOR_ESCAPES", f, lambda: (torch.ones(3),), fixed)
