"""What operators without a shape rule return is learned without importing torch._dynamo (kintsugi/_meta.py)."""

import subprocess
import sys

PROGRAM = """
import sys
import torch
from kintsugi import _meta

def calls():
    x = torch.rand(3, 4, device="meta")
    return [torch.logit(x).shape, torch.addr(x, x[:, 0], x[0]).shape, torch.special.entr(x).shape, (x + 1).shape]

_meta.prepare()
first = calls()
assert "torch._dynamo" not in sys.modules
import torch._dynamo
assert calls() == first == [torch.Size([3, 4])] * 4
wrapper = next(f for f in _meta._wrappers() if f.__name__ == "logit")
fn = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__))["fn"].cell_contents
assert fn.__dynamo_disable.__module__.startswith("torch._dynamo")
print("done")
"""


def test_meta_kernels_do_not_import_dynamo():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "done\n", done.stderr
