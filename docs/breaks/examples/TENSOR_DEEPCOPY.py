"""TENSOR_DEEPCOPY: copy.deepcopy of a tensor; mended with clone()."""

import copy

import torch

import kintsugi


def f(x):
    y = copy.deepcopy(x)
    y.mul_(2)
    return y + x


def mended(x):
    y = x.detach().clone()
    y.mul_(2)
    return y + x


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("TENSOR_DEEPCOPY") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("TENSOR_DEEPCOPY: ok")


if __name__ == "__main__":
    main()
