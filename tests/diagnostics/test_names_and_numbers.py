"""What users look for by name: optimizers in lists of operators, keys of dicts in reasons, numbers of recordings, TORCH_LOGS=dynamo."""
import os
import subprocess
import sys

import pytest
import torch

import kintsugi

LOGGED = """
import torch, kintsugi, torch._dynamo
def f(x):
    return x.sin() + 1
compiled = kintsugi.compile(f)
for n in (100, 100, 100):
    compiled(torch.ones(n))
"""


@pytest.fixture
def kernels():
    with kintsugi.config.patch(kernels=True):
        yield


def test_steps_of_optimizers_have_their_class(kernels):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def train(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    found = kintsugi.explain(train)(torch.ones(3))
    ops = str(found).split("Ops 1:")[1].split("Out Guards")[0].split()
    assert "torch.optim.SGD.step" in ops and "step" not in ops


def test_keys_of_a_dict_are_a_list():
    compiled, x = kintsugi.compile(lambda x, d: [x * v for v in d.values()]), torch.ones(2)
    compiled(x, {"a": 1})
    compiled(x, {"a": 1, "b": 2})
    causes = [variant["cause"] for variant in kintsugi.stats(compiled)["variants"] if variant["cause"]]
    assert causes == ["list(d) == ['a'] (now ['a', 'b'])"]


def test_recordings_count_from_one_and_times_that_were_not_measured_are_none():
    compiled, x = kintsugi.compile(lambda x: x + 1), torch.ones(2)
    for _ in range(4):
        compiled(x)
    for row in kintsugi.stats(compiled)["kernels"]:
        assert (row["recording"], row["graph"], row["part"]) == (1, 1, 1)
        assert row["compile_ms"] is None if not row["compiled"] else row["compile_ms"] > 0


def test_logs_of_dynamo_at_info_level():
    env = {**os.environ, "TORCH_LOGS": "dynamo", "KINTSUGI_KERNELS": "1"}
    out = subprocess.run([sys.executable, "-c", LOGGED], env=env, capture_output=True, text=True, check=True).stderr
    assert "[0/0] Step 1: torchdynamo start tracing f <string>:3" in out and "[0/0] Step 1: torchdynamo done tracing f (RETURN_VALUE; " in out
    assert "[0/0] Step 2: done compiler function kintsugi (graph 1 of f, " in out and "  * f <string>:3" in out
