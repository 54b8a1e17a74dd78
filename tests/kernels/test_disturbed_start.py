"""The first call of a process under something that changes what calls make: what the engine finds out about torch once is right afterwards."""

import subprocess
import sys

import pytest


FIRST_IN = """
import torch, kintsugi
from torch import nn
kintsugi.config.kernels = True

def fn(x, y):
    return (x * 2 + y).relu() + x.sum(), (x @ y).softmax(-1)

first, plain = kintsugi.compile(fn), fn
x, y = torch.randn(4, 4), torch.randn(4, 4)
{first}
torch.testing.assert_close({got}, {expected})

layer = nn.Linear(4, 4)
for wants in False, True:
    later = kintsugi.compile(lambda x: nn.functional.gelu(layer(x)).sum())
    for _ in range(12):
        loss = later(torch.randn(3, 4).requires_grad_(wants))
        loss.backward()
    row, = kintsugi.stats(later)["kernels"]
    assert row["launches"] > 0, row
"""
FIRST = {
    "grad": ("g = lambda f: torch.func.grad(lambda a: f(a, y)[0].sum())(x)", "g(first)", "g(plain)"),
    "jvp": ("g = lambda f: torch.func.jvp(lambda a: f(a, y)[0], (x,), (y,))", "g(first)", "g(plain)"),
    "inference mode": ("g = lambda f: torch.inference_mode()(f)(x, y)", "g(first)", "g(plain)"),
}


@pytest.mark.parametrize("kind", FIRST)
def test_first_call_of_the_process(kind):
    """What is found out about torch once is not found out where transforms wrap what a call makes; later calls are compiled."""
    first, got, expected = FIRST[kind]
    script = FIRST_IN.format(first=first, got=got, expected=expected)
    done = subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
