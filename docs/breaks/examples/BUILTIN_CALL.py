"""BUILTIN_CALL: A builtin without a rule is handed tensors; fixed with torch's own operator."""

import torch

from support import check


def f(x):
    return max((x * 2).unbind(), key=lambda t: -t) + 1  # <- break


def fixed(x):
    return (x * 2).amin() + 1


if __name__ == "__main__":
    check("BUILTIN_CALL", f, lambda: (torch.tensor([3.0, 1.0]),), fixed)
