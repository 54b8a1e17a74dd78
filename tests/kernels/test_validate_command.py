"""`kintsugi validate` and `minify`: planted miscompiles of each pass are found, named with the line, and reduced."""

import json
import linecache
import os
import subprocess
import sys

import pytest
import torch
from launches import engine, kintsugi
from test_validate import PASSES

from kintsugi import cli

# A process that runs elsewhere finds the package where this one did, however PYTHONPATH names the place.
PACKAGES = os.pathsep.join(map(os.path.abspath, [os.path.dirname(os.path.dirname(kintsugi.__file__)), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))

PROGRAM = '''\
import torch

torch.manual_seed(0)
weight = torch.randn({size}, {size})


def forward(x):
    y = x @ weight
    y = torch.relu(y + 1)
    return torch.tanh(y * 2) - y.sum(-1, keepdim=True)


compiled = torch.compile(forward)
with torch.no_grad():
    for _ in range(3):
        compiled(torch.randn({size}, {size}))
'''


@pytest.fixture
def validate(tmp_path, monkeypatch, capfd, kernels):
    monkeypatch.chdir(tmp_path)

    def run(size, fault, *arguments, command="validate", text=PROGRAM):
        (tmp_path / "script.py").write_text(text.replace("{size}", str(size)))
        linecache.clearcache()
        if fault:
            assert engine._set_fault(fault)
        try:
            return cli.main([command, "script.py", *arguments]), capfd.readouterr()
        finally:
            engine._set_fault("")
    yield run
    kintsugi.uninstall()


def test_a_program_that_is_right(validate):
    status, out = validate(9, None)
    assert status == 0 and out.out == "compiled code gives what eager does: 1 function, 1 compiled graph compared\n"


@pytest.mark.parametrize("name", PASSES)
def test_a_miscompile_is_named_and_reduced(validate, tmp_path, name):
    size = 110 + PASSES.index(name)
    status, out = validate(size, f"pass {name} wrong", "--json", "found.json", "--minify", "small.py")
    assert status == 1 and "forward, graph 1: output 1 of 1 differs by" in out.out
    difference, = json.loads((tmp_path / "found.json").read_text())["differences"]
    assert difference["operation"] and f"script.py:{difference['line']}: " in out.out and 8 <= difference["line"] <= 10
    assert (tmp_path / "small.py").exists() and len(difference["script"].splitlines()) <= 30
    imported = {line.split()[1] for line in difference["script"].splitlines() if line.startswith("import ")}
    assert all(difference["script"].count(f"{module}.") for module in imported), difference["script"]  # none without need
    if name not in ("lower", "rewrite", "fuse"):  # a process each
        return
    code = f"from kintsugi._engine import engine\nimport runpy\nengine._set_fault('pass {name} wrong')\nrunpy.run_path('small.py', run_name='__main__')"
    environment = os.environ | {"KINTSUGI_KERNELS": "1", "KINTSUGI_CACHE_DIR": "", "PYTHONPATH": PACKAGES}
    broken = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert broken.returncode == 1 and "compiled code differs" in broken.stderr, difference["script"] + broken.stderr
    if name == "lower":  # without the fault nothing is wrong
        assert subprocess.run([sys.executable, "small.py"], cwd=tmp_path, env=environment, check=False).returncode == 0


def test_minify(validate, tmp_path):
    status, out = validate(131, "pass fuse wrong", "-o", "small.py", command="minify")
    assert status == 1 and "small.py: shows the difference" in out.out
    assert validate(132, None, "-o", "none.py", command="minify")[0] == 0 and not (tmp_path / "none.py").exists()


def test_what_differs_and_cannot_be_reduced_has_a_status_of_its_own(validate, tmp_path, monkeypatch):
    from kintsugi.diagnose import differ

    monkeypatch.setattr(differ, "_search", lambda graph, found, ask: None)
    status, out = validate(133, "pass fuse wrong", "-o", "none.py", command="minify")
    assert status == 3 and "no small program shows the difference" in out.err and not (tmp_path / "none.py").exists(), out


def test_whole_calls_and_gradients(validate):
    text = PROGRAM.replace("with torch.no_grad():", "if True:").replace("torch.randn({size}, {size}))", "torch.randn({size}, {size}, requires_grad=True))")
    status, out = validate(11, None, text=text)
    assert status == 0, out.out


SOFTMAX = """import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
compiled = torch.compile(lambda x: net(x).relu().softmax(-1))
for _ in range(4):
    compiled(torch.randn(8, 64))
"""


def test_gradients_behind_a_softmax(validate):
    """Those of a plain sum of its results are zero, but for rounding."""
    status, out = validate(0, None, text=SOFTMAX)
    assert status == 0, out.out
    assert _weighted_gradient().abs().max() > 1e-3


def _weighted_gradient():
    from kintsugi.diagnose import differ

    x = torch.arange(12.0).view(3, 4).requires_grad_()
    return differ._gradients([x.softmax(-1)], {"x": x})["x"]


def test_targets_that_are_none(validate, capfd):
    assert validate(9, None, text="raise KeyError('x')")[0] == 2
    assert cli.main(["validate", "nothing.py"]) == 2 and "no such script" in capfd.readouterr().err


def test_a_program_that_compiles_nothing(validate):
    status, out = validate(9, None, text="print('nothing')\n")
    assert status == 2 and "calls no function that torch.compile" in out.err


@pytest.mark.parametrize("fault", ["pass fuse break", "pass simplify malformed"])
def test_a_failure_of_the_compiler_is_reduced(validate, tmp_path, fault):
    status, out = validate(141, fault, "-o", "small.py", command="minify")
    assert status == 1 and "the compiler failed in " in out.out, out
    text = (tmp_path / "small.py").read_text()
    assert len(text.splitlines()) <= 30 and "fails(f, [" in text
    code = f"from kintsugi._engine import engine\nimport runpy\nengine._set_fault({fault!r})\nrunpy.run_path('small.py', run_name='__main__')"
    environment = os.environ | {"KINTSUGI_KERNELS": "1", "KINTSUGI_CACHE_DIR": "", "PYTHONPATH": PACKAGES}
    broken = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert broken.returncode == 1 and "the compiler failed in" in broken.stderr, text + broken.stderr
    assert subprocess.run([sys.executable, "small.py"], cwd=tmp_path, env=environment, check=False).returncode == 0


def test_a_slowdown_is_reduced(validate, tmp_path, monkeypatch):
    """Which calls are slow is said by a measurement that the test takes the place of: what is reduced is told apart by a call of tanh."""
    from kintsugi.diagnose import differ

    def slower(fn, args):
        return "compiled calls take longer" if "tanh" in fn.__code__.co_names else ""
    monkeypatch.setattr(differ, "slower", slower)
    status, out = validate(151, None, "--slow", "-o", "small.py", command="minify")
    text = (tmp_path / "small.py").read_text()
    assert status == 1 and "tanh" in out.out and len(text.splitlines()) <= 30
    assert "tanh(" in text and "relu" not in text and "slower(f, [" in text
    monkeypatch.setattr(differ, "slower", lambda fn, args: "")
    status, out = validate(152, None, "--slow", "-o", "none.py", command="minify")
    assert status == 0 and "no graph takes longer" in out.out and not (tmp_path / "none.py").exists()


def test_what_takes_longer_is_measured():
    from kintsugi.diagnose import differ

    assert "times" not in differ.slower(lambda x: x + 1, [torch.ones(8)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(differ, "SLOWER", 0.0)
        assert "x as long)" in differ.slower(lambda x: x + 1, [torch.ones(8)])


RANDOM = '''\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d({size})
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(x)).tanh() + torch.rand_like(x)


torch.manual_seed(0)
net = Net()
compiled = torch.compile(net)
for _ in range(3):
    compiled(torch.randn(8, {size}))
'''


STATE = '''\
import torch


class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.state, self.calls = torch.zeros(8, {size}), 0

    def forward(self, x):
        self.calls += 1
        self.state = torch.tanh(x + self.state)
        if self.calls > 2:
            return self.state.relu() * torch.exp(x)
        return self.state.relu()


cell = torch.compile(Cell())
with torch.no_grad():
    for _ in range(6):
        cell(torch.randn(8, {size}))
'''


def test_the_operation_is_found_where_calls_differ_from_each_other(validate, tmp_path):
    """What a function keeps from call to call: the first calls take other ways than later ones."""
    status, out = validate(61, "pass fuse wrong", "-o", "small.py", text=STATE, command="minify")
    assert status == 1 and "the first operation that differs: " in out.out and "small.py: shows the difference" in out.out, out


def test_random_numbers_and_state_are_compared(validate):
    status, out = validate(23, None, text=RANDOM)
    assert status == 0 and "compiled code gives what eager does: 1 function" in out.out


@pytest.mark.parametrize("what, told", [("norm.running_mean", "norm.running_mean, after the call, differs"), ("draw", "the random number generator in another state"),
                                        ("output", "output 1 of 1 differs"), ("", "")])
def test_random_numbers_and_state_of_a_call(what, told):
    from types import SimpleNamespace

    from kintsugi.diagnose import differ, observe

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x):
            return self.norm(x) + torch.rand_like(x)

    class Compiled:
        fn = Net()

        def __call__(self, x):
            result = self.fn(x)
            if what == "norm.running_mean":
                self.fn.norm.running_mean.data.add_(1)
            elif what == "draw":
                torch.rand(1)
            return result + 1 if what == "output" else result

    compiled = Compiled()
    before = compiled.fn.norm.running_mean.clone()
    found = differ.whole_call(SimpleNamespace(compiled=compiled, calls=[observe.Call((torch.randn(8, 4),), {})]))
    assert told in found and bool(found) == bool(what)
    assert torch.equal(compiled.fn.norm.running_mean, before)
