"""Numbers that differ from call to call (docs/design/sizes.md, "Numbers"): compiled code reads them when it runs, and gives what eager gives for each."""

import math

import pytest
import torch
import torch.nn.functional as F

import kintsugi
from kintsugi import _kintsugi

pytestmark = pytest.mark.usefixtures("kernels")

FLOATS = [0.3, 0.31, 0.7, 1.5, 2.5, 3.25, 1e-3, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.7, 1e5, 1e39, 1e308, math.inf, -math.inf, math.nan, 0.32]
INTS = [3, 4, 5, 6, 7, 1, 0, -1, -5, 127, 128, 200, 300, 40000, 2**31, 2**40, 2**60, 11, 12]


def kernels_made():
    totals = _kintsugi.kernel_totals()
    return totals["compiled"] + totals["from_disk"] + totals["from_memory"]


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as e:  # noqa: BLE001
        return type(e), str(e)


def same(a, b):
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if not isinstance(a, torch.Tensor):
        return a == b
    if not isinstance(b, torch.Tensor) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-6, torch.float64: 1e-14}[a.dtype]
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


POINTWISE = {
    "mul": lambda x, s: x * s + 1,
    "mul_left": lambda x, s: s * x - x,
    "sub": lambda x, s: (x - s).abs() + (s - x),
    "div": lambda x, s: (x / s) + (s / (x + 20)),
    "compare": lambda x, s: torch.where(x > s, x, x * 2),
    "where": lambda x, s: torch.where(x > 0, s, x) + x,
    "clamp": lambda x, s: x.clamp(max=s) + x.clamp(min=s),
    "alpha": lambda x, s: torch.add(x, x + 1, alpha=s),
    "lerp": lambda x, s: torch.lerp(x.float(), x.float() + 1, s) + x.float(),
    "full": lambda x, s: torch.full_like(x, s) + x,
    "fill": lambda x, s: x.masked_fill(x > 0, s) + x,
    "pow": lambda x, s: x.abs() ** s + x,
    "power": lambda x, s: s ** x.float().clamp(0, 2) + x,
    "floor_div": lambda x, s: x // s + x,
    "remainder": lambda x, s: x % s + x,
    "two": lambda x, s: x * s + x.exp2() / (s + 0.25),
    "twice": lambda x, s: x * s + (x + s) * s,
    "literal": lambda x, s: x * 0.3 + x * s + 3,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("name", list(POINTWISE))
@pytest.mark.parametrize("kind", ["floats", "ints"])
def test_every_number_gives_what_eager_gives(name, dtype, kind):
    fn = POINTWISE[name]
    x = (torch.arange(24).reshape(4, 6) - (0 if dtype == torch.uint8 else 11)).to(dtype)
    compiled = kintsugi.compile(fn)
    for s in FLOATS if kind == "floats" else INTS:
        for _ in range(2 if s in (0.31, 4) else 1):
            wanted, got = outcome(fn, x, s), outcome(compiled, x, s)
            assert same(wanted, got), (s, wanted, got)


def test_without_dims():
    def fn(x, s):
        return x * s + s, (x + s).sin()

    compiled = kintsugi.compile(fn)
    for dtype in (torch.float32, torch.int32, torch.float64):
        x = torch.tensor(3, dtype=dtype)
        for s in (0.3, 0.4, 0.5, 0.6, 7.5, 1.0, 3, 4, 5):
            assert same(fn(x, s), compiled(x, s))


def test_one_plan_serves_all_values():
    def fn(x, s, t):
        y = torch.softmax(x / s, -1)
        return (y * t).sum(-1) + t * s, y

    compiled = kintsugi.compile(fn)
    x = torch.randn(8, 40)
    for i in range(8):
        compiled(x, 0.6 + i / 100, i + 3)
    kintsugi.wait_for_kernels()
    compiled(x, 0.69, 12)
    compiled(x, 0.695, 13)
    before, made = len(_kintsugi.events()), kernels_made()
    for i in range(100):
        s, t = 0.7 + i / 1000, i + 20
        assert same(fn(x, s, t), compiled(x, s, t))
    later = _kintsugi.events()[before:] if before < len(_kintsugi.events()) else []
    assert kernels_made() == made
    assert not [e for e in later if e.get("event") == "lower"]
    assert kintsugi.stats(compiled)["recordings"] <= 3


@pytest.mark.parametrize("fn", [
    lambda x, s: F.layer_norm(x, (40,), eps=s) + x * s,
    lambda x, s: torch.addmm(x, x[:, :8], x[:8], alpha=s, beta=s) * s,
    lambda x, s: F.softplus(x, beta=s) * s,
    lambda x, s: x ** s * s,
    lambda x, s: F.leaky_relu(x, s) + s,
    lambda x, s: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=s) * s,
    lambda x, s: torch.nn.functional.normalize(x, eps=s) * s,
    lambda x, s: torch.linspace(0, s, 40) + x * s,
    lambda x, s: F.hardtanh(x, -s, s) + s,
    lambda x, s: torch.nan_to_num(x, nan=s) * s,
    lambda x, s: F.gumbel_softmax(x * 0, tau=s) * 0 + x * s,
], ids=lambda fn: "")
def test_numbers_that_decide_on_the_code_are_asked_for(fn):
    compiled = kintsugi.compile(fn)
    x = torch.rand(8, 40) + 0.1
    for i in range(20):
        s = 0.3 + (i % 10) / 30
        assert torch.allclose(fn(x, s), compiled(x, s), rtol=1e-5, atol=1e-5)


def test_a_number_that_decides_beside_one_that_does_not():
    def fn(x, s, t):
        return F.layer_norm(x, (16,), eps=t) * s

    compiled = kintsugi.compile(fn)
    x = torch.randn(4, 16)
    for i in range(12):
        s, t = 0.3 + i / 100, [1e-5, 1e-3, 1e-1][i % 3]
        assert torch.allclose(fn(x, s, t), compiled(x, s, t), rtol=1e-5, atol=1e-6)


def test_a_size_and_a_counter():
    def fn(x, n, step):
        return x[:, :n] * step + n, torch.arange(n) * step

    compiled = kintsugi.compile(fn)
    x = torch.randn(4, 30)
    for i in range(60):
        n, step = 3 + i % 7 if i > 20 else 9, 5 + i
        for a, b in zip(fn(x, n, step), compiled(x, n, step), strict=True):
            assert torch.allclose(a, b) and a.shape == b.shape


def test_sizes_and_numbers_change_together():
    def fn(x, s, step):
        return torch.softmax(x * s, -1) * step + (x - step)

    compiled = kintsugi.compile(fn)
    for i in range(60):
        x = torch.randn(2 + i % 5, 4 + (i * 7) % 23)
        assert torch.allclose(fn(x, 0.6 + i / 200, i + 3), compiled(x, 0.6 + i / 200, i + 3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("twice", [False, True])
def test_gradients_through_numbers(twice):
    def loss(x, w, s, step):
        y = F.gelu(x @ w) * s + torch.sigmoid(x @ w / (step + 0.5)) * (1 - s)
        return (y.square().mean() - s) * step + F.smooth_l1_loss(x @ w, y, beta=s)

    compiled = kintsugi.compile(loss)
    torch.manual_seed(0)
    x = torch.randn(8, 16)
    start = torch.randn(16, 16)
    for i in range(14):
        s, step = 0.3 + i / 100, i + 3
        results = []
        for fn in (loss, compiled):
            w = start.clone().requires_grad_()
            value = fn(x, w, s, step)
            (grad,) = torch.autograd.grad(value, w, create_graph=twice)
            results += [value, grad]
            if twice:
                results[-1:] = [grad, torch.autograd.grad(grad.square().sum(), w)[0]]
        n = len(results) // 2
        for a, b in zip(results[:n], results[n:], strict=True):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-5), (i, a, b)


def test_writes_with_numbers():
    def fn(buffer, x, momentum):
        buffer.mul_(momentum).add_(x, alpha=1 - momentum)
        return buffer * momentum

    compiled = kintsugi.compile(fn)
    a = torch.zeros(32)
    b = a.clone()
    for i in range(40):
        x, m = torch.randn(32), 0.9 - i / 200
        assert torch.allclose(fn(a, x, m), compiled(b, x, m), rtol=1e-5, atol=1e-6)
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6) and a._version == b._version


def test_the_attribute_of_a_module():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(16, 16)
            self.scale, self.calls = 0.9, 3

        def forward(self, x):
            self.scale *= 0.99
            self.calls += 1
            return self.linear(x) * self.scale + x / self.calls

    torch.manual_seed(0)
    ours = Scaled()
    theirs = Scaled()
    theirs.load_state_dict(ours.state_dict())
    compiled = kintsugi.compile(ours)
    x = torch.randn(4, 16)
    with torch.no_grad():
        for _ in range(60):
            assert torch.allclose(theirs(x), compiled(x), rtol=1e-5, atol=1e-6)
    assert ours.scale == theirs.scale and ours.calls == theirs.calls
    assert kintsugi.stats(compiled)["recordings"] <= 3


def put(x, where, value):
    y = x.clone()
    y[where] = value
    return y


# What torch.tensor() and the like make of a number is rounded to the tensor's dtype, or cut to a whole number.
MADE = {
    "tensor": lambda x, s: x * torch.tensor(s),
    "list": lambda x, s: x @ torch.tensor([s, 1 - s, 0.3]),
    "literals": lambda x, s: x @ torch.tensor([[0.11, s], [s, 0.37], [s, s]]),
    "bfloat16": lambda x, s: x * torch.tensor([s], dtype=torch.bfloat16),
    "float16": lambda x, s: x * torch.tensor(s, dtype=torch.float16),
    "double": lambda x, s: x * torch.tensor(s, dtype=torch.float64),
    "whole": lambda x, s: x * torch.tensor(s * 10, dtype=torch.int64),
    "whole, and as it is": lambda x, s: x * torch.tensor(s * 10, dtype=torch.int64) + s * 10,
    "many": lambda x, s: x.sum() * torch.tensor([s] * 40),
    "as_tensor": lambda x, s: torch.maximum(x, torch.as_tensor(s)),
    "new_tensor": lambda x, s: torch.cat([x.new_tensor([s, 2.0]), x[0]]),
    "Tensor": lambda x, s: x * torch.Tensor([s]),
    "row": lambda x, s: put(x, 0, s),
    "columns": lambda x, s: put(x, (slice(None), slice(0, 2)), s),
    "chosen": lambda x, s: put(x, x > 0, s),
    "whole row": lambda x, s: put(x.long(), 0, s * 10),
    "steps": lambda x, s: x.sum() + torch.arange(0, 1, s),
    "end": lambda x, s: x.sum() + torch.arange(s * 10),
    "quantile": lambda x, s: torch.quantile(x, s),
    "bounds": lambda x, s: torch.bucketize(x, torch.tensor([-s, 0.0, s])) + 0.0,
}


@pytest.mark.parametrize("name", list(MADE))
@pytest.mark.parametrize("values", [(0.11, 0.37), tuple(0.11 + i / 75 for i in range(7))], ids=["two", "many"])
@pytest.mark.parametrize("gradients", [False, True])
def test_tensors_made_of_numbers(name, values, gradients):
    """Numbers are found by comparing two captures. Two that became the same in a tensor were taken for a constant: later calls got the first one."""
    fn = MADE[name]
    compiled = kintsugi.compile(fn)
    torch.manual_seed(0)
    for call in range(16):
        x, s = torch.randn(4, 3, requires_grad=gradients), values[call % len(values)]
        torch.testing.assert_close(compiled(x, s), fn(x, s), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["tensor", "literals", "many", "as_tensor", "new_tensor", "row", "columns"])
def test_tensors_made_of_numbers_have_one_version(name):
    """The program's float32 tensors are made of the floats that each call brings."""
    fn = MADE[name]
    compiled = kintsugi.compile(fn)
    values = [0.3 + i / 37 for i in range(20)]
    for s in values[:6]:
        compiled(torch.randn(4, 3), s)
    kintsugi.wait_for_kernels()
    compiled(torch.randn(4, 3), values[6])
    made, launches = kernels_made(), sum(row["launches"] for row in kintsugi.stats(compiled)["kernels"])
    for s in values[7:]:
        x = torch.randn(4, 3)
        torch.testing.assert_close(compiled(x, s), fn(x, s), rtol=1e-5, atol=1e-6)
    assert kernels_made() == made and sum(row["launches"] for row in kintsugi.stats(compiled)["kernels"]) == launches + 13


@pytest.mark.parametrize("fn", [
    lambda x, s: x * torch.tensor(s + 1e-9),
    lambda x, s: x * torch.tensor([s * (1 + 1e-10), 0.25, s - 1e-9]).sum(),
    lambda x, s: put(x, 0, s + 1e-9),
], ids=["tensor", "list", "row"])
def test_numbers_close_to_an_argument_are_not_it(fn):
    """float32 may not tell them apart for one argument, but does for another."""
    compiled = kintsugi.compile(fn)
    for s in (0.3, 0.5, 0.7, 0.9, 1.3, 1.7, 3e-9, 1e-9, 5e-10, 2e-8, 0.35):
        x = torch.ones(4, 3)
        torch.testing.assert_close(compiled(x, s), fn(x, s), rtol=1e-6, atol=0)


@pytest.mark.parametrize("fn", [
    lambda x, k: x[:k] * 2 + 1,
    lambda x, k: x[:k] * k,
    lambda x, k: (x[-k:] * k, x.sum() * k),
    lambda x, k: x.chunk(k)[0] * k,
    lambda x, k: x * min(k, 30) + k,
], ids=["slice", "slice and factor", "from the end", "chunks", "at most"])
@pytest.mark.parametrize("number", [lambda k: k, lambda k: torch.zeros(k, 1)], ids=["int", "size"])
def test_ints_that_pytorch_compares_with_sizes(fn, number):
    """Up to element 20 of 8 is no slice at all: nothing is left of the 20, but 3 is another matter."""
    def call(x, k):
        return fn(x, k if isinstance(k, int) else k.shape[0])

    for dynamic in (None, True):
        compiled, x = kintsugi.compile(call, dynamic=dynamic), torch.randn(8, 8)
        with torch.no_grad():
            for k in (20, 21, 22, 23, 24, 25, 3, 26, 5, 8, 9, 7, 30, 4):
                found, expected = compiled(x, number(k)), call(x, number(k))
                for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
