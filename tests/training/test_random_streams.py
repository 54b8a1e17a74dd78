"""Random numbers in compiled training: eager's, bit by bit, whoever draws them, and the generator goes on where eager's would."""

import pytest
import torch
import torch.nn.functional as F
from launches import engine, kintsugi, needs_own_products, runs, versions


def compare(fn, *args, times=4, rtol=0):
    """Eager and compiled from the same seed on, call by call; the compiled function."""
    compiled = kintsugi.compile(fn)
    for seed in range(times):
        torch.manual_seed(seed)
        torch.rand(seed * 7)  # from another place on
        expected, state = fn(*args), torch.get_rng_state()
        torch.manual_seed(seed)
        torch.rand(seed * 7)
        torch.testing.assert_close(compiled(*args), expected, rtol=rtol, atol=0)
        assert torch.equal(torch.get_rng_state(), state)
    assert runs(compiled) > 0, [v["reason"] for v in versions(compiled)]
    return compiled


@pytest.mark.parametrize("sizes", [(1025,), (33, 77), (4, 8, 16, 16), (3, 5), (2, 70000)])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.0, 1.0])
def test_dropout(sizes, p):
    compare(lambda x: F.dropout(x * 2, p).neg(), torch.randn(sizes))


def test_dropout_of_what_wants_gradients():
    x = torch.randn(64, 100, requires_grad=True)
    compare(lambda x: F.dropout(x.relu(), 0.3) * 3, x)
    compiled = kintsugi.compile(lambda x: F.dropout(x.relu(), 0.3) * 3)
    for _ in range(3):
        torch.manual_seed(5)
        x.grad = None
        compiled(x).sum().backward()
        ours, x.grad = x.grad, None
        torch.manual_seed(5)
        (F.dropout(x.relu(), 0.3) * 3).sum().backward()
        assert torch.equal(ours, x.grad)


@pytest.mark.parametrize(("sizes", "dims"), [((5, 33, 16), (1, 0, 2)), ((3, 8, 6, 7), (0, 3, 1, 2)), ((1, 40, 9), (1, 0, 2)), ((12, 1, 9), (2, 1, 0)), ((4, 5), (1, 0))])
def test_dropout_of_what_lies_in_memory_in_another_order(sizes, dims):
    """The mask lies as its argument does, and PyTorch draws its numbers in that order (or by its indices, with MKL)."""
    compiled = compare(lambda x: F.dropout(x.permute(dims) * 2, 0.3).neg(), torch.randn(sizes))
    assert len(versions(compiled)) == 1  # no call of its own for the draw
    x = torch.randn(sizes, requires_grad=True)
    compare(lambda x: F.dropout(x.permute(dims) * 2, 0.3).neg(), x)


def test_dropout_of_what_has_gaps():
    compare(lambda x: F.dropout(x[:, ::2].t(), 0.3), torch.randn(30, 40))


@pytest.mark.parametrize("sizes", [(64, 16), (3, 5), (7,), (), (0, 4)])
@pytest.mark.parametrize("draw", ["normal_()", "normal_(2.0, 0.5)", "uniform_()", "uniform_(-1, 2)", "exponential_()", "exponential_(2.0)", "cauchy_()",
                                  "log_normal_()", "geometric_(0.3)", "uniform_(to=3)"])
def test_numbers_drawn_in_place_divide_no_graph(draw, sizes):
    space = {"torch": torch}
    exec(f"def fn(x):\n    return x * 2 * torch.empty_like(x).{draw}", space)
    fn = space["fn"]
    compiled = compare(fn, torch.randn(sizes, requires_grad=True))
    assert len(versions(compiled)) == 1 or "to=" in draw
    compare(fn, torch.randn(sizes))
    x = torch.randn(sizes, requires_grad=True)
    for _ in range(3):
        grads = []
        for call in (compiled, fn):
            torch.manual_seed(5)
            grads += torch.autograd.grad(call(x).sum(), x)
        assert torch.equal(*grads)


@pytest.mark.parametrize("draw", ["normal_()", "uniform_()", "exponential_()"])
def test_numbers_drawn_in_place_for_what_lies_in_memory_in_another_order(draw):
    space = {"torch": torch}
    exec(f"def fn(x):\n    y = torch.empty(x.shape[1], x.shape[0]).t()\n    y.{draw}\n    x = x * 2\n    x.detach()[:, ::2].{draw}\n    return x + y", space)
    compare(space["fn"], torch.randn(40, 30))
    compare(space["fn"], torch.randn(40, 30, requires_grad=True))


@pytest.mark.parametrize("draw", ["normal_()", "uniform_()", "exponential_()"])
def test_what_is_drawn_over_keeps_no_gradient(draw):
    """Over what a gradient would flow through: none is left, and other elements keep theirs."""
    space = {}
    exec(f"def fn(x):\n    y = x * 2\n    y[1:].{draw}\n    return (y * y).sum()", space)
    fn = space["fn"]
    compiled = kintsugi.compile(fn)
    for seed in range(4):
        x, grads = torch.randn(6, 5, requires_grad=True), []
        for call in (compiled, fn):
            torch.manual_seed(seed)
            grads += torch.autograd.grad(call(x), x)
        torch.testing.assert_close(*grads)


def test_a_transformer_layer_with_dropout_is_one_graph():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
    compiled = kintsugi.compile(lambda x: layer(x).sum())
    for seed in range(4):
        x = torch.randn(3, 9, 32)
        torch.manual_seed(seed)
        expected = layer(x).sum()
        state, expected = torch.get_rng_state(), [expected, *torch.autograd.grad(expected, list(layer.parameters()))]
        torch.manual_seed(seed)
        loss = compiled(x)
        torch.testing.assert_close([loss, *torch.autograd.grad(loss, list(layer.parameters()))], expected, rtol=1e-3, atol=1e-4)
        assert torch.equal(torch.get_rng_state(), state)
    assert len(versions(compiled)) == 1 and runs(compiled) > 0


def test_draws_of_several_kinds_in_order():
    def fn(x):
        a = F.dropout(x, 0.2)
        b = torch.rand(300) + torch.randn(17).sum()
        c = F.dropout(a + b.mean(), 0.7)
        return c * torch.bernoulli(torch.full((1999,), 0.25)).sum() + F.dropout(x[:3, :3], 0.5).sum()

    compare(fn, torch.randn(50, 50), rtol=1e-5)  # sums are taken in another order


@needs_own_products
def test_draws_are_ours():
    x = torch.randn(50, 50)
    engine.set_profile(True)
    compiled = compare(lambda x: F.dropout(x, 0.2) + 1, x)
    engine.set_profile(False)
    names = {row["name"] for row in versions(compiled)[0]["profile"]}
    assert "library.bernoulli" in names, names


def test_half_and_double_stay_with_torch():
    for dtype in (torch.float64, torch.bfloat16):
        compare(lambda x: F.dropout(x, 0.2) + 1, torch.randn(60, 60).to(dtype))
