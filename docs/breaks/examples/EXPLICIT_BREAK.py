"""EXPLICIT_BREAK: The program asks for a graph break; fixed by removing the call."""

import torch
import torch._dynamo

from support import check


def f(x):
    y = x.sin()
    torch._dynamo.graph_break()  # <- break
    return y.cos()


def fixed(x):
    return x.sin().cos()


if __name__ == "__main__":
    check("EXPLICIT_BREAK", f, lambda: (torch.ones(3),), fixed)
