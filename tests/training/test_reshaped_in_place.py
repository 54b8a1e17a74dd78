"""Tensors with a gradient that get other sizes in place (unsqueeze_, squeeze_, as_strided_ of a pooled image): part of the graph where torch can go back through it."""
import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi
from torch import nn

WEIGHT = nn.Parameter(torch.randn(6, 5))


def product(x):
    return (x @ WEIGHT).sin()


def unsqueezed(x):
    y = product(x)
    y.unsqueeze_(1)
    return y * 2


def squeezed(x):
    y = product(x)[:, None]
    y.squeeze_(1)
    return y * 2


def given(x):
    y = product(x)
    y.unsqueeze_(0)
    return y


def written_behind(x):
    y = product(x)
    y.unsqueeze_(0)
    y.add_(1)
    return y.exp()


def several_times(x):
    y = product(x)
    y.unsqueeze_(0)
    y.unsqueeze_(2)
    y.squeeze_(0)
    return y * y


def through_a_view(x):
    y = product(x) * 1
    v = y[1]
    v.unsqueeze_(0).mul_(3)
    return y.exp(), v * 2


def both_given(x):
    y = product(x) * 1
    v = y[1]
    v.unsqueeze_(0)
    return y, v


def detached(x):
    y = product(x)
    d = y.detach()
    y.unsqueeze_(0)
    d.unsqueeze_(1)
    return y * 2 + d.transpose(0, 1)


def pooled(x):
    image = product(x)[:, :, None, None].expand(-1, -1, 3, 3).contiguous(memory_format=torch.channels_last)
    return F.adaptive_avg_pool2d(image, 1)


def pooled_rows(x):
    return F.adaptive_avg_pool1d(product(x)[None].transpose(1, 2), 1).flatten(1).relu()


def with_another_view(x):
    y = product(x)
    z = y[:, None]
    y.unsqueeze_(1)
    return y * 2 + z


def with_a_view_of_the_written(x):
    y = product(x)[None]
    z = y[0]
    y.squeeze_(0)
    y.mul_(2)
    return y.exp() + z


def transposed(x):
    y = product(x)
    z = y.t()
    y.t_()
    return y * 2 + z


WHOLE = [unsqueezed, squeezed, given, written_behind, several_times, through_a_view, both_given, detached, pooled, pooled_rows]
DIVIDED = [with_another_view, with_a_view_of_the_written, transposed]


def outcome(fn, x):
    x, WEIGHT.grad = x.clone().requires_grad_(), None
    results = fn(x)
    results = results if isinstance(results, tuple) else (results,)
    looks = [(r.shape, r.stride(), r._version, r.requires_grad) for r in results]
    sum((r * (torch.arange(r.numel()) % 5).reshape(r.shape)).sum() for r in results).backward()
    values = [*(r.detach().clone() for r in results), x.grad, WEIGHT.grad]
    with torch.no_grad():
        results[0].add_(1)   # whoever shares its memory
    return looks, values + [r.detach() for r in results]


@pytest.mark.parametrize("fn", WHOLE + DIVIDED, ids=lambda fn: fn.__name__)
def test_as_eager(fn):
    compiled = kintsugi.compile(fn)
    for _ in range(5):
        x = torch.randn(7, 6)
        (expected, wanted), (looks, values) = outcome(fn, x), outcome(compiled, x)
        assert looks == expected
        for a, b in zip(values, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    rows = kintsugi.stats(compiled)["kernels"]
    assert any(row["compiled"] for row in rows) and {row["parts"] for row in rows} == {1 if fn in WHOLE else 2}, rows
