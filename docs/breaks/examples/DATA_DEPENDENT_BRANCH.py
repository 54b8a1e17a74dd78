"""DATA_DEPENDENT_BRANCH: A branch on tensor data; mended with torch.where."""

import torch

import kintsugi


def f(x):
    y = x.sin()
    if y.sum() > 0:
        y = y * 2
    return y + 1


def mended(x):
    y = x.sin()
    y = torch.where(y.sum() > 0, y * 2, y)
    return y + 1


def main():
    for args in [(torch.ones(3),), (-torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("DATA_DEPENDENT_BRANCH") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("DATA_DEPENDENT_BRANCH: ok")


if __name__ == "__main__":
    main()
