"""nn.RNN, nn.GRU and nn.LSTM as one product for the input of all steps and a call of our own that goes through them, against eager."""

import itertools

import pytest
import torch
from launches import kintsugi, runs, versions
from torch import nn

pytestmark = pytest.mark.usefixtures("kernels")

CELLS = {"lstm": lambda *a, **k: nn.LSTM(*a, **k), "gru": lambda *a, **k: nn.GRU(*a, **k), "tanh": lambda *a, **k: nn.RNN(*a, **k),
         "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)}


def states(cell, parts, batch, width):
    made = torch.randn(parts, batch, width)
    return (made, torch.randn(parts, batch, width)) if cell == "lstm" else made


def flat(result):
    out, state = result
    return [out, *state] if isinstance(state, tuple) else [out, state]


def check(module, *args, calls=6):
    """The same results, in the same layouts, over several calls; the compiled function."""
    def body(*a):
        out, state = module(*a)
        return out * 2 - 1, state
    compiled = kintsugi.compile(body)
    with torch.no_grad():
        wanted = flat(body(*args))
        for _ in range(calls):
            for got, want in zip(flat(compiled(*args)), wanted, strict=True):
                assert got.shape == want.shape and got.stride() == want.stride() and got.dtype == want.dtype
                torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-6, equal_nan=True)
    return compiled


def is_whole(compiled):
    """Was it captured as one operator, and launched?"""
    return runs(compiled) > 0 and any(".input(" in v["aten"] for v in versions(compiled))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("batch,steps,features,width", [(1, 1, 3, 5), (1, 7, 16, 32), (3, 5, 9, 33), (16, 4, 64, 48), (37, 3, 20, 130)])
def test_sizes(cell, batch, steps, features, width):
    torch.manual_seed(batch + width)
    module = CELLS[cell](features, width).eval()
    compiled = check(module, torch.randn(steps, batch, features), states(cell, 1, batch, width))
    assert is_whole(compiled)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers,both,first,bias", list(itertools.product((1, 3), (False, True), (False, True), (False, True))))
def test_kinds(cell, layers, both, first, bias):
    torch.manual_seed(layers)
    module = CELLS[cell](6, 10, num_layers=layers, bidirectional=both, batch_first=first, bias=bias).eval()
    x = torch.randn(4, 5, 6)
    compiled = check(module, x)
    check(module, x, states(cell, layers * (2 if both else 1), 4 if first else 5, 10))
    assert is_whole(compiled)


@pytest.mark.parametrize("cell", CELLS)
def test_strange_numbers(cell):
    torch.manual_seed(0)
    module = CELLS[cell](4, 8).eval()
    x = torch.randn(6, 5, 4)
    x[2, 0, 1] = float("nan")
    x[3, 1, 0] = float("inf")
    x[1, 2] = -1e30
    x[1, 3] = 1e30
    x[:, 4] *= 1e-20
    check(module, x)


def test_layouts_of_inputs():
    torch.manual_seed(0)
    module = nn.GRU(6, 8, batch_first=True).eval()
    check(module, torch.randn(5, 6, 4).transpose(1, 2))
    check(module, torch.randn(4, 9, 12)[:, ::2, ::2])
    check(module, torch.randn(7, 6))  # without a batch
    check(module, torch.randn(3, 5, 6), torch.randn(1, 8, 3).permute(0, 2, 1))


@pytest.mark.parametrize("cell", CELLS)
def test_weights_that_change(cell):
    torch.manual_seed(0)
    module = CELLS[cell](5, 7).eval()
    x = torch.randn(3, 2, 5)
    compiled = check(module, x)
    with torch.no_grad():
        for change in range(3):
            module.weight_hh_l0.data.mul_(0.5)
            module.bias_ih_l0.data.add_(change)
            out, state = module(x)
            torch.testing.assert_close(compiled(x)[0], out * 2 - 1, rtol=1e-5, atol=2e-6)
        module.load_state_dict(CELLS[cell](5, 7).state_dict())
        torch.testing.assert_close(compiled(x)[0], module(x)[0] * 2 - 1, rtol=1e-5, atol=2e-6)
        module._flat_weights[0] = torch.zeros_like(module._flat_weights[0])
        torch.testing.assert_close(compiled(x)[0], module(x)[0] * 2 - 1, rtol=1e-5, atol=2e-6)


def test_what_stays_pytorchs():
    torch.manual_seed(0)
    x = torch.randn(3, 2, 5)
    for module, arg in ((nn.LSTM(5, 8, proj_size=3), x), (nn.LSTM(5, 8).double(), x.double()), (nn.GRU(5, 8).bfloat16(), x.bfloat16()),
                        (nn.GRU(5, 8, num_layers=2, dropout=0.0).train(), x)):
        check(module, arg)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 2, 5), torch.tensor([4, 2]))
    module = nn.LSTM(5, 8).eval()
    compiled = kintsugi.compile(lambda p: module(p)[0].data * 2)
    with torch.no_grad():
        wanted = module(packed)[0].data * 2
        for _ in range(4):
            torch.testing.assert_close(compiled(packed), wanted)


def test_one_state_for_the_next_call():
    """A decoder's loop: what comes out goes in again."""
    torch.manual_seed(0)
    module, out = nn.LSTM(6, 6, num_layers=2).eval(), nn.Linear(6, 6)

    def body(x):
        state, made = None, []
        for _ in range(4):
            y, state = module(x, state)
            x = out(y).tanh()
            made.append(x)
        return torch.cat(made), state

    compiled = kintsugi.compile(body)
    x = torch.randn(1, 3, 6)
    with torch.no_grad():
        wanted = flat(body(x))
        for _ in range(6):
            for got, want in zip(flat(compiled(x)), wanted, strict=True):
                torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-6)
    assert is_whole(compiled)


def test_gradients_are_eagers():
    torch.manual_seed(0)
    module = nn.GRU(4, 5)
    compiled = kintsugi.compile(lambda x: module(x)[0].sum())
    for _ in range(3):
        x = torch.randn(3, 2, 4, requires_grad=True)
        compiled(x).backward()
        got = x.grad.clone()
        x.grad = None
        module(x)[0].sum().backward()
        torch.testing.assert_close(got, x.grad)
