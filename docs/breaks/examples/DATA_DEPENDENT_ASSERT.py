"""DATA_DEPENDENT_ASSERT: An assert on tensor data; fixed with torch._assert_async."""

import torch

from support import check


def f(x):
    y = x.exp()
    assert (y > 0).all()  # <- break
    return y + 1


def fixed(x):
    y = x.exp()
    torch._assert_async((y > 0).all())
    return y + 1


if __name__ == "__main__":
    check("DATA_DEPENDENT_ASSERT", f, lambda: (torch.ones(3),), fixed)
