"""EXPLICIT_BREAK: The program asks for a graph break; mended by removing the call."""

import torch
import torch._dynamo

import kintsugi


def f(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def mended(x):
    return x.sin().cos()


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("EXPLICIT_BREAK") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("EXPLICIT_BREAK: ok")


if __name__ == "__main__":
    main()
