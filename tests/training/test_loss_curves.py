"""Fifty steps from the same seeds, dropout active: losses, gradients and running statistics are eager's but for the last digits, and a run that
goes on from a checkpoint is the run that was never stopped."""
import copy

import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi, runs, versions
from torch import nn

STEPS, LAUNCHED = 50, 3 # by then calls run compiled code


def dense():
    return nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.2), nn.Linear(32, 4)), lambda: torch.randn(16, 12)


def convolutional():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.2),
                          nn.Linear(128, 4))
    return model, lambda: torch.randn(8, 3, 12, 12)


class Run:
    """A model, its optimizer and scheduler, and random numbers of its own."""

    def __init__(self, make, compile):
        torch.manual_seed(5)
        self.model, self.data = make()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)
        self.loss_of = compile(lambda x, y: F.cross_entropy(self.model(x), y))
        self.random, self.losses = torch.get_rng_state(), []

    def step(self):
        torch.set_rng_state(self.random)
        x = self.data()
        loss = self.loss_of(x, torch.randint(0, 4, (len(x),)))
        self.optimizer.zero_grad()
        loss.backward()
        if len(self.losses) == LAUNCHED:
            self.gradients = [p.grad.clone() for p in self.model.parameters()]
        self.optimizer.step()
        self.schedule.step()
        self.random = torch.get_rng_state()
        self.losses.append(loss.item())

    def state(self):
        return copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict(), self.schedule.state_dict(), self.random))

    def go_on_from(self, state):
        model, optimizer, schedule, self.random = copy.deepcopy(state)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        self.schedule.load_state_dict(schedule)


@pytest.mark.parametrize("make", [dense, convolutional])
def test_fifty_steps(make):
    eager, ours = Run(make, lambda fn: fn), Run(make, kintsugi.compile)
    for _ in range(STEPS):
        eager.step()
        ours.step()
        assert torch.equal(eager.random, ours.random)
    assert runs(ours.loss_of) > 0, [v["reason"] for v in versions(ours.loss_of)]
    assert max(abs(a - b) / abs(a) for a, b in zip(eager.losses, ours.losses, strict=True)) < 1e-4
    for a, b in zip(eager.gradients, ours.gradients, strict=True):
        assert (a - b).abs().max() <= 1e-4 * a.abs().max()
    for (name, a), (_, b) in zip(eager.model.named_buffers(), ours.model.named_buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("make", [dense, convolutional])
def test_a_run_that_goes_on_from_a_checkpoint(make):
    run = Run(make, kintsugi.compile)
    for _ in range(10):
        run.step()
    state = run.state()
    for _ in range(10):
        run.step()
    ended = run.state()
    for other in (run, Run(make, kintsugi.compile)):
        other.go_on_from(state)
        before = len(other.losses)
        for _ in range(10):
            other.step()
        if other is run:
            assert other.losses[before:] == run.losses[10:20]
            for key, value in ended[0].items():
                assert torch.equal(value, other.model.state_dict()[key]), key
        else: # its first step is eager's
            assert max(abs(a - b) / abs(b) for a, b in zip(other.losses, run.losses[10:20], strict=True)) < 1e-4
