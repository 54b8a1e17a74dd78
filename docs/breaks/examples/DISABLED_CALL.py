"""DISABLED_CALL: A function kept out of compiled code; mended by removing the decorator."""

import torch

import kintsugi


@kintsugi.disable
def outside(x):
    return x * 2


def f(x):
    return outside(x.sin()).cos()


def mended(x):
    return (x.sin() * 2).cos()


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("DISABLED_CALL") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("DISABLED_CALL: ok")


if __name__ == "__main__":
    main()
