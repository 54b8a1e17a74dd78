"""Custom backends: in how many pieces a graph comes, how often they are called, and with what."""
import functools
import itertools
import operator
import subprocess
import sys

import pytest
import torch
import torch._dynamo
from counting_backend import Counting

import kintsugi


def ones(*sizes):
    return torch.ones(*sizes)


def numbers_between(x, *args, **kwargs):
    y = x * 2 + sum(args)
    return (y + sum(kwargs.values())).sin() + len({i % 2 for i in range(4)})


def parts_in_a_list(x):
    parts = list(x.split([1, 2, 3]))
    best = x.view(2, 3).max(dim=1)
    return torch.cat(parts) + best.values.sum()


class Plain:
    factor = 3


class Heir(Plain):
    factor = 4

    def apply(self, x):
        return x * self.factor


def made_between(x):
    y = x + 1
    return Heir().apply(y) + y


def scaled(a, b, *, k):
    return a * b + k


shifted = functools.partial(scaled, k=3)


def partial_of_partial(x):
    y = functools.partial(shifted, x)
    return y(x) + y(b=2, k=1) + functools.partial(shifted, k=5)(x, x)


def slices_of_lists(x):
    parts = [x * i for i in range(4)]
    head, tail = parts[:2], parts[3:0:-1]
    head.append(x.sin())
    return sum(head) + tail[0] * len(parts) + sum(tail[1:])


@pytest.mark.parametrize("fn", [numbers_between, parts_in_a_list, made_between, partial_of_partial, slices_of_lists])
def test_is_one_graph(fn):
    backend = Counting()
    compiled = kintsugi.compile(fn, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(torch.arange(6.0)), fn(torch.arange(6.0)))
    assert (len(backend.inputs), backend.runs) == (1, 3)


def test_is_called_once_for_all_numbers_that_are_arguments():
    backend = Counting()
    compiled = kintsugi.compile(lambda x, n: x * n, backend=backend)
    for n in (2, 3, 4, 5, 6):
        assert torch.equal(compiled(ones(3), n), ones(3) * n)
    assert (len(backend.inputs), backend.runs) == (2, 5)
    assert isinstance(backend.inputs[1][-1], torch.SymInt)


def test_is_called_for_each_number_where_nothing_is_to_be_dynamic():
    backend = Counting()
    compiled = kintsugi.compile(lambda x, n: x * n, backend=backend, dynamic=False)
    for n in (2, 3, 4):
        compiled(ones(3), n)
    assert not any(isinstance(value, torch.SymInt) for inputs in backend.inputs for value in inputs)


def test_gets_a_symbol_for_a_size_that_is_marked():
    backend = Counting()
    compiled = kintsugi.compile(lambda x: x.sum(1), backend=backend)
    for n in (2, 3, 4):
        x = ones(n, 3)
        torch._dynamo.mark_dynamic(x, 0)
        compiled(x)
    assert (len(backend.inputs), backend.runs) == (1, 3)
    assert isinstance(backend.inputs[0][0], torch.SymInt)


@torch.compiler.disable
def apart(x):
    return x


def test_raises_at_the_first_call_for_a_graph_behind_a_break():
    def backend(gm, inputs):
        if any("cos" in str(node.target) for node in gm.graph.nodes):
            raise RuntimeError("no cosines")
        return gm.forward

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no cosines"):
        kintsugi.compile(lambda x: apart(x.sin()).cos(), backend=backend)(ones(2))


def test_draws_from_the_programs_generator_once():
    compiled = kintsugi.compile(lambda x, g: x + torch.rand(3, generator=g), backend="eager")
    ours, plain = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for _ in range(3):
        assert torch.equal(compiled(ones(3), ours), ones(3) + torch.rand(3, generator=plain))


def nested(layout):
    return torch.nested.nested_tensor([ones(2, 3), ones(4, 3)], layout=layout)


@pytest.mark.parametrize("make", [lambda: nested(torch.strided), lambda: nested(torch.jagged)])
@pytest.mark.filterwarnings("ignore")
def test_gets_nested_tensors(make):
    def fn(n):
        return n.size(0), n.sin().unbind()[0], n.to_padded_tensor(0.0), n.numel()

    compiled = kintsugi.compile(fn, backend="eager")
    for _ in range(3):
        size, first, padded, count = compiled(make())
        expected = fn(make())
        assert (size, count) == (expected[0], expected[3])
        assert torch.equal(first, expected[1]) and torch.equal(padded, expected[2])


@pytest.mark.filterwarnings("ignore")
def test_calls_that_give_other_layouts_are_not_looked_into():
    def fn(x):
        sparse = x.view(2, 3).to_sparse_csr()
        return sparse.to_dense(), torch.tensor(x), x * 2

    compiled = kintsugi.compile(fn, backend="eager")
    for _ in range(3):
        assert all(map(torch.equal, compiled(torch.arange(6.0)), fn(torch.arange(6.0))))


@pytest.fixture
def heard():
    from torch._dynamo.callback import callback_handler

    log = []
    yield log
    callback_handler.start_callbacks.clear()
    callback_handler.end_callbacks.clear()


def test_compilations_are_told_of(heard):
    torch._dynamo.callback.on_compile_start(lambda *args: heard.append("start"))
    torch._dynamo.callback.on_compile_end(lambda *args: heard.append("end"))
    compiled = kintsugi.compile(lambda x, n: x.view(n, -1), backend="eager")
    for n in (2, 2, 3, 4, 6):
        compiled(ones(12), n)
    recordings = kintsugi.stats(compiled)["recordings"]
    assert recordings >= 2
    assert heard == list(itertools.islice(itertools.cycle(["start", "end"]), 2 * recordings))


def test_what_is_told_may_raise(heard):
    def refuse(*args):  # before torch 2.8 nothing is told
        raise ValueError("not now")

    torch._dynamo.callback.on_compile_start(refuse)
    compiled = kintsugi.compile(lambda x: x + 1, backend="eager")
    with pytest.raises(ValueError, match="not now"):
        compiled(ones(2))
    torch._dynamo.callback.callback_handler.start_callbacks.clear()
    assert torch.equal(compiled(ones(2)), ones(2) + 1)


def test_a_slice_is_a_list_of_its_own():
    def fn(x, items):
        part = items[1:]
        part.append(x)
        return part, items[::-1], part is items, items[:]

    items = [1, 2, 3]
    compiled = kintsugi.compile(fn, backend="eager")
    x = ones(2)
    for _ in range(3):
        part, turned, same, whole = compiled(x, items)
        assert part[:2] == [2, 3] and part[2] is x and turned == [3, 2, 1] and not same
        assert whole == items and whole is not items


def test_a_partial_object_may_change():
    p = functools.partial(scaled, k=3)
    compiled = kintsugi.compile(lambda x: functools.partial(p, x)(x), backend="eager")
    for k in (3, 3, 4, 5):
        p.__setstate__((scaled, (), {"k": k}, {}))
        assert torch.equal(compiled(ones(2)), ones(2) + k)


class Counted:
    made = 0

    def __del__(self):
        Counted.made += 1


def test_the_death_of_what_is_made_is_seen():
    def fn(x):
        Counted()
        return x + Counted.made

    compiled = kintsugi.compile(fn, backend="eager")
    assert [compiled(ones(1)).item() for _ in range(4)] == [2, 3, 4, 5]


@pytest.mark.parametrize("backend", ["aot_eager", "counts"])
def test_tuples_are_outputs_as_their_items(backend):
    """As in stock: x.chunk(4) that is returned whole is four outputs, whatever the size; the program gets its tuple."""
    graphs = []

    def counts(gm, inputs):
        (output,) = gm.graph.find_nodes(op="output")
        graphs.append([node.target for node in output.args[0]])
        return gm.forward

    def body(x):
        return x.chunk(4), torch.max(x, 0), x.sum()

    compiled = kintsugi.compile(body, backend=counts if backend == "counts" else backend, fullgraph=True)
    for size in (8, 12, 20, 11, 10, 9, 8):
        x = torch.randn(size)
        want, got = body(x), compiled(x)
        assert [type(part) for part in got] == [type(part) for part in want] and len(got[0]) == len(want[0])
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert not graphs or ([target is operator.getitem for target in graphs[0]] == [True] * 6 + [False] and len(graphs) <= 4)


def test_first_call_of_a_backend_changes_no_guard():
    """What PyTorch's fake tensors need is imported before anything is recorded; in a process of its own, where nothing else has done it."""
    program = """
import torch, kintsugi
calls = []
def backend(gm, inputs):
    calls.append(gm)
    return gm.forward
layers = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.ReLU()])
def fn(x):
    for layer in layers:
        x = layer(x)
    return x
compiled = kintsugi.compile(fn, backend=backend)
for _ in range(3):
    compiled(torch.ones(3))
stats = kintsugi.stats(compiled)
assert (len(calls), stats["recordings"], stats["guard_misses"]) == (1, 1, 0), (len(calls), stats)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
