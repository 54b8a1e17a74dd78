"""Tensor semantics: in place, views, indexing, factories, dtypes, random numbers, autograd, ambient state."""
import os
import random
import time

import torch

from kincorpus.case import T, Args, attr, built, case, do, glob, seq

W = T(3, 3).requires_grad_()
BUF = T(4, 3)
KNOB = {"dtype": torch.float32}


@case()
def in_place_on_argument(x):
    x.add_(1).mul_(2)
    x[0] = 5
    x[1] += x[2]
    return x


@case()
def in_place_through_view(x):
    v = x[1:3]
    v.zero_()
    t = x.t()
    t[0].fill_(7)
    return v, t, x.sum()


@case(args=lambda i, s: (T(i, 4, 4),), after=lambda i, s, r: (r[0].add_(1), r[1]))
def returns_view_and_base(x):
    y = x * 2
    return y, y[1], y.view(-1), y


@case(args=lambda i, s: (T(i, 4, 3), ))
def returns_argument(x):
    return x, x.view_as(x), (x, [x])


@case(args=lambda i, s: (T(i, 4, 3) if i < 3 else T(i, 3, 4).t(),), again=1)
def strides_change(x):
    return x.stride(), x.contiguous().view(-1), x.is_contiguous()


@case(args=lambda i, s: (T(i, 4, 3, dtype=torch.float32 if i < 3 else torch.float64),), again=1)
def dtype_decides(x):
    if x.dtype == torch.float64:
        return x.float(), x.dtype
    return x + 1, x.dtype, x.device.type, x.is_floating_point()


@case(args=lambda i, s: (T(i, 4, 3).requires_grad_(i >= 3),), again=1, after=lambda i, s, r: r[0].requires_grad)
def requires_grad_read(x):
    return x * 2, x.requires_grad


@case(args=lambda i, s: (T(i, 3, grad=True),),
      after=lambda i, s, r: (r.backward(), W.grad)[1])
def backward_outside(x):
    return (x * W).exp().sum()


@case(args=lambda i, s: (T(i, 3, grad=True),))
def backward_inside(x):
    y = (x * 3).pow(2).sum()
    y.backward()
    return x.grad * 2


@case(args=lambda i, s: (T(i, 3, grad=True),))
def autograd_grad_inside(x):
    y = (x ** 3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return g, g.requires_grad


@case(mutate=do(3, lambda s: torch.set_grad_enabled(False)))
def grad_mode_changes(x):
    y = x * W
    return y, y.requires_grad, torch.is_grad_enabled()


@case()
def no_grad_block(x):
    with torch.no_grad():
        y = x * W
    z = y + W
    return y, z


@torch.no_grad()
def frozen(x):
    return x * W


@case()
def no_grad_decorator(x):
    return frozen(x), x * W


@case()
def set_grad_enabled_inside(x):
    torch.set_grad_enabled(False)
    y = x * W
    torch.set_grad_enabled(True)
    with torch.enable_grad():
        z = x * W
    return y, z


@case(raises=tuple(range(6)))
def grad_mode_after_exception(x):
    with torch.no_grad():
        x.view(999)


@case()
def inference_mode_block(x):
    with torch.inference_mode():
        y = x * 2
    return y.is_inference(), y.clone()


@case(args=lambda i, s: (T(i, 4, 4),))
def autocast_block(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
    return y, y.dtype, (x @ x).dtype


@case(mutate=do(3, lambda s: torch.set_autocast_enabled("cpu", True)), args=lambda i, s: (T(i, 4, 4),))
def autocast_from_outside(x):
    return (x @ x).dtype, x @ x


@case(mutate=do(3, lambda s: torch.set_default_dtype(torch.float64)))
def default_dtype_changes(x):
    return torch.zeros(2), torch.tensor(1.5), x + 1, torch.get_default_dtype()


@case()
def factories(x):
    return (torch.zeros_like(x), torch.arange(3), torch.ones(2, dtype=torch.int64), torch.full((2,), 3.5),
            torch.eye(2), torch.tensor([[1, 2], [3, 4]]), x.new_zeros(2), torch.linspace(0, 1, 3), x.new_tensor([1]))


@case(calls=7, args=lambda i, s: (T(i, 4),), mutate=do((3, 5), lambda s: torch.manual_seed(5)), again=0)
def random_numbers(x):
    return x + torch.randn(4), torch.rand(2), torch.randint(0, 9, (3,)), torch.randperm(4), torch.bernoulli(x.sigmoid())


@case()
def seeds_inside(x):
    torch.manual_seed(11)
    a = torch.rand(2)
    g = torch.Generator().manual_seed(3)
    return a, torch.rand(2, generator=g), x


@case()
def dropout_functional(x):
    return torch.nn.functional.dropout(x, 0.5, training=True), torch.nn.functional.dropout(x, 0.5, training=False)


@case(replays=0)
def python_random(x):
    return x * random.random(), random.randint(0, 5), random.choice("abc")


@case(args=lambda i, s: (T(i, 3),), after=lambda i, s, r: None)
def clock_calls(x):
    t0 = time.perf_counter()
    y = x.sin()
    return y, time.perf_counter() >= t0, time.time() > 0


@case(mutate=do(3, lambda s: os.environ.__setitem__("KINCORPUS_MODE", "fast")), replays=2)
def environment_flag(x):
    if os.environ.get("KINCORPUS_MODE", "slow") == "fast":
        return x * 2
    return x + 1


@case(replays=2)
def environment_written(x):
    os.environ["KINCORPUS_N"] = str(x.shape[0])
    return x, os.environ["KINCORPUS_N"]


@case()
def environment_asked_written_asked(x):
    before = os.environ.get("KINCORPUS_UNSET"), os.getenv("KINCORPUS_UNSET", x)
    os.environ["KINCORPUS_UNSET"] = "now"
    after = os.environ.get("KINCORPUS_UNSET", 1)
    del os.environ["KINCORPUS_UNSET"]
    return before, after, os.environ.get("KINCORPUS_UNSET", 2)


@case()
def masks(x):
    m = x > 0
    y = x.clone()
    y[m] = 0
    return y, x[m], torch.where(m, x, -x), x.masked_fill(m, 1.0), m.any(), m.nonzero()


@case(args=lambda i, s: (T(i, 4, 3), torch.tensor([0, 2, 1 + i % 2])))
def index_tensors(x, idx):
    y = x.clone()
    y[idx] = 1.0
    y[:, [0, 2]] -= 1
    return x[idx], x[idx, :2], y, x.gather(0, idx.view(1, 3)), x[..., None].shape, x[None, 1]


@case(args=lambda i, s: (T(i, 2, 3, 4), T(i + 1, 4, 5)))
def einsum_and_matmul(a, b):
    return torch.einsum("bij,jk->bik", a, b), a @ b, torch.tensordot(a, b, dims=1), a.transpose(1, 2).shape


@case(args=lambda i, s: (T(i, 3), T(i, 3).cpu().numpy().copy()))
def numpy_in_and_out(x, a):
    n = (x * 2).numpy()
    return torch.from_numpy(a) + x, float(n[0]), n.shape, a.sum() > 0


@case(args=lambda i, s: (T(i, 3), T(i, 3)))
def tensor_comparisons(x, y):
    return torch.equal(x, y), (x == y).all().item(), x is y, torch.allclose(x, y + 1), x.dim() == 1


@case(args=lambda i, s: (T(i, 2, 3), T(i + 1, 2, 3)))
def operators_all(a, b):
    c = a.abs() + 1
    return (a + b, a - b, a * b, a / c, b // c, b % c, c ** 2, -a, +a, abs(a), a < b, a <= 0, a != b,
            1 - a, 2 / c, 2 ** a, (a > 0) & (b > 0), ~(a > 0), a.int() << 1)


@case(args=lambda i, s: (T(i, 2, 3), T(i + 1, 2, 3)))
def in_place_operators(a, b):
    c = a
    c += b
    c *= 2
    c -= 1
    c /= 3
    c **= 2
    return c, c is a


@case(args=lambda i, s: (T(i, 3),))
def out_argument(x):
    out = torch.empty(3)
    r = torch.add(x, 1, out=out)
    torch.mul(x, 2, out=BUF)
    return r, r is out, BUF


@case(args=lambda i, s: (T(i, 4, 3),))
def multiple_results(x):
    v, idx = x.max(dim=1)
    s = torch.sort(x, dim=0)
    a, b = x.chunk(2)
    return v, idx, s.values, s, x.split([1, 3]), torch.unbind(x)[0], x.topk(2).indices, type(s).__name__


class Square(torch.autograd.Function):
    factor = 1.0

    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x * ctx.k * Square.factor, None


@case(args=lambda i, s: (T(i, 3, grad=True),), mutate=attr(3, lambda s: Square, factor=2.0), again=1,
      after=lambda i, s, r: r.sum().backward())
def custom_autograd_function(x):
    return Square.apply(x * 2, 3.0)


def block(x):
    return (x * W).sin()


@case(args=lambda i, s: (T(i, 3, grad=True),), after=lambda i, s, r: r.sum().backward(), replays=1)
def checkpointed(x):
    from torch.utils.checkpoint import checkpoint
    return checkpoint(block, x, use_reentrant=False) + 1


GRADS = []


@case(args=lambda i, s: (T(i, 3, grad=True),), after=lambda i, s, r: (r.sum().backward(), list(GRADS))[1], replays=1)
def tensor_hook(x):
    y = x * 2
    y.register_hook(lambda g: GRADS.append(g.sum().item()))
    return y * 3


@case(args=lambda i, s: (T(i, 3, grad=True),), after=lambda i, s, r: r[0].sum().backward())
def detach_and_clone(x):
    y = (x * 2).detach()
    z = x.clone()
    y.requires_grad_()
    return z * y, y.requires_grad, y.is_leaf, z.is_leaf, x.data * 2


@case(mutate=do(3, lambda s: setattr(W, "data", T(8, 3))), again=0)
def data_replaced(x):
    return x * W


@case(mutate=do(3, lambda s: W.requires_grad_(False)))
def requires_grad_changes(x):
    return (x * W).requires_grad, x * W


@case(mutate=do(3, lambda s: globals().__setitem__("W", torch.nn.Parameter(T(9, 1, 3)))))
def shape_of_global_changes(x):
    return x * W, W.shape


@case(args=lambda i, s: (T(i, 3),), mutate=do(3, lambda s: setattr(BUF, "note", 5)))
def attribute_of_tensor(x):
    return x + getattr(BUF, "note", 0)


@case()
def sets_attribute_on_tensor(x):
    y = x * 2
    y.tag = "made"
    x.seen = len(y.tag)
    return y, y.tag, hasattr(y.clone(), "tag")


@case(args=lambda i, s: (T(i, 3, 4),))
def shapes_and_sizes(x):
    b, n = x.shape
    return x.view(b * n), x.size(), x.numel(), len(x), x.ndim, x.reshape(-1, b).shape, x.unsqueeze(0).squeeze(), x.T.shape


@case(args=lambda i, s: (T(i, 3, 4).to(torch.float64),))
def conversions(x):
    return x.float(), x.to(torch.int32), x.bool(), x.half(), x.type_as(torch.zeros(1)), x.to("cpu") is x, x.bfloat16()


@case(args=lambda i, s: (T(i, 3, dtype=torch.complex64),))
def complex_tensors(x):
    return x.abs(), x.real, x.conj(), torch.view_as_real(x), x * 1j


@case(args=lambda i, s: (torch.tensor([float("nan"), 1.0, -0.0, float("inf")]) * (1 + i),))
def special_values(x):
    return x.isnan(), x.nan_to_num(), x.sign(), torch.signbit(x), (x == x).sum()


@case(args=lambda i, s: (T(i, 0, 3),))
def empty_tensor(x):
    return x.sum(), x.mean(0), torch.cat([x, x]), x.numel() == 0, bool(x.shape[0])


@case(mutate=do(3, lambda s: KNOB.__setitem__("dtype", torch.float64)))
def dtype_from_table(x):
    return x.to(KNOB["dtype"]), torch.ones(2, dtype=KNOB["dtype"])


@case(mutate=do(3, lambda s: torch.use_deterministic_algorithms(True)))
def deterministic_flag_read(x):
    return x + torch.are_deterministic_algorithms_enabled()


@case(mutate=do(3, lambda s: torch.set_default_device("meta")), replays=2)
def default_device_changes(x):
    return torch.zeros(2).device.type, x + 1


class Tagged(torch.Tensor):
    pass


@case(args=lambda i, s: (T(i, 3) if i < 3 else T(i, 3).as_subclass(Tagged),), again=1, replays=2)
def tensor_subclass(x):
    return x * 2, type(x).__name__, isinstance(x, Tagged)


class Logged:
    def __init__(self, v):
        self.v = v

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        CALLS.append(func.__name__)
        plain = [a.v if isinstance(a, Logged) else a for a in args]
        return Logged(func(*plain, **(kwargs or {})))


CALLS = []


@case(replays=1)
def torch_function_protocol(x):
    return torch.add(Logged(x), 1).v, torch.sin(Logged(x)).v


@case(args=lambda i, s: (T(i, 3),), replays=4)   # the first call of all loads decompositions, which is recorded again
def vmap_and_func(x):
    return torch.func.vmap(lambda v: v * 2 + 1)(x), torch.func.grad(lambda v: (v ** 2).sum())(x)


@case(mutate=do(3, lambda s: setattr(torch.Tensor, "kin_extra", lambda self: self * 7)), raises=(0, 1, 2),
      after=lambda i, s, r: delattr(torch.Tensor, "kin_extra") if i == 5 else None)
def method_added_to_tensor_class(x):
    return x.kin_extra()
