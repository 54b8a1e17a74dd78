"""What random programs that train (tests/diff/fuzz_training.py) have found, reduced."""
import torch
from launches import kintsugi
from torch import nn


def test_a_loop_over_enumerated_parameters_is_recorded_behind_an_exit():
    """The region of an enumerate object over a generator is undone where neither of them is there any more."""
    torch.manual_seed(0)
    net, state = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), {}

    def step(x):
        loss = net(x).sum()
        with torch.no_grad():
            for k, p in enumerate(net.parameters()):
                state.setdefault(k, p.detach().clone()).lerp_(p, 0.1)
        return loss.detach()

    compiled = kintsugi.compile(step, backend="eager")
    for rows in (6, 6, 6, 4, 6):
        x = torch.randn(rows, 3)
        assert torch.equal(compiled(x), net(x).sum())
    assert len(state) == 4
