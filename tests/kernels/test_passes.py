"""The passes of the pipeline as users see them (explain, logs, events), and what happens when something goes wrong in one of them."""

import logging
import os
import re
import subprocess
import sys

import pytest
import torch

from launches import engine, kintsugi, runs, versions

CALLS = 12


started = -1  # the event before the test


@pytest.fixture(autouse=True)
def no_fault(kernels, tmp_path):
    global started
    started = max((e["seq"] for e in kintsugi.events()), default=-1)
    with kintsugi.config.patch(cache_dir=str(tmp_path / "kernels")):
        yield
    engine._set_fault("")


def events(kind):
    return [e for e in kintsugi.events() if e["event"] == kind and e["seq"] > started]


def program(width):
    """A function of new sizes: its kernels are compiled. Sizes are not shared, so that nothing is found in memory."""
    def fn(x, w):
        return torch.tanh(x @ w) * x.sum() + x
    return fn, torch.randn(3, width), torch.randn(width, width)


def call(width, times=CALLS):
    fn, x, w = program(width)
    compiled = kintsugi.compile(fn)
    with torch.no_grad():
        for _ in range(times):
            torch.testing.assert_close(compiled(x, w), fn(x, w))
    return compiled, x, w


def test_explain_lists_passes():
    compiled, x, w = call(31)
    with torch.no_grad():
        passes = kintsugi.explain(compiled)(x, w).passes
    names = [p.name for p in passes if p.part == "main"]
    assert names[0] == "accept" and names[-1] == "codegen" and names.index("lower") < names.index("fuse") < names.index("memory")
    by_name = {p.name: p for p in passes if p.part == "main"}
    assert all(p.ms >= 0 for p in passes)
    assert by_name["lower"].changed and not by_name["in-place"].changed
    assert "aten.mm.default" in by_name["lower"].before and "aten.tanh" not in by_name["lower"].after
    assert by_name["simplify"].before == by_name["lower"].after
    assert "arena" in by_name["fuse"].after and by_name["codegen"].after is None


def test_event_has_times():
    call(33)
    found = events("passes")
    assert found and all(found[-1][name] > 0 for name in ("lower", "simplify", "hoist", "fuse", "codegen"))


@pytest.mark.parametrize("level, texts", [("", False), ("+", True)])
def test_log(level, texts):
    code = ("import torch, kintsugi\n"
            "c = kintsugi.compile(lambda x: (x + 1).tanh() * 2)\n"
            "x = torch.ones(37)\n"
            "with torch.no_grad():\n    for _ in range(12): c(x)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True,
                          env=os.environ | {"KINTSUGI_KERNELS": "1", "TORCH_LOGS": f"{level}kintsugi.passes"})
    assert "Passes of <lambda>, graph 1" in done.stderr and "  simplify: " in done.stderr
    assert ("aten.tanh.default" in done.stderr) == texts


def test_no_log_unasked(caplog):
    caplog.set_level(logging.DEBUG)  # of the program's root logger
    call(38)
    assert not [r for r in caplog.records if r.name == "kintsugi.passes"]


@pytest.mark.parametrize("name", ["lower", "simplify", "rewrite", "hoist", "own-outputs", "fuse", "memory"])
def test_malformed(name):
    """The verifier finds it: an event names the pass, the steps run."""
    assert engine._set_fault(f"pass {name} malformed")
    compiled, _, _ = call({"lower": 41, "simplify": 42, "rewrite": 43, "hoist": 44, "own-outputs": 45, "fuse": 46, "memory": 47}[name])
    assert runs(compiled) == 0 and all(not v["compiled"] for v in versions(compiled))
    bugs = [e for e in events("bug") if e["where"] == name]
    assert bugs and f"after pass {name}: " in bugs[-1]["message"]
    assert all(f"after pass {name}: " in v["reason"] for v in versions(compiled))


@pytest.mark.parametrize("name, what, reason", [("lower", "memory", "out of memory"), ("fuse", "break", "pass fuse failed for a test"),
                                                ("codegen", "memory", "out of memory"), ("accept", "break", "pass accept failed for a test")])
def test_fails(name, what, reason):
    assert engine._set_fault(f"pass {name} {what}")
    compiled, _, _ = call({"lower": 51, "fuse": 52, "codegen": 53, "accept": 54}[name])
    assert runs(compiled) == 0 and all(reason in v["reason"] for v in versions(compiled))


def test_library_pass_gives_up():
    """Then the graph is compiled as it was captured."""
    assert engine._set_fault("pass rewrite break")
    compiled, _, _ = call(57)
    assert runs(compiled) > 0 and [p["name"] for p in versions(compiled)[0]["passes"]].count("rewrite") == 0


def test_wrong():
    """No verifier can know; comparing results does."""
    assert engine._set_fault("pass simplify wrong")
    with pytest.raises(AssertionError):
        call(61)


def test_unknown_fault():
    assert not engine._set_fault("pass nothing malformed") and not engine._set_fault("pass lower nothing")


def computed_in_phases(kernel, op):
    """By phase: how many instructions with this operator its statements need."""
    args, phases = {}, {}
    for line in kernel.splitlines():
        made = re.match(r"\s+%(\d+) = (.*) : ", line)
        if made:
            args[made[1]] = made[2].split()[0], re.findall(r"%(\d+)", made[2])
        done = re.match(r"\s+phase (\d+): .*%(\d+)", line)
        if done:
            phases.setdefault(int(done[1]), []).append(done[2])

    def reach(number, seen):
        if number not in seen:
            seen.add(number)
            for arg in args[number][1]:
                reach(arg, seen)
        return seen
    return {phase: sum(args[n][0] == op for n in set().union(*(reach(v, set()) for v in values))) for phase, values in phases.items()}


def test_each_phase_of_a_kernel_computes_only_what_is_new():
    """What a phase keeps for later ones is made of what earlier phases have kept, not from the start again."""
    def fn(x, w):
        for _ in range(5):
            x = torch.tanh(x * x.amax() + w)
        return x

    compiled, x, w = kintsugi.compile(fn), torch.randn(19, 23), torch.randn(19, 23)
    with torch.no_grad():
        for _ in range(CALLS):
            torch.testing.assert_close(compiled(x, w), fn(x, w))
        passes = kintsugi.explain(compiled)(x, w).passes
    (text,) = [p.after for p in passes if p.name == "fuse"]
    found = computed_in_phases(text, "tanh")
    assert len(found) == 6 and all(number <= 1 for number in found.values()) and sum(found.values()) == 5, text
