"""Layers of nn.LSTM, nn.GRU and nn.RNN in training: launched, with eager's gradients."""
import copy

import pytest
import torch
from launches import kintsugi, needs_own_products, runs, versions
from torch import nn


@pytest.mark.parametrize("make", [lambda: nn.LSTM(12, 16, 2, batch_first=True), lambda: nn.LSTM(12, 16, bidirectional=True), lambda: nn.GRU(12, 16, 2),
                                  lambda: nn.RNN(12, 16)], ids=["lstm", "lstm-both", "gru", "rnn"])
def test_gradients_of_layers(make):
    torch.manual_seed(2)
    model, x = make(), torch.randn(6, 9, 12, requires_grad=True)
    other = copy.deepcopy(model)

    def loss(layers, x):
        return layers(x)[0].tanh().square().mean()

    compiled = kintsugi.compile(lambda x: loss(model, x))
    for _ in range(3):
        model.zero_grad()
        x.grad = None
        value = compiled(x)
        value.backward()
    assert runs(compiled) > 0, [v["reason"] for v in versions(compiled)]
    ours = [value.detach(), x.grad, *(p.grad for p in model.parameters())]
    x.grad = None
    value = loss(other, x)
    value.backward()
    for a, b in zip(ours, [value.detach(), x.grad, *(p.grad for p in other.parameters())], strict=True):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max()


def test_a_graph_that_nobody_goes_back_over():
    model, x = nn.LSTM(12, 16), torch.randn(6, 9, 12)
    compiled = kintsugi.compile(lambda x: model(x)[0])
    for _ in range(3):
        with torch.no_grad():
            expected = model(x)[0]
        torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5)
        assert torch.is_grad_enabled()


def flat(states):
    return list(states) if isinstance(states, tuple) else [states]


def check_gradients(model, x, first, loss):
    """Outputs and gradients of everything over some steps, dropout's draws as in eager, by launches in which layers are operators of our own."""
    other, results = copy.deepcopy(model), []
    compiled = kintsugi.compile(lambda x, *first: loss(model, x, *first))
    for function, layers, steps in ((compiled, model, 4), (lambda x, *first: loss(other, x, *first), other, 1)):
        for _ in range(steps):
            for leaf in (x, *first, *layers.parameters()):
                leaf.grad = None
            torch.manual_seed(3)
            out, value = function(x, *first)
            value.backward()
        results.append([out.detach(), value.detach(), *(leaf.grad for leaf in (x, *first, *layers.parameters()))])
        results[-1].append(torch.tensor(out.stride()))
    assert runs(compiled) > 0, [v["reason"] for v in versions(compiled)]
    assert any("mkldnn_rnn_layer_backward" in v["aten"] for v in versions(compiled))
    for ours, theirs in zip(*results, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max() + 1e-9


CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


@needs_own_products
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("width,count,options", [
    (16, 1, {}), (40, 2, {"batch_first": True, "dropout": 0.3}), (33, 2, {"bidirectional": True, "bias": False}),
    (33, 2, {"bidirectional": True, "batch_first": True}), (70, 1, {"bias": False})])
def test_layers_of_our_own(kernels, cell, given, width, count, options):
    torch.manual_seed(width)
    model, x = CELLS[cell](12, width, count, **options), torch.randn(6, 9, 12, requires_grad=True)
    batch, parts = (6 if options.get("batch_first") else 9), count * (2 if options.get("bidirectional") else 1)
    first = [torch.randn(parts, batch, width, requires_grad=True) for _ in range(2 if cell == "lstm" else 1)] if given else []

    def loss(layers, x, *first):
        out, last = layers(x, first if cell == "lstm" and first else first[0] if first else None)
        return out, out.tanh().square().mean() + sum(one.sin().mean() for one in flat(last)) * given

    check_gradients(model, x, first, loss)


@needs_own_products
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("steps,batch", [(1, 9), (7, 1), (5, 37)])
def test_sizes_of_layers(kernels, cell, steps, batch):
    """Only the last state is gone back from."""
    torch.manual_seed(steps)

    def loss(layers, x):
        out, last = layers(x)
        return out, flat(last)[-1].square().mean()

    check_gradients(CELLS[cell](5, 48), torch.randn(steps, batch, 5, requires_grad=True), [], loss)


def test_gradients_of_gradients(kernels):
    """By torch's own layers."""
    torch.manual_seed(1)
    model, x = nn.GRU(4, 6), torch.randn(3, 2, 4, requires_grad=True)

    def step(function):
        grad, = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), x)[0]

    compiled = kintsugi.compile(lambda x: model(x)[0])
    for _ in range(4):
        ours = step(compiled)
    assert runs(compiled) > 0
    torch.testing.assert_close(ours, step(lambda x: model(x)[0]))


def test_projections_stay(kernels):
    """Layers that have no kernel: torch's own."""
    torch.manual_seed(1)
    model, x = nn.LSTM(5, 8, proj_size=3), torch.randn(4, 2, 5)
    compiled = kintsugi.compile(lambda x: model(x)[0].square().mean())
    for _ in range(3):
        model.zero_grad()
        compiled(x).backward()
    ours = [p.grad for p in model.parameters()]
    model.zero_grad()
    model(x)[0].square().mean().backward()
    torch.testing.assert_close(ours, [p.grad for p in model.parameters()])
