"""OPAQUE_CALL: A C function without a rule is handed a tensor; mended by leaving the call to the caller."""

import gc

import torch

import kintsugi


def f(x):
    y = x.sin()
    if gc.is_tracked(y):
        y = y + 0
    return y.cos()


def mended(x):
    return x.sin().cos()


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("OPAQUE_CALL") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("OPAQUE_CALL: ok")


if __name__ == "__main__":
    main()
