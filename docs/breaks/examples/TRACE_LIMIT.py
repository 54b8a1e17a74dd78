"""TRACE_LIMIT: a call that is too long for one recording; fixed by a higher limit, or by compiling the inner function."""

import torch

import kintsugi
from support import check


def f(x):
    for _ in range(100): x = x * 1.01  # <- break
    return x


if __name__ == "__main__":
    with kintsugi.config.patch(trace_limit=200):
        check("TRACE_LIMIT", f, lambda: (torch.ones(3),))
    assert kintsugi.explain(f)(torch.ones(3)).graph_break_count == 0
