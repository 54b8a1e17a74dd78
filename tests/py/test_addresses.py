"""data_ptr() of tensors that are there before the call: tied weights, shared memory."""

import pytest
import torch
from torch import nn

import kintsugi


def shares(x, y):
    z = x.sin()
    if x.data_ptr() == y.data_ptr():
        return z + y
    return z - y


def aligned(x, y):
    return (x.cos() if x.data_ptr() % 16 == 0 else x * y), bool(x.data_ptr()), (x.data_ptr() - y.data_ptr()) // x.element_size()


def only_asked(x, y):
    address = x.data_ptr()  # noqa: F841
    return x + y


@pytest.mark.parametrize("fn", [shares, aligned, only_asked], ids=lambda fn: fn.__name__)
def test_addresses_of_inputs_end_no_graph(fn):
    compiled = kintsugi.compile(fn, fullgraph=True)
    kept = torch.arange(32.0)
    for i in (0, 0, 1, 4, 0, 2):
        x, y = kept[i:i + 8], kept[4:12]
        assert str(compiled(x, y)) == str(fn(x, y))
    assert str(compiled(kept, kept)) == str(fn(kept, kept))
    assert kintsugi.stats(compiled)["breaks"] == 0


def moves(x, y):
    before = x.data_ptr()
    x.add_(1)
    still = x.data_ptr() == before
    x.data = y
    return still, x.data_ptr() == before, x.data_ptr() == y.data_ptr(), x * 2


def grows(x, y):
    before = x.data_ptr()
    x.set_(y.view(-1))
    return x.data_ptr() == before, x.data_ptr() == y.data_ptr(), x + 1


@pytest.mark.parametrize("fn", [moves, grows], ids=lambda fn: fn.__name__)
def test_memory_that_is_replaced_within_the_call(fn):
    compiled = kintsugi.compile(fn)
    for i in range(5):
        y = torch.ones(3) * i
        assert str(compiled(torch.zeros(3) + i, y)) == str(fn(torch.zeros(3) + i, y))


def test_tied_weights():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            y = self.head(self.embed(x))
            return y * 2 if self.head.weight.data_ptr() == self.embed.weight.data_ptr() else y

    model = Model()
    compiled = kintsugi.compile(model, fullgraph=True)
    x = torch.tensor([0, 3])
    for step in range(5):
        if step == 3:
            model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
        assert torch.equal(compiled(x), model(x))
