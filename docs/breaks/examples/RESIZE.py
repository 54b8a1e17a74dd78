"""RESIZE: A tensor is resized in place; mended with a new tensor."""

import torch

import kintsugi


def f(x):
    y = x * 2
    y.resize_(2)
    return y + 1


def mended(x):
    y = x * 2
    return y[:2] + 1


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("RESIZE") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("RESIZE: ok")


if __name__ == "__main__":
    main()
