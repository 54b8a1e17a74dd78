"""Losses of what a mask picks of two tensors: F.cross_entropy(scores[mask], classes[mask]) is part of the graph, though how much is picked depends on data."""

import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi

ROWS, CLASSES = 12, 5


def classes(n, low=0):
    return torch.randint(low, CLASSES, (n,))


ONE_GRAPH = {
    "cross entropy": lambda x, y, m: F.cross_entropy(x[m], y[m]),
    "sum": lambda x, y, m: F.cross_entropy(x[m], y[m], reduction="sum"),
    "smoothed, some ignored": lambda x, y, m: F.cross_entropy(x[m], y[m], ignore_index=3, label_smoothing=0.1),
    "nll": lambda x, y, m: F.nll_loss(F.log_softmax(x, -1)[m], y[m]),
    "by two dims": lambda x, y, m: F.cross_entropy(x.view(3, 4, CLASSES)[k := m.view(3, 4)], y.view(3, 4)[k], reduction="sum"),
    "squares": lambda x, y, m: F.mse_loss(x[m], x.detach().flip(0)[m]),
    "rows of squares": lambda x, y, m: F.mse_loss(x.flip(-1)[m], (x.detach() + 1)[m], reduction="sum"),
    "absolute": lambda x, y, m: F.l1_loss(x[m], x.detach().flip(0)[m]) + F.smooth_l1_loss(x[m], x.flip(0)[m], beta=0.5) + F.huber_loss(x[m], x.flip(0)[m], delta=0.3),
    "logits": lambda x, y, m: F.binary_cross_entropy_with_logits(x[m], x.detach().sigmoid()[m]),
    "where it is a number only": lambda x, y, m: (lambda k: F.mse_loss(x[k].sqrt(), x[k].log()))(x > 0.1),
}
DIVIDED = {
    "weighted": lambda x, y, m: F.cross_entropy(x[m], y[m], weight=torch.arange(1.0, CLASSES + 1)),
    "two masks": lambda x, y, m: F.cross_entropy(x[m], y[m.clone()]),
    "none": lambda x, y, m: F.cross_entropy(x[m], y[m], reduction="none").sum(),
    "shares": lambda x, y, m: F.cross_entropy(x[m], x.softmax(-1)[m]),
    "positions": lambda x, y, m: F.cross_entropy(x[m], y[m], None),
}


@pytest.mark.usefixtures("kernels")
@pytest.mark.compiled_gradients
@pytest.mark.parametrize("name", [*ONE_GRAPH, *DIVIDED])
def test_as_eager(name):
    fn = {**ONE_GRAPH, **DIVIDED}[name]
    compiled = kintsugi.compile(lambda x, y, m: fn(x.tanh() * 3, y, m) * 2)
    with kintsugi.config.patch(training=True):
        for share in (0.5, 0.2, 1.1, 0.5, -0.1, 0.5):
            x, y, m = torch.randn(ROWS, CLASSES, requires_grad=True), classes(ROWS), torch.rand(ROWS) < share
            found, wanted = compiled(x, y, m), fn(x.tanh() * 3, y, m) * 2
            torch.testing.assert_close(found, wanted, equal_nan=True)
            torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(wanted, x), equal_nan=True)
    rows = kintsugi.stats(compiled)["kernels"]
    assert name in DIVIDED or [(row["compiled"], row["parts"]) for row in rows] == [(True, 1)], rows


@pytest.mark.usefixtures("kernels")
@pytest.mark.compiled_gradients
def test_classes_out_of_range_count_where_they_are_picked():
    def fn(x, y, m):
        return F.cross_entropy(x[m] * 2, y[m])

    compiled = kintsugi.compile(fn)
    with kintsugi.config.patch(training=True):
        for picked in (False, False, True, False, True):
            x, y, m = torch.randn(ROWS, CLASSES, requires_grad=True), classes(ROWS), torch.rand(ROWS) < 0.5
            y[3], m[3] = CLASSES, picked
            m[4] = True
            if picked:
                with pytest.raises(IndexError):
                    compiled(x, y, m)
            else:
                torch.testing.assert_close(compiled(x, y, m), fn(x, y, m))
