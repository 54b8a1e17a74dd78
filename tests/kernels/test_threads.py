"""Kernels on several threads: through torch's own entry point, and through OpenMP as builds of torch before 2.10 need it."""
import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, torch, kintsugi

torch.set_num_threads(3)

def f(x, w):
    return torch.tanh(x @ w).mul(2).add(1), (x * 3).cos().sum(1)

compiled = kintsugi.compile(f, options={"warm": True})
x, w = torch.linspace(-1, 1, 1200 * 300).view(1200, 300), torch.linspace(-1, 1, 300 * 200).view(300, 200)
expected = f(x, w)
for _ in range(6):
    torch.testing.assert_close(compiled(x, w), expected, rtol=1e-4, atol=1e-3)
assert kintsugi.stats(compiled)["compiled_calls"] > 0
assert len(os.listdir("/proc/self/task")) >= 3
print("parallel" if any(row["launches"] for row in kintsugi.stats(compiled)["kernels"]) else "no kernels")
"""


@pytest.mark.parametrize("environ", [{}, {"KIN_SIMULATE_OLD_THREADS": "1"}], ids=["torch", "openmp"])
def test_threads(environ):
    child = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300,
                           env={**os.environ, "KINTSUGI_KERNELS": "1", "OMP_NUM_THREADS": "3", **environ})
    assert child.returncode == 0, child.stderr
    assert child.stdout == "parallel\n"
