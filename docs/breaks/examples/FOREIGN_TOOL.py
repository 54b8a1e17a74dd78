"""FOREIGN_TOOL: a debugger, profiler or coverage tool is at work: calls run eagerly while it is."""

import sys

import torch

import kintsugi
from support import check_event


def f(x):
    return x.sin().cos()


if __name__ == "__main__":
    compiled, x = kintsugi.compile(f), torch.ones(3)
    sys.setprofile(lambda *event: None)
    try:
        result = compiled(x)
    finally:
        sys.setprofile(None)
    assert torch.equal(result, f(x)) and torch.equal(compiled(x), f(x))
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] == 1 and stats["eager_calls"] == {"a tracing or profiling tool is active": 1}
    check_event("FOREIGN_TOOL", "fallback", f)
