"""Places that are computed from two sizes (`arange(n) - m`): kernels are made with what is known of their order, and plans are copied only where it is the same."""

import random

import pytest
import torch
import torch.nn.functional as F

from launches import kintsugi

pytestmark = pytest.mark.usefixtures("kernels")

PROGRAMS = {
    "clamped below": lambda x, y, n, m: x[:, (torch.arange(n) - m).clamp(min=0)] * 2,
    "wrapped": lambda x, y, n, m: x[:, (torch.arange(n) + m) % n].exp(),
    "halved and moved": lambda x, y, n, m: (torch.arange(n) // 2 - m).clamp(min=0).float() + x[0, :, 0],
    "even": lambda x, y, n, m: torch.where((torch.arange(n) + m) % 2 == 0, 1.0, 2.0)[:, None] * x,
    "number at least 0": lambda x, y, n, m: (torch.arange(n) - m).clamp(min=0).float()[:, None] * x,
    "greater of two": lambda x, y, n, m: torch.maximum(torch.arange(n), torch.tensor(m)).float()[:, None] * x,
    "added at clamped places": lambda x, y, n, m: torch.zeros(x.shape[0], n, 8).index_add(1, (torch.arange(m) - n).clamp(min=0, max=n - 1), y) * 2,
    "added at wrapped places": lambda x, y, n, m: torch.zeros(x.shape[0], n, 8).index_add(1, torch.arange(m) % n, y) * 2,
    "copied behind": lambda x, y, n, m: torch.zeros(x.shape[0], n + m, 8).index_copy(1, torch.arange(n) + m, x) * 2,
    "a diagonal cut": lambda x, y, n, m: x[0].diagonal(0)[:m] * 2,
    "rotated by a cut": lambda x, y, n, m: torch.cat([x[:, m:], x[:, :m]], 1) * 2,
    "embedded": lambda x, y, n, m: F.embedding((torch.arange(n) + m).clamp(max=m - 1), y[0]) * 2,
    "below a diagonal": lambda x, y, n, m: torch.ones(n, m).tril(m - n) @ y[0],
}
ORDERS = [lambda r, n: n + r.randint(0, 9), lambda r, n: max(2, n - r.randint(0, 9)), lambda r, n: n + r.randint(1, 30), lambda r, n: 2 * n + r.randint(0, 3)]


@pytest.mark.parametrize("order", range(len(ORDERS)))
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_order_that_changes(name, order):
    """For thirty calls m lies on one side of n, and anywhere behind them."""
    r, program = random.Random(f"{name} {order}"), PROGRAMS[name]

    def call(x, y):
        return program(x, y, x.shape[1], y.shape[1])

    before = max((e["seq"] for e in kintsugi.events()), default=-1)
    compiled, batches = kintsugi.compile(call, dynamic=order % 2 == 0 or None), r.choice([[1], [2], [1, 2, 5]])
    with torch.no_grad():
        for t in range(50):
            n = r.randint(2, 30)
            m = ORDERS[order](r, n) if t < 30 else r.randint(2, 34)
            batch = r.choice(batches)
            x, y = torch.randn(batch, n, 8), torch.randn(batch, m, 8)
            found, expected = compiled(x, y), call(x, y)
            assert found.stride() == expected.stride()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not [e["message"] for e in kintsugi.events() if e["seq"] > before and e["event"] == "bug"]
