"""`kintsugi debug`: finds breaks, tries fixes on the text of the program, keeps those that hold, goes on where it was left."""

import json
import re

import pytest

from kintsugi import cli
from kintsugi.diagnose import debug as debugging
from kintsugi.diagnose import trial

PROGRAM = '''\
import torch


def gate(x):
    if x.abs().max() > 100:
        x = x * 0.5
    return x


def step(x):
    for _ in range(3):
        x = gate(torch.sin(x))
    n = 2.0 if hasattr(x.tolist()[0], "hex") else 3.0
    torch._dynamo.graph_break()
    return x * n


compiled = torch.compile(step)
for _ in range(3):
    compiled(torch.arange(6.0))
'''


@pytest.fixture
def debug(tmp_path, monkeypatch, capfd, kintsugi_clean):
    monkeypatch.chdir(tmp_path)

    def run(text, *arguments):
        if text is not None:
            (tmp_path / "script.py").write_text(text)
        status = cli.main(["debug", "script.py", "--seconds", "0.05", "--json", "found.json", *arguments])
        found = json.loads((tmp_path / "found.json").read_text()) if status != 2 else None
        return status, found, capfd.readouterr()
    return run


def test_the_whole_way(debug, tmp_path):
    status, found, out = debug(PROGRAM, "--max-fixes", "1")
    assert status == 0 and not found["done"] and len(found["fixes"]) == 1 and "the same command goes on from here" in out.out
    assert (tmp_path / "script.py").read_text() == PROGRAM  # only --apply writes to it

    status, found, out = debug(None, "--fullgraph")  # goes on; the fix of .tolist() makes a tensor of what was a number
    outcomes = {re.sub(r"[ :(].*", "", fix["cause"]["code"]): fix for fix in found["fixes"]}
    assert found["resumed"] and found["done"] and status == 1
    assert outcomes["if"]["outcome"] == "kept" and "the same in 1 call and 3 with changed arguments" == outcomes["if"]["values"]
    assert outcomes["torch._dynamo.graph_break"]["outcome"] == "kept"
    assert outcomes["n"]["outcome"] == "dropped" and "other values: step: its result" in outcomes["n"]["reason"]
    assert found["breaks_before"] == 5 and found["breaks_after"] == 1
    assert [one["code"] for one in found["left"]] == ['n = 2.0 if hasattr(x.tolist()[0], "hex") else 3.0'] and found["left"][0]["original"][1] == 13
    assert found["measured"]["step"]["before_us"] > 0 and "5. Measure: 5 graph breaks before, 1 after" in out.out
    diff = (tmp_path / "kintsugi-debug" / "fixes.patch").read_text()
    assert "+    x = torch.where(x.abs().max() > 100, x * 0.5, x)" in diff and "-    torch._dynamo.graph_break()" in diff

    status, found, out = debug(None, "--apply")
    assert status == 0 and found["applied"] == [str(tmp_path / "script.py")]
    text = (tmp_path / "script.py").read_text()
    assert "torch.where" in text and "graph_break()" not in text and 'n = 2.0 if hasattr(x.tolist()[0], "hex") else 3.0' in text


def test_values_that_are_other_ones_in_each_run_are_not_compared(debug):
    _, found, _ = debug("import os\n\nimport torch\n\nSTART = float(int.from_bytes(os.urandom(2), \"big\"))\n\n\ndef step(x):\n    if x.sum() > 1e6:\n        x = x * 2\n    return x + START\n\n\n"
                        "torch.compile(step)(torch.ones(3))\n")
    fix, = found["fixes"]
    assert fix["outcome"] == "kept" and fix["values"].startswith("not compared")


def test_programs_that_cannot_be_looked_at(debug, capfd):
    assert debug("def f(x): return x\nraise KeyError('early')\n")[2].err.endswith("kintsugi: debug: the program ended with KeyError: 'early' (at script.py:2)\n")
    assert "EOFError" in debug("input()\n")[2].err  # its standard input is at its end
    assert cli.main(["debug", "missing.py:f"]) == 2 and "no such script" in capfd.readouterr().err


def test_values_are_compared_with_what_eager_gives():
    import torch

    def row(value, factor=None):
        return {"factor": factor, "eager": [value], "compiled": [value]}
    same, other = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1])
    assert trial.compare_values({"f": [row(same)]}, {"f": [row(same.clone())]}) == ("", 1, 0)
    assert "differs by" in trial.compare_values({"f": [row(same)]}, {"f": [row(other)]})[0]
    assert "arguments times -1" in trial.compare_values({"f": [row(same, -1.0)]}, {"f": [row(other, -1.0)]})[0]
    assert trial.compare_values({"f": [row(2.0)]}, {"f": [row(torch.tensor(2.0))]}) == ("", 1, 0)  # a number that stays a tensor
    assert trial.compare_values({"f": [row("raised ValueError", 0.0)]}, {"f": [row(same, 0.0)]}) == ("", 0, 0)
    assert trial.compare_values({"f": None}, {"f": None}) == ("", None, None)


def test_beginning_anew_removes_nothing_of_others(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for name in (debugging.STATE, debugging.PATCH):
        (tmp_path / name).write_text("{}")
    debugging.forget(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    debugging.forget(tmp_path / "not there")


READS = '''\
import torch


@torch.compile
def standard(x):
    mean = float(x.mean()); deviation = float(x.std())
    return (x - mean) / (deviation + 1e-6)


for _ in range(3):
    standard(torch.arange(4096.0).reshape(64, 64))
'''


def test_reads_of_data_are_fixed_one_after_the_other(debug):
    """No graph breaks: what a fix has to make less is how often the program waits for data."""
    import kintsugi

    with kintsugi.config.patch(kernels=True):
        status, found, out = debug(READS)
    assert status == 0 and [fix["outcome"] for fix in found["fixes"]] == ["kept", "kept"], out.out
    assert "it waits no more" in out.out and "0 graph breaks and 2 reads of data before, 0 and 0 after" in out.out
    assert found["breaks_before"] == found["breaks_after"] == 0


def test_what_was_too_small_to_be_told_of_before_is_no_cause_afterwards(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("def step(x):\n    top = x.max().item()\n    return x * top\n")

    def cause(code, line):
        return {"kind": "read", "why": "", "filename": str(script), "function": "step", "code": code, "line": line, "user": [str(script), line, "step"],
                "price_us": None, "share": None, "how": "", "patch": None}
    job = debugging.Job("script.py", folder=str(tmp_path))
    job.record["before"], job.record["after"] = [{"name": "step", "causes": []}], [{"name": "step", "causes": [cause("top = x.max().item()", 2), cause("made = x.sum().item()", 3)]}]
    assert [found["code"] for _, found in job.causes("after")] == ["made = x.sum().item()"]  # which a fix made
