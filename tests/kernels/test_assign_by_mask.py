"""x[mask] = value, where what is assigned does not depend on how much the mask picks, or is made of what the same mask picks, is part of a graph, with and without gradients."""
import pytest
import torch
from launches import kintsugi


def body(text):
    space = {"torch": torch}
    exec("def fn(x, *r):\n    y = x.clone()\n    " + text.replace("\n", "\n    ") + "\n    return y * 2", space)
    return space["fn"]


WHOLE = {
    "whole": ("y[y < 0] = 3", [(4, 5, 6)]),
    "leading dims": ("y[y[..., 0] < 0] = 3", [(4, 5, 6)]),
    "a row for each": ("y[y[..., 0] < 0] = r[0]", [(4, 5, 6), (6,)]),
    "one row": ("y[y[..., 0] < 0] = r[0][None]", [(4, 5, 6), (6,)]),
    "a matrix for each": ("y[y[:, 0, 0] < 0] = r[0]", [(4, 5, 6), (5, 6)]),
    "last dim": ("y[:, :, r[0] < 0] = 1", [(4, 5, 6), (6,)]),
    "column": ("y[:, r[0] < 0] = r[1]", [(4, 5), (5,), (4, 1)]),
    "middle dim": ("y[:, r[0] < 0] = r[1]", [(4, 5, 6), (5,), (4, 1, 6)]),
    "behind an ellipsis": ("y[..., r[0] < 0] = 7", [(4, 5, 6), (6,)]),
    "before an ellipsis": ("y[r[0] < 0, ...] = r[1]", [(4, 5, 6), (4,), (6,)]),
    "beside a number": ("y[r[0] < 0, 2] = r[1]", [(4, 5, 6), (4,), ()]),
    "beside a slice": ("y[r[0] < 0, 1:3] = r[1]", [(4, 5, 6), (4,), (6,)]),
    "of a slice": ("y[1:3][y[1:3] > 0] = 7", [(4, 5, 6)]),
    "of a transposed view": ("y.t()[y.t() > 0] = r[0]", [(4, 5), ()]),
    "number as tensor": ("y[y < 0] = r[0]", [(4, 5), ()]),
    "of one element": ("y[y < 0] = r[0]", [(4, 5), (1,)]),
    "nothing picked": ("y[y > 99] = 2", [(4, 5)]),
    "method": ("y = y.index_put((y < 0,), torch.tensor(2.0))", [(4, 5)]),
    "adds": ("y = y.index_put((y < 0,), torch.tensor(2.0), accumulate=True)", [(4, 5)]),
    "updated": ("y[y < 0] += 1", [(4, 5)]),
    "updated in another way": ("y[y < 0] *= 2.5\ny[y > 0] /= 2\ny[y > 0.5] -= 1\ny[y > 0.25] **= 2", [(4, 5)]),
    "updated rows": ("y[r[0] > 0] += 1", [(4, 5), (4,)]),
    "updated view": ("y[:, 1:][y[:, 1:] > 0] *= 2", [(4, 5)]),
    "all updated": ("y[y < 99] += 1", [(4, 5)]),
    "none updated": ("y[y > 99] += 1", [(4, 5)]),
    "from masked, by one mask": ("m = y < 0\ny[m] = r[0][m]", [(4, 5), (4, 5)]),
    "rows from masked": ("m = r[0] < 0\ny[m] = 1 - (r[1] * 2)[m] * 3", [(4, 5), (4,), (4, 5)]),
    "of two tensors": ("m = r[0] < 0\ny[m] = y[m] * r[1][m] + r[1][m].tanh()", [(4, 5), (4,), (4, 5)]),
    "where it has a gradient": ("m = y > 0.1\ny = y * 1\ny[m] = y[m].log() + y[m].sqrt() + 1 / y[m]", [(4, 5)]),
    "sum": ("m = y > 0.1\ny = y * y[m].sqrt().sum()", [(4, 5)]),
    "mean of rows": ("m = r[0] < 9\ny = y * (y[m] * 2).square().mean()", [(4, 5), (4,)]),
    "in place": ("m = y > 0.1\nt = y[m]\nu = t\nt += 1\nt.mul_(3)\ny[m] = u * 2", [(4, 5)]),
    "written to in between": ("m = y > 0.1\nt = y[m]\ny.mul_(3)\ny[m] = t", [(4, 5)]),
    "integers": ("n = r[0].detach().mul(9).long()\nm = n > 3\nk = n * 2\nk[m] = n[m] + 1\nk[k < 0] += 2\ny = y * k", [(4, 5), (4, 5)]),
}
OTHERS = {
    "as many as picked": ("y[r[0] < 0] = r[1][: int((r[0] < 0).sum())]", [(4, 5), (4,), (4, 5)]),
    "from masked": ("y[y < 0] = r[0][y < 0]", [(4, 5), (4, 5)]),
    "by another mask": ("m = r[0] > 0\ny[m.flip(0)] = y[m]", [(4, 5), (4,)]),
    "mask written to": ("m = r[0] > 0\nt = y.detach()[m]\nm[:] = m.flip(0)\ny[m] = t", [(4, 5), (4,)]),
    "mask written to through a view": ("m = r[0] > 0\nt = y.detach()[m]\nm[1:2].logical_not_()\nm[1:2].logical_not_()\ny[m] = t", [(4, 5), (4,)]),
    "asked how many": ("t = y[y < 9]\ny = y * t.numel() + t.shape[0] + t.sum()", [(4, 5)]),
    "given": ("t = y[y < 9]\ny = t * 2 + t.sum()", [(4, 5)]),
    "scaled by a tensor": ("y[y < 0] *= r[0]", [(4, 5), ()]),
    "of another dim": ("m = r[0] > 0\ny[m] = y[m].sum(-1, keepdim=True)", [(4, 5), (4,)]),
    "with a row": ("m = r[0] > 0\ny[m] = y[m] + r[1]", [(4, 5), (4,), (5,)]),
    "of a transposed tensor": ("y = y.t()\ny[r[0] > 0] += 1", [(4, 5), (5,)]),
    "into another dtype": ("m = y > 0\nz = torch.zeros(4, 5, dtype=torch.float64)\nz[m] = y[m].double()\ny = y * z", [(4, 5)]),
    "sorted": ("m = y < 9\ny[m] = y[m].sort()[0]", [(4, 5)]),
    "method with a gradient for the value": ("y.index_put_((y < 0,), r[0])", [(4, 5), ()]),
    "empty": ("y[y < 0] = 2", [(0, 5)]),
    "two masks": ("y[y[:, 0] > 0][:, r[0] > 0] = 2", [(4, 5), (5,)]),
}
RAISES = {
    "mask of another shape": ("y[r[0] < 0] = 7", [(4, 5), (5,)], IndexError),
    "value of another shape": ("y[y[:, 0] < 0] = r[0]", [(4, 5), (3,)], RuntimeError),
    "updated by a mask of another shape": ("y[r[0] < 0] += 7", [(4, 5), (5,)], IndexError),
    "integers divided by zero": ("n = y.long()\nm = n < 9\nn[m] //= 0\ny = y * n", [(4, 5)], RuntimeError),
    "overlapping value": ("y[1:][(y[:-1] > 0)[:, 0]] = y[1]", [(4, 5)], RuntimeError),
}


def outcome(fn, tensors, gradients):
    tensors = [t.clone().requires_grad_(gradients) for t in tensors]
    y = fn(*tensors)
    if gradients:
        (y * (torch.arange(y.numel()) % 5 + 1).reshape(y.shape)).sum().backward()
    return [y.detach(), *(t.grad for t in tensors)], y.stride()


@pytest.mark.usefixtures("kernels")
@pytest.mark.compiled_gradients
@pytest.mark.parametrize("gradients", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", [*WHOLE, *OTHERS])
def test_as_eager(name, gradients):
    text, sizes = {**WHOLE, **OTHERS}[name]
    fn = body(text)
    compiled = kintsugi.compile(fn)
    with kintsugi.config.patch(training=True):
        for _ in range(5):
            tensors = [torch.randn(s) for s in sizes]
            (wanted, strides), (found, lies) = outcome(fn, tensors, gradients), outcome(compiled, tensors, gradients)
            assert lies == strides
            for a, b in zip(found, wanted, strict=True):
                assert a is b is None or torch.allclose(a, b, rtol=1e-5, atol=1e-5)
    rows = kintsugi.stats(compiled)["kernels"]
    assert name not in WHOLE or (rows and all(row["compiled"] and row["parts"] == 1 for row in rows)), rows


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", RAISES)
def test_what_eager_refuses(name):
    text, sizes, error = RAISES[name]
    fn = body(text)
    compiled = kintsugi.compile(fn)
    for _ in range(4):
        tensors = [torch.randn(s) for s in sizes]
        with pytest.raises(error) as wanted:
            fn(*tensors)
        with pytest.raises(error) as found:
            compiled(*tensors)
        assert str(found.value) == str(wanted.value)


@pytest.mark.usefixtures("kernels")
def test_an_input_is_written_to():
    def fn(x):
        x[x > 0] = 1
        return x * 2

    compiled = kintsugi.compile(fn)
    for _ in range(4):
        x = torch.randn(4, 5)
        given = x.clone()
        torch.testing.assert_close(compiled(given), fn(x))
        torch.testing.assert_close(given, x)
        assert given._version == x._version


@pytest.mark.usefixtures("kernels")
def test_sizes_vary():
    fn = body("y[y[..., 0] < 0] = r[0]")
    compiled = kintsugi.compile(fn, dynamic=True)
    for n in (3, 5, 1, 8, 4, 7, 2):
        x, row = torch.randn(n, 2 * n, 6), torch.randn(6)
        torch.testing.assert_close(compiled(x, row), fn(x, row))


@pytest.mark.usefixtures("kernels")
@pytest.mark.compiled_gradients
def test_what_is_picked_of_tensors_of_other_sizes():
    def fn(x, mask, y):
        x = x * 2
        x[mask] += 1
        x[mask] = x[mask] * y[mask]
        return x.sum() + (x[mask] - y[mask]).square().mean()

    compiled = kintsugi.compile(fn)
    with kintsugi.config.patch(training=True):
        for rows, columns in ((4, 5), (6, 5), (7, 5), (12, 6), (1, 5), (0, 5), (8, 1), (5, 0), (20, 33)):
            mask, x, y = torch.rand(rows) > 0.3, torch.randn(rows, columns, requires_grad=True), torch.randn(rows, columns, requires_grad=True)
            found, wanted = compiled(x, mask, y), fn(x, mask, y)
            torch.testing.assert_close(found, wanted, equal_nan=True)
            for a, b in zip(torch.autograd.grad(found, (x, y)), torch.autograd.grad(wanted, (x, y)), strict=True):
                torch.testing.assert_close(a, b, equal_nan=True)
    rows = kintsugi.stats(compiled)["kernels"]
    assert all(row["parts"] == 1 for row in rows), rows


@pytest.mark.usefixtures("kernels")
@pytest.mark.compiled_gradients
def test_the_gradient_of_a_gradient_of_what_is_picked():
    def fn(x):
        x = x * 1.5
        mask = x > 0
        x[mask] *= x[mask]
        return (x**3).sum()

    compiled = kintsugi.compile(fn)
    with kintsugi.config.patch(training=True):
        for _ in range(4):
            x, found = torch.randn(5, 4, requires_grad=True), []
            for call in (compiled, fn):
                (grad,) = torch.autograd.grad(call(x), x, create_graph=True)
                found += torch.autograd.grad(grad.square().sum(), x)
            torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
