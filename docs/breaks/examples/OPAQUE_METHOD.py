"""OPAQUE_METHOD: A C method without a rule is handed a tensor; here it only keeps it in a container."""

import collections

import torch

import kintsugi


keep = collections.deque(maxlen=2)


def f(x):
    y = x.sin()
    keep.extend([y])
    return y.cos()


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("OPAQUE_METHOD") == 1, breaks
    print("OPAQUE_METHOD: ok")


if __name__ == "__main__":
    main()
