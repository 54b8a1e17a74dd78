"""`kintsugi check`: what becomes worse is found and told, what does not is not."""

import importlib
import json
import linecache
import subprocess
import sys

import pytest

from kintsugi import cli

PROGRAM = '''\
import torch
import helper_of_test

torch.manual_seed(3); unit, sizes, kept = 1.0, [1, 0, 0], {}
weight = torch.randn(8, 8)


def forward(x, scale):
    y = x @ weight
    y = helper_of_test.activation(y) * scale
    return y.sum(0)


compiled = torch.compile(forward)
for scale in (2.0, 2.0, 2.0):
    compiled(torch.ones(4, 8), scale)
'''
HELPER = "def activation(y):\n    return y.relu()\n"

# name: (text of the program that is replaced, by what, arguments, part of what is told)
WORSE = {
    "item": ("    return y.sum(0)", "    if y.sum().item() > 5:\n        y = y + 1\n    return y.sum(0)", [], "new graph break at script.py:11 in forward"),
    "item that stays a number": ("    return y.sum(0)", "    top = y.max().item()\n    return y.sum(0) * (top / top)", [],
                                 "new place where a graph waits for the data of a tensor: script.py:11 in forward: top = y.max().item()"),
    "item that is kept": ("    return y.sum(0)", "    kept['top'] = y.max().item()\n    return y.sum(0)", [], "waits for the data of a tensor: script.py:11 in forward"),
    "print": ("    return y.sum(0)", "    print('here')\n    return y.sum(0)", ["--strict-breaks"], "[PRINT]"),
    "recompile": ("(2.0, 2.0, 2.0)", "(2.0, 2.0, None or True)", [], "recompiles: 0 -> 1"),
    "values": ("* scale", "* (scale * 1.001)", [], "its values differ by 1.0e-03"),
    "shape": ("y.sum(0)", "y.sum(1)", [], "float32[8]"),
    "guards": ("    y = x @ weight", "    y = x @ weight" + "".join(f"\n    y = y if settings['a{i}'] else -y" for i in range(40)), [], "guards: "),
    "one guard": ("    return y.sum(0)", "    return y.sum(0) if unit else y", [], "guards: "),
    "new size": ("    compiled(torch.ones(4, 8), scale)", "    compiled(torch.ones(4 + (scale == 2 and sizes.pop()), 8), scale)", [], "recompile"),
    "not called": ("    compiled(torch.ones(4, 8), scale)", "    pass", [], "is not called any more"),
}


@pytest.fixture
def check(tmp_path, monkeypatch, capfd, kintsugi_clean):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    def run(text, *arguments, helper=HELPER):
        (tmp_path / "script.py").write_text(text)
        (tmp_path / "helper_of_test.py").write_text(helper)
        sys.modules.pop("helper_of_test", None)
        linecache.clearcache()
        kintsugi_clean.reset()
        with kintsugi_clean.config.patch(kernels=True, strict_breaks=False):
            status = cli.main(["check", "script.py", "--baseline", "baseline.json", *arguments])
        return status, capfd.readouterr()
    return run


def test_quiet_on_reruns(check):
    assert check(PROGRAM, "--update")[0] == 0
    for _ in range(5):
        status, out = check(PROGRAM)
        assert (status, out.out) == (0, "nothing is worse: 1 compiled function, 0 graph breaks\n")


@pytest.mark.parametrize("name", WORSE)
def test_what_is_worse(check, name):
    old, new, arguments, told = WORSE[name]
    program = PROGRAM.replace("torch.manual_seed(3)", "torch.manual_seed(3)\nsettings = {f'a{i}': True for i in range(40)}") if name == "guards" else PROGRAM
    assert check(program, "--update", *arguments)[0] == 0
    status, out = check(program.replace(old, new), *arguments)
    assert status == 1 and any(line.startswith("worse: ") and told in line for line in out.out.splitlines()), out.out


TRAINED = PROGRAM.replace("torch.randn(8, 8)", "torch.randn(8, 8, requires_grad=True)").replace("    return y.sum(0)", "    return torch.nn.functional.cross_entropy(y * 1e-3, torch.zeros(4, dtype=torch.long))")


def test_values_that_hardly_show_in_the_loss(check):
    """The gradients tell."""
    assert check(TRAINED, "--update")[0] == 0
    assert check(TRAINED)[0] == 0
    status, out = check(TRAINED.replace("y * 1e-3", "y * 1.001e-3"))
    assert status == 1 and "worse: forward: the gradient of weight: its values differ by 1.0e-03" in out.out, out.out


def test_of_many_gradients_a_few_are_told(check):
    layers = PROGRAM.replace("weight = torch.randn(8, 8)", "weight = torch.randn(8, 8)\nnet = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))").replace(
        "    return y.sum(0)", "    return net(y).sum()")
    assert check(layers, "--update")[0] == 0
    status, out = check(layers.replace("net(y).sum()", "(net(y) * 1.001).sum()"))
    told = [line for line in out.out.splitlines() if "gradient" in line]
    assert status == 1 and len(told) == 4 and "3 more gradients differ, by up to 1.0e-03" in told[3], out.out


def test_a_baseline_of_other_versions(check, tmp_path):
    """Guards may be some more; what was compared exactly is told."""
    program = PROGRAM.replace("    y = x @ weight", "    y = x @ weight" + "".join(f"\n    y = y if settings['a{i}'] else -y" for i in range(40))).replace("torch.manual_seed(3)", "settings = {f'a{i}': True for i in range(40)}; torch.manual_seed(3)")
    assert check(program, "--update")[0] == 0
    found = json.loads((tmp_path / "baseline.json").read_text())
    found["made_with"] = "torch 2.0"
    (tmp_path / "baseline.json").write_text(json.dumps(found))
    status, out = check(program.replace("    return y.sum(0)", "    return y.sum(0) if unit else y"))
    assert status == 0 and "note: the baseline is of torch 2.0" in out.out, out.out


def test_a_library_that_breaks_since_its_upgrade(check):
    assert check(PROGRAM, "--update")[0] == 0
    status, out = check(PROGRAM, helper="def activation(y):\n    if y.max() > 1e9:\n        y = y / 2\n    return y.relu()\n")
    assert status == 1 and "new graph break at helper_of_test.py:2 in activation" in out.out


@pytest.mark.parametrize("second, told", [
    ("def activation(y):\n    top = y.max()\n    if top > 1e9:\n        y = y / top\n    return y.relu()\n", "toylib (core.py:3: if top > 1e9:) [DATA_DEPENDENT_BRANCH]"),
    ("def activation(y):\n    return y.relu() * (1 if y.tolist() else 2)\n", "toylib (core.py:2: return y.relu() * (1 if y.tolist() else 2)) [TENSOR_TOLIST]")])
def test_two_versions_of_an_installed_library(check, tmp_path, monkeypatch, second, told):
    program = PROGRAM.replace("helper_of_test", "toylib.core")
    for version, text in (("1", HELPER), ("2", second)):
        folder = tmp_path / version / "site-packages" / "toylib"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"__version__ = '{version}.0'\n")
        (folder / "core.py").write_text(text)

    def run(version, *arguments):
        for name in ("toylib.core", "toylib"):
            sys.modules.pop(name, None)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [*sys.path, str(tmp_path / version / "site-packages")])
            importlib.invalidate_caches()
            return check(program.replace("toylib.core.", "core.").replace("import toylib.core", "from toylib import core"), *arguments)
    status, out = run("1", "--update")
    assert status == 0, out.err
    assert run("1")[0] == 0
    status, out = run("2")
    assert status == 1 and "new graph break at script.py:10 in forward: y = core.activation(y) * scale, in " + told in out.out, out.out


@pytest.mark.parametrize("last", ["y.sum(0)", "len(x)"])
def test_a_program_without_kernels(tmp_path, last):
    """In a process that has made none, what they would be made for is asked all the same."""
    (tmp_path / "script.py").write_text(f"import torch\n\n\n@torch.compile\ndef f(x):\n    return {last.replace('y', 'x')}\n\n\nfor _ in range(3):\n    f(torch.ones(2, 2))\n")
    for update in (["--update"], []):
        done = subprocess.run([sys.executable, "-m", "kintsugi", "check", "script.py", "--baseline", "baseline.json", *update], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_program_that_compiles_nothing(check):
    status, out = check("print('no torch')\n", "--update")
    assert status == 2 and "calls no function that torch.compile" in out.err


def test_what_is_better_is_told_and_taken(check):
    broken = PROGRAM.replace("    return y.sum(0)", "    if y.sum() > 5:\n        y = y + 1\n    return y.sum(0)")
    assert check(broken, "--update")[0] == 0
    status, out = check(PROGRAM.replace("* scale", "* scale + 0 * y"))
    assert "better: forward: gone: graph break" in out.out
    assert check(PROGRAM, "--update")[0] == 0 and check(broken)[0] == 1


def test_lines_that_moved_are_the_same_causes(check):
    broken = PROGRAM.replace("    return y.sum(0)", "    if y.sum() > 5:\n        y = y + 1\n    return y.sum(0)")
    assert check(broken, "--update")[0] == 0
    assert check("# a comment\n\n" + broken)[0] == 0


def test_bounds_without_a_baseline(tmp_path, monkeypatch, capfd, kintsugi_clean):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("import torch\n\n\ndef f(x):\n    return x * 2 if x.sum() > 0 else x\n\n\ntorch.compile(f)(torch.ones(2))\n")
    assert cli.main(["check", "script.py", "--max-breaks", "1"]) == 0
    assert cli.main(["check", "script.py", "--fullgraph", "--annotations", "github"]) == 1
    out = capfd.readouterr().out
    assert "worse: f: graph break at script.py:5 in f" in out and "::error file=script.py,line=5,title=kintsugi check::f" in out
    assert cli.main(["check", "script.py"]) == 2


@pytest.mark.parametrize("content, told", [(None, "--update writes it"), ("{", "is no baseline"), ('{"version": 99}', "no baseline of this version")])
def test_baselines_that_cannot_be_read(check, tmp_path, content, told):
    if content is not None:
        (tmp_path / "baseline.json").write_text(content)
    status, out = check(PROGRAM)
    assert status == 2 and told in out.err


def test_a_script_that_fails(check):
    status, out = check(PROGRAM + "raise ValueError('broken')\n", "--update")
    assert status == 2 and "ValueError: broken" in out.err


def test_a_baseline_names_no_folders(check, tmp_path):
    check(PROGRAM.replace("    return y.sum(0)", "    if y.sum() > 5:\n        y = y + 1\n    return y.sum(0)"), "--update")
    text = (tmp_path / "baseline.json").read_text()
    assert str(tmp_path) not in text and json.loads(text)["functions"]["forward"]["causes"][0]["path"] == "script.py"


def test_calls_for_results_add_nothing_to_the_counters(monkeypatch, kintsugi_clean):
    """What state was put back to decides which way they go, and so which further graphs get code."""
    import torch

    from kintsugi.diagnose import baseline, observe

    def f(x):
        return x.sin() * 2 if x.dtype == torch.float32 else x.cos().exp() + 1
    with observe.Session() as session:
        compiled = kintsugi_clean.compile(f, options={"warm": True, "kernels": True})
        for _ in range(3):
            compiled(torch.ones(8))
    found, = session.functions

    def further(observed, dumps):
        for _ in range(3):
            observed.compiled(torch.ones(8, dtype=torch.float64))
    without = baseline.describe(found, results=False)["counters"]
    monkeypatch.setattr(baseline, "_results", further)
    assert baseline.describe(found)["counters"] == without and without["kernels"] > 0
    assert baseline.describe(found)["counters"]["kernels"] > without["kernels"]  # the further calls did make some
