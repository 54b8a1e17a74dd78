"""Tensors of the program's own classes: __torch_function__ is followed, graphs compute with what the tensors hold, results have their classes."""
import pytest
import torch
from torch import nn

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)

LOG = []


def vector(n=6):
    return torch.linspace(-1.0, 2.0, n)


class Plain(torch.Tensor):
    pass


class Off(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Scaled(torch.Tensor):
    scale = 2.0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out * cls.scale if func is torch.mul else out


class Deeper(Scaled):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(torch.cos if func is torch.sin else func, types, args, kwargs)


class Unwrapping(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs)
        for arg in args:
            if isinstance(arg, Tagged) and isinstance(out, Tagged) and hasattr(arg, "tag"):
                out.tag = arg.tag
        return out


class Logging(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs)


class Choosing(torch.Tensor):
    """Looks at data, which ends a graph in the middle of its method."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs)
        if func is torch.sin:
            return -out if float(out.as_subclass(torch.Tensor).sum()) > 0 else out + 1
        return out


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class Box:
    """No tensor at all."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        inner = [arg.value if isinstance(arg, Box) else arg for arg in args]
        return Box(func(*inner, **(kwargs or {})))


def tagged(value):
    made = value.as_subclass(Tagged)
    made.tag = "a"
    return made


def written(x):
    y = x.clone()
    y.add_(1)
    y[0] = 5
    return y


def disabled(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = torch.mul(x, 2)
    return torch.mul(x, 2) + y


def tag_decides(x):
    y = x * 2
    return y + 1 if y.tag == "a" else y - 1


def linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU())


NESTED = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
ONE_GRAPH = {
    "default": (lambda x: torch.sin(x) * 2 + x.shape[0] - x.dim(), (vector().as_subclass(Plain),)),
    "default_with_others": (lambda x, y: (y + x.relu()).sum(), (vector().as_subclass(Plain), vector())),
    "switched_off": (lambda x: torch.sin(x) * 2, (vector().as_subclass(Off),)),
    "in_a_module": (linear(), (vector().as_subclass(Plain),)),
    "own_rule": (lambda x: torch.mul(x, 3) + 1, (vector().as_subclass(Scaled),)),
    "operators": (lambda x, y: (x + y) * (1 - x) / 2 ** x * (y < x), (vector().as_subclass(Scaled), vector())),
    "functional": (lambda x: nn.functional.softmax(x, dim=0).sum(), (vector().as_subclass(Scaled),)),
    "keywords": (lambda x: torch.add(x, x, alpha=3), (vector().as_subclass(Scaled),)),
    "metadata": (lambda x: x.reshape(x.shape[0] // 2, 2) * x.ndim, (vector().as_subclass(Scaled),)),
    "indexing": (lambda x: x[1:] + x[0], (vector().as_subclass(Scaled),)),
    "of_lists": (lambda x, y: torch.cat([y, x]), (vector().as_subclass(Scaled), vector())),
    "in_place": (written, (vector().as_subclass(Scaled),)),
    "two_classes": (lambda x, y: torch.sin(x + y), (vector().as_subclass(Scaled), vector().as_subclass(Deeper))),
    "other_function": (lambda x: torch.sin(x) + 1, (vector().as_subclass(Deeper),)),
    "unwrapped": (lambda x: torch.sin(x) + 1, (vector().as_subclass(Unwrapping),)),
    "disabled_in_part": (disabled, (vector().as_subclass(Scaled),)),
    "made_inside": (lambda x: torch.mul(x.as_subclass(Scaled), 2) + x, (vector(),)),
    "made_and_left": (lambda x: torch.mul(x.as_subclass(Scaled), 2).as_subclass(torch.Tensor) * 2, (vector(),)),
    "class_decides": (lambda x: x + 1 if isinstance(x, Scaled) else x - 1, (vector().as_subclass(Scaled),)),
    "no_tensor": (lambda x: torch.sin(torch.add(x, 1)).value * 2, (Box(vector()),)),
    "nested": (lambda x: torch.sin(x) * 2 + 1, (NESTED,)),
    "nested_made": (lambda v, o: torch.nested.nested_tensor_from_jagged(v, o) * 2, (torch.ones(6, 3), torch.tensor([0, 2, 6]))),
}
OTHERS = {
    "tagged": (tag_decides, (tagged(vector()),)),
    "logging": (lambda x: torch.sin(x) * 2 + 1, (vector().as_subclass(Logging),)),
    "looks_at_data": (lambda x: torch.sin(x) * 2, (vector().as_subclass(Choosing),)),
}


def same(a, b):
    assert type(a) is type(b)
    if not isinstance(a, torch.Tensor):
        return a == b
    if a.is_nested:
        return all(map(torch.equal, a.unbind(), b.unbind()))
    assert getattr(a, "tag", None) == getattr(b, "tag", None)
    return torch.allclose(a.as_subclass(torch.Tensor), b.as_subclass(torch.Tensor))


def calls(compiled, fn, args, times=4):
    for _ in range(times):
        LOG.clear()
        expected = fn(*args)
        logged = LOG[:]
        LOG.clear()
        got = compiled(*args)
        assert LOG == logged
        assert same(got, expected)


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    torch._dynamo.reset()
    yield


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_is_one_graph(name):
    fn, args = ONE_GRAPH[name]
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm
    fn(*args)  # what torch makes once is there
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    calls(compiled, fn, args)
    assert len(graphs) == 1
    assert kintsugi.stats(compiled)["breaks"] == 0


@pytest.mark.parametrize("name", {**ONE_GRAPH, **OTHERS})
def test_like_eager(name):
    fn, args = {**ONE_GRAPH, **OTHERS}[name]
    for options in ({}, {"backend": "eager"}):
        calls(kintsugi.compile(fn, **options), fn, args, times=8)


def test_classes_change_between_calls():
    def fn(x):
        return torch.mul(torch.sin(x), 3) - x
    compiled = kintsugi.compile(fn)
    for cls in (Scaled, Plain, torch.Tensor, Deeper, Scaled, Unwrapping):
        calls(compiled, fn, (vector().as_subclass(cls),))


def test_rule_changes_between_calls(monkeypatch):
    def fn(x):
        return torch.mul(x, 3)
    compiled, x = kintsugi.compile(fn), vector().as_subclass(Scaled)
    calls(compiled, fn, (x,))
    monkeypatch.setattr(Scaled, "scale", 5.0)
    calls(compiled, fn, (x,))
    monkeypatch.setattr(Scaled, "__torch_function__", torch._C._disabled_torch_function_impl)
    calls(compiled, fn, (x,))


def test_called_where_overriding_is_off():
    def fn(x):
        return torch.mul(x, 3)
    compiled, x = kintsugi.compile(fn), vector().as_subclass(Scaled)
    calls(compiled, fn, (x,))
    with torch._C.DisableTorchFunctionSubclass():
        assert type(compiled(x)) is type(fn(x)) is torch.Tensor and torch.equal(compiled(x), fn(x))
    calls(compiled, fn, (x,))


def test_nobody_knows_the_call():
    def fn(x):
        return torch.sin(x) + 1
    compiled, x = kintsugi.compile(fn), vector().as_subclass(Refusing)
    for _ in range(3):
        with pytest.raises(TypeError, match="NotImplemented"):
            compiled(x)


def test_gradients():
    def fn(x):
        return torch.mul(x, 3).sum()
    results = []
    for run in (fn, kintsugi.compile(fn)):
        for _ in range(4):
            x = vector().as_subclass(Scaled).requires_grad_()
            run(x).backward()
        results.append(x.grad.as_subclass(torch.Tensor))
    assert torch.equal(*results)


def test_what_dispatches_ends_graphs():
    """The program's own __torch_dispatch__ may do anything below a call."""
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            args = [arg.inner if isinstance(arg, Wrapped) else arg for arg in args]
            return Wrapped(func(*args, **(kwargs or {})))

    def fn(x):
        return (torch.sin(x) * 2).inner + 1
    x = Wrapped(vector())
    compiled = kintsugi.compile(fn)
    for _ in range(4):
        assert torch.equal(compiled(x), fn(x))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Tensor subclass"):
        kintsugi.compile(fn, fullgraph=True)(x)
