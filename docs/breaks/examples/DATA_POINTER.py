"""DATA_POINTER: The address of a tensor is asked for; mended with `is`."""

import torch

import kintsugi


def f(x):
    y = x.view(-1)
    return y * 2 if y.data_ptr() != 0 else y


def mended(x):
    return x.view(-1) * 2


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("DATA_POINTER") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("DATA_POINTER: ok")


if __name__ == "__main__":
    main()
