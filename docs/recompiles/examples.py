"""One example of each cause of a recompile, with its fix. The tests run them (tests/py/test_recompile_examples.py), and tools/recompiles.py writes
docs/recompiles.md from them, with what stock PyTorch does with the same calls.

An example is a class. `fn` is compiled and called with each list of arguments in `calls`; a comment marks the line of `fn` that depends on the value. `told` is part of the
reported cause. `better` and `better_calls` are the version that does not recompile (where one is missing, the original is used); `remedy` describes it.
"""

import contextlib

import torch
import torch.nn.functional as F


class Number:
    """A number that changes between calls. The first recording treats it as a constant, the second as an argument of the compiled code."""

    told, remedy = "scale", "pass the number as a tensor; for an int, compile with `dynamic=True`"

    def fn(x, scale):
        return x * scale  # <- matters

    calls = [(torch.ones(4), 0.5), (torch.ones(4), 0.25), (torch.ones(4), 0.125)]
    better_calls = [(x, torch.tensor(scale)) for x, scale in calls]


class Choice:
    """A string or flag that selects a branch. Each value needs a recording of its own."""

    told, remedy = "mode", "compile one function per choice"

    def fn(x, mode):
        return F.relu(x) if mode == "relu" else F.gelu(x)  # <- matters

    def better(x):
        return F.relu(x), F.gelu(x)

    calls = [(torch.ones(4), "relu"), (torch.ones(4), "gelu")]
    better_calls = [(torch.ones(4),)] * 2


class Size:
    """A size that changes between calls. The first recording treats it as fixed, the second as a dynamic dim."""

    told, remedy = "size", "call `torch._dynamo.mark_dynamic(x, 0)`, or compile with `dynamic=True`"

    def fn(x):
        return x.view(x.shape[0] * 2, -1) + 1  # <- matters

    options = {"dynamic": True}
    calls = [(torch.ones(n, 4),) for n in (3, 5, 7, 9)]


class SizeOne:
    """A size of 1 in the first call. Size 1 broadcasts where larger sizes do not, so a recording made with it serves no larger size; one made with a larger size serves 1, too."""

    told, remedy = "size", "make the first call with two rows or more"

    def fn(x, y):
        return (x + y).reshape(x.shape[0] * 4)  # <- matters

    calls = [(torch.ones(n, 4), torch.ones(4)) for n in (1, 3, 5, 1)]
    options = {"dynamic": True}
    better_calls = [(torch.ones(n, 4), torch.ones(4)) for n in (3, 1, 5, 1)]


class Dtype:
    """A dtype that changes where the code asks for it. Code that does not ask needs one recording for all dtypes."""

    told, remedy = "dtype", "convert before the call"

    def fn(x):
        return x.sin() if x.dtype == torch.float32 else x.float().sin()  # <- matters

    calls = [(torch.ones(4),), (torch.ones(4, dtype=torch.float64),)]
    better_calls = [(torch.ones(4),), (torch.ones(4, dtype=torch.float64).float(),)]


class Dims:
    """A tensor whose number of dims changes."""

    told, remedy = "x", "give every call the same number of dims (`unsqueeze`)"

    def fn(x):
        return x.sum(-1) if x.dim() == 2 else x.sum((-1, -2))  # <- matters

    calls = [(torch.ones(2, 4),), (torch.ones(3, 2, 4),)]
    better_calls = [(torch.ones(3, 2, 4),)] * 2


class Type:
    """An argument whose type changes: first a tensor, then a number."""

    told, remedy = "bias", "pass the same type in every call"

    def fn(x, bias):
        return x + bias  # <- matters

    calls = [(torch.ones(4), torch.ones(4)), (torch.ones(4), 2.0)]
    better_calls = [(torch.ones(4), torch.ones(4)), (torch.ones(4), torch.tensor(2.0))]


class Absent:
    """An argument that is sometimes None."""

    told, remedy = "mask", "pass a mask of ones instead of None"

    def fn(x, mask):
        return x if mask is None else x * mask  # <- matters

    calls = [(torch.ones(4), None), (torch.ones(4), torch.ones(4))]
    better_calls = [(torch.ones(4), torch.ones(4))] * 2


class Length:
    """A list whose length changes."""

    told, remedy = "parts", "pass one stacked tensor instead of the list"

    def fn(parts):
        return sum(part * 2 for part in parts)  # <- matters

    def better(parts):
        return (parts * 2).sum(0)

    calls = [([torch.ones(4)] * n,) for n in (2, 3, 4)]
    better_calls = [(torch.ones(3, 4),)] * 3


class Keys:
    """A dict whose keys change."""

    told, remedy = "batch", "pass the same keys in every call"

    def fn(batch):
        return sum(batch[key] for key in batch)  # <- matters

    calls = [({"a": torch.ones(4)},), ({"a": torch.ones(4), "b": torch.ones(4)},)]
    better_calls = [({"a": torch.ones(4), "b": torch.zeros(4)},)] * 2


class Function:
    """A function passed as an argument, with different code in each call."""

    told, remedy = "activation", "create the function once, outside of the calls"

    def fn(x, activation):
        return activation(x) + 1  # <- matters

    calls = [(torch.ones(4), torch.sin), (torch.ones(4), torch.cos)]
    better_calls = [(torch.ones(4), torch.sin)] * 2


class Attribute:
    """An attribute that selects a branch and differs between the objects passed."""

    class Settings:
        def __init__(self, deep):
            self.deep = deep

    told, remedy = "deep", "compile one function per setting"

    def fn(x, settings):
        return x.sin().sin() if settings.deep else x.sin()  # <- matters

    calls = [(torch.ones(4), Settings(True)), (torch.ones(4), Settings(False))]
    better_calls = [(torch.ones(4), Settings(True))] * 2


class Training:
    """A module that is called both in training and in eval mode."""

    told, remedy = "training", "none needed: both recordings are kept and used again"

    def fn(x, layer):
        return F.dropout(x, 0.0, layer.training) + 1  # <- matters

    calls = [(torch.ones(4), torch.nn.Linear(1, 1)), (torch.ones(4), torch.nn.Linear(1, 1).eval())]
    better_calls = [(torch.ones(4), torch.nn.Linear(1, 1).eval())] * 2


class Gradients:
    """`requires_grad` changes between calls, and the code asks for it."""

    told, remedy = "requires_grad", "call `detach()` first where no gradient is needed, or keep `requires_grad` the same"

    def fn(x):
        return x * 2 if x.requires_grad else x * 3  # <- matters

    calls = [(torch.ones(4),), (torch.ones(4, requires_grad=True),)]
    better_calls = [(torch.ones(4),)] * 2


class Mode:
    """Calls with and without `torch.no_grad()`, where the code asks for the mode."""

    told, remedy = "grad", "make all calls under the same mode"
    line = False  # no line of the function asks: torch.is_grad_enabled() is known when the call begins
    around = [contextlib.nullcontext, torch.no_grad]
    better_around = [torch.no_grad, torch.no_grad]

    def fn(x):
        return x * 2 if torch.is_grad_enabled() else x * 3  # <- matters

    calls = [(torch.ones(4),)] * 2


class Strides:
    """A transposed tensor after a contiguous one, where the code asks for the layout."""

    told, remedy = "stride", "call `contiguous()` first"

    def fn(x):
        return x.view(-1) + 1 if x.is_contiguous() else x + 1  # <- matters

    calls = [(torch.ones(4, 3),), (torch.ones(3, 4).t(),)]
    better_calls = [(torch.ones(4, 3),), (torch.ones(3, 4).t().contiguous(),)]


EXAMPLES = [value for value in list(vars().values()) if isinstance(value, type) and hasattr(value, "remedy")]
