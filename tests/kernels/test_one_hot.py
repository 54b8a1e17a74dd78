"""F.one_hot with a number of classes is part of a graph; an index out of range raises what eager raises."""
import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi

pytestmark = pytest.mark.usefixtures("kernels")


def by_place(x):
    return F.one_hot(x * 1, 8).float() @ torch.ones(8, 3) + 1


def by_name(x):
    return F.one_hot(x + 0, num_classes=8).permute(2, 0, 1) * 2


def alone(x):
    return (F.one_hot(x, 8) - 0.5).abs()


def counted(x):
    """How many classes there are depends on data."""
    return F.one_hot(x + 0) * 2


def outcome(fn, x):
    try:
        return fn(x)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("fn", [by_place, by_name, alone, counted], ids=lambda fn: fn.__name__)
def test_as_eager(fn):
    compiled = kintsugi.compile(fn)
    for n in (5, 5, 5, 6, 7, 0, 5, 8):
        for bad in (None, 8, -1, 100):
            x = torch.randint(0, 8, (n, 2))
            if bad is not None and n > 0:
                x[1, 1] = bad
            wanted, found = outcome(fn, x), outcome(compiled, x)
            assert found == wanted if isinstance(wanted, str) else torch.equal(found, wanted) and found.stride() == wanted.stride()


@pytest.mark.parametrize("fn", [by_place, by_name, alone], ids=lambda fn: fn.__name__)
def test_one_part(fn):
    compiled = kintsugi.compile(fn)
    for n in (5, 5, 5, 6, 7, 5):
        x = torch.randint(0, 8, (n, 2))
        torch.testing.assert_close(compiled(x), fn(x))
    assert {row["parts"] for row in kintsugi.stats(compiled)["kernels"]} == {1}


def test_of_targets_in_a_loss():
    weight = torch.randn(6, 8, requires_grad=True)

    def loss(x, target):
        return ((x @ weight).softmax(-1) - F.one_hot(target, 8)).square().mean()

    compiled = kintsugi.compile(loss)
    with kintsugi.config.patch(training=True):
        for _ in range(5):
            x, target = torch.randn(4, 6), torch.randint(0, 8, (4,))
            gradients = [torch.autograd.grad(fn(x, target), weight)[0] for fn in (loss, compiled)]
            torch.testing.assert_close(*gradients)
