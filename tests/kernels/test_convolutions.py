"""Networks of convolutions: what is computed, and how it lies, with values channels-last in between."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from launches import kintsugi, versions

pytestmark = pytest.mark.usefixtures("kernels")


def check(net, *inputs, calls=3, library=1):
    """Compiled as one graph, with so many library calls at least, and like eager."""
    compiled = kintsugi.compile(net)
    with torch.no_grad():
        for _ in range(calls):
            got, wanted = compiled(*inputs), net(*inputs)
            for a, b in zip(got if isinstance(got, tuple) else (got,), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                assert a.shape == b.shape and a.stride() == b.stride()
                torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5 * max(1.0, b.abs().max().nan_to_num(1.0).item()), equal_nan=True)
    rows = [row for row in kintsugi.stats(compiled)["kernels"] if row["compiled"]]
    assert sum(row["library_calls"] for row in rows) >= library, versions(compiled)
    return compiled


class Between(nn.Module):
    """Two convolutions with something in between."""
    def __init__(self, fn, before=6, after=6, second=None):
        super().__init__()
        self.a, self.fn, self.b = nn.Conv2d(3, before, 3, padding=1), fn, second or nn.Conv2d(after, 20, 3)

    def forward(self, x):
        return self.b(self.fn(self.a(x)))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("fn, after", [
    (F.relu, 6), (F.relu6, 6), (F.silu, 6), (F.elu, 6), (lambda x: x.clamp(-0.2, 0.3), 6), (lambda x: x.clamp(max=0.1) * 2, 6),
    (lambda x: F.max_pool2d(x, 2), 6), (lambda x: F.avg_pool2d(x, 3, 2, 1), 6), (lambda x: torch.cat([x, x * 2, x[:, :1]], 1), 13),
    (lambda x: F.pad(x, [1, 2, 3, 4]), 6), (lambda x: F.pad(x, [1, 2, 3, 4], mode="reflect"), 6),
    (lambda x: F.interpolate(x, scale_factor=2), 6), (lambda x: F.interpolate(x, size=(9, 25), mode="bilinear"), 6),
    (lambda x: F.group_norm(x, 3), 6), (lambda x: F.instance_norm(x), 6), (lambda x: x[:, 1:4] + x.mean((2, 3), keepdim=True)[:, :3], 3),
    (lambda x: F.pixel_unshuffle(x, 2), 24), (lambda x: x.reshape(x.shape[0], 2, 3, 12, 14).transpose(1, 2).flatten(1, 2), 6),
    (lambda x: x.transpose(2, 3).contiguous() * 1.5, 6),
])
def test_between_two_convolutions(fn, after, layout):
    torch.manual_seed(0)
    check(Between(fn, after=after).eval(), torch.randn(2, 3, 12, 14).to(memory_format=layout), library=2)


@pytest.mark.parametrize("conv, sizes", [
    (nn.Conv1d(5, 40, 10, 5, bias=False), (2, 5, 400)), (nn.Conv1d(80, 24, 3, padding=4, dilation=4), (1, 80, 2000)),
    (nn.Conv2d(3, 40, 7, 2, 3), (1, 3, 33, 35)), (nn.Conv2d(16, 40, 3, padding=2, dilation=2), (2, 16, 5, 6)),
    (nn.Conv2d(24, 24, 5, 2, 2, groups=24), (1, 24, 17, 16)), (nn.Conv2d(8, 64, 3, groups=2), (1, 8, 11, 9)),
    (nn.Conv3d(3, 20, 3, 1, 1), (1, 3, 5, 6, 9)), (nn.Conv2d(1100, 8, 3, padding=1), (1, 1100, 4, 4)),
    (nn.ConvTranspose2d(6, 34, 4, 2, 1), (2, 6, 7, 9)), (nn.ConvTranspose2d(6, 34, 2, 2), (1, 6, 5, 4)),
    (nn.ConvTranspose2d(6, 5, 3, 2, 1, output_padding=1, bias=False), (1, 6, 8, 8)), (nn.ConvTranspose1d(6, 8, 5, 3), (1, 6, 20)),
    (nn.ConvTranspose3d(4, 8, 2, 2), (1, 4, 3, 4, 7)),
])
def test_kinds(conv, sizes):
    """With a batch norm and a limit behind, and what comes out used twice."""
    torch.manual_seed(1)
    norm = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d][len(sizes) - 3](conv.out_channels)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    net = nn.Sequential(conv, norm, nn.ReLU6()).eval()

    def both(x):
        y = net(x)
        return y, y.flatten(1).sum(1)
    check(net, torch.randn(sizes))
    check(both, torch.randn(sizes))


def test_nan_stays_behind_limits():
    net = nn.Sequential(nn.Conv2d(3, 20, 3), nn.ReLU(), nn.Conv2d(20, 20, 1), nn.ReLU6()).eval()
    x = torch.randn(1, 3, 9, 9)
    x[0, 1, 4, 4] = float("nan")
    check(net, x, calls=6, library=2)


def test_weights_that_change_are_packed_again():
    for conv in (nn.Conv2d(3, 20, 3), nn.ConvTranspose2d(3, 20, 2, 2), nn.Conv2d(3, 3, 3, groups=3)):
        net = nn.Sequential(conv, nn.ReLU()).eval()
        x = torch.randn(1, 3, 9, 9)
        compiled = check(net, x)
        with torch.no_grad():
            conv.weight.data.copy_(torch.randn_like(conv.weight))
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


def test_group_norm_of_any_layout():
    """Beside convolutions it is computed by channels; its statistics are those of groups."""
    for sizes, groups in (((2, 12, 7, 5), 4), ((1, 32, 50), 32), ((2, 6, 3, 4, 5), 1)):
        conv = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}[len(sizes)](sizes[1], 16, 1)
        norm = nn.GroupNorm(groups, sizes[1])
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        check(nn.Sequential(norm, nn.SiLU(), conv).eval(), torch.randn(sizes) * 3 + 5)


@pytest.mark.parametrize("fn", [F.gelu, torch.sigmoid])
def test_places_that_become_rows(fn):
    """What follows a convolution may end in a view of other dims: the result is written there."""
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 32, 4, stride=4)

        def forward(self, x):
            return F.layer_norm(fn(self.conv(x)).flatten(2).transpose(1, 2), (32,))

    check(Patches().eval(), torch.randn(2, 3, 16, 16), calls=6)
