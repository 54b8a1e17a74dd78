"""SERIALIZATION: Tensors are pickled; mended by pickling outside."""

import pickle

import torch

import kintsugi


def f(x):
    y = x + 1
    return pickle.loads(pickle.dumps(y)) * 2


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
    assert breaks.count("SERIALIZATION") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("SERIALIZATION: ok")


if __name__ == "__main__":
    main()
