"""DYNAMIC_SHAPE_OP: The size of x[mask] depends on data and decides a branch; mended by keeping the shape."""

import torch

import kintsugi


def f(x):
    kept = x[x > 1]
    if kept.shape[0] > 1:
        return kept.sum()
    return x.sum()


def mended(x):
    mask = x > 1
    return torch.where(mask.sum() > 1, torch.where(mask, x, torch.zeros(())).sum(), x.sum())


def main():
    for args in [(torch.arange(4.0),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("DYNAMIC_SHAPE_OP") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("DYNAMIC_SHAPE_OP: ok")


if __name__ == "__main__":
    main()
