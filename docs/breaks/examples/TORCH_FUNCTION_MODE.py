"""TORCH_FUNCTION_MODE: a mode that sees every torch call is active around the call, which runs eagerly then; fixed by entering it inside."""

import torch

import kintsugi
from support import check_event


class Counting(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def f(x):
    return x.sin().cos()


def fixed(x):
    counting = Counting()
    with counting:
        y = x.sin().cos()
    return y, counting.calls


def check_inside():
    compiled, x = kintsugi.compile(fixed, fullgraph=True), torch.ones(3)
    for _ in range(3):
        y, calls = compiled(x)
        assert torch.equal(y, f(x)) and calls == 2


if __name__ == "__main__":
    compiled = kintsugi.compile(f)
    with Counting() as counting:
        compiled(torch.ones(3))
    assert counting.calls == 3, counting.calls
    check_event("TORCH_FUNCTION_MODE", "fallback", f)
    check_inside()
