"""GENERATOR: a generator made outside is resumed inside, and nobody knows what it does; mended by making it inside."""

import torch

import kintsugi


def pieces(x):
    for i in range(3):
        yield x * i


def f(x, source):
    y = x * 2
    for piece in source:
        y = y + piece
    return y.sin()


def mended(x, given):
    y = x * 2
    for piece in pieces(given):
        y = y + piece
    return y.sin()


def main():
    x = torch.tensor([1.0, 2.0])
    kintsugi.reset()
    compiled = kintsugi.compile(f)
    for _ in range(3):
        assert torch.equal(compiled(x, pieces(x)), f(x, pieces(x)))
    assert torch.equal(kintsugi.compile(mended)(x, x), f(x, pieces(x)))
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(x, pieces(x)).break_reasons]
    # One for each time it is asked, the last time in vain.
    assert breaks.count("GENERATOR") == 4, breaks
    assert kintsugi.explain(mended)(x, x).graph_break_count == 0
    print("GENERATOR: ok")


if __name__ == "__main__":
    main()
