"""The cross-check (`config.crosscheck`): a torch-function mode that sees the torch calls which really happen agrees with
what the recorder wrote, over programs, a slice of the corpus and some models; and it notices a call that has no node."""
import functools
import operator
import os
import pathlib
import sys

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi")
from kintsugi import _kintsugi, config  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "corpus"), str(TESTS / "models")]

from kincorpus import engines, run  # noqa: E402
from kincorpus.isolate import in_child  # noqa: E402
import run_models  # noqa: E402

X, Y = torch.arange(12.0).reshape(3, 4) - 5, torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def crosscheck():
    _kintsugi.events()
    with config.patch(crosscheck=True):
        yield
    assert torch._C._len_torch_function_stack() == 0


def bugs(events):
    return [e["message"] for e in events if e["event"] == "bug"]


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


# -- programs: (function, torch calls seen at least) ------------------------------------------------------------------

def operators(x, y):
    z = -x + y * 2 - (1 - x) / 3
    z += x.abs() ** 2
    return z @ y.T, z > 0, x[0], x[1:, ::2], 2 // (y + 3)


def functions(x, y):
    z = torch.relu(x) + torch.nn.functional.gelu(y)
    return torch.cat([z, x], dim=1).sum(-1), torch.nn.functional.linear(x, y), torch.zeros(3)


def reads(x, y):
    return x.shape[0] * x.size(1) + x.dim() + len(y), x.dtype, x.device, x.is_leaf, x.requires_grad, x.T, x.numel()


def sums(x, y):
    return sum([x, y, x]), sum((x, y), y), sum(t * 2 for t in (x, y)), functools.reduce(torch.add, [x, y, y])


def parts(x, y):
    a, b = x.max(dim=1)
    c, d, e = x
    rows = [row.sum() for row in y]
    return a, b, c, d, e, rows, torch.sort(x, dim=0).values, [t * i for i, t in enumerate(x.unbind())]


def stores(x, y):
    out = torch.zeros_like(x)
    out[0] = y[0]
    out[1:] += 1
    out.mul_(2)
    torch.add(x, y, out=out)
    return out


def modes(x, y):
    with torch.no_grad():
        z = x * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = z @ y.T
    return z, w, torch.is_grad_enabled()


def handled(x, y):
    try:
        x @ y
    except RuntimeError:
        return torch.sin(x)
    return y


def keyed(x, y):
    both = sorted(("b", "a"), key={"a": 1, "b": 2}.__getitem__)
    return [t + 1 for t in map(torch.neg, (x, y))], both, list(zip(x, y))[0][0]


PROGRAMS = [(operators, 15), (functions, 5), (reads, 8), (sums, 9), (parts, 12), (stores, 6), (modes, 3), (handled, 1),
            (keyed, 2)]


@pytest.mark.parametrize("program, least", PROGRAMS, ids=[p.__name__ for p, _ in PROGRAMS])
def test_agreement(program, least):
    compiled = kintsugi.compile(program)
    for _ in range(3):
        assert same(program(X, Y), compiled(X, Y))
    events = _kintsugi.events()
    assert bugs(events) == []
    record = next(e for e in events if e["event"] == "record")
    assert record["crosschecked"] >= least
    assert record["graphs"] >= 1
    assert compiled.stats()["replays"] == 2


def test_off_unless_asked_for():
    with config.patch(crosscheck=False):
        kintsugi.compile(operators)(X, Y)
    record = next(e for e in _kintsugi.events() if e["event"] == "record")
    assert "crosschecked" not in record


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.neg else result


def stack_seen(x):
    before = torch._C._len_torch_function_stack()
    with Doubling():
        inside = torch._C._len_torch_function_stack()
        z = torch.neg(x)
    with torch._C.DisableTorchFunctionSubclass():
        z = z + 1
    return z, before, inside, torch._C._len_torch_function_stack(), torch.overrides.has_torch_function((x,))


def test_the_program_does_not_see_it():
    compiled = kintsugi.compile(stack_seen)
    for _ in range(3):
        assert same(stack_seen(X), compiled(X))
    assert bugs(_kintsugi.events()) == []


def test_exceptions_leave_no_mode_behind():
    def fails(x, y):
        return torch.relu(x) @ y

    compiled = kintsugi.compile(fails)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            compiled(X, Y)
        assert torch._C._len_torch_function_stack() == 0


# -- disagreement --------------------------------------------------------------------------------------------------------

class Compares:
    """os.fspath() asks it in C, which compares two tensors in C: nothing that the watcher could see."""
    __fspath__ = functools.partial(max, "a", "b", key={"a": torch.tensor(1.0), "b": torch.tensor(2.0)}.__getitem__)


def asks_path(x):
    name = os.fspath(PATH)
    return x + len(name)


PATH = Compares()


def test_a_call_without_a_node_is_noticed():
    compiled = kintsugi.compile(asks_path)
    for _ in range(2):
        assert same(asks_path(X), compiled(X))
    found = bugs(_kintsugi.events())
    assert found and all("crosscheck: " in text and "has no node at asks_path" in text for text in found), found
    assert compiled.stats()["replays"] == 0


def hidden(x, y):
    return operator.methodcaller("add", y)(x) + max([x.sum(), y.sum()])


def test_calls_below_opaque_steps_are_accounted_for():
    compiled = kintsugi.compile(hidden)
    for _ in range(3):
        assert same(hidden(X, Y), compiled(X, Y))
    assert bugs(_kintsugi.events()) == []
    assert compiled.stats()["replays"] == 2


# -- corpus and models -----------------------------------------------------------------------------------------------

CASES = run.all_cases()
SLICE = [pc for pc in CASES if pc[0].stem == "tensors"] + CASES[::6]
# What the cross-check itself does not understand yet; the other tests of these cases pass.
NOT_UNDERSTOOD = {
    "a store to an attribute of a tensor is a call for a mode": ("gradients_dropped_in_a_loop", "data_of_another_shape"),
    "a range of the profiler is a call for a mode": ("ranges_of_the_profiler", "error_in_a_range", "optimiser_step_inside"),
    "arithmetic on other things than tensors is a node, and shows no mode a call": ("operator_in_place", "item_as_loop_bound", "a_list_grows_while_it_is_chained"),
}
REASONS = {name: reason for reason, names in NOT_UNDERSTOOD.items() for name in names}


def marked(pc):
    """Strict: a case that passes is to be taken off the list."""
    reason = REASONS.get(pc[1].name)
    return pytest.param(*pc, marks=[pytest.mark.xfail(reason=reason, strict=True)] if reason else [])


def run_case(path, name):
    observed = run.run_case(path, name, engines.make_engine("kintsugi"), -1)
    return observed, bugs(_kintsugi.events())


@pytest.mark.parametrize("path, case", map(marked, SLICE), ids=[f"{path.stem}-{c.name}" for path, c in SLICE])
def test_corpus(path, case):
    expected = run.eager_run(path, case.name)
    observed, found = in_child(functools.partial(run_case, path, case.name))
    assert found == []
    assert run.compare(expected, observed) == []


@pytest.mark.parametrize("mode, name", [("eval", "mlp"), ("eval", "lstm_cell_loop"), ("eval", "breaks"), ("eval", "gpt2"),
                                        ("train", "cnn")])
def test_model(mode, name):
    if needs := run_models.missing(name):
        pytest.skip(f"{name} is made with {needs}, which is not installed")
    row, = run_models.run_list([name], "kintsugi", (mode,))
    assert row["verdict"] == "ok", row["detail"]   # a disagreement would leave every call eager
