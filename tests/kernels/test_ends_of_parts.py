"""A graph that is compiled in parts names the line, and the expression in it, that stands between two of them: in stats(), explain() and the events."""

import pytest
import torch

import kintsugi


def check_between(x, y):
    h = (x @ y).relu()
    if not torch.isfinite(h).all(): raise ValueError  # noqa: E701
    return h.cos() + 1


def number_between(x, y):
    h = x @ y
    n = int(h.abs().sum()) % 3 + 2
    return torch.cat([h[:n] * 2, h]).sum(0)


def operator_between(x, y):
    h = (x @ y).relu()
    h = torch.cond(h.sum() > 0, lambda a: a * 2, lambda a: a.sin(), (h,))
    return h.cos() + 1


def limit_between(x, y):
    h = (x @ y).relu()
    h = torch.clamp(h * 2, 0, h.sum())
    return h.cos() + 1


EXPRESSIONS = [(check_between, 2, "isfinite(h).all()", "needs a result of the graph"), (number_between, 2, "int(h.abs().sum())", "needs a result of the graph"),
               (operator_between, 2, "torch.cond(h.sum() > 0", "cannot be compiled together"),
               (limit_between, 2, "torch.clamp(h * 2, 0, h.sum())", "cannot be compiled together with other calls (it needs a number from a tensor's data)")]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("fn, line, expression, reason", EXPRESSIONS, ids=lambda v: getattr(v, "__name__", ""))
def test_the_line_and_the_expression_are_named(fn, line, expression, reason):
    x, y = torch.rand(8, 8), torch.rand(8, 8)
    compiled = kintsugi.compile(fn, options={"warm": True})
    for _ in range(3):
        torch.testing.assert_close(compiled(x, y), fn(x, y))
    first, last = [row for row in kintsugi.stats(compiled)["kernels"] if row["parts"] == 2]
    place = f"{__file__}:{fn.__code__.co_firstlineno + line}: "
    assert first["ends"].startswith(place) and expression in first["ends"] and reason in first["ends"] and last["ends"] == ""
    assert f"the next part begins behind {place}" in str(kintsugi.explain(compiled)(x, y))
    event = [e for e in kintsugi.events() if e["event"] == "part" and e["name"] == fn.__name__][0]
    assert event["filename"] == __file__ and event["line"] == fn.__code__.co_firstlineno + line and event["function"] == fn.__name__


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", ["is_nested", "is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "layout"])
def test_layouts_of_results_are_known(name):
    def fn(x):
        return (x.t() @ x).relu() + (0 if getattr(x.t() * 2, name) in (False, torch.strided) else 1)

    x = torch.rand(8, 8)
    compiled = kintsugi.compile(fn, options={"warm": True})
    for _ in range(3):
        torch.testing.assert_close(compiled(x), fn(x))
    assert [row["parts"] for row in kintsugi.stats(compiled)["kernels"]] == [1]
