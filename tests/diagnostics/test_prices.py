"""Prices: what bridging a break computes, and that the predicted gain is of the size of the real one."""

import priced
import pytest
import torch

from kintsugi.diagnose import causes, observe, outside, price, program


@pytest.mark.parametrize("name", [name for name in priced.CASES if "print" not in name])
def test_programs_compute_what_the_function_does(name, kintsugi_clean):
    broken, fixed, args = priced.make(name)
    with observe.Session() as session, torch.no_grad():
        kintsugi_clean.compile(broken)(*args)
    found, = session.functions
    dump, values = program.capture(found, found.calls[-1], True)
    made = program.Program(dump, values)
    steps = [entry["step"] for entry in dump["breaks"]] or made.own_reads(program.reads(dump))
    assert steps
    with torch.no_grad():
        for bridged in ((), steps):
            results = made.write(bridged)(*made.args)
            wanted = broken(*args)
            assert any(r.shape == wanted.shape and torch.allclose(r, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
                       for r in results if isinstance(r, torch.Tensor))


def test_a_bridged_program_is_one_graph(kintsugi_clean):
    broken, _, args = priced.make("loop, small")
    with observe.Session() as session, torch.no_grad():
        kintsugi_clean.compile(broken)(*args)
    found, = session.functions
    dump, values = program.capture(found, found.calls[-1], True)
    made = program.Program(dump, values)
    counts = []
    for bridged in ((), [dump["breaks"][0]["step"]], [entry["step"] for entry in dump["breaks"]]):
        out = kintsugi_clean.explain(made.write(bridged))(*made.args)
        counts.append(out.graph_break_count)
    assert counts == [6, 5, 0]


@pytest.mark.parametrize("name", ["loop, small", "asked for, small", "print", "two numbers", "functions of numbers", "test"])
def test_the_predicted_gain_is_of_the_size_of_the_real_one(name):
    """Times on a machine that does other things as well: the median of some tries, and a factor of two."""
    import statistics

    import kintsugi

    with kintsugi.config.patch(kernels=True):
        ratios = [predicted / measured for _ in range(3) for _, predicted, measured, _, _ in priced.run([name], seconds=0.1)]
    assert 0.5 < statistics.median(ratios) < 2, ratios


def test_breaks_between_calls_that_cannot_be_run_apart_are_modelled(kintsugi_clean):
    """Gradients come from a call that only the program makes, and are worked on behind a break."""
    import math

    from kintsugi.diagnose import diagnose

    weight = torch.nn.Parameter(torch.ones(64, 64))

    def step(x):
        loss = (x @ weight).square().mean()
        if math.isnan(loss):
            raise RuntimeError("no number")
        grad, = torch.autograd.grad(loss, weight)
        return grad.abs().max() + grad.square().sum()

    with observe.Session() as session:
        compiled = kintsugi_clean.compile(step)
        for _ in range(3):
            compiled(torch.ones(4, 64))
    found = diagnose(session.functions[0], seconds=0.02)
    cause = next(cause for cause in found.causes if cause.kind == "break")
    assert cause.how == "uncertain" and cause.price_us > 0 and found.verdict.compiled > 0 and 0 < cause.share <= 1
    assert cause.patch.lines == ["        torch._assert_async(torch.logical_not(torch.isnan(loss)), 'no number')"]


def test_what_goes_over_a_break_is_counted(kintsugi_clean):
    from kintsugi.diagnose import model

    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos() + x

    compiled = kintsugi_clean.compile(f)
    compiled(torch.ones(10, 10))
    dump = kintsugi_clean._engine.engine.dump(compiled.entries()[0])
    assert model.crossing(dump, dump["breaks"][0]["step"]) == 400  # y; x was there before


def test_samples_that_other_programs_interrupt_do_not_count():
    from kintsugi.diagnose import timing

    times = timing.Times([1.0] * timing.ENOUGH + [9.0] * 50, [0] * timing.ENOUGH + [1] * 50)
    assert times.typical == 1.0 and times.spread == 0.0 and not times.disturbed
    few = timing.Times([1.0] * 3 + [9.0] * 50, [0] * 3 + [1] * 50)
    assert few.typical == 9.0 and few.disturbed
    assert timing.Times([2.0, 3.0]).typical == 2.0


def test_threads_that_wait_for_a_processor_interrupt_a_sample():
    """Twice as many threads that compute as there are processors: some wait, and the system says how long."""
    import os
    import threading
    import zlib

    from kintsugi.diagnose import timing

    waits = timing._Waits()
    if not waits.in_ns:
        pytest.skip("the system does not tell how long threads wait")
    stop, data = threading.Event(), bytes(1 << 20)

    def compute():
        while not stop.is_set():
            zlib.crc32(data)  # without the lock of the interpreter
    crowd = [threading.Thread(target=compute) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        for one in crowd:
            one.start()
        waits.look()
        before, samples = waits.total(), timing._Samples()
        for _ in range(30):
            samples.take(lambda: zlib.crc32(data), 20, waits)
    finally:
        stop.set()
        for one in crowd:
            one.join()
        waits.close()
    assert waits.total() == 0 and sum(samples.interrupted) > 5 and samples.times(False).disturbed == (samples.interrupted.count(0) < timing.ENOUGH)


def test_disturbed_threads_are_measured_on_one(monkeypatch):
    from kintsugi.diagnose import timing

    asked = []

    def turns(calls, seconds, least):
        asked.append(torch.get_num_threads())
        busy = torch.get_num_threads() > 1
        return {name: timing.Times([1.0] * 40, [int(busy)] * 40) for name in calls}
    monkeypatch.setattr(timing, "turns", turns)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        times = timing.steady({"a": None}, 0.1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert asked == [2, 1] and times["a"].one_thread and not times["a"].disturbed


@pytest.mark.parametrize("eager, compiled, certain", [
    ([2.0] * 50, [1.0] * 50, True), ([2.0] * 20 + [9.0] * 30, [1.0] * 50, False), ([2.0] * 20 + [9.0] * 30, [1.0] * 20 + [4.5] * 30, True)])
def test_a_ratio_that_changes_while_it_is_measured_is_uncertain(eager, compiled, certain):
    from kintsugi.diagnose import price, timing

    verdict = price.Verdict()
    x, y = timing.Times(eager), timing.Times(compiled)
    verdict.eager, verdict.compiled, verdict.range = x.typical, y.typical, timing.ratio(x, y)[1:]
    assert verdict.certain is certain and (verdict.speedup is not None) is certain and verdict.warning.startswith("uncertain") is not certain


def _fill_all(times, known=(), effects=(), guards=0.0, alone=()):
    from kintsugi.diagnose import price, timing

    verdict = price.Verdict()
    times = {name: timing.Times([value * 1e-6] * 20) for name, value in times.items()}
    verdict.compiled = times["compiled"].typical
    price._fill_all([(cause, [1]) for cause in known], effects, times, verdict, guards * 1e-6, dict(alone))
    return verdict


def test_a_fix_that_computes_more_than_the_break_costs():
    from kintsugi.diagnose import causes

    cause = causes.Cause("break", "", why="DATA_DEPENDENT_BRANCH")
    verdict = _fill_all({"compiled": 100, "base": 98, 0: 118}, [cause])
    assert cause.price_us == 0 and verdict.without_breaks == pytest.approx(120e-6)
    assert any("20 us longer" in note for note in cause.notes)


@pytest.mark.parametrize("compiled, how", [(101, "measured"), (130, "uncertain")])
def test_what_a_call_takes_beyond_its_tensor_calls_makes_a_price_uncertain(compiled, how):
    from kintsugi.diagnose import causes

    cause = causes.Cause("break", "", why="DATA_DEPENDENT_BRANCH")
    _fill_all({"compiled": compiled, "base": 100, 0: 60}, [cause])
    assert cause.how == how and cause.price_us == pytest.approx(40)
    assert any("beyond its tensor calls" in note for note in cause.notes) == (how == "uncertain")


def test_side_effects_have_the_time_that_nothing_else_takes():
    from kintsugi.diagnose import causes

    one, other = causes.Cause("effect", "", line=1), causes.Cause("effect", "", line=2)
    verdict = _fill_all({"compiled": 100, "base": 30}, effects=[one, other], guards=10, alone={("", 1): 50e-6, ("", 2): 100e-6})  # watched, they take longer
    assert one.price_us == pytest.approx(20) and other.price_us == pytest.approx(40) and other.share == pytest.approx(0.4) and verdict.rest == pytest.approx(0.0)
    verdict = _fill_all({"compiled": 100, "base": 30, "without effects": 25}, effects=[one, other], guards=10, alone={("", 1): 5e-6, ("", 2): 15e-6})
    assert one.price_us == pytest.approx(5 + 5 / 4) and other.price_us == pytest.approx(15 + 15 / 4) and verdict.rest == pytest.approx(40e-6)


def test_a_print_that_takes_most_of_a_call_is_told(kintsugi_clean, capsys):
    from kintsugi.diagnose import diagnose

    broken, _, args = priced.make("print")
    with observe.Session() as session, torch.no_grad():
        compiled = kintsugi_clean.compile(broken)
        for _ in range(3):
            compiled(*args)
    found = diagnose(session.functions[0], seconds=0.05)
    cause, = [cause for cause in found.causes if cause.kind == "effect"]
    assert cause.title == "`print` runs in every call" and cause.code.startswith("print(") and 0 < cause.share <= 1


def test_calls_that_ran_eagerly_have_a_price():
    from kintsugi.diagnose import causes, price

    verdict = price.Verdict()
    verdict.eager, verdict.compiled = 50e-6, 10e-6
    eager, other = causes.Cause("eager", "", count=5), causes.Cause("break", "")
    price.fill_eager([eager, other], verdict, 20)
    assert eager.price_us == pytest.approx(10.0) and eager.share == pytest.approx(0.5) and eager.how == "modelled" and "5 of them took 40 us longer" in eager.notes[0]
    assert other.price_us is None
    verdict.compiled = 60e-6
    slower = causes.Cause("eager", "", count=5)
    price.fill_eager([slower], verdict, 20)
    assert slower.price_us is None


def test_a_counter_of_a_module_does_not_keep_it_from_being_measured(kintsugi_clean):
    from kintsugi.diagnose import causes, price

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = 0

        def forward(self, x):
            self.steps += 1
            return x * 2

    from kintsugi import _api

    compiled = kintsugi_clean.compile(Counting())
    for _ in range(3):
        compiled(torch.ones(3))
    dump = _api.start_engine().dump(_api.engine_of(compiled).entries()[0])
    assert dump["effects"] and outside.find_obstacle([dump]) == ""
    assert all("slot wrapper" not in cause.title for cause in causes.of_effects(dump))


def _diagnose(clean, fn, *args, calls=4):
    from kintsugi.diagnose import diagnose, observe

    with observe.Session() as session:
        compiled = clean.compile(fn)
        for _ in range(calls):
            compiled(*args)
    return diagnose(session.functions[0], seconds=0.05)


def test_each_effect_has_the_price_of_its_own_call(kintsugi_clean):
    """Not an even share: `slow` takes some hundred times as long as `random.random`."""
    import random

    def fn(x):
        y = x * 2
        random.random()
        sorted(VALUES)
        return y + 1

    found = _diagnose(kintsugi_clean, fn, torch.ones(64))
    prices = {cause.title.split("`")[1]: cause.price_us for cause in found.causes if cause.kind == "effect"}
    assert prices.get("random.random", 0.0) < 0.1 * found.verdict.compiled * 1e6


VALUES = list(range(2000, 0, -1))


def test_an_effect_costs_what_only_it_needs_as_well(kintsugi_clean):
    def fn(x):
        y = x * 2
        print(float((x @ x).norm()))
        return y + 1

    found = _diagnose(kintsugi_clean, fn, torch.ones(200, 200))
    alone = _diagnose(kintsugi_clean, lambda x: x * 2 + 1, torch.ones(200, 200))
    cause = next(cause for cause in found.causes if cause.kind == "effect")
    assert cause.price_us == pytest.approx((found.verdict.compiled - alone.verdict.compiled) * 1e6, rel=0.4)


def test_a_call_that_would_write_a_file_is_stopped_before_it_does(kintsugi_clean, tmp_path):
    """Nothing tells so before: a context manager of the program's own opens it."""
    import contextlib

    path = tmp_path / "log"

    @contextlib.contextmanager
    def logged():
        with open(path, "a") as file:
            file.write("called\n")
            yield

    def fn(x):
        with logged():
            return x * 2 + 1

    found = _diagnose(kintsugi_clean, fn, torch.ones(8))
    assert path.read_text() == 4 * "called\n"
    assert "not measured" in found.verdict.note and "effects that" in found.verdict.note and "reach outside of the process" in found.verdict.note


def test_an_iterator_among_the_arguments_is_not_gone_through_again(kintsugi_clean):
    from kintsugi.diagnose import diagnose, observe

    def fn(xs):
        total = 0
        for x in xs:
            total = total + x.sum()
        return total

    with observe.Session() as session:
        compiled = kintsugi_clean.compile(fn)
        for _ in range(3):
            compiled(torch.ones(2) for _ in range(3))
    found = diagnose(session.functions[0], seconds=0.05)
    assert found.verdict.note.startswith("not measured: its argument xs is an iterator, which a second call would find at its end")


def test_graphs_that_run_step_by_step_have_a_price():
    from kintsugi.diagnose import causes, price

    verdict = price.Verdict()
    verdict.compiled, verdict.rest = 100e-6, 60e-6
    left = [causes.Cause("steps", "", count=2), causes.Cause("steps", "", count=1)]
    price.fill_steps(left, verdict)
    assert [cause.price_us for cause in left] == pytest.approx([40.0, 20.0]) and left[0].share == pytest.approx(0.4)
    assert all(cause.how == "uncertain" and "uncertain" in cause.notes[0] for cause in left)


def test_parts_that_pytorch_does_as_fast_are_no_cause(kintsugi_clean):
    from kintsugi import _kernels
    from kintsugi.diagnose import causes, show

    found = _diagnose(kintsugi_clean, lambda x: x.cumsum(0), torch.ones(8))
    place = 0, 1, 1, 2
    small, odd = (_kernels._row(place, {"compiled": False, "reason": why, "as_fast": fast}) for why, fast in (("a single call on little data", True), ("its results differ", False)))
    observed = observe.Observed(kintsugi_clean._api.engine_of(kintsugi_clean.compile(torch.sin)))
    assert [cause.title for cause in causes.of_kernels(observed, [small, odd])] == ["1 part of its graphs not compiled: its results differ"]
    found.kernels = [small, small, odd]
    assert "2 parts of its graphs left to PyTorch's own kernels, which are as fast" in show.text(found)


UNPRICED = '''\
import torch


@torch.compile
def pieces(x):
    for i in range(3):
        yield x * i


@torch.compile
def checked(x):
    y = x.exp()
    try:
        assert (y > 5).all()
    except AssertionError:
        y = y + 5
    return y + 1


@torch.compile
def scaled(x, scale):
    return torch.softmax(x, -1) * scale if scale else x


@torch.compile
def ended(x):
    y = x.sin()
    try:
        y = y * not_there
    except NameError:
        pass
    return y + 1


for scale in (1.5, None, 1.5):
    x = torch.ones(8, 8)
    list(pieces(x)), checked(x), scaled(x, scale), ended(x)
'''


def test_every_cause_has_a_price_or_says_why_not(tmp_path, monkeypatch, capfd, kintsugi_clean):
    import json

    from kintsugi import cli

    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(UNPRICED)
    assert cli.main(["explain", "script.py", "--json", "found.json", "--seconds", "0.01"]) == 0
    out = capfd.readouterr().out
    found = {one["name"]: one["causes"] for one in json.loads((tmp_path / "found.json").read_text())["functions"]}
    for causes in found.values():
        assert all((cause["price_us"] is None) == bool(cause["unpriced"]) for cause in causes), causes
    eager, = found["pieces"]
    assert eager["kind"] == "eager" and eager["unpriced"] == "no call was recorded" and "no price: no call was recorded" in out
    failing, = found["checked"]
    assert failing["price_us"] > 0 and failing["how"] == "uncertain"
    again = next(cause for cause in found["scaled"] if cause["kind"] == "recompile")
    assert again["price_us"] > 0 and again["share"] is None and any("recording and compiling anew took" in note for note in again["notes"])
    assert found["ended"]


def test_reads_of_data_inside_of_a_graph_are_causes(kintsugi_clean):
    """No graph breaks there, but compiled code ends: numbers that go on into arithmetic, and tests of what is always so."""
    from kintsugi.diagnose import show

    with kintsugi_clean.config.patch(kernels=True):
        found = _diagnose(kintsugi_clean, priced.standard, *priced.make("two numbers")[2])
        number, = [cause for cause in found.causes if cause.kind == "read"]
        assert found.graphs == 1 and found.breaks == 0 and number.count == 2 and number.price_us > 0 and number.how in ("measured", "uncertain")
        assert number.title == "`float()` waits for the data of a tensor" and number.code.startswith("mean, deviation = ")
        assert "nothing stands in the way" not in show.headline(found) and "reads of data" in show.text(found)
        found = _diagnose(kintsugi_clean, priced.scaled, *priced.make("number in arithmetic")[2])
        number, = [cause for cause in found.causes if cause.kind == "read"]
        assert number.patch.lines == ["    scale = x.abs().max()"]
        found = _diagnose(kintsugi_clean, priced.tested, *priced.make("test")[2])
        test, = [cause for cause in found.causes if cause.kind == "read"]
        assert test.count == 4 and test.title == "A test waits for the data of a tensor" and test.code == "if x.isnan().any():" and test.price_us > 0


def test_a_number_has_one_price(kintsugi_clean):
    """Where a break or a side effect is why it is read, their price is all."""
    with kintsugi_clean.config.patch(kernels=True):
        for name in ("item, small", "print of a number"):
            fn, args = (told_number, priced.make("print")[2]) if name.startswith("print") else (priced.make(name)[0], priced.make(name)[2])
            assert [cause.kind for cause in _diagnose(kintsugi_clean, fn, *args).causes] == ["effect" if name.startswith("print") else "break"]


def told_number(x, w):
    y = x * w
    print("mean", y.mean().item())
    return (y + 1).relu()


def test_a_price_is_measured_or_uncertain_but_not_both():
    from kintsugi.diagnose import causes, price, timing
    from kintsugi.report import page

    cause = causes.Cause("break", "Data-dependent branching", why="DATA_DEPENDENT_BRANCH", skipped=True, user=("none.py", 1, "f"))
    times = {name: timing.Times([value * 1e-6] * 20) for name, value in (("base", 100), (0, 50))}
    price._fill(cause, times, 0, 1.0)
    assert cause.how == "uncertain" and "measured" not in page._cause("c", cause) and "(uncertain)" in page._cause("c", cause)


def test_what_keeps_a_call_from_being_repeated_is_told_with_its_place(kintsugi_clean, tmp_path):
    """And it is told of the program's line, not of one in the Python library. What only computes there keeps nothing from being repeated."""
    import json
    import re

    from kintsugi import _api
    from kintsugi.diagnose import fixes

    def writes(x):
        with open(tmp_path / "log", "a") as file:
            file.write("called")
        return x * 2

    def computes(x):
        return x * len(re.sub("a+", "b", "caat")) + len(json.dumps({"a": [1]}))

    layer = torch.nn.GRU(3, 4)

    def recurrent(x):
        return layer(x.reshape(1, 1, 3))[0].sum()

    for fn, wanted in ((writes, f"(`{open.__module__}.open`, "), (computes, ""), (recurrent, "")):
        compiled = kintsugi_clean.compile(fn)
        for _ in range(3):
            compiled(torch.ones(3))
        dumps = [_api.start_engine().dump(entry) for entry in _api.engine_of(compiled).entries()]
        assert any(dump["effects"] for dump in dumps)
        told = outside.find_obstacle(dumps)
        assert wanted in told and bool(told) == bool(wanted) and (not wanted or f"test_prices.py:{fn.__code__.co_firstlineno + 1})" in told), told
    assert "of the tensor itself" in fixes.advise_effect("ndarray.mean") and "do it with tensors" in fixes.advise_effect("numpy.median")
    assert "torch.sort" in fixes.advise_effect("numpy.sort") and "less often" in fixes.advise_effect("print")


def test_calls_that_only_a_side_effect_needs_are_told():
    """`history.append(float(x.sum()))`: the append is little of what the line takes."""
    effect = causes.Cause("effect", "`list.append` runs in every call", filename="a.py", line=3)
    price._share_rest([], [effect], 1e-6, 0.0, {("a.py", 3): 1e-6}, 9e-6)
    assert abs(effect.price_us - 10) < 1e-6 and effect.how == "modelled"
    assert any("9 us of it are tensor calls" in note for note in effect.notes)
    alone = causes.Cause("effect", "`print` runs in every call", filename="a.py", line=3)
    price._share_rest([], [alone], 1e-6, 0.0, {("a.py", 3): 1e-6}, 0.0)
    assert not alone.notes
