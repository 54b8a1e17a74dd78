"""The first jagged nested tensor of a process makes what all later ones share: in a compiled function it is one graph, too."""
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)

CODE = """
import torch, kintsugi

def fn(a, b):
    n = torch.nested.nested_tensor([a, b], layout=torch.jagged)
    return (n.sin() * 2).values()

compiled = kintsugi.compile(fn, fullgraph=True, backend="eager")
for rows in (2, 2, 3):
    a, b = torch.ones(rows, 2), torch.zeros(3, 2)
    assert torch.equal(compiled(a, b), fn(a, b))
assert kintsugi.stats(compiled)["breaks"] == 0
"""


def test_is_one_graph():
    path = os.pathsep.join(filter(None, [str(pathlib.Path(__file__).resolve().parents[2] / "python"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
