"""TENSOR_TOLIST: Numbers of a tensor in a Python list; mended with unbind()."""

import torch

import kintsugi


def f(x):
    total = 0.0
    for value in x.tolist():
        if value > 1:
            total += value
    return x * total


def mended(x):
    total = torch.zeros(())
    for value in x.unbind():
        total = total + torch.where(value > 1, value, torch.zeros(()))
    return x * total


def main():
    for args in [(torch.arange(4.0),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("TENSOR_TOLIST") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("TENSOR_TOLIST: ok")


if __name__ == "__main__":
    main()
