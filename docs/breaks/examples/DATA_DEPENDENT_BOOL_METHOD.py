"""DATA_DEPENDENT_BOOL_METHOD: An object whose truth is decided by tensor data."""

import torch

import kintsugi


class Mask:
    def __init__(self, t):
        self.t = t

    def __bool__(self):
        return bool(self.t.any())


def f(x):
    y = x.relu()
    if Mask(y > 0):
        y = y * 2
    return y


def mended(x):
    y = x.relu()
    return torch.where((y > 0).any(), y * 2, y)


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("DATA_DEPENDENT_BOOL_METHOD") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("DATA_DEPENDENT_BOOL_METHOD: ok")


if __name__ == "__main__":
    main()
