"""Complex numbers that stay inside a graph as real arithmetic in kernels, and every other element of memory, against eager."""

import pytest
import torch
from launches import kintsugi, runs, versions
from torch import nn


pytestmark = pytest.mark.usefixtures("kernels")


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def check(body, *args, exact=False, calls=6):
    """exact: bit by bit. Products are not: eager's are rounded otherwise at the end of a row, where it does not go by vectors."""
    compiled = kintsugi.compile(body)
    with torch.no_grad():
        wanted = flat(body(*args))
        for _ in range(calls):
            for got, want in zip(flat(compiled(*args)), wanted, strict=True):
                assert got.shape == want.shape and got.stride() == want.stride() and got.dtype == want.dtype
                assert got.is_conj() == want.is_conj()
                if exact:
                    assert torch.equal(torch.view_as_real(got.resolve_conj()) if got.is_complex() else got.nan_to_num(7),
                                       torch.view_as_real(want.resolve_conj()) if want.is_complex() else want.nan_to_num(7))
                else:
                    torch.testing.assert_close(got, want, equal_nan=True)
    return compiled


def externs(compiled):
    return [v["extern"] for v in versions(compiled)]


def rotate(x, angles):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles).flatten(-2).type_as(x)


@pytest.mark.parametrize("width", (2, 6, 10, 32, 34, 64, 70, 128))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float64))
def test_rotary_embedding(width, dtype):
    torch.manual_seed(width)
    angles = torch.polar(torch.ones(7, width // 2), torch.randn(7, width // 2)).view(1, 7, 1, -1)
    compiled = check(lambda q, k, a: (rotate(q, a), rotate(k, a)), torch.randn(2, 7, 3, width).to(dtype), torch.randn(2, 7, 1, width).to(dtype), angles)
    assert runs(compiled) > 0 and set(externs(compiled)) == {0}


def test_strange_numbers():
    x = torch.randn(4, 6, 8)
    x[0, 0, :4] = torch.tensor([float("nan"), 1, float("inf"), -float("inf")])
    x[1] = -0.0
    angles = torch.polar(torch.ones(6, 4), torch.randn(6, 4))
    angles[2, 1] = complex(float("inf"), 0)
    angles[3, 1] = complex(0, float("nan"))
    assert runs(check(rotate, x, angles)) > 0


def test_polar_and_complex():
    x = torch.randn(3, 8)
    compiled = check(lambda x, a: rotate(x, torch.polar(torch.ones_like(a), a)), x, torch.randn(3, 4))
    assert runs(compiled) > 0
    check(lambda a, b: torch.view_as_real(torch.complex(a, b) * 2.5 - torch.complex(b, a)), torch.randn(5, 3), torch.randn(5, 3))
    check(lambda a, b, c: (torch.complex(a, b) * c).abs() + 1, torch.randn(5, 3), torch.randn(5, 3), torch.randn(3))
    check(lambda z, w: (z * w).abs().sum(-1), torch.randn(5, 9, dtype=torch.complex128), torch.randn(9, dtype=torch.complex128))


def test_views():
    z, w = torch.randn(4, 6, 2, dtype=torch.complex64), torch.randn(6, 2, dtype=torch.complex64)
    check(lambda z, w: torch.view_as_real((z * w).transpose(0, 1)[1:, ::2].unsqueeze(1).contiguous() + 0 * w[1:, None, None]), z, w)
    check(lambda z, w: torch.view_as_real(torch.cat([z * w, z - w], 1)).sum(-1), z, w)
    check(lambda z, w: [torch.view_as_real(t * w[:3]) for t in (z * w).split(3, 1)], z, w)
    check(lambda z, w: torch.view_as_real(z * w).mul(2), z.transpose(0, 1)[::2, 1:], w[:3].t().contiguous().t()[:, None])
    check(lambda z, w: torch.view_as_real(z.expand(3, 4, 6, 2) * w).select(-1, 1), z[:1], w)


def test_what_stays_pytorchs():
    z, w = torch.randn(4, 8, dtype=torch.complex64), torch.randn(8, dtype=torch.complex64)
    check(lambda z, w: (z * w, (z + w).abs()), z, w)                     # a complex output
    check(lambda z, w: torch.view_as_real(torch.fft.fft(z) * w) * 2, z, w)
    check(lambda z, w: torch.view_as_real(z * w.conj()) * 2, z, w)
    check(lambda z, w: torch.view_as_real(z) * 2 + torch.view_as_real(z * w), z, w)
    check(lambda z, w: torch.view_as_real((z * w).mul_(w)) * 2, z, w)
    check(lambda z: (z.clone() * 2j).real + 1, z)
    check(lambda z: torch.view_as_real(z + 1.5) * 2, z)
    check(lambda z: (z.real * 2, z.imag + 1), z)
    check(lambda z, w: torch.view_as_real(torch.where(z.abs() > 1, z, w)) + 1, z, w)
    check(lambda x: torch.view_as_real(torch.view_as_complex(x)) * 2, torch.randn(3, 4, 2))
    check(lambda z: torch.view_as_real(z * z) + 1, torch.randn(0, 3, dtype=torch.complex64))
    check(lambda z: torch.view_as_real(z * z) + 1, torch.randn((), dtype=torch.complex64))


@pytest.mark.parametrize("center", [True, False])
def test_spectrogram(center):
    """torch.stft turns a transform's complex result in place: that ends a part of the graph, and the rest is compiled."""
    window = torch.hann_window(64)

    def body(x):
        spectrum = torch.stft(x, 64, 16, window=window, center=center, return_complex=True)
        level = spectrum.abs().clamp(min=1e-5).log()
        return (level - level.mean(-1, keepdim=True)) / (level.std(-1, keepdim=True) + 1e-5)

    before = [event["seq"] for event in kintsugi.events() if event["event"] == "bug"]
    compiled = check(body, torch.randn(2, 800))
    assert versions(compiled)
    assert [event["seq"] for event in kintsugi.events() if event["event"] == "bug"] == before


def test_written_inputs():
    def body(x, w):
        z = torch.view_as_complex(x)
        z.mul_(w)
        return torch.view_as_real(z * w) + 1

    compiled = kintsugi.compile(body)
    w = torch.randn(4, dtype=torch.complex64)
    for i in range(6):
        torch.manual_seed(i)
        x = torch.randn(3, 4, 2)
        y = x.clone()
        torch.testing.assert_close(compiled(x, w), body(y, w))
        torch.testing.assert_close(x, y)


def test_attention_of_llama():
    """As Meta's model has it: a table of rotations, of which a part is used."""
    class Attention(nn.Module):
        def __init__(self, width=64, heads=4):
            super().__init__()
            self.heads, self.depth = heads, width // heads
            self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width, bias=False) for _ in range(4))
            inverse = 1.0 / 10000 ** (torch.arange(0, self.depth, 2).float() / self.depth)
            angles = torch.outer(torch.arange(64), inverse)
            self.freqs_cis = torch.polar(torch.ones_like(angles), angles)

        def forward(self, x, start):
            batch, length, _ = x.shape
            q, k, v = (w(x).view(batch, length, self.heads, self.depth) for w in (self.wq, self.wk, self.wv))
            table = self.freqs_cis[start:start + length].view(1, length, 1, -1)
            q, k = rotate(q, table).transpose(1, 2), rotate(k, table).transpose(1, 2)
            out = nn.functional.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
            return self.wo(out.transpose(1, 2).reshape(batch, length, -1))

    torch.manual_seed(0)
    model = Attention().eval()
    compiled = check(lambda x: model(x, 0), torch.randn(2, 16, 64))
    assert runs(compiled) > 0 and len(versions(compiled)) == 1
    check(lambda x: model(x, 5), torch.randn(1, 9, 64))


@pytest.mark.parametrize("size", (1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 65, 100))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.int64, torch.int32, torch.bfloat16))
def test_every_other_element(size, dtype):
    torch.manual_seed(size)
    x = (torch.randn(5, 2 * size + 1) * 10).to(dtype)
    check(lambda x: x[:, ::2] + 1, x, exact=True)
    check(lambda x: x[:, 1::2] * 2, x, exact=True)
    check(lambda x: torch.stack([x[:, 1:-1:2] * 2, x[:, 2::2] + 1], -1).flatten(-2), x, exact=True)
    check(lambda x: torch.stack([x * 2, x + 1], -1).reshape(-1), x, exact=True)
    check(lambda x: torch.stack([x * 2, x + 1], -1) - 1, x, exact=True)


@pytest.mark.parametrize("size", [1, 7, 16, 33, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool], ids=str)
def test_from_the_end_to_the_start(size, dtype):
    x = (torch.randn(5, size) * 3).to(dtype)

    def body(x):
        back = x.flip(-1)
        joined = torch.cat([back, x, back], -1)  # read under a mask
        return back.logical_not(), joined.flip(-1), x.flip(0, 1) == back

    check(body, x, exact=True)
