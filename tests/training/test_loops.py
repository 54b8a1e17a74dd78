"""Training loops as people write them (loops/), in this process: at each step losses, gradients, weights, what hooks saw and in which order, and the state of random numbers
are eager's; compiled with graph breaks, and under fullgraph where they need none."""
import pathlib
import sys

import pytest
import torch
from launches import kintsugi

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import loops.around   # noqa: E402
import loops.functional   # noqa: E402
import loops.heads   # noqa: E402, F401
import loops.models   # noqa: E402, F401
import loops.recipes   # noqa: E402, F401
from loops.common import PROGRAMS   # noqa: E402

BOUND = 1e-4
COARSE = 3e-2   # where bfloat16 is computed with
HALF = {"amp_bf16", "amp_scaler", "bf16_weights", "muon"}
# A generator that escapes, a step that is not to be compiled, hooks that are autograd functions, a number that decides; stock breaks there, too.
BREAKS = {"amp_scaler", "lbfgs_compiled", "sparse_adam", "hooks_of_modules", "hooks_inside", "early_exit_break"}
NEWER = {"muon": "Muon"}   # of torch.optim, since 2.9


def run(name, wrap):
    torch.manual_seed(7)
    return [(seen, torch.get_rng_state()) for seen in PROGRAMS[name](wrap)]


def layout(t):
    return t.dtype, t.shape, [step for size, step in zip(t.shape, t.stride()) if size > 1]


def same_tensor(a, b, bound):
    """Measured against the largest element, or 1e-2 where all are smaller: a gradient that is zero in theory (the last bias of a triplet loss) is what terms of about
    1 leave when they cancel, some 1e-7 of either sign."""
    if layout(a) != layout(b):
        return False
    if a.dtype == torch.uint8:
        return torch.equal(a, b)
    most = a.double().nan_to_num(0, 0, 0).abs().max().item() if a.numel() else 0
    return torch.allclose(a.double(), b.double(), rtol=0, atol=bound * max(most, 1e-2), equal_nan=True)


def difference(a, b, bound, path=""):
    """Where two things differ, in words; None: nowhere."""
    if type(a) is not type(b):
        return f"{path}: {b!r} instead of {a!r}"
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{path}: {b!r} instead of {a!r}"
        return next((d for i, (x, y) in enumerate(zip(a, b)) if (d := difference(x, y, bound, f"{path}[{i}]"))), None)
    if isinstance(a, torch.Tensor):
        same = same_tensor(a, b, bound)
    elif isinstance(a, float):
        same = abs(a - b) <= bound * max(abs(a), 1e-2)
    else:
        same = a == b
    return None if same else f"{path}: {b!r} instead of {a!r}"


@pytest.mark.parametrize("fullgraph", [False, True], ids=["parts", "fullgraph"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.filterwarnings("ignore")
def test_loop(name, fullgraph):
    if fullgraph and name in BREAKS:
        pytest.skip("breaks the graph")
    if name in NEWER and not hasattr(torch.optim, NEWER[name]):
        pytest.skip(f"torch {torch.__version__} has no torch.optim.{NEWER[name]}")
    eager = run(name, lambda f: f)
    compiled = run(name, lambda f: kintsugi.compile(f, fullgraph=fullgraph))
    assert len(eager) >= 3
    assert difference(eager, compiled, COARSE if name in HALF else BOUND) is None


def test_a_difference_is_seen():
    one = [1.0, torch.ones(2, 2), ["a", None]]
    assert difference(one, [1.0, torch.ones(2, 2), ["a", None]], BOUND) is None
    for other in ([1.001, torch.ones(2, 2), ["a", None]], [1.0, torch.ones(2, 2) * 1.001, ["a", None]], [1.0, torch.ones(2, 2), ["a"]], [1.0, torch.ones(2, 2), ["a", 0.0]]):
        assert difference(one, other, BOUND) is not None
