"""Custom backends: numbers that change between calls, what a graph behind a break is compiled for, and whose error is raised."""
import pytest
import torch
import torch._dynamo
from counting_backend import Counting

import kintsugi


def decides(layer, x):
    y = layer(x)
    if y.sum() > 1e9:
        return y
    return y * 2


def breaks(layer, x):
    y = layer(x)
    torch._dynamo.graph_break()
    return y.sin()


def detaches(layer, x):
    y = layer(x).detach()
    torch._dynamo.graph_break()
    return layer(y)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", [decides, breaks, detaches])
def test_gradients_behind_a_break(fn, dynamic):
    """What the second graph gets is not kept by the recorded call: AOTAutograd was asked for a graph without gradients, and lost them."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compiler(gm, inputs):
        return make_boxed_func(gm.forward)
    layer = torch.nn.Linear(4, 4)
    compiled = kintsugi.compile(fn, backend=aot_autograd(fw_compiler=compiler, bw_compiler=compiler), dynamic=dynamic)
    for rows in (3, 3, 5, 6):
        got, want = [], []
        for call, gradients in ((compiled, got), (fn, want)):
            layer.zero_grad()
            y = call(layer, torch.ones(rows, 4))
            assert y.requires_grad
            y.sum().backward()
            gradients += [y.detach(), layer.weight.grad]
        assert all(map(torch.equal, got, want))


class Holder:
    number = 0


HOLDER = Holder()


def takes(x, n):
    return x * n + n


def through(x):
    return x * HOLDER.number


def counted(fn, calls, **settings):
    """How often the backend was called before each call, and whether its work was used in it. Results are eager's."""
    backend, seen = Counting(), []
    compiled = kintsugi.compile(fn, backend=backend, **settings)
    for args in calls:
        before = backend.runs
        assert torch.equal(compiled(*args).nan_to_num(7.0), fn(*args).nan_to_num(7.0))
        assert backend.runs == before + 1
        seen.append(len(backend.inputs))
    return seen, backend.inputs


def test_a_float_that_changes_is_a_tensor():
    """As in stock: the backend was called for each value, until its work was not used any more."""
    numbers = [0.5, 1.5, -2.0, 0.0, float("inf"), 7.25, 1e-9, 3.0, 4.0, 5.0, 6.0]
    seen, inputs = counted(takes, [(torch.ones(3), n) for n in numbers])
    assert seen == [1] + [2] * 10
    assert any(v.dtype is torch.float64 and v.dim() == 0 for v in inputs[1] if isinstance(v, torch.Tensor))
    seen, inputs = counted(takes, [(torch.ones(3), n) for n in numbers], dynamic=True)
    assert seen == [1] * 11
    seen, inputs = counted(takes, [(torch.ones(3), n) for n in (0.5, 1.5, float("nan"), 2.5, float("nan"))])
    assert seen[:4] == [1, 2, 3, 3]


def test_zero_and_one_are_numbers_like_others():
    seen, inputs = counted(takes, [(torch.ones(3), n) for n in (0, 1, 2, 3, 0, 9)])
    assert seen == [1, 2, 2, 2, 2, 2] and any(isinstance(v, torch.SymInt) for v in inputs[1])
    seen, inputs = counted(takes, [(torch.ones(3), n) for n in (0, 1, 2, 3)], dynamic=True)
    assert seen == [1] * 4


def test_a_number_of_an_object():
    backend = Counting()
    compiled = kintsugi.compile(through, backend=backend)
    for n in (0.0, 0.5, 1.5, 2.5):
        HOLDER.number = n
        assert torch.equal(compiled(torch.ones(2)), through(torch.ones(2)))
    assert len(backend.inputs) == 2 and backend.runs == 4


def test_a_length_is_a_symbol_at_its_first_change():
    seen, inputs = counted(lambda x: x + len(x), [(torch.ones(n, 4),) for n in (4, 4, 5, 6, 7)])
    assert seen == [1, 1, 2, 2, 2] and any(isinstance(v, torch.SymInt) for v in inputs[1])


def rounded_by(x, n):
    return torch.lerp(x, x * 2, n)


def test_a_float_that_a_backend_fixes_is_compiled_by_value():
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    compiled = kintsugi.compile(rounded_by, backend=aot_autograd(fw_compiler=lambda gm, inputs: make_boxed_func(gm.forward)))
    for n in (0.5, 1.5, 2.5, 0.5, 1.5):
        assert torch.equal(compiled(torch.ones(3), n), rounded_by(torch.ones(3), n))


def test_an_error_of_the_program_is_none_of_the_backend():
    """AOTAutograd runs the graph, which raises for this number: eager's error, not BackendCompilerFailed."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def fn(x, p):
        return torch.nn.functional.dropout(x, p, False)
    compiled = kintsugi.compile(fn, backend=aot_autograd(fw_compiler=lambda gm, inputs: make_boxed_func(gm.forward)))
    for p in (0.25, 0.5, 1.5, 0.75):
        if p > 1:
            with pytest.raises(ValueError, match="dropout probability"):
                compiled(torch.ones(3), p)
        else:
            assert torch.equal(compiled(torch.ones(3), p), torch.ones(3))


class Refusing:
    def __call__(self, gm, inputs):
        raise KeyError("none of it")

    def __repr__(self):
        return "<Refusing>"


def test_the_name_of_a_backend_that_is_an_object():
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="backend='<Refusing>' raised:"):
        kintsugi.compile(lambda x: x.sin(), backend=Refusing())(torch.ones(2))


INDEXED = {
    "one": lambda x, n: x[n] * 2,
    "from_the_end": lambda x, n: x[-n] * 2,
    "behind_a_slice": lambda x, n: x[:, n] * 2,
    "two": lambda x, n: x[n, n - 1] * 2,
    "behind_an_ellipsis": lambda x, n: x[..., n] * 2,
    "with_none_and_slices": lambda x, n: x[None, n, ::2, None] * 2,
    "around_an_ellipsis": lambda x, n: x[n, ..., None, n] + 1,
    "of_a_size": lambda x, n: x[:n][x[:n].shape[0] - 1] * 2,
    "scalar": lambda x, n: x + torch.tensor(n),
    "list": lambda x, n: x[0, :2] + torch.tensor([n, n * 2]),
    "dtype": lambda x, n: torch.tensor([[n], [1]], dtype=torch.float64) * 2,
    "float": lambda x, n: torch.tensor([n / 2, 1.0]) * 2,
}


@pytest.mark.parametrize("name", INDEXED)
def test_indices_that_change_are_symbols(name):
    """Not one graph for each: x[number] and torch.tensor(number) ask for the value of a symbol, what stands in their place does not."""
    fn, x = INDEXED[name], torch.arange(42.0).view(6, 7)
    backend = Counting()
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for n in (2, 3, 4, 5, 2, 1):
        assert torch.equal(compiled(x, n), fn(x, n)) and compiled(x, n).dtype == fn(x, n).dtype
    assert len(backend.inputs) == 2
    if name in ("one", "behind_a_slice", "two"):
        with pytest.raises(IndexError) as expected:
            fn(x, 9)
        with pytest.raises(IndexError) as caught:
            compiled(x, 9)
        assert str(caught.value) == str(expected.value)
