"""Calls that are compared start from the same: what they change outside of their arguments is put back, random numbers are the same ones."""

import ast
import os
import random
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kintsugi import cli, uninstall
from kintsugi.diagnose import differ, observe, screen, state

counts = {"calls": 0}
total = torch.zeros(2)


class Cache:
    def __init__(self):
        self.keys, self.seen = [torch.ones(1)], 0

    def add(self, x):
        self.keys.append(x)
        self.seen += 1


def test_whatever_a_function_reaches_is_put_back():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    cache, array = Cache(), np.zeros(2)

    def step(x):
        counts["calls"] += 1
        total.add_(1)
        array[0] += 1
        cache.add(x)
        optimizer.zero_grad()
        loss = net(x).sum() + random.random() + np.random.rand()
        loss.backward()
        optimizer.step()
        return loss.item()

    x = torch.randn(4, 2)
    before = [value.clone() for value in (*net.parameters(), *net.buffers(), total)], dict(counts), len(cache.keys), array.copy()
    found = []
    for _ in range(2):
        with state.unchanged(step, (x,)):
            state.seed()
            found.append([step(x), step(x)])
    assert found[0] == found[1] and found[0][0] != found[0][1]
    after = [value.clone() for value in (*net.parameters(), *net.buffers(), total)], dict(counts), len(cache.keys), array.copy()
    assert all(torch.equal(a, b) for a, b in zip(before[0], after[0])) and before[1:3] == after[1:3] and (before[3] == after[3]).all()
    assert cache.seen == 0 and not optimizer.state and all(p.grad is None for p in net.parameters())


def _differs(fn, wrong, *args):
    """What whole_call says of a compiled function that calls `wrong` as well."""
    class Compiled:
        def __call__(self, *args):
            result = fn(*args)
            return wrong(result)
    Compiled.fn = staticmethod(fn)
    return differ.whole_call(SimpleNamespace(compiled=Compiled(), calls=[observe.Call(args, {})]))


def test_what_a_call_leaves_in_globals_is_compared():
    def fn(x):
        total.add_(x)
        return x * 2

    assert _differs(fn, lambda result: result, torch.ones(2)) == ""
    assert _differs(fn, lambda result: (total.add_(1), result)[1], torch.ones(2)).startswith("total, after the call, differs")


def test_a_gradient_that_cancels_to_zero_is_no_difference():
    """Of the bias before a batch norm: its last digits are all there is."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    scale = torch.tensor(1.0)

    def fn(x):
        return net(x) * scale

    x = torch.rand(2, 3, 16, 16)
    assert _differs(fn, lambda result: result + (result - result.detach()) * 1e-6, x) == ""
    assert "the gradient of" in _differs(fn, lambda result: result + (result - result.detach()) * 1e-2, x)


SCRIPT = '''\
import collections, random, torch
torch.manual_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 2))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
seen = collections.Counter()

@torch.compile
def step(x, y):
    seen["steps"] += 1
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()

for _ in range(4):
    step(torch.randn(4, 8), torch.randint(0, 2, (4,)))
'''


def test_a_seeded_training_step_with_dropout_validates(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    try:
        assert cli.main(["validate", "train.py"]) == 0
    finally:
        uninstall()
    assert "gives what eager does: 1 function" in capfd.readouterr().out


def test_nothing_is_seen_of_calls_that_are_repeated():
    text = """if True:
        import logging, os, sys
        from kintsugi.diagnose import screen
        logging.basicConfig(stream=sys.stderr)  # keeps the stream that there is now
        with screen.quiet():
            print("printed")
            logging.error("logged")
            os.write(1, b"from C")
        print("after")
        """
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert (out.stdout, out.stderr) == ("after\n", "")


@pytest.mark.parametrize("arguments, told", [
    (("explain", "scirpt.py"), "no such script: 'scirpt.py'; did you mean 'script.py'?"),
    (("explain", "script.py:forwrad"), "script.py has no 'forwrad'; it has forward"),
    (("validate", "broken.py"), "broken.py ended with SyntaxError: '(' was never closed (broken.py, line 1): def f(x:"),
    (("validate", "broken.py:f"), "broken.py cannot be imported: SyntaxError: '(' was never closed (broken.py, line 1): def f(x:"),
    (("check", "script.py:forward", "--fullgraph", "--inputs", "torch.ones(2"), "--inputs 'torch.ones(2': SyntaxError"),
    (("bisect", "script.py:forward", "--inputs", "nothing"), "--inputs 'nothing': script has no such name"),
    (("minify", "script.py:forward", "--inputs", "1, 2, 3"), "script.py:forward does not take what --inputs '1, 2, 3' gives: too many positional arguments"),
    (("explain", "script.py:forward", "--inputs", "torch.ones(2, 3)"), "a call of script.py:forward with --inputs 'torch.ones(2, 3)' ended with RuntimeError"),
    (("bench", "script.py:forward", "--inputs", "torch.ones(2, 3)"), "a call of forward ended with RuntimeError"),
    (("debug", "script.py:forward", "--inputs", "torch.ones(2, 3)"), "a call of script.py:forward with --inputs 'torch.ones(2, 3)' ended with RuntimeError"),
    (("explain", "script.py:forward"), "script.py:forward takes arguments: --inputs takes"),
    (("explain", "script.py", "--json", "missing/found.json"), "--json missing/found.json: there is no folder 'missing'; make it first"),
    (("validate", "exits.py"), "exits.py ended with exit status 3"),
])
def test_wrong_input_is_named_with_its_value(tmp_path, monkeypatch, capfd, arguments, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("import torch\nweight = torch.ones(4, 4)\ndef forward(x):\n    return x @ weight\n")
    (tmp_path / "broken.py").write_text("def f(x:\n    return x\n")
    (tmp_path / "exits.py").write_text("import sys, torch\ntorch.compile(lambda x: x + 1)(torch.ones(2))\nsys.exit(3)\n")
    monkeypatch.delitem(sys.modules, "script", raising=False)
    try:
        assert cli.main(list(arguments)) == 2
    finally:
        uninstall()
    out = capfd.readouterr()
    assert f"kintsugi: {arguments[0]}: {told}" in out.err and "Traceback" not in out.err


@pytest.mark.parametrize("command", [["explain"], ["validate"], ["check", "--fullgraph"]])
def test_where_nothing_can_be_compiled_that_is_said(tmp_path, monkeypatch, capfd, command):
    from kintsugi import _engine

    monkeypatch.setattr(_engine, "reason", "this is a toy interpreter")
    (tmp_path / "script.py").write_text("")
    assert cli.main([*command, str(tmp_path / "script.py")]) == 2
    assert "nothing is compiled here: this is a toy interpreter; python -m kintsugi doctor tells more" in capfd.readouterr().err


@pytest.mark.parametrize("option, value", [("--launches", "0"), ("--launches", "many")])
def test_a_number_out_of_range_is_refused(capfd, option, value):
    with pytest.raises(SystemExit) as stop:
        cli.main(["validate", "script.py", option, value])
    assert stop.value.code == 2 and f"expected a whole number, 1 or more, and not '{value}'" in capfd.readouterr().err


STEP = """
import torch
from kintsugi.diagnose import state

rnn, head = torch.nn.GRU(2, 3), torch.nn.Linear(3, 1)
opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()])


def step(x):
    opt.zero_grad()
    head(rnn(x)[0]).sum().backward()
    opt.step()


step(torch.ones(2, 1, 2))
print(sorted(state.State(step).tensors()))
"""


def test_names_of_tensors_do_not_depend_on_the_process():
    """A baseline is compared with them. Parameters are also keys of the optimizer's state, which is no name."""
    told = {subprocess.run([sys.executable, "-c", STEP], env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True).stdout for seed in range(4)}
    names = ast.literal_eval(told.pop())
    assert not told and {"rnn.weight_ih_l0", "rnn.weight_ih_l0.grad", "head.bias", "opt.state.exp_avg"} <= set(names) and "opt.state" not in names
