"""Loops whose number of rounds differs from call to call (loop_programs.py): one recording serves every number, the compiled body runs once a round, and results,
side effects, exceptions, warnings, random numbers and the state of the arguments are eager's."""

import copy
import random
import signal
import threading
import types
import warnings

import loop_programs
import pytest
import torch
from launches import engine, engine_of, kintsugi
from torch import nn

pytestmark = pytest.mark.usefixtures("kernels")
LENGTHS = [7, 9, 4, 1, 12, 0, 5, 2, 15, 3, 10, 7, 12, 17, 6, 9]

# What is one loop that a replay leaves at its end only, after few recordings: sizes 0 and 1 have their own.
WHOLE = [
    "basic", "swaps", "rotates", "none_first", "grows", "inplace", "writes_into_a_copy", "writes_into_the_argument", "writes_outer_variables", "enumerated_parts",
    "zipped_parts", "backwards", "rows_of_a_tensor", "switches_gradients", "drops_out", "objects_die", "nested", "comprehension", "dict_comprehension", "helper",
    "by_twos", "counts_with_ints", "counts_with_floats", "collects_text", "preallocated", "decode", "reads_numbers", "keeps_an_attribute", "keeps_a_dict",
    "longer_slices", "tuple_of_tensors", "warns", "enumerated_range", "zipped_ranges", "enumerated_rows", "reads_back_from_lists", "reversed_parts", "while_below", "while_in_for",
]  # fmt: skip


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and a.requires_grad == b.requires_grad and torch.allclose(a, b, atol=1e-5, equal_nan=True)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and (abs(a - b) < 1e-5 if isinstance(a, float) else a == b)


def lines_of(error):
    """Where the exception went through the program."""
    found, at = [], error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == loop_programs.__file__:
            found.append((at.tb_frame.f_code.co_name, at.tb_lineno))
        at = at.tb_next
    return found


def outcome(fn, x, seed):
    """All that a call can be told by."""
    torch.manual_seed(seed)
    random.seed(seed)
    state, x, loop_programs.COUNT = types.SimpleNamespace(n=0, log=[]), x.clone(), 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = ("returned", fn(x, state))
        except Exception as error:
            result = ("raised", type(error).__name__, str(error), lines_of(error))
    said = [(str(w.message), w.lineno) for w in told]
    return [result, vars(state), x, torch.get_rng_state().tolist(), random.random(), said, loop_programs.COUNT]


def check(fn, compiled, length, seed):
    x = torch.randn(3, length, 8, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        expected, found = outcome(fn, x, seed), outcome(compiled, x, seed)
    assert same(expected, found), (length, expected, found)


def loops(compiled):
    return sum(step["kind"] == "loop_back" for entry in engine_of(compiled).entries() for step in engine.dump(entry)["steps"])


@pytest.mark.parametrize("options", [{}, {"warm": True}], ids=["usual", "warm"])
@pytest.mark.parametrize("fn", loop_programs.PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_eager(fn, options):
    compiled = kintsugi.compile(fn, options=options)
    for i, length in enumerate(LENGTHS):
        check(fn, compiled, length, i)
    if fn.__name__ in WHOLE:
        stats = compiled.stats()
        assert loops(compiled) >= 1 and stats["recordings"] <= 4 and stats["bail_outs"] <= 4 and stats["compiled_calls"] >= 8, stats


@pytest.mark.parametrize("fn", loop_programs.PROGRAMS, ids=lambda fn: fn.__name__)
def test_left_anywhere(fn):
    """A replay that is left before its k-th step, in whatever round that is, goes on as eager does."""
    compiled = kintsugi.compile(fn, options={"warm": True})
    for i, length in enumerate(LENGTHS[:8]):
        check(fn, compiled, length, i)
    for k in range(3, 60, 4):
        engine.force_exit(k)
        try:
            check(fn, compiled, 2 + k % 7, k)
        finally:
            engine.force_exit(None)


class Cells(nn.Module):
    """A recurrent cell with dropout and running statistics, round by round."""

    def __init__(self):
        super().__init__()
        self.cell, self.drop, self.norm, self.out = nn.GRUCell(8, 16), nn.Dropout(0.2), nn.BatchNorm1d(8), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 16)
        out = []
        for t in range(x.shape[1]):
            h = self.drop(self.cell(self.norm(x[:, t]), h))
            out.append(self.out(h))
        return torch.stack(out, 1)


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.places = nn.Linear(8, 8), nn.Embedding(20, 8)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 8)
        for v in x.unbind(1):
            weights = torch.softmax((self.query(h).unsqueeze(1) * x).sum(-1), -1)
            h = torch.tanh((weights.unsqueeze(-1) * x).sum(1) + v)
        return h


@pytest.mark.parametrize("make", [Cells, Attending])
def test_training(make):
    torch.manual_seed(0)
    models = [make()]
    models.append(copy.deepcopy(models[0]))
    run = [models[0], kintsugi.compile(models[1])]
    steps = [torch.optim.SGD(model.parameters(), 0.01) for model in models]
    for i, length in enumerate([n for n in LENGTHS if n > 0] * 2):
        x = torch.randn(4, length, 8)
        inputs = []
        for model, step in zip(run, steps):
            torch.manual_seed(i)
            step.zero_grad()
            inputs.append(x.clone().requires_grad_())
            y = model(inputs[-1])
            (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
            step.step()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad, atol=1e-4, rtol=1e-3)
        for a, b in zip(models[0].state_dict().values(), models[1].state_dict().values()):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
    stats = kintsugi.stats(run[1])
    assert loops(run[1]) >= 1 and stats["compiled_calls"] >= 15 and stats["recordings"] <= 4, stats


def test_lengths_never_seen_run_compiled():
    compiled = kintsugi.compile(loop_programs.basic, options={"warm": True})
    for i, length in enumerate([5, 6, 7, 8]):
        check(loop_programs.basic, compiled, length, i)
    before = compiled.stats()
    for length in range(40, 60):
        check(loop_programs.basic, compiled, length, length)
    stats = compiled.stats()
    assert stats["recordings"] == before["recordings"] and stats["bail_outs"] == before["bail_outs"], stats
    assert stats["compiled_calls"] == before["compiled_calls"] + 20, stats


def test_a_loop_over_an_attribute_that_does_not_differ_is_written_out():
    def heads(x):
        total = x[:, :, 0]
        for h in range(x.shape[2]):
            total = total * 0.5 + x[:, :, h]
        return total

    compiled = kintsugi.compile(heads, options={"warm": True})
    for length in [4, 6, 3, 8]:
        x = torch.randn(2, length, 8)
        torch.testing.assert_close(compiled(x), heads(x))
    assert loops(compiled) == 0


def root(a):
    x, n = a.clone(), 0
    while True:
        y = 0.5 * (x + a / x)
        n += 1
        if (y - x).abs().max() < 1e-3:
            return y, n
        x = y


def damped(x):
    n = 0
    while x.abs().sum() > 1.0:
        x, n = torch.sin(x) * 0.7, n + 1
    return x, n


def halved(a):
    low, high = torch.zeros_like(a), a + 1
    while (high - low).max() > 1e-3:
        middle = (low + high) / 2
        above = middle * middle > a
        high, low = torch.where(above, middle, high), torch.where(above, low, middle)
    return low


@pytest.mark.parametrize("fn", [root, damped, halved])
def test_until_it_converges(fn):
    """Data decides how many rounds there are, from the first recording on."""
    compiled = kintsugi.compile(fn, options={"warm": True})
    rng = random.Random(0)
    with torch.no_grad():
        for _ in range(25):
            x = (torch.rand(16, dtype=torch.float64) + 0.1) * 10 ** rng.choice([0, 1, 2, 3])
            expected, found = fn(x), compiled(x)
            assert same(list(expected), list(found)), (expected, found)
    stats = compiled.stats()
    assert loops(compiled) == 1 and stats["recordings"] == 1 and stats["bail_outs"] <= 2 and stats["compiled_calls"] >= 20, stats


def test_a_signal_in_the_middle():
    """Whoever handles a signal may end a long loop of replayed rounds, as in eager."""

    def long(x, n):
        h = x
        for _ in range(n.shape[0]):
            h = torch.sin(h)
        return h

    class Stop(Exception):
        pass

    def handle(number, frame):
        raise Stop

    compiled = kintsugi.compile(long, options={"warm": True})
    x = torch.randn(4)
    for n in (5, 6, 7, 8, 9):
        compiled(x, torch.zeros(n))
    assert loops(compiled) == 1
    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Stop):
            compiled(x, torch.zeros(100_000_000))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    torch.testing.assert_close(compiled(x, torch.zeros(12)), long(x, torch.zeros(12)))


def test_other_threads_go_on():
    compiled = kintsugi.compile(loop_programs.basic, options={"warm": True})
    for i, length in enumerate([5, 6, 7]):
        check(loop_programs.basic, compiled, length, i)
    ticks, ends = [], threading.Event()

    def tick():
        while not ends.is_set():
            ticks.append(0)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        begun = len(ticks)
        compiled(torch.randn(3, 20_000, 8), types.SimpleNamespace(n=0, log=[]))
        during = len(ticks) - begun
    finally:
        ends.set()
        thread.join()
    assert during > 0


def summed(xs):
    h = torch.zeros(8)
    for x in xs:
        h = torch.tanh(h + x)
    return h


def by_number(xs):
    h = torch.zeros(8)
    for i, x in enumerate(xs):
        h = torch.tanh(h + x * i)
    return h, len(xs)


def by_index(xs):
    h = torch.zeros(8)
    for i in range(len(xs)):
        h = torch.tanh(h + xs[i] * (i + 1))
    return h


def backwards(xs):
    h = torch.zeros(8)
    for x in reversed(xs):
        h = torch.tanh(h + x)
    return h


def collected(xs):
    return [torch.sin(x) * 2 for x in xs]


def chosen(xs):
    return [x for x in xs if x.sum() > 0]


def replaced(xs):
    for i, x in enumerate(xs):
        xs[i] = x + 1
    return len(xs)


def extended(xs):
    h = torch.zeros(8)
    for x in xs:
        if len(xs) < 12:
            xs.append(x * 0.5)
        h = torch.tanh(h + x)
    return h


def used_up(xs):
    h = torch.zeros(8)
    while xs:
        h = torch.tanh(h + xs.pop())
    return h


@pytest.mark.parametrize("fn", [summed, by_number, by_index, backwards, collected, chosen, replaced, extended, used_up], ids=lambda fn: fn.__name__)
def test_lists_of_another_length(fn):
    """Arguments that are lists of tensors; now and then an item has another dtype or shape, or is none."""
    rng = random.Random(0)
    compiled = kintsugi.compile(fn)

    def ask(how, xs):
        try:
            return how(xs)
        except Exception as error:
            return type(error).__name__, str(error)

    for _ in range(40):
        xs = [torch.randn(8) for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 11]))]
        if len(xs) > 2 and rng.random() < 0.25:
            xs[rng.randrange(3)] = rng.choice([torch.randn(8, dtype=torch.float64), torch.randn(1), 2.5])
        one, two = ([x.clone() if isinstance(x, torch.Tensor) else x for x in xs] for _ in range(2))
        with torch.no_grad():
            assert same([ask(fn, one), one], [ask(compiled, two), two])
    assert compiled.stats()["recordings"] <= 5, compiled.stats()


def test_a_list_has_one_recording_for_all_lengths():
    compiled = kintsugi.compile(summed, options={"warm": True})
    with torch.no_grad():
        for n in [3, 5, 8, 6, 12, 20, 4, 9, 11, 30]:
            xs = [torch.randn(8) for _ in range(n)]
            torch.testing.assert_close(compiled(xs), summed(xs))
    stats = compiled.stats()
    assert stats["recordings"] == 2 and stats["bail_outs"] <= 1 and stats["compiled_calls"] >= 7 and loops(compiled) == 1, stats
