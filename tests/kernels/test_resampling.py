"""Images that keep their size where a scale was asked for, and tensors without elements: cases that eager's kernels take apart."""

import math

import pytest
import torch
import torch.nn.functional as F

import kintsugi

pytestmark = pytest.mark.usefixtures("kernels")


def image(*sizes):
    x = torch.arange(float(math.prod(sizes))).view(sizes) % 7
    x.view(-1)[3] = float("nan")
    return x


def same(program, calls, dynamic=None):
    compiled = kintsugi.compile(program, dynamic=dynamic)
    for arguments in calls:
        result, expected = compiled(*arguments), program(*arguments)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
        assert result.stride() == expected.stride()


@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels_last"])
@pytest.mark.parametrize(("mode", "ndim"), [("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 2), ("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)])
def test_scales_too_small_to_add_a_row(mode, ndim, last):
    """1.1 times 5 rows are 5 rows: some kernels of eager take each row once, others look for rows at 1 / 1.1."""
    def program(x):
        return F.interpolate(x, scale_factor=1.1, mode=mode) * 2 + 1

    def laid(x):
        return x.to(memory_format=torch.channels_last) if last and ndim == 2 else x

    same(program, [(laid(image(2, 3, *(n + i for i in range(ndim)))),) for n in (5, 9, 12, 6, 16, 4, 25, 8, 11, 5)])


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_size_that_stays_spreads_nothing(corners, dtype):
    """A neighbour with weight 0 is NaN times 0. Where the size stays, eager has no neighbours; plans for larger and smaller sizes say nothing of that."""
    def program(x, y):
        return F.interpolate(x, size=(y.shape[0], 6), mode="bilinear", align_corners=corners).relu() * 2

    same(program, [(image(2, 3, 7, 6).to(dtype), torch.ones(n)) for n in (5, 9, 4, 12, 6, 8, 10, 11, 3, 14, 13, 7, 16)], dynamic=True)


@pytest.mark.parametrize("unused", [lambda x: x.max(0), lambda x: x.min(0).values, lambda x: x.max(), lambda x: F.interpolate(x[None, None], size=(3, 4), mode="bilinear"),
                                    lambda x: F.adaptive_avg_pool2d(x[None], (2, 2))], ids=["max", "min", "max of all", "bilinear", "pool"])
def test_what_nothing_reads_raises_where_it_is_empty(unused):
    def program(x):
        unused(x * 2)
        return x.sum() + 1

    compiled = kintsugi.compile(program, dynamic=True)
    for n in (4, 5, 0, 7, 3, 0, 6):
        x = torch.ones(n, 3)
        if n > 0:
            assert torch.equal(compiled(x), program(x))
            continue
        with pytest.raises(Exception) as expected:  # noqa: PT011
            program(x)
        with pytest.raises(expected.type):
            compiled(x)


@pytest.mark.parametrize("program", [lambda x, i: x.permute(2, 1, 0)[i] * 2, lambda x, i: (x.permute(2, 1, 0) + 1)[i], lambda x, i: (x + 1)[:, i[:0]].relu()], ids=["argument", "computed", "index"])
def test_strides_of_empty_selections(program):
    i = torch.tensor([0, 1, 2])
    same(program, [(torch.ones(n, 3, 6), i) for n in (0, 2, 5, 0, 3)], dynamic=True)
    same(program, [(torch.ones(0, 3, 6), i)] * 4)


def test_images_of_no_elements_stay_as_they_are():
    """`pixel_unshuffle` of no elements gives what it got."""
    same(lambda x: F.pixel_unshuffle(x.sin(), 2) + 1, [(torch.ones(2, 3, n, 4),) for n in (2, 4, 0, 6, 8, 0)], dynamic=True)
