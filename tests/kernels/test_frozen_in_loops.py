"""Weights that are kept for a loop's rounds: whatever writes to them between two rounds is seen in the next one, and rounds that nothing writes in ask once."""

import signal
import threading

import pytest
import torch
from torch import nn

from launches import kintsugi, runs

LENGTHS = [12, 9, 20, 15, 11, 30, 14, 25, 18, 13] * 4


@pytest.fixture(autouse=True)
def no_grad(kernels):
    with torch.no_grad():
        yield


class Cell(nn.Module):
    """`between` is called in each round with the number of the round."""

    def __init__(self, between):
        super().__init__()
        torch.manual_seed(3)
        self.inner, self.outer, self.between = nn.Linear(96, 96), nn.Linear(32, 96), between

    def forward(self, x):
        h, states = x.new_zeros(x.shape[0], 96), []
        for t in range(x.shape[1]):
            h = torch.tanh(self.outer(x[:, t]) + self.inner(h))
            self.between(self, t)
            states.append(h)
        return torch.stack(states, 1)


def nothing(cell, t):
    pass


@torch.compiler.disable
def through_numpy(cell, t):
    if t % 5 == 2:
        cell.inner.weight.detach().numpy()[t % 3] *= 0.5


def in_place(cell, t):
    if t % 5 == 2:
        cell.inner.weight.mul_(0.9)


def of_a_view(cell, t):
    cell.outer.weight.detach()[t % 4].add_(0.01)


def by_items(cell, t):
    cell.rows[t % 7] = 0.25


def by_a_tensor_over_the_same_memory(cell, t):
    cell.other.mul_(0.99)


def another_weight(cell, t):
    if t % 5 == 2:
        cell.inner.weight.data = cell.inner.weight * 0.9


@torch.compiler.disable
def in_a_thread(cell, t):
    if t % 5 == 2:
        thread = threading.Thread(target=lambda: cell.inner.weight.detach().mul_(0.9))
        thread.start()
        thread.join()


def prepared(between):
    cell = Cell(between)
    cell.rows = cell.inner.weight.detach().numpy()
    cell.other = torch.from_numpy(cell.inner.weight.detach().numpy())
    return cell


@pytest.mark.parametrize("between", [nothing, through_numpy, in_place, of_a_view, by_items, by_a_tensor_over_the_same_memory, another_weight, in_a_thread],
                         ids=lambda fn: fn.__name__)
def test_writes_between_rounds(between):
    eager, cell = prepared(between), prepared(between)
    compiled = kintsugi.compile(cell)
    for n, length in enumerate(LENGTHS):
        x = torch.randn(2, length, 32)
        torch.testing.assert_close(compiled(x), eager(x), rtol=1e-3, atol=1e-4, msg=lambda text: f"call {n}, length {length}: {text}")
        kintsugi.wait_for_kernels()
        if n % 7 == 6:  # and between calls
            for each in (eager, cell):
                each.inner.weight.detach().numpy()[0] += 0.1
    assert runs(compiled) > 100 or between is by_a_tensor_over_the_same_memory  # code that writes what another input shares is refused


def counts(cell, t):
    cell.rounds.append(t)


def test_a_signal_between_rounds():
    """Its handler writes to weights in the middle of a loop that nothing else writes in; the rounds behind it have the new ones."""
    cell, seen = prepared(counts), []
    cell.rounds = []
    for layer in (cell.inner, cell.outer):
        layer.bias.zero_()
    compiled = kintsugi.compile(cell)
    for length in LENGTHS:
        compiled(torch.randn(2, length, 32))
        kintsugi.wait_for_kernels()
    x = torch.full((2, 4000, 32), 0.1)
    compiled(x)
    cell.rounds.clear()

    def handler(number, frame):
        seen.append(len(cell.rounds))
        cell.rows[:] = 0.0
        cell.outer.weight.zero_()

    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        result = compiled(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    zero = (result == 0).all(-1).all(0)
    first = int(zero.float().argmax()) if zero.any() else len(zero)
    assert zero[first:].all() and abs(first - seen[0]) <= 1
