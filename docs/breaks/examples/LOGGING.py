"""LOGGING: A logging call is a break only under strict_breaks; otherwise it is replayed without ending the graph."""

import logging

import torch

from support import check


log = logging.getLogger("example")


def f(x):
    y = x.sin()
    log.info("shape %s", tuple(y.shape))  # <- break
    return y.cos()


if __name__ == "__main__":
    check("LOGGING", f, lambda: (torch.ones(3),), strict=True)
