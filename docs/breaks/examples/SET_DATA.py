"""SET_DATA: set_() exchanges the memory of a tensor; mended with copy_()."""

import torch

import kintsugi


def f(x):
    y = torch.zeros(3)
    y.set_(x.clone())
    return y * 2


def mended(x):
    y = torch.zeros(3)
    y.copy_(x)
    return y * 2


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("SET_DATA") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("SET_DATA: ok")


if __name__ == "__main__":
    main()
