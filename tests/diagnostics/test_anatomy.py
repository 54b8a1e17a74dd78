"""Kernels of a report: what they move and compute."""

import pytest
import torch

import kintsugi
from kintsugi import _compiled
from kintsugi._engine import engine
from kintsugi.diagnose import anatomy

@pytest.fixture
def kernels():
    """The engine, with kernels compiled at once and used in any case."""
    kintsugi.reset()
    engine.set_option("trials", 0)
    with kintsugi.config.patch(kernels=True):
        yield engine
    engine.set_option("trials", 7)
    kintsugi.reset()


def _profiled(compiled, *args):
    """Its kernels and library calls, by name."""
    for _ in range(4):
        compiled(*args)
    engine.set_profile(True)
    for _ in range(3):
        compiled(*args)
    engine.set_profile(False)
    graph, = anatomy.graphs(engine, _compiled.engine_of(compiled))
    assert graph["us"] > 0 and all(part["us"] > 0 and part["bytes"] for part in graph["parts"])
    return graph["parts"]


def test_memory_and_arithmetic(kernels):
    """Each buffer once; arithmetic of a kernel, of a product with the kernel that runs on its blocks, of a convolution."""
    linear, convolution = torch.nn.Linear(64, 131), torch.nn.Conv2d(8, 16, 3, padding=1)
    with torch.no_grad():
        product, *_ = _profiled(kintsugi.compile(lambda x: linear(x).relu()), torch.randn(131, 64))
        assert product["name"].startswith("library.matmul [131, 64] [64, 131]") and product["bytes"] == 4 * (2 * 131 * 64 + 131 * 131 + 131)
        assert product["flops"] == 131 * 131 * (2 * 64 + 2)
        kernel, = _profiled(kintsugi.compile(lambda x: (x - 1) * x.sin()), torch.randn(1000))
        assert (kernel["bytes"], kernel["flops"], kernel["backward"]) == (8000, 3000, False)
        parts = _profiled(kintsugi.compile(lambda x: convolution(x) + 1), torch.randn(2, 8, 8, 8))
        assert sum(part["flops"] or 0 for part in parts) >= 2 * 2 * 16 * 64 * 8 * 9
        expanded, = _profiled(kintsugi.compile(lambda x: x.expand(1000, 10) + 1), torch.randn(10))
        assert expanded["bytes"] == 4 * (10 + 10_000)


@pytest.mark.compiled_gradients
def test_the_way_back_belongs_to_a_call_that_goes_it(kernels):
    weights = torch.randn(16, 16, requires_grad=True)
    parts = _profiled(kintsugi.compile(lambda x: (x @ weights).tanh().sum().backward()), torch.randn(16, 16))
    assert {part["backward"] for part in parts} == {True, False}


def test_recordings_are_numbered_as_they_were_made(kernels):
    compiled = kintsugi.compile(lambda x, up: x.sin() + 1 if up else x.cos() * x * 2)
    with torch.no_grad():
        for up in (True, True, True, False, False, False):
            compiled(torch.randn(100), up)
    rows = {row["recording"]: row["native_calls"] for row in kintsugi.stats(compiled)["kernels"]}
    assert rows == {1: 2, 2: 3}


def test_refused_fusions_are_priced(monkeypatch):
    monkeypatch.setattr(anatomy, "limits", lambda: {"gb_per_s": 10.0, "gflops": 1.0})
    row, other = anatomy._refused("f32[1000, 10] reduce_sum: not fused: why\nf32[1000, 10] reduce_sum: not fused: why\nsomething else\n")
    assert row == {"text": "f32[1000, 10] reduce_sum: not fused: why", "us": 8.0, "times": 2} and other["us"] is None


def test_limits_are_measured():
    found = anatomy.limits()
    assert 0.05 < found["gb_per_s"] < 5000 and 0.05 < found["gflops"] < 100_000
