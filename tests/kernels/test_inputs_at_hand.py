"""What a graph takes may have been let go of before it begins, having become part of something that its calls take: it is found there.
(A shape was not looked into: programs that begin with `torch.zeros(x.shape)` ran step by step wherever sizes vary, and nothing said why.)"""
import pytest
import torch

import kintsugi


def a_shape(x):
    return torch.zeros(x.shape) + x.tanh()


def a_shape_and_more(x):
    shape = (*x.shape, 3)
    return torch.full(shape, 0.5) * x.tanh()[..., None]


def a_slice(x):
    return torch.ones(64)[: x.shape[0]] + x.tanh().sum(1)


def nested(x):
    places = (slice(None, x.shape[0]), slice(x.shape[1] - 2, None))
    return torch.ones(64, 5)[places].exp() * x.tanh()[:, -2:]


def names(x):
    how = {"size": x.shape, "fill_value": float(x.shape[0])}
    return torch.full(**how) + x.tanh()


def a_list(x):
    return torch.ones([x.shape[0], 1]) + x.tanh()


@pytest.mark.parametrize("f", [a_shape, a_shape_and_more, a_slice, nested, names, a_list], ids=lambda f: f.__name__)
@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
def test_code_runs(f, train, kernels):
    compiled = kintsugi.compile(f)
    for n in (5, 7, 9, 3, 8, 5, 4, 11, 6, 7):
        x = torch.randn(n, 5, requires_grad=train)
        y = x.detach().clone().requires_grad_(train)
        ours, theirs = compiled(x), f(y)
        torch.testing.assert_close(ours, theirs)
        if train:
            ours.sum().backward()
            theirs.sum().backward()
            torch.testing.assert_close(x.grad, y.grad)
    rows = kintsugi.stats(compiled)["kernels"]
    assert sum(row["launches"] for row in rows) > 0, rows
    assert not any("defect" in row["reason"] for row in rows), rows
