"""SORT_KEYS: sorted() compares tensors; mended with torch.sort."""

import torch

import kintsugi


def f(x, y):
    small, large = sorted([x * 2, y * 2])
    return large - small


def mended(x, y):
    ordered = torch.sort(torch.stack([x * 2, y * 2])).values
    return ordered[1] - ordered[0]


def main():
    for args in [(torch.tensor(3.0), torch.tensor(1.0))]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("SORT_KEYS") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("SORT_KEYS: ok")


if __name__ == "__main__":
    main()
