"""OPAQUE_METHOD: A C method without a rule is handed a tensor; here it only keeps it in a queue."""

import queue

import torch

from support import check


keep = queue.SimpleQueue()


def f(x):
    y = x.sin()
    keep.put(y)  # <- break
    return y.cos()


if __name__ == "__main__":
    check("OPAQUE_METHOD", f, lambda: (torch.ones(3),))
