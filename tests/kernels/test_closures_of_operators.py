"""Graphs with torch.cond, while_loop and their like are compiled where the functions that these get capture parameters of the compiled function: the captured variable
is made before the graph begins, and what it holds is an input of the graph."""

import pytest
import torch

import kintsugi
from torch._higher_order_ops.while_loop import while_loop


def condition(x, y):
    return torch.cond(x.sum() > 0, lambda a: a @ y, lambda a: (a @ y).sin(), (x,)) + 1


def loop(x, y):
    _, r = while_loop(lambda i, r: i < 4, lambda i, r: (i + 1, r @ y), (torch.tensor(0), x))
    return r.sin()


def default(x, y):
    return torch.cond(x.sum() > 0, lambda a, b=y: a @ b, lambda a, b=y: (a @ b).sin(), (x,)) + 1


def changed_before(x, y):
    y = y * 2
    y = y + 1
    return torch.cond(x.sum() > 0, lambda a: a @ y, lambda a: (a @ y).sin(), (x,)) + 1


@pytest.mark.parametrize("fn", [condition, loop, default, changed_before], ids=lambda fn: fn.__name__)
@pytest.mark.usefixtures("kernels")
def test_captured_parameters(fn):
    torch.manual_seed(0)
    compiled = kintsugi.compile(fn, options={"warm": True})
    for sign in (1, 1, 1, -1, 1):
        x, y = sign * torch.rand(8, 8), torch.randn(8, 8) * 0.3
        torch.testing.assert_close(compiled(x, y), fn(x, y))
    rows = kintsugi.stats(compiled)["kernels"]
    assert rows and all(row["compiled"] for row in rows if row["part"] > 0), [(row["part"], row["reason"]) for row in rows]


@pytest.mark.usefixtures("kernels")
def test_a_variable_that_is_set_later_is_not_taken_for_what_it_was():
    def fn(x, y):
        f = lambda a: a @ y  # noqa: E731
        z = x.sin()
        y = y * 2
        return torch.cond(z.sum() > 0, f, lambda a: a @ y, (x,)) + z

    compiled = kintsugi.compile(fn, options={"warm": True})
    for _ in range(4):
        x, y = torch.rand(8, 8), torch.randn(8, 8)
        torch.testing.assert_close(compiled(x, y), fn(x, y))
