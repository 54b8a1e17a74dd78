"""`kintsugi validate` and `minify`: planted miscompiles of each pass are found, named with the line, and reduced."""

import json
import linecache
import os
import subprocess
import sys

import pytest
from launches import engine, kintsugi
from test_validate import PASSES

from kintsugi import cli

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
    assert status == 0 and out.out == "compiled code gives what eager does: 1 functions, 1 compiled graphs compared\n"


@pytest.mark.parametrize("name", PASSES)
def test_a_miscompile_is_named_and_reduced(validate, tmp_path, name):
    size = 110 + PASSES.index(name)
    status, out = validate(size, f"pass {name} wrong", "--json", "found.json", "--minify", "small.py")
    assert status == 1 and "forward, graph 1: output 1 of 1 differs by" in out.out
    difference, = json.loads((tmp_path / "found.json").read_text())["differences"]
    assert difference["operation"] and f"script.py:{difference['line']}: " in out.out and 8 <= difference["line"] <= 10
    assert (tmp_path / "small.py").exists() and len(difference["script"].splitlines()) <= 30
    if name not in ("lower", "rewrite", "fuse"):  # a process each
        return
    code = f"from kintsugi._engine import engine\nimport runpy\nengine._set_fault('pass {name} wrong')\nrunpy.run_path('small.py', run_name='__main__')"
    environment = os.environ | {"KINTSUGI_KERNELS": "1", "KINTSUGI_CACHE_DIR": ""}
    broken = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert broken.returncode == 1 and "compiled code differs" in broken.stderr, difference["script"] + broken.stderr
    if name == "lower":  # without the fault nothing is wrong
        assert subprocess.run([sys.executable, "small.py"], cwd=tmp_path, env=environment, check=False).returncode == 0


def test_minify(validate, tmp_path):
    status, out = validate(131, "pass fuse wrong", "-o", "small.py", command="minify")
    assert status == 0 and "small.py: shows the difference" in out.out
    assert validate(132, None, "-o", "none.py", command="minify")[0] == 1 and not (tmp_path / "none.py").exists()


def test_whole_calls_and_gradients(validate):
    text = PROGRAM.replace("with torch.no_grad():", "if True:").replace("torch.randn({size}, {size}))", "torch.randn({size}, {size}, requires_grad=True))")
    status, out = validate(11, None, text=text)
    assert status == 0, out.out


def test_targets_that_are_none(validate, capfd):
    assert validate(9, None, text="raise KeyError('x')")[0] == 2
    assert cli.main(["validate", "nothing.py"]) == 2 and "no such script" in capfd.readouterr().err
