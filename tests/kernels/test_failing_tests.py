"""A test that passes where the program runs, and not where its calls are captured: the graph is divided there, and only there."""

import pytest
import torch
import torch.nn.functional as F

from kintsugi import _layouts
from launches import engine, kintsugi, runs

pytestmark = pytest.mark.usefixtures("kernels")


def convolves(x):
    a = (x * 2 + 1).cos()
    image = a[None, None].to(memory_format=torch.channels_last)
    b = F.conv2d(image, torch.ones(2, 1, 3, 3))
    if b.is_contiguous():  # the layout depends on the kernel that is chosen
        a = a + 1
    if b.stride()[0] == 1:
        a = a * 2
    return a.sin() * 3 + 1, b


PLACES = torch.arange(256).view(1, 1, 16, 16).repeat(1, 16, 1, 1).contiguous(memory_format=torch.channels_last)


def unpools(x):
    a = (x * 2 + 1).cos()
    image = a.view(1, 16, 16, 16).to(memory_format=torch.channels_last)
    b = F.max_unpool2d(image, PLACES, 2)
    if b.is_contiguous():
        a = a + 1
    if b.stride()[0] == 1:
        a = a * 2
    return a.sin() * 3 + 1, b


@pytest.fixture
def meta_kernels_only(monkeypatch):
    """The meta kernel of max_unpool2d takes channels-last images for row-major, and nobody asks the operator itself."""
    monkeypatch.setattr(_layouts, "_MOST", 0)


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64))

    def forward(self, x):
        y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * (1.0 + self.weight.float())).type_as(x)  # float() of a float32 parameter is that parameter


def call(compiled, function, times=6):
    with torch.no_grad():
        for seed in range(times):
            torch.manual_seed(seed)
            x = torch.randn(64, 64)
            found, expected = compiled(x), function(x)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_layout_of_a_convolution_is_known_when_it_is_captured():
    compiled = kintsugi.compile(convolves)
    before = len(kintsugi.events())
    call(compiled, convolves)
    assert not [e["reason"] for e in kintsugi.events()[before:] if e["event"] in ("fallback", "part")]
    assert runs(compiled) > 0


def test_the_graph_is_divided_at_the_test(meta_kernels_only):
    compiled = kintsugi.compile(unpools)
    call(compiled, unpools)
    events = kintsugi.events()
    reasons = [e["reason"] for e in events if e["event"] == "fallback"]
    line = unpools.__code__.co_firstlineno + 4
    assert any("sizes, strides or dtype of a tensor" in r and f"test_failing_tests.py:{line}" in r for r in reasons), reasons
    assert any(e["event"] == "part" and "does not pass when it is captured" in e["reason"] for e in events)
    assert sum(e["event"] == "lower" for e in events) >= 2
    assert runs(compiled) > 0


def test_the_class_of_an_input_that_comes_back():
    module = Norm()
    compiled = kintsugi.compile(module)
    call(compiled, module)
    assert not [e for e in kintsugi.events() if e["event"] == "fallback" and e["name"] == "Norm"]
    assert runs(compiled) > 0


@pytest.mark.parametrize("k", [0, 3, 9])
def test_left_in_the_middle(k, meta_kernels_only):
    compiled = kintsugi.compile(unpools)
    call(compiled, unpools)
    engine.force_exit(k)
    call(compiled, unpools)
