"""torch.fx.symbolic_trace of something compiled fails as with stock, in words that its users search for."""

import pytest
import torch

import kintsugi


def work(x):
    return x.sin() + 1


def outer(fn):
    class Outer(torch.nn.Module):
        def forward(self, x):
            return fn(x) * 2

    return Outer()


class Inner(torch.nn.Module):
    def forward(self, x):
        return x.cos()


class Holds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = kintsugi.compile(Inner())

    def forward(self, x):
        return self.inner(x) + 1


@pytest.mark.parametrize("made", [lambda: kintsugi.compile(work), lambda: outer(kintsugi.compile(work)), Holds])
@pytest.mark.parametrize("before", [False, True])
def test_symbolic_trace_of_what_is_compiled_raises(made, before):
    traced, x = made(), torch.ones(3)
    if before:
        traced(x)
    with pytest.raises(RuntimeError, match="Detected that you are using FX to symbolically trace a dynamo-optimized function"):
        torch.fx.symbolic_trace(traced)
    expected = {Holds: x.cos() + 1}.get(made)
    for _ in range(3):
        assert traced(x).shape == x.shape
        assert expected is None or torch.equal(traced(x), expected)


def test_the_setting_lets_it_be_traced():
    import torch._dynamo

    with torch._dynamo.config.patch(error_on_nested_fx_trace=False):
        graph = torch.fx.symbolic_trace(outer(kintsugi.compile(work)))
    assert torch.equal(graph(torch.ones(3)), work(torch.ones(3)) * 2) and "sin" in graph.code


def test_other_programs_are_traced_as_before():
    kintsugi.compile(work)(torch.ones(2))
    assert "sin" in torch.fx.symbolic_trace(work).code
    compiled = kintsugi.compile(work)
    assert compiled.__code__ is work.__code__
