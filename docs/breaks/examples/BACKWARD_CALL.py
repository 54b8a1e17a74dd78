"""BACKWARD_CALL: backward() inside the compiled function; fixed by calling it outside."""

import torch

from support import check


def f(w, x):
    loss = (w * x).sum()
    loss.backward()  # <- break
    grad = w.grad
    w.grad = None
    return grad * 2


if __name__ == "__main__":
    check("BACKWARD_CALL", f, lambda: (torch.ones(3, requires_grad=True), torch.arange(3.0)))
