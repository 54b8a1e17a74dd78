"""What the first compiled step of a process costs beside compiling: PyTorch's meta kernels in Python import sympy when they are first called, half a second or more, so
what the operators of common layers give is known without, and the others are asked in a way that imports neither."""
import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
import torch.nn.functional as F
from torch import nn
import kintsugi
from kintsugi import _meta
from kintsugi._api import engine_of
from kintsugi import _kintsugi as engine

class Parts(nn.Module):
    def forward(self, x):
        ends = x[0].sum() + x[:, 1:].sum() + x[..., ::2].flip(0).sum() + x[-1, 0]
        labels = torch.zeros(4, 8).scatter_(1, torch.tensor([[0], [1], [2], [3]]), 1.0)
        return ends + F.normalize(x).sum() + (x * labels).masked_fill_(x > 0, 0.0).sum() + F.logsigmoid(x).sum()

MODELS = {
    "classifier": (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)),
                   torch.randn(4, 8), lambda y: F.cross_entropy(y, torch.tensor([0, 1, 2, 3]))),
    "images": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 8), nn.Hardtanh(), nn.BatchNorm1d(8), nn.Linear(8, 4)),
               torch.randn(4, 3, 8, 8), lambda y: F.cross_entropy(y, torch.tensor([0, 1, 2, 3]))),
    "likelihood": (nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.LeakyReLU(0.1), nn.LayerNorm(16), nn.Linear(16, 4), nn.LogSoftmax(-1)),
                   torch.randn(6, 8), lambda y: F.nll_loss(y, torch.tensor([0, 1, 2, 3, 0, -100]))),
    "parts": (nn.Sequential(nn.Linear(8, 8), Parts()), torch.randn(4, 8), lambda y: y),
    "sums": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Conv2d(4, 2, 1)), torch.randn(2, 3, 10, 10), lambda y: y.sum()),
    "asked": (nn.Sequential(nn.Linear(8, 8), nn.CELU(), nn.Unflatten(1, (2, 2, 2)), nn.ConvTranspose2d(2, 2, 2), nn.Dropout(0.1), nn.AdaptiveMaxPool2d(2), nn.Flatten()),
              torch.randn(4, 8), lambda y: F.soft_margin_loss(torch.cdist(y, y.detach() + 1), torch.ones(4, 4)))}
model, x, loss = MODELS[sys.argv[1]]
engine.set_option("trials", 0)
asked, call = [], _meta.call
_meta.call = lambda op, *rest: asked.append(str(op)) or call(op, *rest)
step = kintsugi.compile(lambda x: loss(model(x)))
for _ in range(4):
    step(x).backward()
print(any(v["runs"] > 0 for entry in engine_of(step).entries() for s in engine.kernels(entry) for v in s["versions"]),
      [name for name in ("sympy", "torch._dynamo") if name in sys.modules], "asks" if asked else "asks nothing", asked)
"""


@pytest.mark.compiled_gradients
@pytest.mark.parametrize("model", ["classifier", "images", "likelihood", "parts", "sums", "asked"])
def test_a_first_step_imports_neither_sympy_nor_dynamo(model):
    done = subprocess.run([sys.executable, "-c", PROGRAM, model], capture_output=True, text=True, timeout=300, check=False,
                          env=os.environ | {"OMP_NUM_THREADS": "1", "KINTSUGI_KERNELS": "1"})
    expected = "True [] " + ("asks [" if model == "asked" else "asks nothing [")
    assert done.stdout.startswith(expected), done.stdout + done.stderr[-2000:]
