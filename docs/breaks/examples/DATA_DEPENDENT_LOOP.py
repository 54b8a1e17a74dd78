"""DATA_DEPENDENT_LOOP: A loop that ends when tensor data says so; mended by a fixed number of masked iterations."""

import torch

import kintsugi


def f(x):
    while x.sum() < 10:
        x = x * 2
    return x + 1


def mended(x):
    for _ in range(4):
        x = torch.where(x.sum() < 10, x * 2, x)
    return x + 1


def main():
    for args in [(torch.full((2,), 2.0),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("DATA_DEPENDENT_LOOP") == 2, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("DATA_DEPENDENT_LOOP: ok")


if __name__ == "__main__":
    main()
