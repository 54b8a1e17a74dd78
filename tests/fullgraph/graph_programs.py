"""Programs whose number of graphs stock PyTorch and Kintsugi are asked for: the rows of docs/fullgraph.md and of its tests.

A row is a function without arguments that gives (what is compiled, its arguments). Names say what is special about the program.
"""
import collections
import functools
import warnings

import numpy as np
import torch
import torch.utils.checkpoint
from torch import nn

PROGRAMS = {}
# One graph for the user, in which something stands that must run at its place: a custom backend gets it in pieces.
IN_PIECES = {"register_hook_inside", "register_partial_hook_inside",
             "optimizer_step", "sgd_step", "backward_inside", "grad_inside", "numpy_scalar",
             "loop_over_nonzero", "item_checked_as_size", "list_subclass_made_inside"}


def program(make):
    PROGRAMS[make.__name__] = make
    return make


def vector(n=6):
    return torch.linspace(-1.0, 2.0, n)


# -- numbers read out of tensors ------------------------------------------------------------------------------------------


@program
def item_in_arithmetic():
    return lambda x: torch.sin(x) * x.sum().item() + 1, (vector(),)


@program
def item_added_to_item():
    def fn(x):
        a, b = x.sum().item(), x.mean().item()
        return torch.cos(x * (a + 2 * b)) - a
    return fn, (vector(),)


@program
def item_in_full():
    return lambda x: x + torch.full((), x.max().item()) + torch.full((6,), x.min().item()), (vector(),)


@program
def item_decides():
    def fn(x):
        if x.sum().item() > 3:
            return x + 1
        return x - 1
    return fn, (vector(),)


@program
def item_decides_after_arithmetic():
    def fn(x):
        n = x.sum().item() * 2 + 1
        return x + 1 if n > 3 else x - 1
    return fn, (vector(),)


@program
def item_is_returned():
    return lambda x: (x + 1, x.sum().item()), (vector(),)


@program
def item_in_text():
    return lambda x: (x + 1, f"{x.sum().item():.2f}"), (vector(),)


@program
def item_as_size():
    return lambda n: torch.zeros(n.item()) + 1, (torch.tensor(4),)


@program
def int_as_size():
    def fn(x):
        n = int(x.sum())
        return torch.zeros(n) + x.mean()
    return fn, (vector(),)


@program
def int_as_range():
    def fn(x, n):
        for _ in range(int(n)):
            x = x + 1
        return x
    return fn, (vector(), torch.tensor(3))


@program
def items_as_range():
    def fn(x, a, b):
        return sum([x * i for i in range(int(a), b.item())])
    return fn, (vector(), torch.tensor(1), torch.tensor(4))


@program
def float_in_arithmetic():
    return lambda x: x * float(x.max()) + 1, (vector(),)


@program
def int_in_arithmetic():
    return lambda x: x * int(x.max()) + 1, (vector(),)


@program
def bool_is_returned():
    return lambda x: (x + 1, bool(x.any())), (vector(),)


@program
def item_as_key():
    table = {2: 0.5, 3: 1.5}
    return lambda x: x * table[x.sum().int().item()] + 1, (vector(),)


@program
def item_as_list_index():
    scales = [0.5, 1.5, 2.5, 3.5]
    return lambda x: x * scales[x.sum().int().item()] + 1, (vector(),)


@program
def item_as_tensor_index():
    return lambda x: x[x.argmax().item()] + x, (vector(),)


@program
def item_as_slice():
    return lambda x: x[: x.argmax().item()].sum() + x, (vector(),)


@program
def tensor_as_slice():
    return lambda x: x[: x.argmax()].sum() + x, (vector(),)


@program
def item_in_python_max():
    return lambda x: x * max(x.sum().item(), 1.0), (vector(),)


@program
def item_in_min_of_sizes():
    def fn(x, n):
        return x[: min(n.item(), x.shape[0])] + 1
    return fn, (vector(), torch.tensor(3))


@program
def item_is_compared_and_used():
    return lambda x: x * (x.sum().item() > 3), (vector(),)


@program
def item_in_python_abs():
    return lambda x: x * abs(x.sum().item()) + round(x.mean().item()), (vector(),)


@program
def item_in_math():
    import math
    return lambda x: x * math.sqrt(x.max().item()), (vector(),)


@program
def item_checked():
    def fn(x, n):
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[0])
        return x[:k] * 2
    return fn, (vector(), torch.tensor(3))


@program
def item_checked_as_size():
    def fn(n):
        k = n.item()
        torch._check_is_size(k)
        return torch.ones(k).sum() + torch.zeros(k)
    return fn, (torch.tensor(3),)


@program
def tolist_into_split():
    def fn(x, n):
        a, b, c = x.split(n.tolist())
        return a.sum() + b.mean() + c
    return fn, (vector(), torch.tensor([1, 2, 3]))


@program
def tolist_into_view():
    def fn(x, n):
        return x.view(n.tolist()) + 1
    return fn, (vector(), torch.tensor([2, 3]))


@program
def tolist_of_floats():
    def fn(x):
        a, b = x[:2].tolist()
        return x * a + b
    return fn, (vector(),)


@program
def tolist_in_sum():
    return lambda x, n: x * sum(n.tolist()), (vector(), torch.tensor([1, 2, 3]))


@program
def tolist_is_returned():
    return lambda x, n: (x + 1, n.tolist()), (vector(), torch.tensor([1, 2, 3]))


@program
def max_of_tensors():
    return lambda x: x * max(x.sum(), x.mean()), (vector(),)


@program
def min_of_tensor_and_number():
    return lambda x: min(x.sum(), 1.0) + x, (vector(),)


@program
def clamped_by_python():
    return lambda x: min(max(x.sum(), 0.0), 1.0) * x, (vector(),)


@program
def max_of_list():
    return lambda x: max([x.sum(), x.mean(), 0.5, x.min()]) + x, (vector(),)


@program
def max_of_generator():
    return lambda x: max(part.sum() for part in x.split(2)) + x, (vector(),)


@program
def sum_of_tensors():
    return lambda x: sum([x, x + 1, x.sum()]), (vector(),)


@program
def sorted_tensors():
    return lambda x: sorted([x.sum(), x.mean()])[0] + x, (vector(),)


# -- decisions ------------------------------------------------------------------------------------------------------------


@program
def tensor_decides():
    def fn(x):
        y = x * 2
        if y.sum() > 3:
            return y + 1
        return y - 1
    return fn, (vector(),)


@program
def tensor_decides_loop():
    def fn(x):
        while x.sum() < 20:
            x = x + 1
        return x * 2
    return fn, (vector(),)


@program
def tensor_asserted():
    def fn(x):
        y = x + 1
        assert y.sum() > 0
        return y * 2
    return fn, (vector(),)


@program
def tensor_asserted_with_text():
    def fn(x):
        y = x + 1
        assert (y > -10).all(), "too small"
        return y * 2
    return fn, (vector(),)


@program
def item_asserted():
    def fn(x):
        n = x.sum().item()
        assert n > 0
        return x * n
    return fn, (vector(),)


@program
def tensor_checked():
    def fn(x):
        torch._check(x.shape[0] > 2, lambda: "short")
        torch._assert_async((x > -10).all())
        return x + 1
    return fn, (vector(),)


@program
def equal_decides():
    return lambda x: x + 1 if torch.equal(x, x * 1) else x - 1, (vector(),)


@program
def allclose_decides():
    return lambda x: x + 1 if torch.allclose(x, x * 1) else x - 1, (vector(),)


@program
def tensor_in_and():
    return lambda x: (x.sum() > 3) and (x + 1), (vector(),)


@program
def tensor_in_not():
    return lambda x: x + 1 if not x.any() else x - 1, (vector(),)


@program
def tensor_in_list():
    return lambda x: x + 1 if x.sum() in [1, 2] else x - 1, (vector(),)


# -- sizes that data decides ----------------------------------------------------------------------------------------------


@program
def nonzero_and_more():
    def fn(x):
        i = x.nonzero()
        return (i * 2 + 1).sum() + x.mean()
    return fn, (vector(),)


@program
def nonzero_size_in_arithmetic():
    return lambda x: x / x.nonzero().shape[0], (vector(),)


@program
def nonzero_size_decides():
    return lambda x: x + 1 if x.nonzero().shape[0] > 3 else x - 1, (vector(),)


@program
def boolean_mask():
    return lambda x: (x[x > 0] * 2).exp().sum() + x, (vector(),)


@program
def boolean_mask_returned():
    return lambda x: x[x > 0] * 2 + 1, (vector(),)


@program
def boolean_mask_written():
    def fn(x):
        y = x.clone()
        y[y > 0] = 0.5
        y[y < 0] *= 2
        return y + 1
    return fn, (vector(),)


@program
def masked_select():
    return lambda x: torch.masked_select(x, x > 0).cumsum(0).relu(), (vector(),)


@program
def unique():
    return lambda x: torch.unique(x.round()).float() * 2 + 1, (vector(),)


@program
def unique_with_counts():
    def fn(x):
        values, inverse, counts = torch.unique(x.round(), return_inverse=True, return_counts=True)
        return values[inverse] * 2 + counts.sum()
    return fn, (vector(),)


@program
def repeat_interleave():
    return lambda x, n: x[:3].repeat_interleave(n) * 2 + 1, (vector(), torch.tensor([1, 2, 3]))


@program
def where_with_one_argument():
    def fn(x):
        rows, = torch.where(x > 0)
        return x[rows] * 2
    return fn, (vector(),)


@program
def bincount():
    return lambda x: torch.bincount(x.abs().long()).float() * 2, (vector(),)


@program
def size_from_data_in_new():
    def fn(x):
        y = x[x > 0]
        return y + torch.arange(y.shape[0]) + y.new_zeros(y.size(0))
    return fn, (vector(),)


@program
def size_from_data_in_view():
    def fn(x):
        i = x.nonzero()
        return i.view(-1, 1).float() + i.reshape(i.shape[0], 1)
    return fn, (vector(),)


@program
def scatter_by_mask():
    def fn(x, image):
        return x.masked_scatter(x > 0, image) + 1
    return fn, (vector(), vector())


@program
def len_of_nonzero():
    return lambda x: x * len(x.nonzero()), (vector(),)


@program
def numel_decides():
    def fn(x):
        y = x[x > 0]
        if y.numel() == 0:
            return x
        return y.sum() + x
    return fn, (vector(),)


@program
def loop_over_nonzero():
    def fn(x):
        total = x.sum()
        for i in x.nonzero():
            total = total + x[i].sum()
        return total
    return fn, (vector(),)


@program
def arange_of_maximum():
    return lambda x, n: torch.arange(n.max())[None, :] < n[:, None], (vector(), torch.tensor([1, 2, 3]))


# -- NumPy ----------------------------------------------------------------------------------------------------------------


@program
def numpy_between():
    def fn(x):
        a = x.numpy() * 2
        return torch.from_numpy(np.sin(a)) + 1
    return fn, (vector(),)


@program
def numpy_functions():
    def fn(a):
        b = np.sum(a * 2, axis=0)
        return np.where(b > 0, b, -b) + np.ones(3)
    return fn, (np.arange(6.0).reshape(2, 3),)


@program
def numpy_scalar():
    def fn(x):
        return x * float(np.sqrt(2.0)) + np.float32(0.5)
    return fn, (vector(),)


@program
def numpy_minimum():
    return lambda a: a.min() + np.max(a) + a.argmax(), (np.arange(6.0),)


@program
def numpy_read_only():
    def fn(a):
        return a * 2 + 1
    a = np.arange(6.0)
    a.flags.writeable = False
    return fn, (a,)


@program
def numpy_decides():
    return lambda a: a + 1 if a.sum() > 3 else a - 1, (np.arange(6.0),)


@program
def asarray_of_tensor():
    return lambda x: torch.as_tensor(np.asarray(x) + 1) * 2, (vector(),)


@program
def array_of_tensor():
    return lambda x: torch.from_numpy(np.array(x) * 2) + x, (vector(),)


# -- Python around tensors ------------------------------------------------------------------------------------------------


@program
def hasattr_of_partial():
    gelu = functools.partial(nn.functional.gelu, approximate="tanh")
    return lambda x: gelu(x) if hasattr(gelu, "func") and not hasattr(gelu, "nothing") else x, (vector(),)


class Slotted:
    __slots__ = ("scale", "missing")

    def __init__(self):
        self.scale = 2.0


@program
def hasattr_of_slots():
    s = Slotted()
    return lambda x: x * s.scale if hasattr(s, "scale") and not hasattr(s, "missing") else x, (vector(),)


@program
def hasattr_of_getset():
    return lambda x: x + 1 if hasattr(x, "grad_fn") and hasattr(type(x), "is_leaf") and hasattr(Slotted.scale, "__get__") else x, (vector(),)


class Layers(list):
    def total(self, x):
        for scale in self:
            x = x * scale
        return x


@program
def list_subclass():
    layers = Layers([1.0, 2.0])
    return lambda x: layers.total(x) + len(layers), (vector(),)


@program
def list_subclass_made_inside():
    def fn(x):
        layers = Layers([x, x + 1])
        layers.append(x * 2)
        return layers.total(x) + layers[0]
    return fn, (vector(),)


@program
def register_hook_inside():
    def fn(x):
        y = x * 2
        y.register_hook(lambda g: g * 3)
        return y.sin()
    return fn, (vector().requires_grad_(),)


@program
def register_partial_hook_inside():
    def scale(k, g):
        return g * k

    def fn(x):
        y = x * 2
        y.register_hook(functools.partial(scale, 3.0))
        return y.sin()
    return fn, (vector().requires_grad_(),)


@program
def checkpointed():
    def block(x):
        return torch.sin(x) * x.cos()
    return lambda x: torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) + 1, (vector().requires_grad_(),)


@program
def scripted_inside():
    @torch.jit.script
    def inner(x):
        return torch.sin(x) + 1
    return lambda x: inner(x * 2) + 1, (vector(),)


@program
def traced_inside():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inner = torch.jit.trace(lambda x: torch.sin(x) + 1, (vector(),))
    return lambda x: inner(x * 2) + 1, (vector(),)


@program
def named_tuple_results():
    Point = collections.namedtuple("Point", "a b")
    return lambda x: Point(x + 1, x * 2), (vector(),)


@program
def generator_inside():
    def halves(x):
        for i in range(3):
            yield x / (i + 1)
    return lambda x: sum(halves(x)), (vector(),)


@program
def generator_function():
    def fn(x):
        yield x + 1
        yield x + 2
    return fn, (vector(),)


@program
def print_inside():
    def fn(x):
        y = x + 1
        print(end="")
        return y * 2
    return fn, (vector(),)


@program
def warning_inside():
    def fn(x):
        y = x + 1
        warnings.warn("here")
        return y * 2
    return fn, (vector(),)


@program
def explicit_break():
    def fn(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2
    return fn, (vector(),)


@program
def disabled_inside():
    @torch.compiler.disable
    def inner(x):
        return x + 1
    return lambda x: inner(x * 2) * 3, (vector(),)


@program
def try_and_except():
    def fn(x):
        try:
            y = x + 1
            raise ValueError("no")
        except ValueError:
            y = x - 1
        return y * 2
    return fn, (vector(),)


@program
def deterministic_mode():
    def fn(x):
        if torch.are_deterministic_algorithms_enabled():
            return x
        return x.cumsum(0) + 1
    return fn, (vector(),)


@program
def tensor_text():
    return lambda x: (x + 1, str(x)), (vector(),)


@program
def data_pointer():
    return lambda x: (x + 1, x.data_ptr() == x.data_ptr()), (vector(),)


@program
def deep_copy():
    import copy
    return lambda x: copy.deepcopy(x) + 1, (vector(),)


@program
def backward_inside():
    def fn(w, x):
        loss = (w * x).sum()
        loss.backward()
        return loss.detach()
    return fn, (vector().requires_grad_(), vector())


@program
def grad_inside():
    def fn(w, x):
        loss = (w * x).sin().sum()
        g, = torch.autograd.grad(loss, w)
        return g + 1
    return fn, (vector().requires_grad_(), vector())


# -- subclasses -----------------------------------------------------------------------------------------------------------


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Plain(torch.Tensor):
    pass


@program
def function_subclass():
    return lambda x: torch.sin(x) * 2 + 1, (vector().as_subclass(Logged),)


@program
def plain_subclass():
    return lambda x: torch.sin(x) * 2 + 1, (vector().as_subclass(Plain),)


@program
def subclass_made_inside():
    return lambda x: torch.sin(x.as_subclass(Logged)) * 2, (vector(),)


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Wrapped(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        unwrapped = torch.utils._pytree.tree_map_only(Wrapped, lambda t: t.inner, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, Wrapped, func(*unwrapped[0], **unwrapped[1]))


@program
def dispatch_subclass():
    return lambda x: torch.sin(x) * 2 + 1, (Wrapped(vector()),)


@program
def dispatch_subclass_viewed():
    return lambda x: torch.sin(x).view(2, 3) * 2, (Wrapped(vector()),)


@program
def dispatch_subclass_made_inside():
    return lambda x: (Wrapped(x * 2).sin() + x).inner, (vector(),)


@program
def dispatch_subclass_with_others():
    return lambda x, y: torch.cat([x, x + y]) * y.sum(), (Wrapped(vector()), vector())


@program
def dispatch_subclass_as_weight():
    torch.manual_seed(0)
    layer = nn.Linear(6, 4)
    layer.weight = nn.Parameter(Wrapped(layer.weight.detach()), requires_grad=False)
    return layer, (vector(),)


@program
def dispatch_subclass_unwrapped():
    return lambda x: x.inner * 2 + 1, (Wrapped(vector()),)


@program
def jagged_nested():
    nt = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    return lambda x: torch.sin(x) * 2 + 1, (nt,)


# -- higher order operators -----------------------------------------------------------------------------------------------


@program
def cond():
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() * 3, (x,)) + 1
    return fn, (vector(),)


@program
def cond_in_cond():
    def inner(x):
        return torch.cond(x.mean() > 1, lambda x: x + 1, lambda x: x - 1, (x,))

    def fn(x):
        return torch.cond(x.sum() > 0, inner, lambda x: x * 3, (x,)) + 1
    return fn, (vector(),)


@program
def cond_on_number():
    def fn(x):
        return torch.cond(x.shape[0] > 3, lambda x: x.sin() * 2, lambda x: x.cos() * 3, (x,)) + 1
    return fn, (vector(),)


@program
def while_loop():
    from torch._higher_order_ops import while_loop as loop

    def fn(i, x):
        i, x = loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + 1), (i, x))
        return x + i
    return fn, (torch.tensor(0), vector())


@program
def scan():
    from torch._higher_order_ops.scan import scan as run

    def fn(x):
        last, ys = run(lambda c, x: (c + x, c * x), torch.zeros(()), x)
        return last * ys
    return fn, (vector(),)


@program
def associative_scan():
    from torch._higher_order_ops.associative_scan import associative_scan as run

    def fn(x):
        return run(lambda a, b: a * b, x + 1, 0, combine_mode="generic") * 2
    return fn, (vector(),)


@program
def mapped():
    from torch._higher_order_ops.map import map as run

    def fn(x):
        return run(lambda row, y: row.sin() + y, x.view(2, 3), x[:3]) * 2
    return fn, (vector(),)


@program
def flex_attention():
    from torch.nn.attention.flex_attention import flex_attention as run

    def fn(q):
        return run(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j)) * 2
    return fn, (torch.linspace(-1, 1, 2 * 2 * 16 * 16).view(2, 2, 16, 16),)


@program
def vmapped():
    return lambda x: torch.vmap(lambda row: row.sin().sum())(x.view(2, 3)) * 2, (vector(),)


@program
def functional_grad():
    return lambda x: torch.func.grad(lambda x: x.sin().sum())(x) * 2, (vector(),)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@program
def autograd_function():
    return lambda x: Double.apply(x + 1) * 3, (vector().requires_grad_(),)


# -- modules and optimizers -----------------------------------------------------------------------------------------------


@program
def module_with_dropout():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.0), nn.ReLU()), (vector(),)


@program
def optimizer_step():
    w = vector().requires_grad_()
    w.grad = vector()
    opt = torch.optim.Adam([w], lr=0.1)

    def fn():
        opt.step()
    return fn, ()


@program
def sgd_step():
    w = vector().requires_grad_()
    w.grad = vector()
    opt = torch.optim.SGD([w], lr=0.1, momentum=0.9)

    def fn():
        opt.step()
    return fn, ()


@program
def recurrent_module():
    torch.manual_seed(0)
    return nn.GRU(6, 4, batch_first=True), (vector(24).view(2, 2, 6),)
