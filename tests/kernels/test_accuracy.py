"""Long sums: kernels are as close to the exact results as eager is, within a factor of two and two units in the last place.

The numbers are positive. Then sums only grow, each number that is added one after the other costs half a unit of what is there, and a kernel that adds all of
them to the same sum is off by much more than PyTorch's, whose sums are made of blocks.
"""

import pytest
import torch
from torch.nn.functional import avg_pool2d, batch_norm, conv1d, conv2d, conv_transpose2d, cross_entropy, layer_norm, linear, mse_loss, scaled_dot_product_attention

from launches import kintsugi, runs

pytestmark = pytest.mark.usefixtures("kernels")
aten = torch.ops.aten


def gradients(stride, padding):
    def of(x, weight, back):
        return aten.convolution_backward(back, x, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, [True, True, False])[:2]

    return of


def attend(q, k, v):
    return scaled_dot_product_attention(q * 0.5, k, v)


def attend_in_parts(q, k, v):
    return ((q * 0.5) @ k.transpose(-2, -1)).softmax(-1) @ v


# What is computed, and of which sizes.
PRODUCTS = {
    "matmul": (lambda a, b: (a @ b) * 2, (30, 20000), (20000, 70)),
    "4096": (lambda a, b: (a @ b) * 2, (150, 4096), (4096, 200)),
    "left side by columns": (lambda a, b: (a.t() @ b) * 2, (20000, 30), (20000, 70)),
    "linear": (lambda a, b: linear(a, b) * 2, (40, 20000), (64, 20000)),
    "few rows": (lambda a, b: (a @ b) * 2, (4, 100000), (100000, 96)),
    "few rows of a linear": (lambda a, b: linear(a, b) * 2, (4, 100000), (64, 100000)),
    "one row": (lambda a, b: (a @ b) * 2, (1, 100000), (100000, 96)),
    "bmm": (lambda a, b: torch.bmm(a, b) * 2, (3, 20, 20000), (3, 20000, 64)),
    "attention": (attend, (1, 2, 16, 32), (1, 2, 20000, 32), (1, 2, 20000, 32)),
    "attention in parts": (attend_in_parts, (1, 2, 16, 32), (1, 2, 20000, 32), (1, 2, 20000, 32)),
}
CONVOLUTIONS = {
    "3x3": (lambda x, w: conv2d(x, w, padding=1) * 2, (1, 1024, 9, 9), (32, 1024, 3, 3)),
    "1x1": (lambda x, w: conv2d(x, w) * 2, (1, 8192, 9, 9), (32, 8192, 1, 1)),
    "5x5 of many channels": (lambda x, w: conv2d(x, w, stride=2) * 2, (1, 1024, 17, 17), (32, 1024, 5, 5)),
    "one dim": (lambda x, w: conv1d(x, w) * 2, (1, 4096, 60), (32, 4096, 3)),
    "transposed": (lambda x, w: conv_transpose2d(x, w) * 2, (1, 2048, 9, 9), (2048, 32, 3, 3)),
    "3x3 backward": (gradients(1, 1), (2, 32, 96, 96), (32, 32, 3, 3), (2, 32, 96, 96)),
    "3x3 backward, strides": (gradients(2, 1), (2, 32, 192, 192), (32, 32, 3, 3), (2, 32, 96, 96)),
    "1x1 backward": (gradients(1, 0), (2, 32, 192, 192), (32, 32, 1, 1), (2, 32, 192, 192)),
    "small images backward": (gradients(1, 0), (2000, 32, 7, 7), (32, 32, 1, 1), (2000, 32, 7, 7)),
    "one line backward": (gradients(1, 0), (1, 32, 1, 40000), (32, 32, 1, 1), (1, 32, 1, 40000)),
}
REDUCTIONS = {
    "sum": (lambda x: (x * 2).sum(-1), (4, 1000000)),
    "sum of everything": (lambda x: (x * 2).sum(), (100000, 10)),
    "sum of rows": (lambda x: (x * 2).sum(0), (100000, 40)),
    "sum of a middle dim": (lambda x: (x * 2).sum(1), (3, 300000, 5)),
    "sum of two dims": (lambda x: (x * 2).sum((0, 2)), (30000, 3, 10)),
    "mean": (lambda x: (x * 2).mean(-1), (4, 1000000)),
    "mean of rows": (lambda x: (x * 2).mean(0), (100000, 40)),
    "var": (lambda x: (x * 2).var(-1), (4, 1000000)),
    "var of rows": (lambda x: (x * 2).var(0), (100000, 40)),
    "norm": (lambda x: (x * 2).norm(dim=-1), (4, 1000000)),
    "logsumexp": (lambda x: (x * 2).logsumexp(-1), (4, 1000000)),
    "softmax": (lambda x: (x * 2).softmax(-1), (4, 1000000)),
    "softmax of columns": (lambda x: (x * 2).softmax(0), (100000, 20)),
    "layer_norm": (lambda x: layer_norm(x * 2, x.shape[-1:]), (4, 100000)),
    "batch_norm": (lambda x: batch_norm(x * 2, None, None, training=True), (4, 16, 300, 300)),
    "avg_pool2d": (lambda x: avg_pool2d(x * 2, 256), (1, 4, 512, 512)),
    "mse_loss": (lambda x, y: mse_loss(x * 2, y), (1000000,), (1000000,)),
    "cross_entropy": (lambda x, y: cross_entropy(x * 2, y.softmax(-1)), (100000, 10), (100000, 10)),
    "cumsum": (lambda x: (x * 2).cumsum(-1), (4, 100000)),
    "cumsum of rows": (lambda x: (x * 2).cumsum(0), (20000, 40)),
    "cumprod": (lambda x: (x * 0.001 + 1).cumprod(-1), (4, 50000)),
}


def errors(got, exact):
    """Of each result, as a share of what is exact, both over all elements."""
    return [float((a.double() - b).norm() / b.norm()) for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, exact)))]


def check(fn, *sizes, compiled=None):
    generator = torch.Generator().manual_seed(0)
    args = [torch.rand(s, generator=generator) for s in sizes]
    with torch.no_grad():
        exact, eager = fn(*(a.double() for a in args)), fn(*args)
        compiled = compiled or kintsugi.compile(fn)
        for _ in range(3):
            ours = compiled(*args)
    assert runs(compiled) >= 1
    for theirs, own in zip(errors(eager, exact), errors(ours, exact)):
        assert own <= 2 * theirs + 2 * torch.finfo(torch.float32).eps, f"{own:.1e}, eager {theirs:.1e}"


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    check(*PRODUCTS[name])


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name):
    check(*CONVOLUTIONS[name])


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    check(*REDUCTIONS[name])


def test_sizes_that_change():
    """Code for any number of rows cannot know how long sums become."""
    def total(x):
        return (x * 2).sum(1)

    compiled = kintsugi.compile(total)
    for rows in (3, 50, 300000, 300001):
        check(total, (3, rows, 5), compiled=compiled)
