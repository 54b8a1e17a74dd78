"""RECOMPILE_LIMIT: more kinds of calls than recompile_limit; the rest runs eagerly. Fixed by a higher limit."""

import torch

import kintsugi
from support import check_event


def f(x):
    return x * x.dim()


if __name__ == "__main__":
    inputs = [torch.ones([2] * dims) for dims in range(1, 6)]
    compiled = kintsugi.compile(f)
    with kintsugi.config.patch(recompile_limit=2):
        for x in inputs:
            assert torch.equal(compiled(x), f(x))
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] == 2 and stats["eager_calls"] == {"the recompile limit is reached": 3}, stats
    check_event("RECOMPILE_LIMIT", "limit", f)
    for x in inputs:
        assert torch.equal(compiled(x), f(x))
    assert kintsugi.stats(compiled)["recordings"] == 5
