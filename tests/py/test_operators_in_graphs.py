"""torch.cond, while_loop, scan, associative_scan, map, vmap, torch.func.grad with functions that only compute: nodes of one graph, and compiled with
what stands around them. What these functions read is guarded."""
import importlib
import inspect
import types

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


def operator(name):
    return getattr(importlib.import_module(f"torch._higher_order_ops.{name}"), name)


scan, associative_scan, while_loop, map_rows = map(operator, ("scan", "associative_scan", "while_loop", "map"))
SCALE = 3.0


def cond(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() * SCALE, lambda x: x.cos() * 3, (x,)) + 1


def cond_with_closure(x):
    y = x * 2
    return torch.cond(x.sum() > 0, lambda a: a.sin() * y, lambda a: a.cos() - y, (x,)) + y


def loop(x):
    i, y = while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + 1), (torch.tensor(0), x))
    return y + i


def scanned(x):
    last, ys = scan(lambda c, x: (c + x, c * x), torch.zeros(()), x)
    return last * ys


def scanned_backwards(x):
    last, ys = scan(lambda c, x: (c + x, c * x), torch.zeros(3), x.view(3, -1), dim=1, reverse=True)
    return last.sum() * ys


def scanned_without_inputs(x):
    last, ys = scan(lambda c, _: (c * 0.5, c + 1), x, None, length=3)
    return last + ys


def scanned_pairs(x):
    return associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x.abs(), x), 0, combine_mode="generic")[1] + 1


def rows(x):
    return map_rows(lambda row, y: row.sin() + y, x.view(3, -1), x[0] * 1.0) + 1


def batched(x):
    w = x * 2
    return torch.vmap(lambda r, s: r @ w + s * SCALE, in_dims=(0, None))(x.expand(4, -1), w.sum()) * 2


def gradient(x):
    return torch.func.grad(lambda v: (v.sin() * SCALE).sum())(x) * 2


COUNTED = [scanned_without_inputs] if "length" in inspect.signature(scan).parameters else []  # since torch 2.14
ALL = [*COUNTED, cond, cond_with_closure, loop, scanned, scanned_backwards, scanned_pairs, rows, batched, gradient]


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    yield


@pytest.mark.parametrize("fn", ALL)
@pytest.mark.parametrize("backend", ["graphs", "inductor", "aot_eager"])
def test_as_eager(fn, backend, monkeypatch):
    if backend == "graphs":
        def backend(gm, inputs):
            return gm
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for call in range(8):
        monkeypatch.setitem(globals(), "SCALE", 3.0 if call < 5 else 2.0)
        x = torch.linspace(-1, 2, 9 if call == 3 else 6) * (1 if call % 2 else -1)
        torch.testing.assert_close(compiled(x), fn(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fn", ALL)
def test_one_graph(fn):
    if fn is rows and not isinstance(map_rows, types.FunctionType):
        pytest.skip("map is an object in this torch (2.6), which is called as it is, between two graphs")
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        compiled(torch.linspace(-1, 2, 6))
    assert len(seen) == 1
    assert kintsugi.explain(fn)(torch.linspace(-1, 2, 6)).graph_count == 1


@pytest.mark.parametrize("fn, target, modules", [
    (cond, "cond", 2), (cond_with_closure, "cond", 2), (loop, "while_loop", 2), (scanned, "scan", 1)])
def test_functions_are_graphs(fn, target, modules):
    """A backend sees the operator, and what its functions do as submodules."""
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for sign in (1, -1, 1):
        x = sign * torch.linspace(-1, 2, 6)
        torch.testing.assert_close(compiled(x), fn(x))
    assert any(node.target is getattr(torch.ops.higher_order, target) for node in seen[0].graph.nodes)
    assert sum(isinstance(m, torch.fx.GraphModule) for m in seen[0].children()) == modules


def test_sizes_inside_of_functions():
    compiled = kintsugi.compile(lambda x: torch.cond(x.sum() > 0, lambda x: x / x.shape[0], lambda x: x * x.shape[0], (x,)) + 1, backend="aot_eager")
    for n in (4, 5, 6, 7, 4, 5):
        for sign in (1, -1):
            x = torch.full((n,), float(sign))
            assert torch.equal(compiled(x), (x / n if sign > 0 else x * n) + 1)


def test_loop_that_ends_on_its_data_alone():
    """While graphs are made, examples are in the place of the data; a loop must not run on them."""
    def fn(x):
        x, = while_loop(lambda x: x.sum() > 1, lambda x: (x * x,), (x,))
        return x + 1
    for backend in (lambda gm, inputs: gm, "aot_eager", "inductor"):
        compiled = kintsugi.compile(fn, backend=backend)
        for _ in range(3):
            assert torch.equal(compiled(torch.full((4,), 0.5)), fn(torch.full((4,), 0.5)))


def test_function_with_an_effect_is_called_each_time():
    seen = []

    def noted(row):
        seen.append(1)
        return row * 2
    compiled = kintsugi.compile(lambda x: torch.vmap(noted)(x) + 1, backend=lambda gm, inputs: gm)
    for n in range(1, 5):
        assert torch.equal(compiled(torch.ones(2, 3)), torch.full((2, 3), 3.0))
        assert len(seen) == n


@pytest.mark.parametrize("trace", [False, True])
def test_scripted_function_is_a_node(trace):
    inner = torch.jit.trace(lambda x: torch.sin(x) + 1, (torch.ones(3),)) if trace else _scripted
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm
    compiled = kintsugi.compile(lambda x: inner(x * 2) + 1, backend=backend, fullgraph=True)
    for _ in range(3):
        x = torch.randn(3)
        assert torch.equal(compiled(x), torch.sin(x * 2) + 1 + 1)
    assert len(seen) == 1
    x = torch.randn(3)
    assert torch.equal(seen[0](x)[0], torch.sin(x * 2) + 1 + 1) and ("_scripted(" in seen[0].code) is not trace


@torch.jit.script
def _scripted(x):
    return torch.sin(x) + 1


def test_kernels_of_torchscript_never_see_fake_tensors(monkeypatch):
    """They would look for their data. Where TorchScript makes none, its functions are part of compiled graphs."""
    from kintsugi import _launch

    asked, answer = [], _launch.makes_own_kernels

    def asks(call):
        asked.append((call[0], answer(call)))
        return asked[-1][1]

    monkeypatch.setattr(_launch, "makes_own_kernels", asks)
    before = torch._C._jit_can_fuse_on_cpu()
    try:
        for fuses in (False, True):
            torch._C._jit_override_can_fuse_on_cpu(fuses)
            compiled = kintsugi.compile(lambda x: torch.relu(_scripted(x) * 2).sum(-1).exp())
            asked.clear()
            for i in range(6):
                x = torch.randn(8, 16, generator=torch.Generator().manual_seed(i))
                with kintsugi.config.patch(kernels=True):
                    assert torch.allclose(compiled(x), torch.relu((torch.sin(x) + 1) * 2).sum(-1).exp(), rtol=1e-5)
            assert asked and all(fn is _scripted and made == fuses for fn, made in asked)
    finally:
        torch._C._jit_override_can_fuse_on_cpu(before)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_torchscript_on_other_devices(on_gpu, monkeypatch):
    from kintsugi import _launch

    monkeypatch.setattr(torch._C, "_jit_can_fuse_on_gpu", lambda: on_gpu)
    assert _launch.makes_own_kernels((_scripted, torch.ones(2, device="meta"))) is on_gpu
    assert not _launch.makes_own_kernels((torch.sin, torch.ones(2, device="meta")))


def test_graphs_of_compiled_autograd_are_one_graph():
    """What they call are operators of torch._dynamo.compiled_autograd; hooks of tensors run inside."""
    from torch._dynamo import compiled_autograd

    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    def program(x):
        y = x.sin()
        y.register_hook(lambda grad: grad * 3)
        return (y * 2).sum()

    x, expected = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    program(expected).backward()
    compiled = kintsugi.compile(backend=backend, fullgraph=True)
    with compiled_autograd._enable(compiled):
        for _ in range(3):
            x.grad = None
            program(x).backward()
            assert torch.equal(x.grad, expected.grad)


def over_values():
    scale, shift = 3, torch.tensor([1.0, 2.0])

    def yes(x):
        return x * scale + shift

    def change(new_scale, new_shift):
        nonlocal scale, shift
        scale, shift = new_scale, new_shift
    return (lambda p, x: torch.cond(p, yes, lambda x: x - shift, (x,))), change


def over_functions():
    def double(x):
        return x * 2

    def yes(x):
        return double(x) + 1

    def no(x):
        return torch.cond(x.sum() > 0, double, yes, (x,))

    def change(factor, _):
        nonlocal double
        double = {3: lambda x: x * 3, 4: lambda x: x - 4, 5.0: lambda x: x.sin()}[factor]
    return (lambda p, x: torch.cond(p, yes, no, (x,))), change


@pytest.mark.parametrize("make", [over_values, over_functions])
@pytest.mark.parametrize("own", [True, False])
def test_closures_of_the_program_are_graphs(make, own):
    """Functions that exist before the call, over numbers, tensors and functions; what their cells hold changes later."""
    fn, change = make()
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm
    compiled = kintsugi.compile(fn) if own else kintsugi.compile(fn, backend=backend)
    for new in (None, (3, torch.tensor([5.0, -1.0])), (4, torch.tensor([0.0, 1.0])), (5.0, torch.ones(2))):
        if new is not None:
            change(*new)
        for call in range(6):
            p, x = torch.tensor(call % 2 == 0), torch.tensor([0.5, call - 2.0])
            torch.testing.assert_close(compiled(p, x), fn(p, x))
    if not own:
        assert seen and all(any(node.target is torch.ops.higher_order.cond for node in gm.graph.nodes) for gm in seen)
        assert len(seen) <= 4


@pytest.mark.parametrize("name, in_graphs, in_classes", [("abs", True, True), ("zip", True, True), ("NotImplemented", True, True), ("getattr", False, True),
                                                         ("next", False, True), ("id", False, True), ("ValueError", False, True), ("print", False, False),
                                                         ("setattr", False, False), ("open", False, False)])
def test_builtins_of_which_the_table_knows_that_they_compute(name, in_graphs, in_classes):
    operators = importlib.import_module("kintsugi._operators")
    code = compile(f"lambda x: {name}", "", "eval").co_consts[0]
    assert (operators.names_of(code) is not None) == in_graphs
    assert (operators.names_of(code, operators._IN_CLASSES) is not None) == in_classes


def test_builtin_that_the_program_has_replaced_is_another(monkeypatch):
    monkeypatch.setattr("builtins.divmod", lambda a, b: (0, 0))
    assert importlib.import_module("kintsugi._operators").names_of(compile("lambda x: divmod(x, 2)", "", "eval").co_consts[0]) is None


@pytest.mark.parametrize("name, computes", [("append", False), ("appendleft", False), ("intersection_update", False), ("move_to_end", False), ("backward", False),
                                            ("copy", True), ("get", True), ("index", True), ("union", True)])
def test_methods_that_change_a_container(name, computes):
    """Nobody lists them: the classes of containers have them, and those of containers that never change do not."""
    code = compile(f"lambda x: x.{name}(x)", "", "eval").co_consts[0]
    assert (importlib.import_module("kintsugi._operators").names_of(code) is not None) == computes
