"""OPAQUE_PYTHON: torch.autograd.grad runs autograd's own Python; mended by writing the derivative down."""

import torch

import kintsugi


def f(x):
    y = (x * x).sum()
    slope, = torch.autograd.grad(y, x)
    return slope * 3


def mended(x):
    return 2 * x * 3


def main():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    kintsugi.reset()
    compiled = kintsugi.compile(f)
    for _ in range(3):
        assert torch.equal(compiled(x), f(x))
    assert torch.equal(kintsugi.compile(mended)(x), f(x))
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(x).break_reasons]
    assert breaks.count("OPAQUE_PYTHON") == 1, breaks
    assert kintsugi.explain(mended)(x).graph_break_count == 0
    print("OPAQUE_PYTHON: ok")


if __name__ == "__main__":
    main()
