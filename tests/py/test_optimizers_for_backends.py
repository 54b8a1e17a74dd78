"""Steps of PyTorch's optimizers with a custom backend: an optimizer counts its steps in a tensor, and decides on the number in Python (RAdam from its sixth step on)."""
import pytest
import torch

kintsugi = pytest.importorskip("kintsugi")
from counting_backend import Counting  # noqa: E402


def optimizer_of(name):
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(3))
    return parameter, getattr(torch.optim, name)([parameter], lr=0.05)


@pytest.mark.parametrize("name", ["RAdam", "ASGD", "Adam", "NAdam", "Rprop", "SGD"])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_each_step_is_as_eager(name, fullgraph):
    backend, (ours, optimizer), (eager, reference) = Counting(), optimizer_of(name), optimizer_of(name)
    step = kintsugi.compile(lambda: optimizer.step(), backend=backend, fullgraph=fullgraph)
    for i in range(9):
        for parameter in (ours, eager):
            parameter.grad = torch.arange(3.0) / (i + 1) - 0.4
        step()
        reference.step()
        assert torch.allclose(ours, eager), i
    assert backend.runs > 0
