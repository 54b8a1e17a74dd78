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
    assert row["library_calls"] == 7, "two products forward, five back"


def test_long_attention_stays_an_operator():
    q = torch.randn(1, 2, 40, 8, requires_grad=True)
    compiled = kintsugi.compile(lambda q: (F.scaled_dot_product_attention(q, q, q) * 2).sin())
    for _ in range(5):
        (given,) = torch.autograd.grad(compiled(q).sum(), q)
    (expected,) = torch.autograd.grad((F.scaled_dot_product_attention(q, q, q) * 2).sin().sum(), q)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)
    assert kintsugi.stats(compiled)["kernels"][0]["library_calls"] == 2
