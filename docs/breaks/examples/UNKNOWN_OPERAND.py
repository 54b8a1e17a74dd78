"""UNKNOWN_OPERAND: an object with a __torch_function__ of its own is handed to torch; fixed by handing over its tensor."""

import torch

from support import check


class Scaled:
    """Stands for a multiple of a tensor."""

    def __init__(self, tensor, factor):
        self.tensor, self.factor = tensor, factor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*(arg.tensor * arg.factor if isinstance(arg, cls) else arg for arg in args), **(kwargs or {}))


def f(x):
    twice = Scaled(x.sin(), 2)
    return torch.add(x, twice).cos()  # <- break


def fixed(x):
    return torch.add(x, x.sin() * 2).cos()


if __name__ == "__main__":
    check("UNKNOWN_OPERAND", f, lambda: (torch.ones(3),), fixed)
