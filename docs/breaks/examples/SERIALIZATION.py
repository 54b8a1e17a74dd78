"""SERIALIZATION: Tensors are pickled; fixed by pickling outside."""

import pickle

import torch

from support import check


def f(x):
    y = x + 1
    return pickle.loads(pickle.dumps(y)) * 2  # <- break


def fixed(x):
    y = x + 1
    return y * 2


if __name__ == "__main__":
    check("SERIALIZATION", f, lambda: (torch.ones(3),), fixed)
