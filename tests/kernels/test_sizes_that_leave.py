"""Sizes that leave a subgraph at a test near its beginning, and views of parameters that such an exit asks for: the subgraph stays whole."""

import pytest
import torch

from launches import kintsugi, runs, versions

pytestmark = pytest.mark.usefixtures("kernels")


class Tower(torch.nn.Module):
    """A batch of one takes another way, behind a view of a parameter and two of thirty calls."""

    def __init__(self):
        super().__init__()
        self.token = torch.nn.Parameter(torch.randn(1, 1, 16))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(9))

    def places(self, x):
        if x.shape[0] == 1:
            return x.new_zeros(1)
        return x.mean((0, 1))

    def forward(self, x):
        token = self.token.expand(x.shape[0], -1, -1)
        x = (x * 2).sin()
        x = torch.cat([token, x + self.places(x)], 1)
        for layer in self.layers:
            x = layer(x).relu() + x
        return x


def compare(module, sizes):
    compiled = kintsugi.compile(module)
    with torch.no_grad():
        for batch, length in sizes:
            x = torch.randn(batch, length, 16)
            found, expected = compiled(x), module(x)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            assert found.stride() == expected.stride() and found.requires_grad == expected.requires_grad
    return compiled


def sizes(n, first):
    return [(first, 9), *((1 + (5 * i) % 4, 4 + (11 * i) % 23) for i in range(1, n))]


@pytest.mark.parametrize("first", [1, 3])
def test_a_batch_of_one_divides_nothing(first):
    before = max((e["seq"] for e in kintsugi.events()), default=-1)
    compiled = compare(Tower().eval(), sizes(40, first))
    parts = [e["reason"] for e in kintsugi.events() if e["seq"] > before and e["event"] == "part"]
    assert not [reason for reason in parts if "does not pass when it is captured" in reason or "cannot be compiled" in reason]
    assert runs(compiled) > 0 and len(versions(compiled)) > 3


Q = torch.nn.Parameter(torch.randn(4, 6))


def shows_views(x):
    a = Q[:1].expand(x.shape[0], 6)
    b = Q[1:3].t()
    c = (x * a).sum(0, keepdim=True) @ Q.t()
    return a, b, Q.view(2, 12), (Q[0], b[0]), c


def facts(t):
    return t.requires_grad, t.is_leaf, t.grad_fn is None, t._base is Q, t.stride(), t.storage_offset(), t.shape


def flat(values):
    return [t for value in values for t in (flat(value) if isinstance(value, tuple) else [value])]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_views_of_parameters_are_returned(mode):
    before = max((e["seq"] for e in kintsugi.events()), default=-1)
    compiled = kintsugi.compile(shows_views)
    with mode():
        for n in (3, 3, 4, 5, 1, 7, 3, 4):
            x = torch.randn(n, 6)
            for found, expected in zip(flat(compiled(x)), flat(shows_views(x)), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
                assert facts(found) == facts(expected)
    assert not [e for e in kintsugi.events() if e["seq"] > before and e["event"] == "fallback"]
    assert runs(compiled) > 0


class Reshapes(torch.nn.Module):
    """What a batch of one is compiled for has a torch.Size, computed of one that was read before the test, among its inputs."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        shape = x.shape
        y = x.reshape(-1, shape[-1])
        if x.shape[0] == 1:
            y = y * 2 + 1
        output = (-1,) + shape[1:-1] + (x.size(-1),)
        return self.down(self.up(y).tanh()).view(*shape).softmax(-1).view(output)


def test_a_size_among_the_inputs_is_open():
    before = max((e["seq"] for e in kintsugi.events()), default=-1)
    compare(Reshapes().eval(), [(3, 9), (2, 11), *((1 + i % 2, 5 + (13 * i) % 31) for i in range(60))])
    lowered = [e for e in kintsugi.events() if e["seq"] > before and e["event"] == "lower"]
    long = {e["native"] for e in lowered if e["native"] > 4}
    assert len(long) == 2 and {e["native"] for e in lowered if e["capture_ns"] == 0} >= long  # plans of both ways are copied


@pytest.mark.parametrize("module", [Tower, Reshapes])
def test_a_way_of_its_own_keeps_the_code_of_the_others(module):
    """What the way of a batch of one takes from calls before the test is nothing that the code for other batches has to give."""
    module = module().eval()
    compiled = kintsugi.compile(module)
    with torch.no_grad():
        for batch, length in [(3, 9), (2, 11), (4, 7), (5, 13), (3, 8)]:
            compiled(torch.randn(batch, length, 16))
            kintsugi.wait_for_kernels()
        had = [v for v in versions(compiled) if v["runs"] > 0]
        before = max(e["seq"] for e in kintsugi.events())
        for batch, length in [(1, 9), (1, 12), (7, 6), (3, 8)]:
            x = torch.randn(batch, length, 16)
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)
        kept = [v for v in versions(compiled) if v["runs"] > 0]
    assert [e for e in kintsugi.events() if e["seq"] > before and e["event"] == "extend"]
    assert len(had) > 0 and len(kept) >= len(had) and sum(v["runs"] for v in kept) > sum(v["runs"] for v in had)


def test_a_batch_of_one_has_the_code_of_others():
    """Batch, rows and columns are one loop, whether there are several images or one."""

    def standardise(x):
        x = x - x.mean(-1, keepdim=True)
        return (x * (x * x).mean(-1, keepdim=True).rsqrt()).tanh()

    compiled = kintsugi.compile(standardise)
    with torch.no_grad():
        for i, shape in enumerate([(3, 5, 7, 24), (2, 9, 4, 24), (4, 6, 8, 24), (5, 3, 9, 24), (1, 6, 8, 24), (1, 4, 9, 24)]):
            if i == 4:
                before = max(e["seq"] for e in kintsugi.events())
            x = torch.randn(shape)
            torch.testing.assert_close(compiled(x), standardise(x), rtol=1e-4, atol=1e-5)
            kintsugi.wait_for_kernels()
    assert runs(compiled) >= 3
    assert sum(e["compiled"] for e in kintsugi.events() if e["seq"] > before and e["event"] == "lower") == 0
