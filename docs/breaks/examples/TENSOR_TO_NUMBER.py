"""TENSOR_TO_NUMBER: int(tensor) used as a Python number; mended by taking the number from the shape."""

import torch

import kintsugi


def f(x, n):
    y = x * 2
    return y[: int(n)] + 1


def mended(x, n):
    y = x * 2
    return y[: x.shape[0] // 2] + 1


def main():
    for args in [(torch.arange(4.0), torch.tensor(2))]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("TENSOR_TO_NUMBER") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("TENSOR_TO_NUMBER: ok")


if __name__ == "__main__":
    main()
