"""TENSOR_REPR: The text of a tensor is used; mended by taking the text of its shape."""

import torch

import kintsugi


def f(x):
    y = x + 1
    if "2." in str(y):
        return y * 2
    return y


def mended(x):
    y = x + 1
    return torch.where((y == 2).any(), y * 2, y)


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("TENSOR_REPR") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("TENSOR_REPR: ok")


if __name__ == "__main__":
    main()
