"""GENERATOR: a generator made outside is resumed inside, and nobody knows what it does; fixed by making it inside."""

import torch

from support import check


def pieces(x):
    for i in range(3):
        yield x * i


def f(x, source):
    y = x * 2
    for piece in source:  # <- break
        y = y + piece
    return y.sin()


def fixed(x, source):
    y = x * 2
    for piece in pieces(x):
        y = y + piece
    return y.sin()


if __name__ == "__main__":
    check("GENERATOR", f, lambda: (torch.tensor([1.0, 2.0]), pieces(torch.tensor([1.0, 2.0]))), fixed, count=4)
