"""What the options `fast_math` and `threads` change, and what they leave alone."""

import math

import pytest
import torch

from launches import kintsugi, runs

pytestmark = pytest.mark.usefixtures("kernels")


def last(fn, *args, **options):
    compiled = kintsugi.compile(lambda *a: fn(*a), options=options)
    for _ in range(3):
        out = compiled(*args)
    assert runs(compiled) >= 1
    return out


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    """Rounded between operators as eager does it, or not: then closer to the exact result."""
    torch.manual_seed(0)
    x = (torch.rand(4000) + 1).to(dtype)
    chain = lambda x: ((x * 1.1 + 0.7) * 1.3 - 0.9) * 0.77
    eager, exact = chain(x), chain(x.double())
    assert torch.equal(last(chain, x), eager)
    fast = last(chain, x, fast_math=True)
    error = lambda y: float((y.double() - exact).abs().mean())
    assert fast.dtype == dtype and not torch.equal(fast, eager) and error(fast) < 0.7 * error(eager)
    with kintsugi.config.patch(fast_math=True):
        assert torch.equal(last(chain, x), fast) and torch.equal(last(chain, x, fast_math=False), eager)


def test_products_that_are_added():
    x = torch.full((64,), 1 + 2.0**-12)
    fn = lambda x: x * x - (1 + 2.0**-11)
    assert torch.equal(last(fn, x), fn(x)) and float(fn(x)[0]) == 0.0
    assert float(last(fn, x, fast_math=True)[0]) in (0.0, 2.0**-24)  # without FMA it is the same


def test_kernels_of_both_kinds_live_side_by_side():
    x = torch.rand(500).bfloat16()
    fn = lambda x: (x * 1.1 + 0.7) * 1.3
    first, fast, second = last(fn, x), last(fn, x, fast_math=True), last(fn, x)
    assert torch.equal(first, second) and not torch.equal(first, fast)


def subgraphs(got, exact):
    want = exact.float()
    subgraph = (torch.nextafter(want.abs(), torch.tensor(math.inf)) - want.abs()).double()
    return float(((got.double() - exact).abs() / subgraph).max())


def test_sines_and_cosines():
    """To two subgraphs in the last place, next to multiples of pi / 2 as well; huge angles, too."""
    quarters = (torch.arange(0, 600000, 7).double() * (math.pi / 2)).float()
    x = torch.cat([quarters, torch.nextafter(quarters, torch.tensor(math.inf)), torch.rand(100000) * 2e6 - 1e6])
    for fast_math in (False, True):
        for fn in (lambda x: (torch.sin(x), torch.cos(x)), lambda x: (torch.cos(x), torch.sin(x))):
            got = last(fn, x, fast_math=fast_math)
            for g, w in zip(got, fn(x.double())):
                assert subgraphs(g, w) <= 2
    x = torch.tensor([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-40, 1e20, -3e7, 1.1e6, 3.4e38] + [1.0] * 40)
    got = last(lambda x: (torch.sin(x), torch.cos(x)), x)
    torch.testing.assert_close(got, (torch.sin(x), torch.cos(x)), rtol=1e-6, atol=1e-6, equal_nan=True)
    assert math.copysign(1, float(got[0][1])) == -1


def test_threads():
    x = torch.randn(2000, 500)
    fn = lambda x: (torch.softmax(x + 1, -1), (x * 2).sum(), torch.exp(x) * 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for threads in (0, 1, 2, 10**30):
            torch.testing.assert_close(last(fn, x, threads=threads), fn(x), rtol=1e-5, atol=1e-3)
        with kintsugi.config.patch(threads=1):
            torch.testing.assert_close(last(fn, x), fn(x), rtol=1e-5, atol=1e-3)
    finally:
        torch.set_num_threads(before)
    for wrong in (-1, True, "2", 1.5):
        with pytest.raises(TypeError, match="expected a number from 0 on"):
            kintsugi.compile(fn, options={"threads": wrong})
    with pytest.raises(TypeError, match="expected True or False"):
        kintsugi.compile(fn, options={"fast_math": 1})
