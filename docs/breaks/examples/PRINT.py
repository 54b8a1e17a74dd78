"""PRINT: print is a break only under strict_breaks; otherwise it is replayed without ending the graph."""

import torch

import kintsugi


def f(x):
    y = x.sin()
    print("shape", tuple(y.shape))
    return y.cos()


def mended(x):
    y = x.sin()
    if not kintsugi.is_compiling():
        print("shape", tuple(y.shape))
    return y.cos()


def main():
    kintsugi.config.strict_breaks = True
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("PRINT") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("PRINT: ok")


if __name__ == "__main__":
    main()
