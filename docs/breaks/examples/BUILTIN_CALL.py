"""BUILTIN_CALL: A builtin without a rule is handed tensors; fixed with torch.maximum."""

import torch

from support import check


def f(x, y):
    return max(x * 2, y * 2) + 1  # <- break


def fixed(x, y):
    return torch.maximum(x * 2, y * 2) + 1


if __name__ == "__main__":
    check("BUILTIN_CALL", f, lambda: (torch.tensor(3.0), torch.tensor(1.0)), fixed)
