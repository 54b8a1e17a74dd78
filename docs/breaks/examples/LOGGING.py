"""LOGGING: A logging call is a break only under strict_breaks; otherwise it is replayed without ending the graph."""

import logging

import torch

import kintsugi


log = logging.getLogger("example")


def f(x):
    y = x.sin()
    log.info("shape %s", tuple(y.shape))
    return y.cos()


def main():
    kintsugi.config.strict_breaks = True
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("LOGGING") == 1, breaks
    print("LOGGING: ok")


if __name__ == "__main__":
    main()
