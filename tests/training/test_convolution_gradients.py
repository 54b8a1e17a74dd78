"""Convolutions in training: forward, gradients of image, filters and bias by kernels of our own, in eager's layouts."""
import copy

import pytest
import torch
import torch.nn.functional as F
from launches import engine, kintsugi, needs_own_products, versions
from torch import nn

# in, out, kernel, stride, padding, groups, bias, size
CASES = {
    "three": (16, 32, 3, 1, 1, 1, True, 12),
    "winograd": (32, 64, 3, 1, 1, 1, False, 16),
    "winograd-odd": (48, 33, 3, 1, 1, 1, True, 19),
    "stride": (16, 32, 3, 2, 1, 1, False, 17),
    "one": (32, 48, 1, 1, 0, 1, True, 10),
    "one-stride": (32, 48, 1, 2, 0, 1, False, 11),
    "padding": (16, 16, 1, 1, 1, 1, False, 9),
    "image": (3, 32, 7, 2, 3, 1, True, 30),
    "wide": (40, 33, 5, 3, 2, 1, True, 20),
    "groups": (64, 96, 3, 1, 1, 2, False, 9),
    "groups-stride": (48, 48, 5, 2, 2, 3, True, 17),
    "groups-of-eight": (32, 48, 3, 2, 1, 4, False, 17),
    "small-groups": (32, 32, 3, 1, 1, 8, False, 9),
    "depthwise": (32, 32, 3, 1, 1, 32, False, 9),
    "depthwise-stride": (40, 40, 3, 2, 1, 40, True, 17),
    "depthwise-wide": (33, 33, 7, 1, 3, 33, True, 14),
    "depthwise-gaps": (16, 16, 2, 3, 0, 16, True, 13),
    "depthwise-padding": (24, 24, 3, 1, 3, 24, False, 4),
    "several-filters": (16, 48, 3, 1, 1, 16, False, 9),
    "few-filters": (16, 4, 3, 1, 1, 1, True, 9),
    "one-filter": (32, 1, 3, 1, 1, 1, True, 11),
    "few-places": (64, 128, 3, 1, 1, 1, False, 2),
}


def operations(compiled, run):
    """Names of the operations that launches of forward and backward consist of."""
    engine.set_profile(True)
    run()
    engine.set_profile(False)
    return [row["name"] for version in versions(compiled) for part in ("profile", "profile_backward") for row in version[part] or ()]


def check(model, x, loss=lambda y: y.square().mean()):
    other = copy.deepcopy(model)
    compiled = kintsugi.compile(lambda x: loss(model(x)))

    def step():
        model.zero_grad()
        x.grad = None
        compiled(x).backward()

    for _ in range(3):
        step()
    names = operations(compiled, step)
    assert names, [v["reason"] for v in versions(compiled)]
    ours = [x.grad, *(p.grad for p in model.parameters())]
    other.zero_grad()
    x.grad = None
    loss(other(x)).backward()
    for a, b in zip(ours, [x.grad, *(p.grad for p in other.parameters())], strict=True):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max()
        assert a.stride() == b.stride()
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        assert a.dtype != b.dtype or a.shape == b.shape
    return names


@needs_own_products
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_a_convolution(name):
    torch.manual_seed(5)
    width, out, kernel, stride, padding, groups, bias, size = CASES[name]
    model = nn.Conv2d(width, out, kernel, stride, padding, groups=groups, bias=bias)
    names = check(model, torch.randn(4, width, size, size, requires_grad=True))
    ours = name not in ("few-places", "small-groups", "several-filters")
    assert any("aten.convolution_backward" in n for n in names) != ours
    if ours and name not in ("one", "padding"):
        assert any("library.conv_backward_weight" in n for n in names) and any("library.conv_backward_image" in n for n in names)


# in, out, kernel, stride, padding, dilation, groups, size
DILATED = {
    "two": (16, 32, 3, 1, 2, 2, 1, 14),
    "without-padding": (32, 16, 3, 1, 0, 3, 1, 15),
    "beyond-the-image": (16, 16, 3, 1, 6, 5, 1, 9),
    "more-padding": (16, 24, 2, 1, 5, 2, 1, 11),
    "one-dim-of-it": (16, 16, (3, 2), 1, (2, 0), (2, 1), 1, 13),
    "few-channels": (3, 32, 5, 1, 4, 2, 1, 20),
    "depthwise": (32, 32, 3, 1, 2, 2, 32, 12),
    "groups": (32, 48, 3, 1, 3, 3, 2, 12),
    "stride": (16, 32, 3, 2, 2, 2, 1, 17),
}


@needs_own_products
@pytest.mark.parametrize("name", DILATED)
def test_gradients_of_a_dilated_convolution(name):
    torch.manual_seed(11)
    width, out, kernel, stride, padding, dilation, groups, size = DILATED[name]
    names = check(nn.Conv2d(width, out, kernel, stride, padding, dilation, groups), torch.randn(4, width, size, size, requires_grad=True))
    assert any("aten.convolution_backward" in n for n in names) == (name == "stride")


@needs_own_products
def test_gradients_of_dilated_convolutions_of_one_dim_and_transposed_ones():
    torch.manual_seed(12)
    for model, x in ((nn.Conv1d(16, 32, 2, dilation=8), torch.randn(4, 16, 200)), (nn.Conv1d(24, 24, 3, padding=4, dilation=4, groups=24), torch.randn(4, 24, 300)),
                     (nn.ConvTranspose2d(16, 24, 3, padding=1, dilation=2), torch.randn(4, 16, 9, 9)),
                     (nn.ConvTranspose2d(16, 24, 3, stride=2, padding=1, dilation=2), torch.randn(4, 16, 9, 9))):
        names = check(model, x.requires_grad_())
        assert not any("aten.convolution_backward" in n for n in names)


# in, out, kernel, stride, padding, output padding, size
TRANSPOSED = {
    "kernel-as-stride": (48, 32, 2, 2, 0, 0, 12),
    "overlapping": (32, 16, 4, 2, 1, 0, 9),
    "output-padding": (16, 40, 3, 2, 1, 1, 11),
    "no-stride": (32, 32, 3, 1, 1, 0, 13),
    "gaps": (17, 20, 2, 3, 1, 0, 9),
    "few-channels": (32, 3, 4, 2, 1, 0, 10),
}


@needs_own_products
@pytest.mark.parametrize("name", TRANSPOSED)
def test_gradients_of_a_transposed_convolution(name):
    torch.manual_seed(9)
    width, out, kernel, stride, padding, more, size = TRANSPOSED[name]
    names = check(nn.ConvTranspose2d(width, out, kernel, stride, padding, output_padding=more), torch.randn(4, width, size, size, requires_grad=True))
    assert not any("aten.convolution_backward" in n for n in names)
    assert any("library.conv_backward_weight" in n for n in names) and any("library.conv_backward_image" in n for n in names)


@needs_own_products
def test_transposed_convolutions_of_one_dim():
    torch.manual_seed(10)
    names = check(nn.ConvTranspose1d(16, 24, 4, stride=2, padding=1), torch.randn(4, 16, 200, requires_grad=True))
    assert any("library.conv_backward_weight" in n for n in names)


@needs_own_products
def test_channels_last_images_and_one_dim():
    torch.manual_seed(6)
    x = torch.randn(4, 16, 12, 12).to(memory_format=torch.channels_last).requires_grad_()
    check(nn.Conv2d(16, 32, 3, padding=1), x)
    names = check(nn.Conv1d(16, 24, 5, stride=2, padding=2), torch.randn(4, 16, 200, requires_grad=True))
    assert any("library.conv_backward_weight" in n for n in names)
    names = check(nn.Conv1d(24, 24, 5, padding=2, groups=24), torch.randn(4, 24, 900, requires_grad=True))
    assert any("library.conv_backward_weight" in n for n in names)
    check(nn.Conv2d(40, 40, 3, padding=1, groups=40), torch.randn(4, 40, 9, 9).to(memory_format=torch.channels_last).requires_grad_())


@needs_own_products
def test_a_network_with_batch_norm_is_handed_over_channels_last():
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32),
                          nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 48, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48 * 16, 10))
    target = torch.randint(0, 10, (4,))
    names = check(model, torch.randn(4, 3, 16, 16, requires_grad=True), lambda y: F.cross_entropy(y, target))
    assert not any("aten.convolution" in n for n in names)


@needs_own_products
def test_what_stands_between_convolutions_lies_channels_last():
    """Each value that is made element by element from images and what comes back has their layout: a kernel that reads one and writes the other is slow."""
    torch.manual_seed(8)
    model = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.SiLU(), nn.Conv2d(32, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.SiLU(),
                          nn.Conv2d(32, 1, 3, padding=1))
    names = check(model, torch.randn(8, 1, 28, 28, requires_grad=True))
    assert not any("aten.convolution" in n for n in names)


@needs_own_products
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("groups", [1, 4, 24])
def test_group_norms_between_convolutions(groups, affine):
    """Their gradients by channel, also where the mean is far from 0; nothing is turned from one layout into the other for them."""
    torch.manual_seed(11)
    norm = nn.GroupNorm(groups, 24, affine=affine)
    model = nn.Sequential(nn.Conv2d(16, 24, 3, padding=1, bias=False), norm, nn.SiLU(), nn.Conv2d(24, 16, 3, padding=1))
    x = torch.randn(3, 16, 12, 12, requires_grad=True)
    check(model, x)
    shifted = nn.Sequential(nn.Conv2d(16, 24, 3, padding=1), norm, nn.SiLU(), nn.Conv2d(24, 16, 3, padding=1))
    with torch.no_grad():
        shifted[0].bias.fill_(50.0)
    compiled = kintsugi.compile(lambda x: shifted(x).square().mean())
    exact = copy.deepcopy(shifted).double()
    wide = x.detach().double().requires_grad_()
    right = torch.autograd.grad(exact(wide).square().mean(), [wide, *exact.parameters()])
    theirs = torch.autograd.grad(shifted(x).square().mean(), [x, *shifted.parameters()])
    for _ in range(3):
        ours = torch.autograd.grad(compiled(x), [x, *shifted.parameters()])
    for a, b, c in zip(ours, theirs, right, strict=True):
        assert (a - c).abs().max() <= 2 * (b - c).abs().max() + 1e-4 * c.abs().max()


@needs_own_products
def test_joined_images_whose_channels_lie_apart():
    """torch.cat gives an image whose channels lie apart; the filters' gradient wants them side by side."""
    torch.manual_seed(8)

    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(48, 32, 3, padding=1)

        def forward(self, x):
            return self.two(torch.cat([self.one(x), x], 1))

    names = check(Joined(), torch.randn(4, 16, 18, 18, requires_grad=True))
    assert sum("library.conv_backward_weight" in n for n in names) == 2
