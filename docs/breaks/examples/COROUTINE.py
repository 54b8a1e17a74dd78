"""COROUTINE: a coroutine function is called; fixed with a plain function."""

import torch

from support import check


async def double(x):
    return x * 2


def f(x):
    y = x.sin()
    try:
        double(y).send(None)  # <- break
    except StopIteration as done:
        return done.value.cos()


def fixed(x):
    return (x.sin() * 2).cos()


if __name__ == "__main__":
    check("COROUTINE", f, lambda: (torch.ones(3),), fixed, count=2)
