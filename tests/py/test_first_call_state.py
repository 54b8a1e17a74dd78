"""The first call changes what all later ones find: they are recorded whole, not behind an exit of the first recording."""

import inspect
import types

import pytest
import torch
from torch import nn

import kintsugi
from kintsugi._engine import engine


class Settles(nn.Module):
    """Settles its kind behind a step after which the heap is looked at anew."""

    def __init__(self, change):
        super().__init__()
        self.config, self.change = types.SimpleNamespace(kind=None, calls=0), change
        self.one, self.two = nn.Linear(32, 64), nn.Linear(64, 32)

    def feed(self, x):
        return torch.relu(self.one(x))

    def forward(self, x):
        x = x * 2
        if len(inspect.signature(self.feed).parameters) == 1:
            x = self.feed(x)
        if self.config.kind is None:
            self.config.kind = "one"
        if self.config.kind == "one":
            x = torch.tanh(self.two(x)) + 1
        return self.change(self, x)


def leave_alone(self, x):
    return x


def take_turns(self, x):
    """The next call finds another kind than this one."""
    self.config.kind = None if self.config.kind == "two" else "two"
    return x


class Fills(nn.Module):
    """Finds the tensor that the first call has kept."""

    def __init__(self):
        super().__init__()
        self.kept, self.layer = types.SimpleNamespace(scale=None), nn.Linear(32, 32)

    def ready(self):
        return self.kept.scale is not None

    def forward(self, x):
        x = torch.tanh(self.layer(x))
        inspect.signature(self.ready).parameters  # noqa: B018
        if self.kept.scale is None:
            self.kept.scale = torch.full((32,), 3.0)
        return torch.tanh(x) * self.kept.scale


@pytest.fixture(autouse=True)
def _kernels():
    with kintsugi.config.patch(kernels=True):
        yield


def _close(a, b):
    return torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def _pair(make, seed=1):
    torch.manual_seed(seed)
    model = make()
    torch.manual_seed(seed)
    return model, make()


def _stats(fn):
    """Statistics; the newest recording's."""
    stats = kintsugi.stats(fn)
    return stats, max(stats["variants"], key=lambda row: row["number"])


@pytest.mark.parametrize("make", [lambda: Settles(leave_alone), Fills], ids=["setting", "cache"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_recorded_whole(make, train):
    expected, model = _pair(make)
    compiled = kintsugi.compile(model)
    for k in range(8):
        x = torch.randn(4, 32)
        with torch.set_grad_enabled(train):
            want, got = expected(x), compiled(x)
        assert _close(want, got)
        if train:
            want.sum().backward()
            got.sum().backward()
        if k == 2:
            assert kintsugi.stats(compiled)["recordings"] == 2
    if train:
        for one, other in zip(expected.parameters(), model.parameters(), strict=True):
            assert _close(one.grad, other.grad)
    stats, newest = _stats(compiled)
    assert stats["recordings"] == 2
    assert len(stats["variants"]) == 1
    assert newest["hits"] == 5
    assert newest["exits"] == 0
    assert newest["branches"] == 0


def test_launched():
    expected, model = _pair(lambda: Settles(leave_alone))
    compiled = kintsugi.compile(model)
    with torch.no_grad():
        for _ in range(8):
            x = torch.randn(256, 32)
            torch.testing.assert_close(compiled(x), expected(x))
    stats, _ = _stats(compiled)
    assert stats["compiled_calls"] >= 2
    assert len(stats["kernels"]) == 1  # nothing cuts the graph
    assert stats["kernels"][0]["launches"] >= 2


def test_reason_is_told():
    compiled = kintsugi.compile(Settles(leave_alone))
    for _ in range(4):
        compiled(torch.randn(4, 32))
    _, newest = _stats(compiled)
    assert newest["cause"].startswith("every replay of entry ")
    assert " left it at " in newest["cause"]
    assert any(newest["cause"] in row["failures"] for row in engine.events() if row["event"] == "recompile")


def test_not_for_ever():
    """State that differs in each call: a recording more, then side traces as before."""
    expected, model = _pair(lambda: Settles(take_turns))
    compiled = kintsugi.compile(model)
    for _ in range(60):
        x = torch.randn(4, 32)
        assert _close(compiled(x), expected(x))
        assert model.config.kind == expected.config.kind
    stats, newest = _stats(compiled)
    assert stats["recordings"] <= 3
    assert newest["hits"] > 40


def test_data_decides():
    """A test of data is no state: both ways stay where they are while both are taken."""

    def fn(x):
        y = torch.tanh(x)
        return y + 1 if y.sum() > 0 else y - 1

    compiled = kintsugi.compile(fn)
    for k in range(40):
        x = torch.full((8,), 1.0 if k % 3 == 0 else -1.0)
        assert _close(compiled(x), fn(x))
    stats, _ = _stats(compiled)
    assert stats["recordings"] == 1
    assert stats["branches"] == 1


def test_nothing_to_gain():
    """Without kernels no subgraph is cut: the side trace is as good as a recording, bit by bit."""
    expected, model = _pair(lambda: Settles(leave_alone))
    with kintsugi.config.patch(kernels=False):
        compiled = kintsugi.compile(model)
        for _ in range(6):
            x = torch.randn(4, 32)
            assert torch.equal(compiled(x), expected(x))
    stats, _ = _stats(compiled)
    assert stats["recordings"] == 1
    assert stats["branches"] == 1


def test_later_state_is_served():
    """What made the first recording comes back: a side trace of the new one serves it."""
    expected, model = _pair(lambda: Settles(leave_alone))
    compiled = kintsugi.compile(model)
    for k in range(20):
        x = torch.randn(4, 32)
        if k % 5 == 4:
            model.config.kind = expected.config.kind = None
        assert _close(compiled(x), expected(x))
    stats, newest = _stats(compiled)
    assert stats["recordings"] == 2
    assert newest["branches"] == 1


def test_not_where_recording_is_asked_for():
    """A stance that wants to know of every recording is not surprised by one: replays go on through the side trace."""
    expected, model = _pair(lambda: Settles(leave_alone))
    compiled, asked = kintsugi.compile(model), []
    for _ in range(2):
        x = torch.randn(4, 32)
        assert _close(compiled(x), expected(x))
    engine.set_option("miss_hook", lambda *args: asked.append(args))
    try:
        for _ in range(3):
            x = torch.randn(4, 32)
            assert _close(compiled(x), expected(x))
    finally:
        engine.set_option("miss_hook", None)
    assert not asked
    assert kintsugi.stats(compiled)["recordings"] == 1
