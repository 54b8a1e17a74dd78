"""Compiled code meets tensors of kinds that it was not made for: nothing is read of what they lack."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "diff"))

import fuzz_tensor_kinds as fuzz  # noqa: E402
from launches import kintsugi  # noqa: E402
from tensor_kinds import KINDS  # noqa: E402

LAYOUTS = [name for name in sorted(KINDS) if name.startswith(("sparse", "nested", "mkldnn", "quantised", "meta"))]


def programs(text):
    """Calls with one kind and then another, on the same recording: its guards ask nothing of the layout."""
    for name in LAYOUTS:
        for calls in ([("plain", "plain", 0)] + [(name, "plain", 3)] * 2, [(name, "plain", 0)] * 3 + [("plain", "plain", 1)]):
            yield fuzz.Program(1, [(f"v = {text}", True)], calls, "plain")


def check(text):
    fuzz.warm_up()
    all = list(programs(text))
    with kintsugi.config.patch(kernels=True):
        failures = [f"{p.calls}: {wrong}" for p, (wrong, _) in zip(all, fuzz.check_apart(all)) if wrong]
    assert not failures, "\n".join(failures)


def test_a_view_of_any_layout():
    check("x.as_subclass(torch.Tensor)")


def test_arithmetic_on_any_layout():
    check("x.resolve_neg()")
