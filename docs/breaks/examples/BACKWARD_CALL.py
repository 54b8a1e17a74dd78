"""BACKWARD_CALL: backward() inside the compiled function; mended by calling it outside."""

import torch

import kintsugi


def f(w, x):
    loss = (w * x).sum()
    loss.backward()
    grad = w.grad
    w.grad = None
    return grad * 2


def main():
    for args in [(torch.ones(3, requires_grad=True), torch.arange(3.0))]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("BACKWARD_CALL") == 1, breaks
    print("BACKWARD_CALL: ok")


if __name__ == "__main__":
    main()
