"""An index out of range raises eager's error also where the element does not hang on the index (what is indexed is the same everywhere), and where
nobody reads the element."""
import pytest
import torch
import torch.nn.functional as F

import kintsugi

FUNCTIONS = {
    "full": lambda x, i: torch.full((7,), 2.0)[i] + x[0],
    "expanded": lambda x, i: x[:, :1].expand(5, 7)[:, i] * 2,
    "one element": lambda x, i: torch.ones(1)[i] + x.sum(),
    "iota of another dim": lambda x, i: torch.arange(5)[:, None].expand(5, 7)[:, i] + 1,
    "gather": lambda x, i: torch.gather(x[:, :1].expand(5, 7) * 2, 1, i.expand(5, i.shape[0])),
    "summed": lambda x, i: (torch.full((7,), 2.0)[i] * 3).sum() + x.sum(),
    "index_select": lambda x, i: x[:, :1].expand(5, 7).index_select(1, i) + 1,
    "embedding": lambda x, i: F.embedding(i, torch.ones(7, 3)) + x.sum(),
    "two dims": lambda x, i: torch.zeros(7, 7)[i, i] + x[0],
    "half": lambda x, i: torch.full((7,), 2.0, dtype=torch.bfloat16)[i] + x[0].bfloat16(),
    "a slice of what is read": lambda x, i: (x[0][i] * 2)[:2] + 1,
    "read places": lambda x, i: x[0][i][torch.tensor([0, 1])] + 1,
    "less than nothing beside it": lambda x, i: F.pad(x[0][i] * 2, (0, -3)) + 1,
    "written over": lambda x, i: torch.cat([x[0][i].sin(), x[1]])[5:] + 1,
    "a diagonal": lambda x, i: x[0][i].expand(5, 5).diagonal()[:2] + 1,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.usefixtures("kernels")
def test_out_of_range_raises(name):
    function, x = FUNCTIONS[name], torch.randn(5, 5)
    right, wrong = torch.zeros(5, dtype=torch.long), torch.tensor([0, 0, 9, 0, 0])
    with pytest.raises((IndexError, RuntimeError)) as expected:
        function(x, wrong)
    compiled = kintsugi.compile(function)
    for _ in range(10):
        torch.testing.assert_close(compiled(x, right), function(x, right))
    assert kintsugi.stats(compiled)["compiled_calls"] > 0
    with pytest.raises(type(expected.value)) as raised:
        compiled(x, wrong)
    assert str(raised.value) == str(expected.value)
    torch.testing.assert_close(compiled(x, right), function(x, right))


RESIZED = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


@pytest.mark.parametrize("mode", RESIZED)
@pytest.mark.usefixtures("kernels")
def test_images_that_cannot_be_resized_raise(mode):
    """PyTorch's meta kernels accept images without rows or channels, which its CPU kernels do not."""
    def resize(x):
        return F.interpolate(x * 2, scale_factor=2, mode=mode) + 1

    compiled, dims = kintsugi.compile(resize, dynamic=True), RESIZED[mode] + 2
    for n in (3, 4, 5, 6, 7):
        x = torch.randn(n, 2, *range(n, n + dims - 2))
        torch.testing.assert_close(compiled(x), resize(x), rtol=1e-4, atol=1e-4)
    for dim in range(dims):
        x = torch.randn(*(0 if d == dim else 4 for d in range(dims)))
        if dim == 0:
            assert compiled(x).shape == resize(x).shape
            continue
        with pytest.raises(RuntimeError) as expected:
            resize(x)
        with pytest.raises(RuntimeError, match=str(expected.value)[:20]):
            compiled(x)


@pytest.mark.parametrize("mode", RESIZED)
@pytest.mark.usefixtures("kernels")
def test_images_cannot_be_resized_to_nothing(mode):
    def halve(x):
        return F.interpolate(x * 2, scale_factor=0.5, mode=mode) + 1

    compiled, dims = kintsugi.compile(halve, dynamic=True), RESIZED[mode]
    for n in (4, 5, 6, 7, 8):
        x = torch.randn(2, 3, *range(n, n + dims))
        torch.testing.assert_close(compiled(x), halve(x), rtol=1e-4, atol=1e-4)
    x = torch.randn(2, 3, *[4] * (dims - 1), 1)
    with pytest.raises(RuntimeError):
        halve(x)
    with pytest.raises(RuntimeError):
        compiled(x)
