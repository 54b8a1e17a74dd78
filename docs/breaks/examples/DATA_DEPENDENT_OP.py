"""DATA_DEPENDENT_OP: torch.equal returns a Python bool; mended by comparing on tensors."""

import torch

import kintsugi


def f(x, y):
    z = x + y
    if torch.equal(z, x):
        return z * 2
    return z


def mended(x, y):
    z = x + y
    return torch.where((z == x).all(), z * 2, z)


def main():
    for args in [(torch.ones(3), torch.zeros(3))]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("DATA_DEPENDENT_OP") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("DATA_DEPENDENT_OP: ok")


if __name__ == "__main__":
    main()
