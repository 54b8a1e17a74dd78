"""OPAQUE_METHOD: A C method without a rule is handed a tensor; here it only keeps it in a container."""

import collections

import torch

from support import check


keep = collections.deque(maxlen=2)


def f(x):
    y = x.sin()
    keep.extend([y])  # <- break
    return y.cos()


if __name__ == "__main__":
    check("OPAQUE_METHOD", f, lambda: (torch.ones(3),))
