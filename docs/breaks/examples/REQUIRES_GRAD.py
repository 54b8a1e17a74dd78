"""REQUIRES_GRAD: requires_grad_() in the middle of the function; mended by detach()."""

import torch

import kintsugi


def f(x):
    y = (x * 2).requires_grad_()
    return y.detach() + 1


def mended(x):
    return (x * 2).detach() + 1


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("REQUIRES_GRAD") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("REQUIRES_GRAD: ok")


if __name__ == "__main__":
    main()
