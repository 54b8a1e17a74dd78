"""What tells somebody something (print, logging, warnings, the text of a tensor) does not divide the graph that a custom backend gets: the graph runs before
it, with what its later calls take, and that is compared behind it. Whoever is told sees what eager shows, and whatever he changes counts from there on.
"""
import contextlib
import io
import logging
import sys
import warnings

import pytest
import torch
from torch import nn

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    yield
    kintsugi._kintsugi.force_exit(None)


class Net(nn.Module):
    def __init__(self, tell, dropout=0.0, norm=False):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.dropout, self.norm = nn.Dropout(dropout), nn.BatchNorm1d(6) if norm else nn.Identity()
        self.tell, self.calls = tell, 0

    def forward(self, x):
        y = self.first(x).relu()
        self.tell(self, y)
        return self.norm(self.dropout(self.second(y)))


class Teller(logging.Handler):
    """Runs code of the program where something is logged."""

    def __init__(self, tell):
        super().__init__()
        self.tell = tell
        self.logger = logging.Logger("kintsugi.reports")
        self.logger.addHandler(self)

    def emit(self, record):
        self.tell(record)


LOG = logging.Logger("kintsugi.quiet")
LOG.addHandler(logging.StreamHandler(io.StringIO()))

TOLD = {
    "text": lambda net, y: print("here"),
    "shape": lambda net, y: print("shape", y.shape, sep=": ", end=".\n"),
    "tensor": lambda net, y: print(y),
    "number": lambda net, y: print(f"mean {y.mean().item():.3f}"),
    "tensor_in_text": lambda net, y: print(f"{y.mean()} {y.sum():.2f}"),
    "logged": lambda net, y: LOG.warning("mean %s", y.mean()),
    "warning": lambda net, y: warnings.warn("here"),
    "stream": lambda net, y: sys.stdout.write(f"{y.shape[0]}\n"),
    "twice": lambda net, y: (print("a"), print(y.sum())),
}


def outcome(fn, x):
    told = io.StringIO()
    torch.manual_seed(1)
    with contextlib.redirect_stdout(told), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = fn(x)
        except ValueError as error:
            result = error.args
    result = result.tolist() if isinstance(result, torch.Tensor) else result
    return result, told.getvalue(), [str(w.message) for w in warned], torch.rand(2).tolist()


def compare(make, calls=5, exits=0):
    """Number of graphs that the backend got."""
    made = []
    eager, compiled = make(), kintsugi.compile(make(), fullgraph=True, backend=lambda gm, inputs: made.append(gm) or gm)
    for k in range(calls + exits):
        if k >= calls:
            kintsugi._kintsugi.force_exit(k - calls)
        x = torch.linspace(-1, 1, 18).view(3, 6)
        assert outcome(compiled, x) == outcome(eager, x), k
    if not exits:
        found = kintsugi.explain(make())
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert found(torch.linspace(-1, 1, 18).view(3, 6)).graph_count == 1
    return len(made)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("name", TOLD)
def test_backend_gets_one_graph(name, dropout):
    assert compare(lambda: Net(TOLD[name], dropout)) == 1


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("name", TOLD)
def test_left_anywhere(name, dropout):
    compare(lambda: Net(TOLD[name], dropout), calls=2, exits=20)


def test_told_in_a_loop():
    def make():
        def fn(x):
            for i in range(4):
                x = x.sin()
                print(i, x.sum().item())
            return x
        return fn
    assert compare(make) == 1


def test_writes_behind_are_seen_by_nobody_before():
    assert compare(lambda: Net(TOLD["text"], norm=True)) == 2
    assert compare(lambda: Net(lambda net, y: print(net.norm.running_mean), norm=True)) == 2


def changing(change):
    def make():
        net = Net(None, dropout=0.5)
        calls = [0]

        def tell(record):
            calls[0] += 1
            change(net, record.args[0], calls[0])
        logger = Teller(tell).logger
        net.tell = lambda self, y: logger.warning("%s", y)
        return net
    return make


def replaces_weight(net, y, n):
    if n % 2 == 0:
        net.second.weight = nn.Parameter(net.second.weight.detach() * 2)


def writes_weight(net, y, n):
    with torch.no_grad():
        net.second.weight.mul_(1.5)


def writes_uncounted(net, y, n):
    net.second.weight.data.mul_(1.5)


def writes_through_an_array(net, y, n):
    net.second.bias.detach().numpy()[n % 6] += 1


def replaces_data(net, y, n):
    net.second.weight.data = net.second.weight.data * 2


def writes_what_it_is_told(net, y, n):
    y.detach().add_(n)


def replaces_layer(net, y, n):
    if n == 3:
        net.second = nn.Tanh()


def draws(net, y, n):
    torch.rand(n)


def raises(net, y, n):
    if n == 3:
        torch.rand(2)
        raise ValueError("third")


@pytest.mark.parametrize("change", [replaces_weight, writes_weight, writes_uncounted, writes_through_an_array, replaces_data, writes_what_it_is_told, replaces_layer, draws, raises])
def test_what_is_changed_there_counts(change):
    compare(changing(change))
    compare(changing(change), calls=2, exits=12)


def test_a_later_call_that_raises():
    """Nothing is raised before somebody is told."""
    def run(fn, i):
        told = io.StringIO()
        bn = torch.zeros(3)
        with contextlib.redirect_stdout(told):
            try:
                value = fn(torch.ones(3), bn, torch.tensor(i)).tolist()
            except IndexError:
                value = "IndexError"
        return value, bn.tolist(), told.getvalue()

    def fn(x, count, i):
        y = x + 1
        count.add_(1)
        print("told")
        return y[i] * 2
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm)
    for i in ([0], [1], [2], [5], [1]):
        assert run(compiled, i) == run(fn, i)
