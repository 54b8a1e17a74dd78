"""Attention of short sequences in training: products of the graph, not PyTorch's operator for long ones; results and gradients lie as the operator's."""
import pytest
import torch
import torch.nn.functional as F

import kintsugi


def _mask(kind):
    if kind == "bool":
        mask = torch.rand(2, 1, 7, 7) > 0.3
        mask[..., 0] = True
        return mask
    if kind == "a row sees nothing":
        mask = torch.rand(7, 7) > 0.5
        mask[2] = False
        return mask
    return torch.randn(1, 1, 7, 7) if kind == "numbers" else None


@pytest.mark.compiled_gradients
@pytest.mark.parametrize("layout", ["by heads", "as projected"])
@pytest.mark.parametrize("kind", ["none", "bool", "numbers", "a row sees nothing", "causal"])
def test_short_attention(kind, layout):
    torch.manual_seed(0)
    inputs = [(torch.randn(2, 3, 7, 8) if layout == "by heads" else torch.randn(2, 7, 3, 8).transpose(1, 2)).requires_grad_() for _ in range(3)]
    mask = _mask(kind)

    def attend(q, k, v):
        out = F.scaled_dot_product_attention(q * 1.0, k, v, attn_mask=mask, is_causal=kind == "causal")
        return (out.transpose(1, 2).reshape(2, 7, 24) * 2).sin()

    compiled = kintsugi.compile(attend)
    for _ in range(5):
        expected, got = attend(*inputs), compiled(*inputs)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
        for a, b in zip(torch.autograd.grad(expected.square().sum(), inputs), torch.autograd.grad(got.square().sum(), inputs), strict=True):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
            assert a.stride() == b.stride()
    row = kintsugi.stats(compiled)["kernels"][0]
    assert row["compiled"] or "steps are faster" in row["reason"]
    assert row["library_calls"] == 6, "two products forward, four back"


@pytest.mark.compiled_gradients
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["none", "numbers", "causal"])
def test_short_attention_in_half_precision(kind, dtype):
    """As near to float64 as the operator is; both round what they return."""
    torch.manual_seed(0)
    inputs = [torch.randn(2, 7, 3, 8).to(dtype).transpose(1, 2).requires_grad_() for _ in range(3)]
    mask = _mask(kind)
    mask = None if mask is None else mask.to(dtype)

    def attend(q, k, v, mask):
        return F.scaled_dot_product_attention(q * 1.0, k, v, attn_mask=mask, is_causal=kind == "causal").transpose(1, 2).reshape(2, 7, 24) * 2

    def both(fn, inputs, mask):
        out = fn(*inputs, mask)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    compiled = kintsugi.compile(attend)
    exact = both(attend, [x.detach().double().requires_grad_() for x in inputs], None if mask is None else mask.double())
    for _ in range(5):
        for ours, theirs, right in zip(both(compiled, inputs, mask), both(attend, inputs, mask), exact, strict=True):
            assert ours.dtype == theirs.dtype == dtype and ours.stride() == theirs.stride()
            far = torch.finfo(dtype).eps * right.abs().max()
            assert (ours - right).abs().max() <= (theirs - right).abs().max() + far
    row = kintsugi.stats(compiled)["kernels"][0]
    assert (row["compiled"] and row["library_calls"] == 6) or "steps are faster" in row["reason"]


@pytest.mark.compiled_gradients
@pytest.mark.parametrize("program", ["other keys", "twice", "other settings", "keys as queries"])
def test_one_query_of_several_attentions(program):
    """Each goes back with its own weights."""
    torch.manual_seed(3)
    inputs = [torch.randn(2, 3, 7, 8).requires_grad_() for _ in range(4)]

    def attend(q, k, v, other):
        q = q * 1.5
        if program == "other keys":
            a, b = F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, other, v)
        elif program == "twice":
            a, b = F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, other)
        elif program == "other settings":
            a, b = F.scaled_dot_product_attention(q, k, v, is_causal=True), F.scaled_dot_product_attention(q, k, v, scale=0.7) * other
        else:
            a, b = F.scaled_dot_product_attention(q, q, v), F.scaled_dot_product_attention(q, k, q) * other
        return (a * b.sin()).square().sum()

    compiled = kintsugi.compile(attend)
    for _ in range(5):
        expected = torch.autograd.grad(attend(*inputs), inputs, allow_unused=True)
        for a, b in zip(torch.autograd.grad(compiled(*inputs), inputs, allow_unused=True), expected, strict=True):
            assert (a is None) == (b is None)
            if b is not None:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.compiled_gradients
def test_autocast_in_bfloat16():
    """Products as large as those that some processors leave to PyTorch."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 64, bias=False))
    x = torch.randn(64, 128)

    def objective(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        return y.float().square().mean()

    compiled = kintsugi.compile(objective)
    for _ in range(5):
        expected, got = objective(x), compiled(x)
        torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-3)
        for a, b in zip(*(torch.autograd.grad(loss, list(model.parameters())) for loss in (expected, got)), strict=True):
            assert a.dtype == b.dtype and (a - b).abs().max() <= 2e-2 * a.abs().max()


@pytest.mark.compiled_gradients
def test_long_attention_stays_an_operator():
    q = torch.randn(1, 2, 40, 8, requires_grad=True)
    compiled = kintsugi.compile(lambda q: (F.scaled_dot_product_attention(q, q, q) * 2).sin())
    for _ in range(5):
        (given,) = torch.autograd.grad(compiled(q).sum(), q)
    (expected,) = torch.autograd.grad((F.scaled_dot_product_attention(q, q, q) * 2).sin().sum(), q)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)
    assert kintsugi.stats(compiled)["kernels"][0]["library_calls"] == 2


@pytest.mark.compiled_gradients
@pytest.mark.parametrize("shape", [(2, 4, 16, 16), (2, 2, 24, 16), (1, 4, 32, 32)])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_large_scores_are_as_near_to_float64_as_those_of_a_softmax(shape, causal):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def by_hand(q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
        return scores.softmax(-1) @ v

    def gradients(fn, inputs, back):
        inputs = [x.clone().requires_grad_() for x in inputs]
        return torch.autograd.grad(fn(*inputs), inputs, back)

    compiled, ours, theirs = kintsugi.compile(attend), [0.0] * 3, [0.0] * 3
    for _ in range(3):  # until it is launched
        gradients(compiled, [torch.randn(shape)] * 3, torch.randn(shape))
    for seed in range(8):
        torch.manual_seed(seed)
        inputs, back = [torch.randn(shape) * 6, torch.randn(shape) * 6, torch.randn(shape)], torch.randn(shape)
        exact = gradients(by_hand, [x.double() for x in inputs], back.double())
        for fn, far in ((compiled, ours), (by_hand, theirs)):
            for i, (a, b) in enumerate(zip(gradients(fn, inputs, back), exact, strict=True)):
                far[i] = max(far[i], float((a - b).abs().max() / b.abs().max()))
    assert all(a < 3 * b for a, b in zip(ours, theirs, strict=True)), (ours, theirs)
