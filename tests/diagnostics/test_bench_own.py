"""`kintsugi bench` of the user's own functions."""

import json
import os
import subprocess
import sys

import pytest
import torch

from kintsugi import cli
from kintsugi.bench import own

PROGRAM = '''\
import torch


def f(x, y):
    return (torch.sin(x) * y).sum(){extra}


def example_inputs():
    return torch.ones(8, 8), torch.ones(8, 8)


if __name__ == "__main__":
    compiled = torch.compile(f)
    print("run by the script")
    compiled(*example_inputs())
'''


@pytest.fixture
def bench(tmp_path, monkeypatch, capfd, kintsugi_clean):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PROGRAM.format(extra=""))

    def run(*arguments):
        status = cli.main(["bench", "--seconds", "0.05", "--json", "found.json", *arguments])
        out = capfd.readouterr()
        return status, json.loads((tmp_path / "found.json").read_text()) if status == 0 else None, out
    return run


@pytest.mark.parametrize("target", ["mine.py", "mine.py:f", "mine:f"])
def test_own_functions(bench, target):
    status, found, out = bench(target)
    ways = found["f"]["ways"]
    assert status == 0 and set(ways) == {"eager", "kintsugi"} and ways["eager"]["speedup"] == 1
    assert ways["kintsugi"]["us"] == pytest.approx(ways["eager"]["us"] / ways["kintsugi"]["speedup"])
    assert ways["kintsugi"]["first_call_ms"] > 0 and ways["kintsugi"]["samples"] >= 3
    assert out.out.startswith("f\n") and "compiled code" in out.out and "run by the script" not in out.out


def test_an_earlier_revision(bench, tmp_path):
    def git(*command):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *command], check=True, capture_output=True, cwd=tmp_path)
    git("init", "-q")
    git("add", "mine.py")
    git("commit", "-qm", "before")
    (tmp_path / "mine.py").write_text(PROGRAM.format(extra=" + sum(float(i) for i in range(2000))"))
    status, found, out = bench("mine.py:f", "--against", "git:HEAD")
    ways = found["f"]["ways"]
    assert status == 0 and set(ways) == {"eager", "kintsugi", "before eager", "before kintsugi"}
    assert ways["eager"]["us"] > 1.5 * ways["before eager"]["us"]  # 2,000 additions more
    assert any(line.startswith("this revision: ") for line in found["f"]["verdict"])


@pytest.fixture
def slower(tmp_path):
    """A repository whose library is slower than in its only commit."""
    def git(*command):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *command], check=True, capture_output=True, cwd=tmp_path)
    library = tmp_path / "src" / "library_of_bench.py"
    library.parent.mkdir()
    library.write_text("MORE = 0\n")
    text = PROGRAM.format(extra=" + sum(float(i) for i in range(library_of_bench.MORE))").replace("import torch\n", "import torch\nimport library_of_bench\n", 1)
    (tmp_path / "mine.py").write_text(text)
    sys.modules.pop("library_of_bench", None)
    git("init", "-q")
    git("add", "mine.py", "src")
    git("commit", "-qm", "before")
    library.write_text("MORE = 2000\n")
    return library


@pytest.mark.parametrize("target", ["mine.py", "{}/mine.py", "{}/mine.py:f"])
def test_each_revision_runs_its_own_files(bench, slower, tmp_path, monkeypatch, target):
    """A path from the root, and modules that are found by PYTHONPATH, are those of the revision, too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(slower.parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(sys, "path", [*sys.path, str(slower.parent)])
    status, found, out = bench(target.format(tmp_path), "--against", "git:HEAD")
    assert status == 0, out.err
    ways = found["f"]["ways"]
    assert ways["eager"]["us"] > 1.5 * ways["before eager"]["us"] and found["f"]["kept_bytes"] >= 0


FINDER = """import importlib.util, sys


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, {file!r}) if name == "library_of_bench" else None


sys.meta_path.insert(0, Finder)
"""


def test_files_of_the_present_revision_are_not_taken_for_earlier_ones(bench, slower, tmp_path, monkeypatch):
    outside = tmp_path.parent / f"{tmp_path.name}_installed"
    outside.mkdir()
    (outside / "finder_of_bench.py").write_text(FINDER.format(file=str(slower)))
    text = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text("import finder_of_bench\n" + text)
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "finds", "mine.py"], check=True, capture_output=True, cwd=tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(outside), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(sys, "path", [*sys.path, str(outside)])
    before = sys.meta_path[:]
    try:
        status, _, out = bench("mine.py", "--against", "git:HEAD")
    finally:
        sys.meta_path[:] = before
    assert status == 2 and "would run library_of_bench of the present one" in out.err and "PYTHONPATH" in out.err


def test_a_target_outside_of_the_repository(bench, slower, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}.py"
    outside.write_text(PROGRAM.format(extra=""))
    status, _, out = bench(str(outside), "--against", "git:HEAD")
    assert status == 2 and "is not in the repository" in out.err


@pytest.mark.parametrize("arguments, text", [
    (["nothing.py"], "no such script"), (["mine.py:g"], "has no 'g'"), (["mine.py:f", "--against", "HEAD"], "expected git:"),
    (["mine.py:f", "--against", "git:HEAD"], "in no git repository"), (["empty.py"], "calls no function")])
def test_errors(bench, tmp_path, arguments, text):
    (tmp_path / "empty.py").write_text("x = 1\n")
    status, _, out = bench(*arguments)
    assert status == 2 and text in out.err


def test_functions_that_change_their_state_are_compared_from_the_same_state(bench, tmp_path):
    (tmp_path / "counts.py").write_text("import torch\n\n\nclass Counts:\n    def __init__(self):\n        self.total = torch.zeros(3)\n\n    def step(self, x):\n"
                                        "        self.total = self.total + x\n        return self.total * 2\n\n\nstep = torch.compile(Counts().step)\n"
                                        "for _ in range(3):\n    step(torch.ones(3))\n")
    _, found, _ = bench("counts.py")
    assert not any("results differ" in line for line in found["step"]["verdict"])


def _row(eager, kintsugi, interrupted=0):
    times = {"eager": [(value, interrupted) for value in eager], "kintsugi": [(value, 0) for value in kintsugi]}
    row = {"times": times, "first": {"kintsugi": {"call": 0.1, "spent": 0.2, "calls": 6}}, "errors": {},
           "difference": {"kintsugi": 0.0}, "kept_bytes": 0}
    return own.verdict(row, own.describe(row)), own.describe(row)


def test_verdicts():
    fast, ways = _row([2e-3] * 50, [1e-3] * 50)
    assert fast.startswith("compiled code is 2.00x as fast as eager") and ways["kintsugi"]["break_even_calls"] == 200
    slow, ways = _row([1e-3] * 50, [2e-3] * 50)
    assert slow.startswith("compiled code takes 2.00x as long as eager (2.00x to 2.00x in ") and ways["kintsugi"]["break_even_calls"] is None
    same, _ = _row([1e-3, 1.2e-3, 0.9e-3, 1.1e-3, 1e-3] * 10, [1.2e-3, 0.9e-3, 1.1e-3, 1e-3, 1e-3] * 10)
    assert same.startswith("no clear difference")


def test_a_busy_machine_gives_no_verdict():
    told, ways = _row([0.3] * 50, [1e-3] * 50, interrupted=1)
    assert told.startswith("uncertain") and "as fast as" not in told
    assert ways["kintsugi"]["speedup"] is None and ways["kintsugi"]["break_even_calls"] is None and not ways["kintsugi"]["certain"]
    changing, _ = _row([2e-3] * 20 + [9e-3] * 30, [1e-3] * 50)  # nothing tells who disturbed it, and it was not the same throughout
    assert changing.startswith("uncertain")


def test_where_threads_are_interrupted_one_thread_is_measured():
    chunks = []

    def sample(chunk, alone):
        chunks.append(-chunk if alone else chunk)
        return {"f": {"eager": [(1.0, int(not alone))] * 40, "kintsugi": [(0.5, 0)] * 40}}
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        samples, one_thread = own.in_turns({"": sample, "before ": sample}, 0.0, 0.1)
    finally:
        torch.set_num_threads(threads)
    assert one_thread and chunks == [0.1, 0.1, -0.1, -0.1] and set(samples["f"]) == {"eager", "kintsugi", "before eager", "before kintsugi"}
    assert not any(often for ways in samples.values() for values in ways.values() for _, often in values)


def test_models_are_no_targets():
    assert not own.is_target(["bert-*"]) and not own.is_target([]) and not own.is_target(["a.py", "b.py"])
    assert own.is_target(["a.py"]) and own.is_target(["package.module:fn"])
