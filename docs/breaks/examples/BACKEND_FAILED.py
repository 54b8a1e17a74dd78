"""BACKEND_FAILED: a backend raises: so does the call. With suppress_errors the graph runs step by step."""

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
    x = torch.ones(3)
    try:
        kintsugi.compile(f, backend=broken)(x)
    except RuntimeError as error:
        assert type(error).__name__ == "BackendCompilerFailed" and "no kernels today" in str(error), error
    else:
        raise AssertionError("the backend's error was lost")
    with kintsugi.config.patch(suppress_errors=True):
        compiled = kintsugi.compile(f, backend=broken)
        for _ in range(3):
            assert torch.equal(compiled(x), f(x))
    check_event("BACKEND_FAILED", "fallback", f)
