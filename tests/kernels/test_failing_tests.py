"""A test that passes where the program runs, and not where its calls are captured: the graph is divided there, and only there."""

import pytest
import torch
import torch.nn.functional as F

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


def test_the_class_of_an_input_that_comes_back():
    module = Norm()
    compiled = kintsugi.compile(module)
    call(compiled, module)
    assert not [e for e in kintsugi.events() if e["event"] == "fallback" and e["name"] == "Norm"]
    assert runs(compiled) > 0


@pytest.mark.parametrize("k", [0, 3, 9])
def test_left_in_the_middle(k):
    compiled = kintsugi.compile(convolves)
    call(compiled, convolves)
    engine.force_exit(k)
    call(compiled, convolves)
