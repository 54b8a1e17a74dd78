"""DISABLED_CALL: A function kept out of compiled code; fixed by removing the decorator."""

import torch

import kintsugi
from support import check


@kintsugi.disable
def outside(x):
    return x * 2


def f(x):
    return outside(x.sin()).cos()  # <- break


def fixed(x):
    return (x.sin() * 2).cos()


if __name__ == "__main__":
    check("DISABLED_CALL", f, lambda: (torch.ones(3),), fixed)
