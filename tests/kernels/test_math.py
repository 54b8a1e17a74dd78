"""Mathematical functions in kernels: errors in units of the last place, and what zeros, infinities and far numbers give, against eager."""

import pytest
import torch
from launches import kintsugi, versions

pytestmark = pytest.mark.usefixtures("kernels")

INF = float("inf")
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-40, -1e-40, 1e-30, -1e-8, 88.0, 89.0, -104.0, 700.0, -745.0, 2.5, 0.9999999, 1.0000001, 8.0,
         1000.0, *(float("nan"),) * 42, 1e6, INF, -INF, 1e9, 1e30, -1e30, 536870912.0]  # far ones in vectors of their own
ONE = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
       "acosh", "atanh"]
TWO = ["atan2", "pow", "hypot", "fmod", "remainder", "floor_divide"]


def numbers(count):
    generator = torch.Generator().manual_seed(count)
    wide = [torch.randn(count, generator=generator, dtype=torch.float64) * scale for scale in (1, 10, 1e-3, 300)]
    return torch.cat([*wide, torch.rand(count, generator=generator, dtype=torch.float64) * 2 - 1])


def arguments(name, dtype):
    edges, some = torch.tensor(EDGES, dtype=torch.float64), numbers(600)
    if name in ONE:
        return (torch.cat([edges, some]).to(dtype),)
    x = torch.cat([edges.repeat_interleave(len(EDGES)), some, numbers(301)])
    y = torch.cat([edges.repeat(len(EDGES)), some.flip(0), numbers(301).round()])
    return x.to(dtype), y.to(dtype)


def compiled_result(name, args):
    def body(*args):
        return getattr(torch, name)(*args) * 1

    compiled = kintsugi.compile(body, options={"warm": True})
    with torch.no_grad():
        for _ in range(3):
            result = compiled(*args)
    assert all(version["compiled"] for version in versions(compiled))
    return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ONE + TWO)
def test_last_places(name, dtype):
    args = arguments(name, dtype)
    eager = getattr(torch, name)(*args)
    truth = getattr(torch, name)(*(a.double() for a in args)) if dtype is torch.float32 else eager
    got, want = compiled_result(name, args), truth.to(dtype)
    same = (got == eager) | (got.isnan() & eager.isnan())
    finite = want.isfinite() & got.isfinite()
    far_quotient = name in ("fmod", "remainder", "floor_divide") and dtype is torch.float64
    if not far_quotient:  # eager's of doubles are wrong there
        assert ((got.isnan() == want.isnan()) & (got.isinf() == want.isinf()) | same).all()
    assert (torch.signbit(got) == torch.signbit(want))[finite & (want == 0)].all()
    unit = torch.finfo(dtype).eps * 2.0 ** truth.abs().clamp(min=torch.finfo(dtype).tiny).log2().floor()
    error = ((got.double() - truth).abs() / unit)[finite]
    assert error.max() <= (1.5 if dtype is torch.float32 else 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_whole_results_are_whole(dtype):
    """Programs take the floor of a logarithm."""
    powers = 2.0 ** torch.arange(-100, 100, dtype=dtype)
    assert torch.equal(compiled_result("log2", (powers,)), torch.arange(-100, 100, dtype=dtype))
    assert torch.equal(compiled_result("exp2", (torch.arange(-100, 100, dtype=dtype),)), powers)
    tens = torch.tensor([10.0**k for k in range(11)], dtype=dtype)
    assert torch.equal(compiled_result("log10", (tens,)), torch.arange(11, dtype=dtype))


def test_huge_angles_and_quotients():
    x = torch.tensor([1e7, 1e20, -3e30, 5.0] * 8)
    y = torch.tensor([3.0, 1e-3, 7.0, -2.0] * 8)
    for name, args in (("tan", (x,)), ("sin", (x.double(),)), ("fmod", (x, y)), ("remainder", (x, y))):
        torch.testing.assert_close(compiled_result(name, args), getattr(torch, name)(*args), rtol=1e-5, atol=1e-5)
