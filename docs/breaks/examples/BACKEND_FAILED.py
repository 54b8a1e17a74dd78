"""BACKEND_FAILED: a backend raises: its graph runs step by step, and under fullgraph=True the error is raised."""

import logging

import torch

import kintsugi
from support import check_event


def broken(gm, example_inputs):
    raise ValueError("no kernels today")


def f(x):
    return x.sin().cos()


if __name__ == "__main__":
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    compiled, x = kintsugi.compile(f, backend=broken), torch.ones(3)
    for _ in range(3):
        assert torch.equal(compiled(x), f(x))
    check_event("BACKEND_FAILED", "fallback", f)
    try:
        kintsugi.compile(f, backend=broken, fullgraph=True)(x)
    except RuntimeError as error:
        assert "no kernels today" in str(error), error
    else:
        raise AssertionError("the backend's error was lost")
