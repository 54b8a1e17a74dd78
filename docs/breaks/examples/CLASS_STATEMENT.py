"""CLASS_STATEMENT: A class statement in compiled code; mended by a class at module level."""

import torch

import kintsugi


class Outside:
    factor = 3


def f(x):
    y = x + 1

    class Inside:
        factor = 3

    return y * Inside.factor


def mended(x):
    y = x + 1
    return y * Outside.factor


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("CLASS_STATEMENT") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("CLASS_STATEMENT: ok")


if __name__ == "__main__":
    main()
