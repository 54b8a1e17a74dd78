"""A capture copies what a step asked for when an equal one comes (src/py/capture/repeat.c): layers of a model. What looks equal and is not must not be copied."""

import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi, versions

pytestmark = pytest.mark.usefixtures("kernels")


def same(fn, *args, calls=3):
    compiled = kintsugi.compile(fn)
    for _ in range(calls):
        torch.testing.assert_close(compiled(*args), fn(*args), rtol=1e-5, atol=1e-5)
    assert any(row["compiled"] for row in versions(compiled))


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.rand(6, 8)


def test_layers(x):
    weights = [torch.rand(8, 8) for _ in range(5)]

    def fn(x):
        for w in weights:
            x = F.layer_norm(torch.tanh(F.linear(x, w)) + x, (8,)).chunk(2, 1)[0].repeat(1, 2)
        return x
    same(fn, x)


def test_numbers_texts_and_dtypes_differ(x):
    def fn(x):
        a = [torch.add(x, x, alpha=k) for k in (1, 2, 2.0, -1)]
        b = [F.gelu(x, approximate=how) for how in ("none", "tanh", "none")]
        c = [x.to(dtype) for dtype in (torch.float64, torch.float16, torch.float64)]
        return a, b, c, [x.sum(d) for d in (0, 1, (0, 1), [0, 1])], [x[:, s] for s in (slice(0, 2), slice(0, 4, 2), 3, None)]
    same(fn, x)


def test_layouts_and_memory_differ(x):
    def fn(x):
        t = x.t().reshape(6, 8)
        views = [x.view(8, 6), t.view(8, 6), x.t().contiguous().view(6, 8)]
        pairs = [torch.add(x, x), torch.add(x, t), torch.add(t, t), torch.add(x[:3], x[3:]), torch.add(x[3:], x[:3]), torch.add(x[3:], x[3:])]
        return views, pairs, x.contiguous(), x.t().contiguous()
    same(fn, x)


def test_what_a_call_gives_may_be_its_operand(x):
    def fn(x):
        y = x * 2
        return [v.contiguous() for v in (x, y, y)], [v.float() for v in (x, y)], y.expand(6, 8), [v.split(3) for v in (x, y)]
    same(fn, x)


def test_writes_are_not_copied(x):
    def fn(x):
        a, b = x * 1, x * 1
        a.add_(1)
        a.add_(1)
        b.mul_(2)
        a[0] = 5
        b[0] = 5
        return a, b
    same(fn, x)


def test_random_numbers_are_drawn_each_time(x):
    compiled = kintsugi.compile(lambda x: (F.dropout(x, 0.5), F.dropout(x, 0.5)))
    differ = [not torch.equal(*compiled(x)) for _ in range(5)]
    assert all(differ)


def test_under_autocast(x):
    w = torch.rand(8, 8)

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            return F.linear(F.linear(x, w), w), F.linear(x, w)
    compiled = kintsugi.compile(fn)
    for _ in range(3):
        for a, b in zip(compiled(x), fn(x), strict=True):
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


def test_gradients(x):
    w = torch.rand(8, 8, requires_grad=True)

    def fn(x):
        for _ in range(3):
            x = torch.tanh(F.linear(x, w))
        return x.sum()
    compiled = kintsugi.compile(fn)
    for _ in range(3):
        ours, = torch.autograd.grad(compiled(x), w)
        eager, = torch.autograd.grad(fn(x), w)
        torch.testing.assert_close(ours, eager)


def test_a_function_of_the_users_own_is_asked_each_time(x):
    seen = []

    def fn(x):
        for _ in range(3):
            x = own(x)
        return x

    def own(x):
        seen.append(1)
        return x * len(seen)
    compiled = kintsugi.compile(fn)
    for _ in range(3):
        seen.clear()
        ours, n = compiled(x), len(seen)
        seen.clear()
        torch.testing.assert_close(ours, fn(x))
        assert n == 3


def test_inputs_keep_their_kind_from_capture_to_capture(x):
    def fn(x, y):
        return x + y, x
    compiled = kintsugi.compile(fn)
    for other in (torch.rand(6, 8), torch.rand(6, 8, dtype=torch.float64), torch.rand(1, 8), torch.rand(6, 8), torch.rand(8, 6).t(), torch.rand(6, 8)):
        for _ in range(2):
            a, b = compiled(x, other), fn(x, other)
            torch.testing.assert_close(a[0], b[0])
            assert a[1] is x and a[0].stride() == b[0].stride()
