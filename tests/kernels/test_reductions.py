"""Reductions of everything, of outer dimensions, of nothing, with and without their places."""

import pytest
import torch

from launches import kintsugi, runs

pytestmark = pytest.mark.usefixtures("kernels")


def check(fn, *args, exact=False, **tolerance):
    compiled = kintsugi.compile(fn)
    for _ in range(3):
        got = compiled(*args)
    want = fn(*args)
    assert runs(compiled) >= 1
    for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,)):
        torch.testing.assert_close(a, b, equal_nan=True, **(tolerance or {"rtol": 1e-5, "atol": 1e-5}))
        assert not exact or torch.equal(a, b)


FUNCTIONS = {
    "sum": lambda x: (x * 2).sum(), "mean": lambda x: (x + 1).mean(), "amax": lambda x: (x * 2).amax(), "amin": lambda x: (x * 2).amin(),
    "var": lambda x: (x + 1).var(), "norm": lambda x: (x * 2).norm(), "any": lambda x: (x > 2).any() | (x > 9e9).any(),
    "all": lambda x: (x > 2).all() | (x < 9e9).all(), "logsumexp": lambda x: torch.logsumexp((x * 2).flatten(), 0),
    "softmax": lambda x: torch.softmax((x * 2).flatten(), 0), "outer": lambda x: (x * 2).mean(0), "last": lambda x: (x * 2).std(-1),
    "two": lambda x: ((x * 2).amax(), (x * 2).mean()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(512, 512), (131101,), (70000, 4), (3, 7, 7001)])
def test_everything(name, shape):
    torch.manual_seed(0)
    x = torch.randn(shape)
    if len(shape) > 1 or name not in ("outer", "last"):
        check(FUNCTIONS[name], x)
    check(FUNCTIONS[name], x.double(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype):
    x = torch.rand(300, 1000).to(dtype)
    check(lambda x: ((x * 2).sum(), (x * 2).mean(), (x * 2).amax()), x, rtol=1e-2, atol=1e-2)
    exact = float((x * 2).double().mean())
    compiled = kintsugi.compile(lambda x: (x * 2).mean())
    assert [abs(float(compiled(x)) - exact) for _ in range(3)][2] <= exact * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8])
def test_places(dtype):
    torch.manual_seed(1)
    x = (torch.rand(60, 4000) * 200).to(dtype)
    places = lambda x: ((x + 1).argmax(), (x + 1).argmin(), (x + 1).argmax(-1), (x + 1).argmin(0), (x + 1).argmax(-1, keepdim=True))
    check(places, x, exact=True)
    check(places, x[:, :3999].t(), exact=True)
    check(places, x[:1, :50], exact=True)


def test_places_of_nan_and_of_equals():
    x = torch.zeros(40, 5000)
    places = lambda x: ((x * 2).argmax(), (x * 2).argmin(), (x * 2).argmax(1), (x * 2).argmin(1))
    check(places, x, exact=True)
    x[3, 77] = x[3, 99] = x[7, 4999] = float("nan")
    x[8] = float("nan")
    x[9] = -float("inf")
    x[10] = float("inf")
    check(places, x, exact=True)
    check(places, x[4:], exact=True)


def test_of_nothing():
    x = torch.zeros(0, 5)
    check(lambda x: ((x + 1).sum(), (x + 1).mean(), (x + 1).prod(), (x > 1).any(), (x > 1).all(), (x + 1).sum(0), (x + 1).sum(1)), x)
    check(lambda x: ((x + 1).mean(0), (x + 1).sum(0, dtype=torch.float64)), x)


def test_reshaped_on_the_way():
    x = torch.randn(32, 5025)
    check(lambda x: ((x * 2).reshape(5025, 32) + 1).reshape(-1)[: 32 * 5025].reshape(25, -1) * 2, x, exact=True)
    check(lambda x: (x * 2).flatten().view(201, 25, 32).sum((0, 2)), x, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(40, 300), (3, 300), (40, 20), (1, 64)])
def test_functions_of_each_rows_result(shape):
    """One element at a time, or as a kernel of its own: a few subgraphs in the last place either way."""
    x = torch.randn(shape) / 8
    x[0, 0] = 40
    check(lambda x: (torch.tanh((x * 2).sum(1)), torch.exp((x * 2).sum(1)), torch.erf((x + 1).mean(1)), torch.sigmoid((x * 3).sum(1)),
                     torch.log((x * x).sum(1)), torch.sin((x * 2).sum(1))), x, rtol=3e-5, atol=3e-5)
    for value in (float("nan"), float("inf"), -float("inf"), 0.0, 1e-42):
        y = torch.full(shape, value)
        check(lambda x: (torch.tanh(x.amax(1)), torch.exp(x.amax(1)), torch.erf(x.amax(1)), torch.log(x.amax(1))), y, rtol=1e-6, atol=1e-45)


@pytest.mark.parametrize("sizes, dim", [((64, 1024), -1), ((64, 1000), -1), ((9, 2048), 1), ((1024, 64), 0), ((3, 20, 512), 2)])
def test_scans_of_rows_that_lie_at_the_same_places_of_a_cache(sizes, dim):
    x = torch.randn(*sizes, generator=torch.Generator().manual_seed(3))

    def fn(x):
        return torch.cumsum(x * 2, dim), torch.cumsum((x > 0).long(), dim), torch.cumprod(x * 0.1 + 1, dim), torch.cumsum(x.exp(), dim)

    compiled = kintsugi.compile(fn)
    with torch.no_grad():
        for _ in range(4):
            for got, wanted in zip(compiled(x), fn(x), strict=True):
                torch.testing.assert_close(got, wanted, rtol=2e-5, atol=2e-4)


LONG = [((20000, 7), 0), ((561, 561), 0), ((3000, 40, 3), 0), ((5, 90000), 1), ((70, 50, 70), (0, 2)), ((300000,), 0)]
SUMS = {
    "sum": lambda x, dim: (x * 1.5).sum(dim),
    "mean": lambda x, dim: (x + 1).mean(dim),
    "squares": lambda x, dim: (x * x).sum(dim),
    "variance": lambda x, dim: (x + 3).var(dim),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SUMS)
def test_long_sums_are_as_exact_as_those_of_eager(name, dynamic):
    """Added one after the other, 20,000 numbers would lose five bits more."""
    for shape, dim in LONG:
        compiled = kintsugi.compile(SUMS[name], dynamic=dynamic)
        for more in ((0, 3, 1, 2, 5) if dynamic else (0,) * 4):
            x = torch.rand(shape[0] + more, *shape[1:], generator=torch.Generator().manual_seed(more))
            exact = SUMS[name](x.double(), dim)
            apart = [float(((y.double() - exact).abs() / exact.abs()).max()) for y in (SUMS[name](x, dim), compiled(x, dim))]
            assert apart[1] <= 3 * apart[0] + 8e-7, (shape, apart)
        assert runs(compiled) > 0
