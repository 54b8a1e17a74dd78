"""TENSOR_ITEM: A number taken out of a tensor and decided on; mended by staying on tensors."""

import torch

import kintsugi


def f(x):
    n = x.sum().item()
    if n > 2:
        return x / n
    return x


def mended(x):
    n = x.sum()
    return torch.where(n > 2, x / n, x)


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("TENSOR_ITEM") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("TENSOR_ITEM: ok")


if __name__ == "__main__":
    main()
