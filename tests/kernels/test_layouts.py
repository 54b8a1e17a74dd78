"""Results of compiled code lie as eager's do, whatever format images come in: programs ask `is_contiguous()` and go on from there."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi

pytestmark = pytest.mark.usefixtures("kernels")

SIZES = {3: (2, 4, 9), 4: (2, 4, 12, 14), 5: (2, 4, 5, 6, 7)}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def in_format(tensor):
    if tensor.dim() in LAST:
        return tensor.to(memory_format=LAST[tensor.dim()])
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def images(ndim):
    x = torch.randn(SIZES[ndim])
    backwards = [0, 1, *range(ndim - 1, 1, -1)]
    return {"row-major": x, "channels-last": in_format(x), "one image": in_format(x[:1].clone()),
            "swapped": x.permute(backwards).contiguous().permute(backwards), "strided": torch.cat([x, x], -1)[..., ::2]}


def convolutions(n):
    for transposed, stride, dilation, grouped, kernel in itertools.product((False, True), (1, 2), (1, 2), (False, True), (1, 3)):
        function = getattr(F, f"conv_transpose{n}d" if transposed else f"conv{n}d")
        groups = 4 if grouped else 1
        weight = in_format(torch.ones([4, 3 if transposed else 4 // groups] + [kernel] * n))
        rest = (0, groups, dilation) if transposed else (dilation, groups)
        yield lambda x, function=function, weight=weight, rest=rest, stride=stride: function(x, weight, None, stride, 0, *rest)


def resampling(n):
    for kind in ("max_pool", "avg_pool"):
        yield lambda x, f=getattr(F, f"{kind}{n}d"): f(x, 3, 2, 1)
    for kind in ("adaptive_avg_pool", "adaptive_max_pool"):
        yield lambda x, f=getattr(F, f"{kind}{n}d"): f(x, 3)
    for mode in {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[n] + ["nearest"]:
        yield lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode)
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield lambda x, mode=mode: F.pad(x, (1, 0) * (x.dim() - 2), mode=mode)


def shuffling(n):
    if n == 2:
        yield lambda x: F.pixel_shuffle(torch.cat([x, x], 1), 2)
        yield lambda x: F.pixel_unshuffle(torch.cat([x, x], 2), 2)
        yield lambda x: F.channel_shuffle(x, 2)
    for d in (0, 1, -1):
        yield lambda x, d=d: x.roll(1, d)
        yield lambda x, d=d: x.flip(d)
        yield lambda x, d=d: torch.cat([x, x.contiguous()], d)
        yield lambda x, d=d: x.repeat_interleave(2, d)


def normalising(n):
    yield lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4))
    yield lambda x: F.batch_norm(x, None, None, training=True)
    yield lambda x: F.group_norm(x, 2)
    yield lambda x: F.instance_norm(x)
    yield lambda x: F.layer_norm(x, x.shape[-1:])
    yield lambda x: F.softmax(x, 1)
    yield lambda x: F.log_softmax(x, -1)


def pointwise(n):
    yield lambda x: torch.where(x > 0, x, x.contiguous() * 2)
    yield lambda x: torch.where((x > 0).contiguous(), x.contiguous(), x * 2)
    yield lambda x: x.contiguous() + x
    yield lambda x: F.prelu(x, torch.ones(4) * 0.2)
    yield lambda x: torch.lerp(x, x.contiguous(), 0.5)
    yield lambda x: F.mse_loss(x, x.contiguous(), reduction="none")


def lies(tensor):
    """Strides; a dim of size 1 lies anywhere."""
    return [(n, s) for n, s in zip(tensor.shape, tensor.stride()) if n > 1]


def compare(function, x):
    def program(x):
        y = function(x * 2 + 1)
        return y, y * 1.5, y.is_contiguous()

    compiled = kintsugi.compile(program)
    expected = program(x)
    for _ in range(3):
        found = compiled(x)
    assert found[2] == expected[2]
    for a, b in zip(found[:2], expected[:2]):
        assert a.shape == b.shape and lies(a) == lies(b), f"{a.stride()} instead of {b.stride()}"


def sweep(functions, ndim):
    wrong = []
    with torch.no_grad():
        for number, function in enumerate(functions):
            for name, x in images(ndim).items():
                try:
                    compare(function, x)
                except AssertionError as error:
                    wrong.append(f"program {number}, {name}: {error}")
            kintsugi.reset()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("ndim", [3, 4, 5])
@pytest.mark.parametrize("programs", [convolutions, resampling, shuffling, normalising, pointwise])
def test_results_lie_as_eagers(programs, ndim):
    sweep(programs(ndim - 2), ndim)


def test_a_layout_that_decides_where_the_program_goes():
    def program(x):
        a = (x * 2 + 1).cos()
        image = a[None, None].to(memory_format=torch.channels_last)
        b = F.conv_transpose2d(image, torch.ones(1, 2, 3, 3))
        if b.is_contiguous():
            a = a + 1
        return a.sin() * 3 + 1, b

    compiled, x = kintsugi.compile(program), torch.randn(16, 16)
    for _ in range(4):
        found, expected = compiled(x), program(x)
        torch.testing.assert_close(found, expected)
        assert found[1].stride() == expected[1].stride()


def gradients(run, x):
    """Of the image, and of one that the operator gets directly; the second is no leaf, and what goes to it lies as it was computed."""
    leaf = x.clone().requires_grad_()
    seen = []
    middle = leaf * 2 + 1
    middle.register_hook(lambda g: seen.append(g))
    y = run(middle)
    (y * y).sum().backward()
    return y, leaf.grad, seen[0]


@pytest.mark.parametrize("ndim", [3, 4, 5])
@pytest.mark.parametrize("programs", [convolutions, resampling, shuffling, normalising, pointwise])
def test_gradients_lie_as_eagers(programs, ndim):
    wrong = []
    for number, function in enumerate(programs(ndim - 2)):
        for name, x in images(ndim).items():
            compiled = kintsugi.compile(lambda x, function=function: function(x * 1.5) + 0.5)
            expected = gradients(lambda x, function=function: function(x * 1.5) + 0.5, x)
            for _ in range(3):
                found = gradients(compiled, x)
            for which, a, b in zip(("result", "leaf", "middle"), found, expected):
                if lies(a) != lies(b):
                    wrong.append(f"program {number}, {name}: the {which}'s: {a.stride()} instead of {b.stride()} of {tuple(b.shape)}")
        kintsugi.reset()
    assert not wrong, "\n".join(wrong)


LIKE = {"randn_like": torch.randn_like, "rand_like": torch.rand_like, "dropout": lambda v: torch.nn.functional.dropout(v, 0.5)}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", LIKE)
def test_random_numbers_like_a_view_that_is_computed(name):
    """They are drawn in the order of memory, which is the view's in eager."""
    def function(x):
        return LIKE[name]((x + 1).unfold(0, 1, 1).permute(2, 3, 1, 0))

    compiled, x = kintsugi.compile(function), torch.rand(1, 8, 4)
    for _ in range(4):
        torch.manual_seed(1)
        expected = function(x)
        torch.manual_seed(1)
        result = compiled(x)
        assert result.stride() == expected.stride() and torch.equal(result, expected)


def spread_out(way, *sizes):
    """A tensor of these sizes that is every second row, one row for all, or turned over in memory."""
    if way == "every second":
        return torch.randn(2 * sizes[0], *sizes[1:])[::2]
    if way == "last dim apart":
        return torch.randn(*sizes[:-1], 2 * sizes[-1])[..., 1::2]
    if way == "expanded":
        return torch.randn(1, *sizes[1:]).expand(sizes)
    if way == "one number":
        return torch.randn(()).expand(sizes)
    return torch.randn(*reversed(sizes)).permute(*reversed(range(len(sizes))))


OPERANDS = {
    "product": (lambda x, w: x @ w, (20, 16), (16, 24)),
    "layer": (lambda x, w, b: torch.relu(F.linear(x, w, b)), (20, 16), (24, 16), (24,)),
    "products": (lambda x, w: torch.bmm(x, w), (3, 20, 16), (3, 16, 24)),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(), (2, 8, 12, 11), (8, 8, 3, 3), (8,)),
    "points": (lambda x, w, b: F.conv2d(x, w, b), (2, 8, 12, 11), (24, 8, 1, 1), (24,)),
    "by channel": (lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=8), (2, 8, 12, 11), (8, 1, 3, 3), (8,)),
    "transposed": (lambda x, w, b: F.conv_transpose2d(x, w, b, 2), (2, 8, 12, 11), (8, 8, 2, 2), (8,)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (2, 3, 20, 16), (2, 3, 24, 16), (2, 3, 24, 16)),
}


@pytest.mark.parametrize("vary", [False, True], ids=["fixed", "sizes_vary"])
@pytest.mark.parametrize("name", OPERANDS, ids=lambda name: name.replace(" ", "_"))
def test_operands_that_lie_apart(name, vary):
    """Each operand in turn: kernels of libraries are told how it lies, or get a copy."""
    function, *sizes = OPERANDS[name]
    ways = ["every second", "last dim apart", "expanded", "one number", "turned over"]
    compiled = kintsugi.compile(function, dynamic=True if vary else None)
    for which, way in itertools.product(range(len(sizes)), ways):
        for call in range(3):
            one = [(n + call * vary if d == 0 and i == 0 and name != "products" else n) for i, shape in enumerate(sizes) for d, n in enumerate(shape)]
            shapes = [[one.pop(0) for _ in shape] for shape in sizes]
            shapes = [[shapes[0][0], *shape[1:]] for shape in shapes] if name == "attention" else shapes
            inputs = [spread_out(way, *shape) if i == which else torch.randn(*shape) for i, shape in enumerate(shapes)]
            torch.testing.assert_close(compiled(*inputs), function(*inputs), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("program", [lambda x: x.t()[:0].sort(1).values, lambda x: x.t()[:, :0].sort(0).indices, lambda x: x.t()[:0].contiguous()[:3].sort(1).values],
                         ids=["rows", "columns", "slice"])
def test_strides_of_what_is_empty(program):
    """Operators of PyTorch get an empty argument with other strides than eager code has, and take these for their results."""
    compiled, x = kintsugi.compile(program), torch.randn(4, 3)
    for _ in range(4):
        assert compiled(x).stride() == program(x).stride()


@pytest.mark.parametrize("program", [lambda x, v: v @ x, lambda x, v: F.linear(v, x.t()), lambda x, v: torch.mv(x.t(), v), lambda x, v: (v.sin() @ x).mul(2)],
                         ids=["vector @ matrix", "linear", "mv", "computed"])
def test_products_of_vectors_are_no_views(program):
    """They end with a `squeeze_`, behind which the tensor is itself still. A view made under no_grad must not be written to with gradients."""
    compiled, weight = kintsugi.compile(program), torch.randn(20, requires_grad=True)
    for _ in range(4):
        x, v = torch.randn(16, 20), torch.randn(16)
        with torch.no_grad():
            result, expected = compiled(x, v), program(x, v)
        assert result._is_view() == expected._is_view() and (result._base is None) == (expected._base is None)
        torch.testing.assert_close(result.add_(weight), expected.add_(weight), rtol=1e-3, atol=1e-4)
        assert result.requires_grad
