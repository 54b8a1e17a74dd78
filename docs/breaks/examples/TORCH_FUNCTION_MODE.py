"""TORCH_FUNCTION_MODE: a mode that sees every torch call is entered inside; fixed by entering it around the call, which runs eagerly then."""

import torch

import kintsugi
from support import check


class Counting(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def f(x):
    counting = Counting()
    with counting:  # <- break
        y = x.sin().cos()
    return y + counting.calls


def fixed(x):
    return x.sin().cos() + 2


def check_around():
    compiled, counting, x = kintsugi.compile(fixed), Counting(), torch.ones(3)
    with counting:
        compiled(x)
    calls = counting.calls
    with counting:
        fixed(x)
    assert counting.calls == 2 * calls > 0
    assert kintsugi.stats(compiled)["eager_calls"] == {"a TorchFunctionMode, a TorchDispatchMode, torch.jit.trace or torch._C.DisableTorchFunctionSubclass is active": 1}


if __name__ == "__main__":
    check("TORCH_FUNCTION_MODE", f, lambda: (torch.ones(3),), fixed)
    check_around()
