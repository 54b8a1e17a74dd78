"""Checks of data that lead to an error, or ask for numbers that are not finite: the graph asserts them and goes on."""

import kintsugi
import pytest
import torch
from kintsugi._kintsugi import Compiled


def raises_if(x, limit=100):
    y = x * 2
    if y.sum() > limit:
        raise ValueError(f"{limit} is passed by {y.shape}")
    return torch.sin(y)


def raises_unless(x):
    y = x * 2
    if not (y > -100).all():
        raise ValueError("too small")
    return torch.sin(y)


def raises_by_number(ids, patches):
    if (ids == 7).sum().item() != patches.shape[0]:
        raise ValueError("image tokens and patches do not match")
    return torch.zeros(len(ids), 2).masked_scatter((ids == 7)[:, None].expand(-1, 2), patches).sin()


def clamps(x):
    y = x.exp()
    if not torch.isfinite(y).all():
        y = y.clamp(max=1000.0)
    return y + 1


def skips(x):
    y = x.log()
    if torch.isnan(y).any() or torch.isinf(y).any():
        return torch.zeros_like(x)
    return y * 2


def stops(x):
    total = x.sum()
    if torch.isnan(total):
        raise RuntimeError("the sum is not a number")
    return x / total


NAN, INF = float("nan"), float("inf")
PROGRAMS = [
    (raises_if, [(torch.ones(4),), (torch.ones(4) * 100,), (torch.ones(4),)]),
    (raises_unless, [(torch.ones(4),), (torch.ones(4) * -100,), (torch.ones(4),)]),
    (raises_by_number, [(torch.tensor([7, 1, 7]), torch.ones(2, 2)), (torch.tensor([7, 1, 1]), torch.ones(2, 2)), (torch.tensor([1, 7, 7]), torch.ones(2, 2))]),
    (clamps, [(torch.ones(4),), (torch.tensor([1.0, 2000.0]),), (torch.ones(4),), (torch.tensor([1.0, 2000.0]),)]),
    (skips, [(torch.ones(4),), (-torch.ones(4),), (torch.zeros(4),), (torch.ones(4) * 2,)]),
    (stops, [(torch.ones(4),), (torch.tensor([NAN, 1.0]),), (torch.ones(4),)]),
]


def outcome(fn, args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


def same(a, b):
    return torch.allclose(a, b, equal_nan=True) if isinstance(b, torch.Tensor) else a == b


@pytest.mark.parametrize("how", ["steps", "kernels", "backend"])
@pytest.mark.parametrize("fn, calls", PROGRAMS, ids=lambda p: getattr(p, "__name__", ""))
def test_as_eager_in_one_graph(fn, calls, how):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    compiled = {"steps": lambda: Compiled(fn), "kernels": lambda: kintsugi.compile(fn, options={"kernels": True, "warm": True}),
                "backend": lambda: kintsugi.compile(fn, backend=backend)}[how]()
    for args in [*calls[:1] * 3, *calls, *calls]:
        assert same(outcome(compiled, args), outcome(fn, args)), args
    assert how != "backend" or graphs
    first = Compiled(fn)
    first(*calls[0])
    assert (first.stats()["breaks"], first.stats()["recordings"]) == (0, 1)


@pytest.mark.parametrize("fn, calls", PROGRAMS, ids=lambda p: getattr(p, "__name__", ""))
def test_fullgraph_accepts_them(fn, calls):
    compiled = kintsugi.compile(fn, fullgraph=True)
    for args in calls[:1] * 3:
        assert same(compiled(*args), fn(*args))
    assert kintsugi.explain(fn)(*calls[0]).graph_count == 1


def handles(x):
    try:
        if x.sum() > 0:
            raise ValueError
        return x + 1
    except ValueError:
        return x - 1


def test_a_raise_that_the_function_handles_is_a_decision():
    compiled = Compiled(handles)
    for x in (torch.ones(2), -torch.ones(2), torch.ones(2), -torch.ones(2)):
        assert torch.equal(compiled(x), handles(x))
    assert kintsugi.explain(handles)(torch.ones(2)).graph_break_count == 1


def test_numbers_that_are_not_finite_in_the_first_call_end_the_graph():
    assert kintsugi.explain(clamps)(torch.tensor([2000.0])).graph_break_count == 1


def test_the_gradient_is_that_of_the_way_taken():
    compiled = kintsugi.compile(clamps, options={"kernels": True, "warm": True})
    for data in (torch.ones(4), torch.tensor([1.0, 2000.0]), torch.ones(4)):
        x, y = data.clone().requires_grad_(), data.clone().requires_grad_()
        compiled(x).sum().backward()
        clamps(y).sum().backward()
        assert same(x.grad, y.grad)
