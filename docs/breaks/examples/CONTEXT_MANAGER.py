"""CONTEXT_MANAGER: A lock held around tensor code; mended by holding it around the compiled call."""

import threading

import torch

import kintsugi


lock = threading.Lock()


def f(x):
    y = x.sin()
    with lock:
        y = y.cos()
    return y


def mended(x):
    return x.sin().cos()


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("CONTEXT_MANAGER") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("CONTEXT_MANAGER: ok")


if __name__ == "__main__":
    main()
