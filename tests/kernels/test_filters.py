"""Convolutions with few filters of one channel: sums over taps, fused with what stands around them (core/rewrite/match_filter.c)."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from launches import OWN_PRODUCTS, kintsugi, versions

pytestmark = pytest.mark.usefixtures("kernels")


def compiled_like_eager(body, *args, calls=4):
    compiled = kintsugi.compile(body, options={"warm": True})
    with torch.no_grad():
        want = body(*args)
        for _ in range(calls):
            got = compiled(*args)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert got.stride() == want.stride()
    return compiled


def check_calls_that_stay(count, compiled, *args):
    if not OWN_PRODUCTS:  # no call is rewritten
        return
    with torch.no_grad():
        (text,) = [p.after for p in kintsugi.explain(compiled)(*args).passes if p.name == "rewrite"]
    assert text.count("extern") == count


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("channels, filters", [(1, 1), (1, 3), (2, 2), (3, 3)])
@pytest.mark.parametrize("kernel, stride, padding, dilation", [((3, 3), 1, 1, 1), ((5, 3), (2, 1), (2, 0), 1), ((3, 3), 2, 3, 2),
                                                                ((7, 11), 1, (3, 5), 1), ((9, 7), (2, 3), 4, (1, 2))])
def test_images(channels, filters, kernel, stride, padding, dilation, bias):
    x, weight = torch.randn(2, channels, 19, 33), torch.randn(filters, 1, *kernel)
    shift = torch.randn(filters) if bias else None
    compiled = compiled_like_eager(lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, channels).relu() * 2, x, weight, shift)
    assert versions(compiled)[0]["compiled"]
    check_calls_that_stay(0, compiled, x, weight, shift)


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("taps", [9, 61])
def test_lines(stride, taps):
    args = torch.randn(3, 1, 200), torch.randn(2, 1, taps)
    compiled = compiled_like_eager(lambda x, w: F.conv1d(x, w, None, stride, 4).abs() + 1, *args)
    check_calls_that_stay(0, compiled, *args)


def test_edges_of_an_image_are_one_kernel():
    sobel = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])[None, None]

    def body(x):
        across, down = F.conv2d(x, sobel, padding=1), F.conv2d(x, sobel.transpose(2, 3), padding=1)
        return (across**2 + down**2).sqrt()

    x = torch.rand(2, 1, 40, 48)
    compiled = compiled_like_eager(body, x)
    assert versions(compiled)[0]["kernels"] == 1
    check_calls_that_stay(0, compiled, x)


def test_channels_last_and_many_filters():
    x = torch.randn(2, 3, 20, 24).contiguous(memory_format=torch.channels_last)
    compiled_like_eager(lambda x, w: F.conv2d(x, w, padding=1, groups=3) + 1, x, torch.randn(3, 1, 3, 3))
    args = torch.randn(2, 1, 20, 24), torch.randn(16, 1, 3, 3)
    many = compiled_like_eager(lambda x, w: F.conv2d(x, w, padding=1) + 1, *args)
    check_calls_that_stay(1, many, *args)


def test_sizes_that_vary():
    weight = torch.randn(1, 1, 3, 3)

    def body(x):
        return F.conv2d(x, weight, padding=1).tanh().mean((2, 3))

    compiled = kintsugi.compile(body, dynamic=True, options={"warm": True})
    with torch.no_grad():
        for side in (20, 33, 16, 48, 17, 40, 21):
            x = torch.randn(2, 1, side, side + 3)
            for _ in range(3):
                torch.testing.assert_close(compiled(x), body(x), rtol=1e-4, atol=1e-5)


def test_gradients():
    x, weight = torch.randn(2, 1, 20, 20), torch.randn(2, 1, 3, 3)

    def loss(x, w):
        return F.conv2d(x, w, padding=1).sigmoid().pow(2).sum()

    def gradients(fn):
        inputs = [t.clone().requires_grad_() for t in (x, weight)]
        fn(*inputs).backward()
        return [t.grad for t in inputs]

    compiled = kintsugi.compile(loss)
    want = gradients(loss)
    for _ in range(6):
        for a, b in zip(gradients(compiled), want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
