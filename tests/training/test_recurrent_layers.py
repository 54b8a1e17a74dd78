"""Layers of nn.LSTM, nn.GRU and nn.RNN in training: launched, with eager's gradients."""
import copy

import pytest
import torch
from launches import kintsugi, runs, versions
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
