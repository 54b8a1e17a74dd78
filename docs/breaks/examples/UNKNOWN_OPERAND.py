"""UNKNOWN_OPERAND: an object whose __torch_function__ is no Python function that could be followed is handed to torch; fixed by handing over its tensor."""

import functools

import torch

from support import check


def unwrapped(factor, func, types, args=(), kwargs=None):
    return func(*(arg.tensor * factor if isinstance(arg, Doubled) else arg for arg in args), **(kwargs or {}))


class Doubled:
    """Stands for twice a tensor."""

    __torch_function__ = functools.partial(unwrapped, 2)

    def __init__(self, tensor):
        self.tensor = tensor


def f(x):
    twice = Doubled(x.sin())
    return torch.add(x, twice).cos()  # <- break


def fixed(x):
    return torch.add(x, x.sin() * 2).cos()


if __name__ == "__main__":
    check("UNKNOWN_OPERAND", f, lambda: (torch.ones(3),), fixed)
