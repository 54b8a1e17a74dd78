"""explain() says how many graphs a custom backend gets where that is another number than graph_count, where they are divided, and why: the numbers are
those of stats() and of the backend itself."""
import pathlib
import sys

import pytest
import torch
from torch import nn

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fullgraph"))
from graph_programs import PROGRAMS  # noqa: E402


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def hooked(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    return y.sin() + 1


def gradient_inside(x):
    y = (x * x).sum()
    return torch.autograd.grad(y, x)[0] * 2


def with_function(x):
    return Twice.apply(x * 2) + 1


def per_row(x):
    return torch.vmap(lambda row: row.sin())(x[None]) * 2


model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())


def functional(x):
    return torch.func.functional_call(model, {name: value.detach() for name, value in model.named_parameters()}, (x,)).sin()


def mapped_gradient(x):
    return torch.func.grad(lambda x: model(x).sum())(x)


def explained(fn, *args):
    return kintsugi.explain(kintsugi.compile(fn, backend=lambda gm, inputs: gm.forward))(*args)


def counted(fn, *args):
    """(graphs that the backend got, those that stats() counts)"""
    got = []

    def backend(gm, inputs):
        got.append(gm)
        return gm.forward
    compiled = kintsugi.compile(fn, backend=backend)
    compiled(*args)
    return len(got), sum(variant["subgraphs"] for variant in kintsugi.stats(compiled)["variants"])


@pytest.mark.parametrize("fn, graphs", [(hooked, 2), (gradient_inside, 2), (with_function, 1), (per_row, 1), (functional, 3), (mapped_gradient, 0)])
def test_explain_and_stats_say_how_many_graphs_a_backend_gets(fn, graphs):
    x = torch.ones(3, requires_grad=True)
    found = explained(fn, x)
    assert found.backend_graph_count == graphs == counted(fn, x)[1]
    assert found.graph_count == 1
    assert (f"Graphs for a Custom Backend: {graphs}\n" in str(found)) == (graphs != 1)


def test_the_line_that_divides_a_graph_is_named():
    text = str(explained(hooked, torch.ones(3, requires_grad=True)))
    told = text.partition("Graphs for a Custom Backend: 2\n")[2].splitlines()[0]
    assert told.startswith("  graph 1 is divided behind ") and "y.register_hook(lambda grad: grad * 3): it may run arbitrary Python code" in told


def test_calls_that_no_backend_gets_are_told():
    text = str(explained(mapped_gradient, torch.ones(3)))
    assert "Graphs for a Custom Backend: 0\n  the calls of the others are handed to no backend: PyTorch runs them\n" in text


def test_asking_leaves_no_events():
    before = {event["seq"] for event in kintsugi.events()}
    for fn in (hooked, mapped_gradient):
        explained(fn, torch.ones(3, requires_grad=True))
    assert {event["event"] for event in kintsugi.events() if event["seq"] not in before} <= {"record", "part"}


@pytest.mark.parametrize("compiled", [hooked, kintsugi.compile(hooked)], ids=["plain", "kernels"])
def test_functions_without_a_custom_backend_have_no_such_number(compiled):
    found = kintsugi.explain(compiled)(torch.ones(3, requires_grad=True))
    assert found.backend_graph_count is None and "Custom Backend" not in str(found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_numbers_agree_in_the_programs_of_the_page(name):
    kintsugi.reset()
    try:
        fn, args = PROGRAMS[name]()
        fn(*args)
    except Exception as error:
        pytest.skip(f"eager raises {type(error).__name__}")
    fn, args = PROGRAMS[name]()
    _, counts = counted(fn, *args)
    fn, args = PROGRAMS[name]()
    assert explained(fn, *args).backend_graph_count == counts
