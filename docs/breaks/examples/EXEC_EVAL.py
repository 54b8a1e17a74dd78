"""EXEC_EVAL: eval() of a text with tensors at hand; mended with plain code."""

import torch

import kintsugi


def f(x):
    y = x + 1
    return eval("t * 2", {"t": y})


def mended(x):
    y = x + 1
    return y * 2


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("EXEC_EVAL") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("EXEC_EVAL: ok")


if __name__ == "__main__":
    main()
