"""Tensors of the program's own classes: __torch_function__ is followed, graphs compute with what the tensors hold, results have their classes."""
import math

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map

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


def class_of_wrappers(note=None):
    """Tensors that hold another one, with a __torch_dispatch__ of their own; `note` is called for each operator."""
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, strides=inner.stride())

        def __init__(self, inner):
            self.inner = inner

        def __tensor_flatten__(self):
            return ["inner"], None

        @staticmethod
        def __tensor_unflatten__(inner, meta, size, stride):
            return Wrapped(inner["inner"])

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if note is not None:
                note(str(func))

            def unwrap(value):
                return value.inner if isinstance(value, Wrapped) else value
            args, kwargs = tree_map(unwrap, args), tree_map(unwrap, kwargs or {})
            return tree_map(lambda out: Wrapped(out) if isinstance(out, torch.Tensor) else out, func(*args, **kwargs))
    return Wrapped


Wrapped = class_of_wrappers()
Noting = class_of_wrappers(LOG.append)


def wrapped(*sizes):
    return Wrapped(torch.linspace(-1.0, 2.0, math.prod(sizes)).reshape(sizes))


def in_place(x):
    y = x.clone()
    y.add_(1)
    return y.mul_(2)


def with_wrapped_weight():
    torch.manual_seed(0)
    layer = nn.Linear(6, 4)
    layer.weight = nn.Parameter(Wrapped(layer.weight.detach()), requires_grad=False)
    return layer


DISPATCHING = {
    "returned": (lambda x: x.sin() * 2 + 1, (wrapped(6),)),
    "made": (lambda x: Wrapped(x * 2).sin() + 1, (vector(),)),
    "made_and_read": (lambda x: Wrapped(x * 2).sin().inner + 1, (vector(),)),
    "made_of_its_type": (lambda x: type(x)(x.inner + 1).cos(), (wrapped(6),)),
    "viewed": (lambda x: x.view(2, 3).t()[1:].detach() + 1, (wrapped(6),)),
    "transposed": (lambda x: x.T * 2, (wrapped(2, 3),)),
    "with_others": (lambda x, y: torch.cat([x, x + y]) * y.sum(), (wrapped(6), vector())),
    "read": (lambda x: (x.sin() * 2).inner * 2 + x.inner, (wrapped(6),)),
    "kind_decides": (lambda x: x + 1 if x.dtype == torch.float32 and x.ndim == 1 and not x.requires_grad else x - 1, (wrapped(6),)),
    "operators": (lambda x, y: (x + y) * (1 - x) / 2 ** x * (y < x), (wrapped(6), vector())),
    "in_place": (in_place, (wrapped(6),)),
    "weight": (with_wrapped_weight(), (vector(),)),
    "of_torch": (lambda x: torch.relu(x @ x.t()).sum(0).get_elem_a() + 1, (TwoTensor(torch.ones(3, 3), torch.zeros(3, 3)),)),
}


def same_inside(a, b):
    assert type(a) is type(b)
    parts = a.__tensor_flatten__()[0] if hasattr(a, "__tensor_flatten__") else ()
    return all(same_inside(getattr(a, name), getattr(b, name)) for name in parts) if parts else torch.equal(a, b)


@pytest.mark.parametrize("name", DISPATCHING)
def test_own_dispatch_is_one_graph(name):
    """Each call of torch on such a tensor is a node that is called as it is; a custom backend gets one graph."""
    fn, args = DISPATCHING[name]
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward
    for options in ({}, {"backend": "aot_eager"}, {"backend": backend}):
        compiled = kintsugi.compile(fn, fullgraph=True, **options)
        with torch.no_grad():
            for _ in range(4):
                assert same_inside(compiled(*args), fn(*args))
        assert kintsugi.stats(compiled)["breaks"] == 0 and kintsugi.stats(compiled)["variants"][0]["graphs"] == 1
    assert len(graphs) == 1


def test_a_comparison_of_a_condition_happens_once():
    """From CPython 3.13 on one instruction compares and makes a bool of it."""
    def fn(x):
        y = x.sum()
        if y > 2:
            return y.inner * 2
        return y.inner - 1 if y <= 0 else y.inner

    compiled = kintsugi.compile(fn)
    for x in (torch.ones(3), torch.ones(3) * 2, -torch.ones(3), torch.ones(1), torch.ones(3), -torch.ones(3)):
        seen = []
        for f in (fn, compiled):
            LOG.clear()
            seen.append((f(Noting(x)), LOG[:]))
        assert torch.equal(seen[0][0], seen[1][0]) and seen[0][1] == seen[1][1] and len(LOG) > 2


@pytest.mark.parametrize("options", [{}, {"backend": "eager"}, {"backend": lambda gm, inputs: gm.forward}])
def test_what_own_dispatch_does_is_seen(options):
    """Its effects happen at their places: the program reads them between the calls."""
    def fn(x):
        y = x.sin()
        n = len(LOG)
        return y * 2, n
    compiled = kintsugi.compile(fn, fullgraph=True, **options)
    for _ in range(4):
        LOG.clear()
        expected, n = fn(Noting(vector()))
        seen = LOG[:]
        LOG.clear()
        out, found = compiled(Noting(vector()))
        assert same_inside(out, expected) and (found, LOG) == (n, seen)


def test_gradients_through_own_dispatch():
    def fn(x):
        return (x.sin() * x).sum()
    for options in ({}, {"backend": lambda gm, inputs: gm.forward}):
        compiled = kintsugi.compile(fn, **options)
        for _ in range(4):
            x, y = wrapped(6).requires_grad_(), wrapped(6).requires_grad_()
            fn(x).backward()
            compiled(y).backward()
            assert same_inside(y.grad, x.grad)


def test_function_that_cannot_be_followed_ends_graphs():
    class Any(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *call):
            func, types, args, kwargs = (*call, {})[:4]
            return super().__torch_function__(func, types, args, kwargs)

    def fn(x):
        return torch.sin(x) * 2
    compiled, x = kintsugi.compile(fn), vector().as_subclass(Any)
    for _ in range(4):
        assert torch.equal(compiled(x), fn(x))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Tensor subclass"):
        kintsugi.compile(fn, fullgraph=True)(x)


@pytest.mark.parametrize("cls", [torch.Tensor, Scaled, Deeper])
def test_a_backend_gives_the_class_that_as_subclass_asks_for(cls):
    def through(x):
        return x.as_subclass(cls)

    def computed(x):
        return (x + 1).as_subclass(cls), x.as_subclass(cls) * 2
    x = vector().as_subclass(Deeper)
    for fn in (through, computed):
        compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm.forward)
        for _ in range(3):
            got, want = torch.utils._pytree.tree_leaves(compiled(x)), torch.utils._pytree.tree_leaves(fn(x))
            assert [type(t) for t in got] == [type(t) for t in want]
            assert all(torch.equal(a.as_subclass(torch.Tensor), b.as_subclass(torch.Tensor)) for a, b in zip(got, want))


class HandingOn(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("fn", [lambda x: torch.nn.functional.softmax(x, 0) * 2, lambda x: torch.sin(x) + 1, lambda x: x.norm() * 2], ids=["python", "c", "method"])
def test_graphs_call_what_is_handed_on(fn):
    """A function in Python that torch.Tensor.__torch_function__ hands on was a node of the graph by itself, and called as one."""
    graphs, x = [], vector().as_subclass(HandingOn)
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    for _ in range(3):
        assert same(compiled(x), fn(x))
    assert len([node for node in graphs[0].graph.nodes if node.op.startswith("call")]) == 2
