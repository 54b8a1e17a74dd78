"""Which call ran compiled code, `options={"warm": True}`, and reports that name what the user wrote."""

import re
import subprocess
import sys
import textwrap

import kintsugi
import pytest
import torch
from kintsugi import _kintsugi as engine


@pytest.fixture(autouse=True)
def kernels():
    before = kintsugi.config.kernels
    kintsugi.config.kernels = True
    kintsugi.reset()
    yield
    kintsugi.config.kernels = before


def compute(x):
    return torch.relu(torch.sin(x) * 2) @ x


def test_stats_tells_how_each_call_was_done():
    x, compiled = torch.randn(8, 8), kintsugi.compile(compute)
    assert kintsugi.stats(compiled)["last_call"] == ""
    compiled(x)
    assert kintsugi.stats(compiled)["last_call"] == "recorded"
    for _ in range(3):
        compiled(x)
    stats = kintsugi.stats(compiled)
    assert stats["last_call"] in ("compiled", "step by step") and stats["compiled_calls"] >= 1
    kintsugi.config.disable = True
    try:
        compiled(x)
    finally:
        kintsugi.config.disable = False
    assert kintsugi.stats(compiled)["last_call"] == "eager"


def test_steps_are_not_called_compiled():
    x, compiled = torch.randn(8, 8), kintsugi.compile(compute, backend="eager")
    for _ in range(3):
        compiled(x)
    stats = kintsugi.stats(compiled)
    assert (stats["last_call"], stats["compiled_calls"]) == ("step by step", 0)


def test_warm_runs_compiled_code_from_the_first_call_on():
    x, compiled = torch.randn(8, 8), kintsugi.compile(compute, options={"warm": True})
    for number in range(1, 4):
        torch.testing.assert_close(compiled(x), compute(x))
        stats = kintsugi.stats(compiled)
        assert (stats["last_call"], stats["compiled_calls"]) == ("compiled", number)


@pytest.mark.parametrize("arguments, calls, reason", [
    ({}, 1, "no recorded call has come again so far"),
    ({"backend": "eager"}, 3, "graphs run with backend='eager'"),
    ({"options": {"kernels": False}}, 3, "they are switched off"),
])
def test_a_graph_without_code_has_a_row_with_the_reason(arguments, calls, reason):
    x, compiled = torch.randn(8, 8), kintsugi.compile(compute, **arguments)
    for _ in range(calls):
        compiled(x)
    row, = kintsugi.stats(compiled)["kernels"]
    assert not row["compiled"] and row["waits"] and row["reason"].startswith(reason)


def test_a_single_small_call_is_a_row_too():
    compiled = kintsugi.compile(lambda x: torch.sin(x))
    for _ in range(3):
        compiled(torch.ones(3))
    row, = kintsugi.stats(compiled)["kernels"]
    assert row["as_fast"] and "PyTorch's own kernel is as fast" in row["reason"]


class Watching(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_first_sizes_and_modes_are_reasons():
    compiled = kintsugi.compile(compute)
    for n in (8, 9):
        compiled(torch.randn(n, n))
    assert "the first sizes of its inputs are only looked at" in str([row["reason"] for row in kintsugi.stats(compiled)["kernels"]])
    kintsugi.reset()
    compiled, x = kintsugi.compile(compute), torch.randn(8, 8)
    with Watching():
        for _ in range(3):
            compiled(x)
    stats = kintsugi.stats(compiled)
    assert stats["compiled_calls"] == 0 and (stats["eager_calls"] or any("mode is active" in row["reason"] for row in stats["kernels"])), stats


def test_warm_compiles_even_a_single_small_call():
    compiled = kintsugi.compile(lambda x: torch.sin(x), options={"warm": True})
    compiled(torch.randn(3))
    assert kintsugi.stats(compiled)["last_call"] == "compiled"


def test_warm_does_nothing_twice_that_can_be_seen():
    def add(x):
        x.add_(1)
        return x.sum()

    x, compiled = torch.zeros(3), kintsugi.compile(add, options={"warm": True})
    assert compiled(x) == 3 and x.tolist() == [1, 1, 1]
    assert kintsugi.stats(compiled)["last_call"] == "recorded"
    norm = torch.nn.BatchNorm1d(4)
    kintsugi.compile(norm, options={"warm": True})(torch.randn(8, 4))
    assert norm.num_batches_tracked == 1

    seen = []

    def note(x):
        y = torch.exp(x)
        seen.append(1)
        return y

    kintsugi.compile(note, options={"warm": True})(x)
    assert seen == [1]


def test_warm_draws_the_random_numbers_of_eager():
    def draw(x):
        return torch.rand(3) + x

    x, compiled = torch.ones(3), kintsugi.compile(draw, options={"warm": True})
    torch.manual_seed(0)
    got = [compiled(x) for _ in range(3)]
    torch.manual_seed(0)
    for value in got:
        torch.testing.assert_close(value, draw(x))


def decide(x):
    y = torch.sin(x) * 2
    if y.sum() > 0:
        y = y + 1
    kintsugi.graph_break()
    return torch.relu(y) @ x


def test_warm_runs_compiled_code_behind_graph_breaks():
    compiled = kintsugi.compile(decide, options={"warm": True})
    for number, x in enumerate((torch.ones(8, 8), torch.ones(8, 8), -torch.ones(8, 8)), 1):
        torch.testing.assert_close(compiled(x), decide(x))
        assert (kintsugi.stats(compiled)["last_call"], kintsugi.stats(compiled)["compiled_calls"]) == ("compiled", number)
    assert kintsugi.stats(compiled)["breaks"] >= 2


@pytest.mark.compiled_gradients
def test_warm_draws_numbers_once():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8))
    x, compiled = torch.randn(4, 8), kintsugi.compile(model, options={"warm": True})
    torch.manual_seed(0)
    got = [compiled(x) for _ in range(3)]
    assert kintsugi.stats(compiled)["compiled_calls"] == 3
    torch.manual_seed(0)
    for value in got:
        torch.testing.assert_close(value, model(x))


def test_warm_is_true_or_false():
    with pytest.raises(TypeError, match="warm"):
        kintsugi.compile(compute, options={"warm": 1})


@pytest.mark.parametrize("arguments, calls, reason", [
    ({}, 0, "none: it was not called yet"),
    ({}, 1, "none: no recorded call has come again so far (1 call, 1 recorded)"),
    ({"backend": "eager"}, 3, "none: graphs run with backend='eager'"),
    ({"options": {"kernels": False}}, 3, "none: they are switched off (options={'kernels': False})"),
])
def test_explain_says_why_there_are_no_kernels(arguments, calls, reason):
    x, compiled = torch.randn(8, 8), kintsugi.compile(compute, **arguments)
    for _ in range(calls):
        compiled(x)
    text = str(kintsugi.explain(compiled)(x))
    assert reason in text and f"Calls: {calls}" in text


def test_explain_says_that_gradients_are_the_reason():
    before = kintsugi.config.training
    kintsugi.config.training = False
    try:
        x, compiled = torch.randn(8, 8, requires_grad=True), kintsugi.compile(compute)
        for _ in range(3):
            compiled(x)
        assert "gradients are wanted" in str(kintsugi.explain(compiled)(x))
    finally:
        kintsugi.config.training = before


def test_nothing_empty_nothing_numbered_nothing_said_twice():
    x, compiled = torch.randn(16, 64), kintsugi.compile(compute_sums, options={"warm": True})
    compiled(x)
    text = str(kintsugi.explain(compiled)(x))
    assert "Break Reasons: none" in text
    assert "torch.sin was not rebound" in text and "torch.sin is torch.sin" not in text
    kernels = text.partition("Kernels:")[2].partition("Compile Times")[0]
    assert "not fused" in kernels and "%" not in kernels and "0.0 us" not in kernels
    lines = [line for line in kernels.splitlines() if "not fused" in line]
    assert len(lines) == len(set(lines))


def compute_sums(x):
    y = torch.sin(x)
    return y.sum(0), y.sum(1), (y * 2).sum(0), y.cumsum(1).sum(1)


def test_recompile_reasons_name_forward_and_its_parameters():
    script = textwrap.dedent("""
        import torch, kintsugi
        class Model(torch.nn.Module):
            def forward(self, hidden, scale=1):
                return torch.relu(hidden) if hidden.shape[0] > 4 else hidden * scale
        compiled = kintsugi.compile(Model(), dynamic=False)
        compiled(torch.randn(4, 8))
        compiled(torch.randn(5, 8))
        print(kintsugi.explain(compiled)(torch.randn(5, 8)))
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**__import__("os").environ, "TORCH_LOGS": "recompiles"})
    assert "Recompiling function forward in <string>:4" in done.stderr, done.stderr
    assert "tensor 'hidden' size mismatch at index 0. expected 4, actual 5" in done.stderr
    assert "type(L['hidden']) is torch.Tensor" in done.stdout and "args[0]" not in done.stdout


def test_another_number_of_arguments_is_told_as_a_recompile():
    script = textwrap.dedent("""
        import torch, kintsugi
        def scale(x, by=2):
            return x * by
        compiled = kintsugi.compile(scale)
        compiled(torch.ones(3)); compiled(torch.ones(3)); compiled(torch.ones(3), 3)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**__import__("os").environ, "TORCH_LOGS": "recompiles"})
    assert done.stderr.count("Recompiling function scale") == 1, done.stderr
    assert "- 0/0: called with another number of arguments, or with other keywords" in done.stderr


def break_twice(x):
    y = torch.sin(x) * 2
    kintsugi.graph_break()
    z = torch.cos(y) + y
    kintsugi.graph_break()
    return torch.tanh(z) * 3


def profiled(work):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        work()
    return {event.key: event.count for event in prof.key_averages()}


@pytest.mark.parametrize("trials", [0, 3])
def test_the_profiler_shows_graphs_breaks_and_kernels_with_their_sizes(trials):
    """The same regions in each call, also while compiled code and steps take turns; kernels are among operators, with sizes."""
    kintsugi._kintsugi.set_option("trials", trials)
    try:
        x, compiled = torch.randn(10, 100), kintsugi.compile(break_twice)
        for _ in range(3):
            compiled(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
            for _ in range(6):
                compiled(x)
    finally:
        kintsugi._kintsugi.set_option("trials", 7)
    rows = sorted(prof.events(), key=lambda e: (e.time_range.start, -e.time_range.end))
    regions = [re.sub(r"\d+/(\d+)", r"N/\1", e.name) for e in rows if e.name.startswith(("Torch-Compiled", "Graph"))]
    line = break_twice.__code__.co_firstlineno
    breaks = [f"Graph break: Call to `torch._dynamo.graph_break()` (test_call_reports.py:{line + k})" for k in (2, 4)]
    graphs = [f"Graph {k} of break_twice [N/0]" for k in (1, 2, 3)]
    assert regions == ["Torch-Compiled Region: N/0", graphs[0], breaks[0], graphs[1], breaks[1], graphs[2]] * 6
    kernels = [e for e in rows if e.name.startswith("fused_")]
    assert len(kernels) >= (18 if trials == 0 else 3) and all([10, 100] in e.input_shapes for e in kernels)


@pytest.mark.compiled_gradients
def test_the_profiler_names_the_way_back_after_its_graph():
    """Kernels of each backward lie in a region of its own."""
    kintsugi._kintsugi.set_option("trials", 0)
    try:
        wide, deep = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        first, second = kintsugi.compile(lambda x: wide(x).tanh().sum()), kintsugi.compile(lambda x: deep(x).relu().mean())
        for _ in range(3):
            first(torch.randn(8, 16)).backward(), second(torch.randn(8, 16)).backward()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
            for _ in range(2):
                (first(torch.randn(8, 16)) + second(torch.randn(8, 16))).backward()
    finally:
        kintsugi._kintsugi.set_option("trials", 7)
    ways = [e for e in prof.events() if e.name.endswith(", backward")]
    assert len(ways) == 4 and len({e.name for e in ways}) == 2 and all(e.name.startswith("Graph 1 of <lambda> [") for e in ways)
    inside = [e for e in prof.events() if e.name.startswith(("fused_", "library."))
              and any(way.time_range.start <= e.time_range.start and e.time_range.end <= way.time_range.end for way in ways)]
    assert len(inside) >= 8


def test_the_profiler_has_a_row_for_calls_that_are_recorded_or_eager():
    x, compiled = torch.randn(8, 8), kintsugi.compile(compute)
    rows = profiled(lambda: compiled(x))
    assert sum(count for key, count in rows.items() if key.startswith("Torch-Compiled Region: ") and key.endswith("/0 (recorded)")) == 1
    kintsugi.config.disable = True
    try:
        rows = profiled(lambda: compiled(x))
    finally:
        kintsugi.config.disable = False
    assert sum(count for key, count in rows.items() if key.startswith("Torch-Compiled Region: ") and key.endswith(" (eager: compilation is disabled)")) == 1


TRACED = """
import torch, kintsugi

def branch(x):
    y = torch.sin(x)
    if y.sum() > 0:
        return y + 1
    return y

def call(fn, x):
    return fn(x)

try:
    call(kintsugi.compile(branch, fullgraph=True), torch.ones(3))
except RuntimeError:
    pass

def compute(x):
    return torch.relu(torch.sin(x) * 2) @ x

compiled = kintsugi.compile(compute, options={"warm": True})
compiled(torch.randn(8, 8))
from torch._dynamo.utils import get_compilation_metrics
compiled(torch.randn(8, 8))
failed, row = get_compilation_metrics()
assert failed.co_name == "branch" and not failed.has_guarded_code
assert row.co_name == "compute" and row.graph_op_count == 4 and row.backend_compile_time_s > 0, row
assert row.entire_frame_compile_time_s > row.backend_compile_time_s, row
import time
assert row.compile_id == "1/0" and row.frame_key == "2" and row.cache_size == 0, row
assert row.guard_count > 1 and row.graph_node_count == 6 and row.graph_input_count == 1 and getattr(row, "num_graph_breaks", 0) == 0, row  # torch 2.6 has no such field
assert 0 <= time.time() - row.start_time < 60 and row.start_time_us + row.duration_us == row.end_time_us, row
assert get_compilation_metrics()[1] is row
torch._dynamo.utils.set_compilation_metrics_limit(2)
other = kintsugi.compile(lambda x, n: x * n)
other(torch.ones(3), 2)
other(torch.ones(3), 3)
first, second = get_compilation_metrics()
assert first.compile_id == "2/0" and second.compile_id == "2/1" and second.cache_size == 1 and second.guard_count > 1, second
"""


def test_traces_tell_why_fullgraph_failed_where_and_from_which_call(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(TRACED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                          env={**__import__("os").environ, "TORCH_TRACE": str(tmp_path / "trace"), "KINTSUGI_KERNELS": "1"})
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / "trace").iterdir()
    text = log.read_text()
    lines = [line for line in text.splitlines() if '"compilation_metrics"' in line]
    assert f'"fail_reason": "Data-dependent branching at {script}:6"' in lines[0] and '"fail_user_frame_lineno": 6' in lines[0]
    assert "nothing to replay" not in text and '"backend_compile_time_s": 0.0,' not in text
    start = next(line for line in text.splitlines() if '"dynamo_start"' in line)
    assert '"line": 14' in start and '"line": 11' in start, start  # the call itself, not what runs after it
    assert '"backend_compile_times"' in text and "compile_s" in text


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)

    def forward(self, x, scale=1):
        return scaled(self.lin(x), scale)


def scaled(x, scale):
    return x * scale


def test_explain_names_forward_and_guards_say_what_may_not_change():
    model = Model()
    text = str(kintsugi.explain(kintsugi.compile(model))(torch.randn(2, 4)))
    first = Model.forward.__code__.co_firstlineno
    assert f"Model.forward ({__file__}:{first}): recorded" in text
    assert "\nModel.forward, " in text  # its recording time
    assert f"scaled was not replaced (test_call_reports.py:{scaled.__code__.co_firstlineno})" in text
    assert "<code " not in text and "unchanged" not in text
    guards = "".join(map(str, kintsugi.explain(model)(torch.randn(2, 4)).out_guards))
    assert "Model.forward was not replaced" in guards and "has 1 default\n" in guards and "__DEFAULTS__" not in guards
    assert "or its bases was set or deleted" in guards


def test_explain_of_what_was_not_compiled_says_what_to_do():
    text = str(kintsugi.explain(Model())(torch.randn(2, 4)))
    assert "replayed" not in text.partition("Kernels:")[2]
    assert "pass what kintsugi.compile() returned" in text


def test_kinds_of_inputs_of_which_the_same_is_said_share_a_line():
    compiled = kintsugi.compile(lambda x: x * 2)
    for n in (2, 3, 4, 5, 3, 4, 5):
        compiled(torch.ones(n))
    lines = str(kintsugi.explain(compiled)(torch.ones(2))).partition("Kernels:\n")[2].partition("Compile Times")[0].splitlines()
    assert len(set(lines)) == len(lines) and any(line.endswith(" kinds of inputs)") for line in lines), lines


def test_times_that_were_not_measured_are_none():
    compiled = kintsugi.compile(lambda x: (x * 2).sin(), options={"warm": True})
    compiled(torch.ones(4))
    row, = kintsugi.stats(compiled)["kernels"]
    assert row["compiled"] and row["launch_us"] is None and row["steps_us"] is None


def test_a_copy_of_a_tensor_is_one_break_at_the_programs_line():
    def shallow(x):
        import copy
        y = copy.copy(x.sin())
        return x + y, y.requires_grad

    found = kintsugi.explain(shallow)(torch.ones(2))
    reason, = found.break_reasons
    assert "in place of `copy.copy(t)`" in reason.reason and [frame.name for frame in reason.user_stack] == ["shallow"]
    assert "sys.modules['copy'] is copy" in str(found) and "<dict of" not in str(found)
    compiled = kintsugi.compile(shallow)
    for kept in (False, False, True):
        x = torch.ones(2, requires_grad=kept)
        assert str(compiled(x)) == str(shallow(x))


def test_a_result_that_requires_grad_is_called_a_tensor():
    """Of the class of our own fake tensors, users know nothing."""
    @torch.no_grad()
    def fn(x):
        y = x.sin()
        return (y * 2).requires_grad_(), y.cos()
    compiled = kintsugi.compile(fn)
    before = max((event["seq"] for event in engine.events()), default=-1)
    for _ in range(3):
        compiled(torch.ones(3))
    reasons = [event.get("reason", "") for event in engine.events() if event["seq"] > before]
    assert any("it gives a tensor that requires grad, and the graph has no gradients" in reason for reason in reasons)
    assert not any("KintsugiTensor" in reason for reason in reasons)
