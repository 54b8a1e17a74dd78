"""TENSOR_NUMPY: NumPy in the middle of tensor code; mended with the torch function of the same name."""

import numpy as np
import torch

import kintsugi


def f(x):
    y = x * 2
    order = torch.from_numpy(np.argsort(y.numpy()))
    return y[order] + 1


def mended(x):
    y = x * 2
    return y[torch.argsort(y)] + 1


def main():
    for args in [(torch.tensor([3.0, 1.0, 2.0]),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("TENSOR_NUMPY") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("TENSOR_NUMPY: ok")


if __name__ == "__main__":
    main()
