"""BUILTIN_CALL: sorted() compares tensor data; mended with torch.sort."""

import torch

import kintsugi


def f(a, b):
    first, last = sorted([a.sum(), b.sum()])
    return last - first


def mended(a, b):
    values = torch.stack([a.sum(), b.sum()]).sort().values
    return values[1] - values[0]


def main():
    for args in [(torch.ones(3), torch.zeros(3))]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("BUILTIN_CALL") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("BUILTIN_CALL: ok")


if __name__ == "__main__":
    main()
