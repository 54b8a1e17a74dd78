"""Products, convolutions and attention in half precision, done by ourselves: against eager, rounded where eager rounds."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from launches import engine, kintsugi, needs_own_products, runs, versions

ERRORS = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}

pytestmark = pytest.mark.parametrize("dtype", ERRORS)


@pytest.fixture(autouse=True)
def profile(kernels):
    engine.set_profile(True)
    with torch.no_grad():
        yield
    engine.set_profile(False)


def operations(compiled):
    return [op["name"] for v in versions(compiled) if v["profile"] for op in v["profile"][1:] if op["extern"]]


def run(fn, *args, errors=2):
    """A number of places off in the last digits of the largest element at most: sums in another order, rounded once."""
    compiled = kintsugi.compile(fn)
    for _ in range(5):
        got, wanted = compiled(*args), fn(*args)
        assert got.dtype == wanted.dtype and got.stride() == wanted.stride()
        largest = float(wanted.float().nan_to_num(0, 0, 0).abs().max())
        torch.testing.assert_close(got.float(), wanted.float(), rtol=0, atol=errors * largest * ERRORS[wanted.dtype], equal_nan=True)
    return compiled


@needs_own_products
@pytest.mark.parametrize("rows", [2, 5, 33, 200])
@pytest.mark.parametrize("deep", [31, 64, 801])
def test_linear(dtype, rows, deep):
    layers = nn.Sequential(nn.Linear(deep, 70), nn.GELU(), nn.Linear(70, 33, bias=False)).to(dtype)
    compiled = run(layers, torch.randn(rows, deep).to(dtype))
    products = [name for name in operations(compiled) if name.startswith("library.matmul")]
    assert (rows * deep * 70 <= 32768 or products) and not [name for name in operations(compiled) if name.startswith("aten.")]


@needs_own_products
def test_one_row_reads_weights_as_they_lie(dtype):
    compiled = run(nn.Linear(300, 200).to(dtype), torch.randn(1, 300).to(dtype))
    assert operations(compiled) == []
    assert all(row["weights_bytes"] == 0 for row in kintsugi.stats(compiled)["kernels"])


@needs_own_products
def test_products_side_by_side(dtype):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = nn.Linear(64, 64), nn.Linear(64, 64, bias=False), nn.Linear(64, 32)

        def forward(self, x):
            return torch.cat([self.q(x), self.k(x), self.v(x)], 1)

    compiled = run(Heads().to(dtype), torch.randn(40, 64).to(dtype))
    assert [name.split(" then")[0] for name in operations(compiled)] == ["library.matmul [40, 64] [64, 160]"]


@needs_own_products
def test_matrices_of_any_layout(dtype):
    a, b = torch.randn(3, 40, 51).to(dtype), torch.randn(3, 30, 51).to(dtype)
    for x, y in ((a, b.mT), (a.mT.contiguous().mT, b.mT), (a[:, ::2], b.mT.contiguous()), (a[..., 1:], b[..., :-1].mT), (a[..., 1:50:2], b[..., 1:50:2].mT)):
        compiled = run(lambda x, y: (x + 0) @ y * 2, x, y)
        assert [name.split(" ")[0] for name in operations(compiled)] == ["library.matmul"]
        run(lambda x, y: x @ y + 1, x, y)


def test_what_is_no_number_stays(dtype):
    x = torch.randn(20, 64)
    x[1, 3], x[2, 5], x[3, 7] = float("nan"), float("inf"), -float("inf")
    run(nn.Sequential(nn.Linear(64, 64), nn.ReLU()).to(dtype), x.to(dtype))


@needs_own_products
@pytest.mark.parametrize("causal", [False, True])
def test_attention(dtype, causal):
    q, k, v = (torch.randn(2, 4, 40, 24).to(dtype) for _ in range(3))
    compiled = run(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal) + 1, q, k, v)
    assert [name.split(" ")[0] for name in operations(compiled)] == ["library.attention"]
    mask = torch.rand(40, 40) > 0.3
    run(lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask) + 1, q, k, v)


@needs_own_products
@pytest.mark.parametrize("kernel", [1, 3])
def test_convolutions(dtype, kernel):
    layers = nn.Sequential(nn.Conv2d(8, 40, kernel, padding=kernel // 2), nn.BatchNorm2d(40), nn.ReLU(), nn.Conv2d(40, 40, kernel, stride=2),
                           nn.ReLU6(), nn.Conv2d(40, 40, 3, groups=40), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval().to(dtype)
    compiled = run(layers, torch.randn(2, 8, 20, 20).to(dtype), errors=4)
    names = [name.split(" ")[0].split("+")[0] for name in operations(compiled)]
    assert "library.conv" in names and "aten.convolution.default" not in names


@needs_own_products
def test_patches(dtype):
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 48, 4, stride=4), nn.LayerNorm(48)

        def forward(self, x):
            return self.norm(self.conv(x).flatten(2).transpose(1, 2))

    compiled = run(Patches().to(dtype), torch.randn(2, 3, 32, 32).to(dtype))
    assert [name.split(" ")[0] for name in operations(compiled)] == ["library.conv+bias"]


def test_autocast(dtype):
    layers = nn.Sequential(nn.Linear(48, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 32))

    def fn(x):
        with torch.autocast("cpu", dtype=dtype):
            return layers(x)

    compiled = run(fn, torch.randn(30, 48))
    assert runs(compiled) > 0


def test_weights_that_change(dtype):
    layer = nn.Linear(64, 64).to(dtype)
    compiled = run(layer, torch.randn(30, 64).to(dtype))
    layer.weight.data.mul_(3)
    x = torch.randn(30, 64).to(dtype)
    for _ in range(3):
        torch.testing.assert_close(compiled(x).float(), layer(x).float(), rtol=0, atol=0.05)
