"""What makes a compiled function be compiled once more: an example of each kind, with the remedy. The tests run them (tests/py/test_recompile_examples.py), and
tools/recompiles.py writes docs/recompiles.md from them, with what stock does with the same calls.

An example is a class: `fn` is compiled, `calls` are the lists of arguments it gets in turn; the line of `fn` that makes the value matter is marked. `told` is in what the user is told.
`better` and `better_calls` do the same without recompiling (each is taken from the example where it is missing); `remedy` says it in words.
"""

import contextlib

import torch
import torch.nn.functional as F


class Number:
    """A number that changes from call to call: constant at first, open from the second value on."""

    told, remedy = "scale", "pass the number as a tensor, or compile with dynamic=True where it is an int"

    def fn(x, scale):
        return x * scale  # <- matters

    calls = [(torch.ones(4), 0.5), (torch.ones(4), 0.25), (torch.ones(4), 0.125)]
    better_calls = [(x, torch.tensor(scale)) for x, scale in calls]


class Choice:
    """A text, or a flag, that chooses between ways: a recording for each."""

    told, remedy = "mode", "compile a function for each choice"

    def fn(x, mode):
        return F.relu(x) if mode == "relu" else F.gelu(x)  # <- matters

    def better(x):
        return F.relu(x), F.gelu(x)

    calls = [(torch.ones(4), "relu"), (torch.ones(4), "gelu")]
    better_calls = [(torch.ones(4),)] * 2


class Size:
    """A size that changes: fixed at first, open from the second size on."""

    told, remedy = "size", "torch._dynamo.mark_dynamic(x, 0), or compile with dynamic=True"

    def fn(x):
        return x.view(x.shape[0] * 2, -1) + 1  # <- matters

    options = {"dynamic": True}
    calls = [(torch.ones(n, 4),) for n in (3, 5, 7, 9)]


class SizeOne:
    """A size of 1 stretches over others where further ones do not: it has a recording of its own."""

    told, remedy = "size", "pad to two rows, or leave batches of one out of the compiled function"

    def fn(x, y):
        return (x + y).reshape(x.shape[0] * 4)  # <- matters

    calls = [(torch.ones(n, 4), torch.ones(4)) for n in (3, 5, 1)]
    better_calls = [(torch.ones(n, 4), torch.ones(4)) for n in (3, 3, 3)]


class Dtype:
    """Another dtype, where code asks for it; without that one recording serves all dtypes."""

    told, remedy = "dtype", "convert before the call"

    def fn(x):
        return x.sin() if x.dtype == torch.float32 else x.float().sin()  # <- matters

    calls = [(torch.ones(4),), (torch.ones(4, dtype=torch.float64),)]
    better_calls = [(torch.ones(4),), (torch.ones(4, dtype=torch.float64).float(),)]


class Dims:
    """Another number of dims."""

    told, remedy = "x", "give all calls as many dims (unsqueeze)"

    def fn(x):
        return x.sum(-1) if x.dim() == 2 else x.sum((-1, -2))  # <- matters

    calls = [(torch.ones(2, 4),), (torch.ones(3, 2, 4),)]
    better_calls = [(torch.ones(3, 2, 4),)] * 2


class Type:
    """Another type: a tensor once, a number then."""

    told, remedy = "bias", "pass the same type in every call"

    def fn(x, bias):
        return x + bias  # <- matters

    calls = [(torch.ones(4), torch.ones(4)), (torch.ones(4), 2.0)]
    better_calls = [(torch.ones(4), torch.ones(4)), (torch.ones(4), torch.tensor(2.0))]


class Absent:
    """An argument that is sometimes None."""

    told, remedy = "mask", "pass a mask of ones where there is none"

    def fn(x, mask):
        return x if mask is None else x * mask  # <- matters

    calls = [(torch.ones(4), None), (torch.ones(4), torch.ones(4))]
    better_calls = [(torch.ones(4), torch.ones(4))] * 2


class Length:
    """A list of another length."""

    told, remedy = "parts", "pass one tensor in place of the list"

    def fn(parts):
        return sum(part * 2 for part in parts)  # <- matters

    def better(parts):
        return (parts * 2).sum(0)

    calls = [([torch.ones(4)] * n,) for n in (2, 3, 4)]
    better_calls = [(torch.ones(3, 4),)] * 3


class Keys:
    """A dict with other keys."""

    told, remedy = "batch", "give all calls the same keys"

    def fn(batch):
        return sum(batch[key] for key in batch)  # <- matters

    calls = [({"a": torch.ones(4)},), ({"a": torch.ones(4), "b": torch.ones(4)},)]
    better_calls = [({"a": torch.ones(4), "b": torch.zeros(4)},)] * 2


class Function:
    """A function made anew for each call, with other code."""

    told, remedy = "activation", "make the function once, outside of the calls"

    def fn(x, activation):
        return activation(x) + 1  # <- matters

    calls = [(torch.ones(4), torch.sin), (torch.ones(4), torch.cos)]
    better_calls = [(torch.ones(4), torch.sin)] * 2


class Attribute:
    """A setting of an object that code decides on."""

    class Settings:
        def __init__(self, deep):
            self.deep = deep

    told, remedy = "deep", "a compiled function for each setting"

    def fn(x, settings):
        return x.sin().sin() if settings.deep else x.sin()  # <- matters

    calls = [(torch.ones(4), Settings(True)), (torch.ones(4), Settings(False))]
    better_calls = [(torch.ones(4), Settings(True))] * 2


class Training:
    """Model.train() and Model.eval() in turns."""

    told, remedy = "training", "two recordings are what is wanted here: each is used again"

    def fn(x, layer):
        return F.dropout(x, 0.0, layer.training) + 1  # <- matters

    calls = [(torch.ones(4), torch.nn.Linear(1, 1)), (torch.ones(4), torch.nn.Linear(1, 1).eval())]
    better_calls = [(torch.ones(4), torch.nn.Linear(1, 1).eval())] * 2


class Gradients:
    """A tensor that requires gradients once, and does not then, where code asks for it."""

    told, remedy = "requires_grad", "detach() before the call where no gradient is needed, or keep requires_grad the same"

    def fn(x):
        return x * 2 if x.requires_grad else x * 3  # <- matters

    calls = [(torch.ones(4),), (torch.ones(4, requires_grad=True),)]
    better_calls = [(torch.ones(4),)] * 2


class Mode:
    """Under torch.no_grad() once, and without it then, where code asks for it."""

    told, remedy = "grad", "call it under one mode"
    line = False  # no line of the function asks: torch.is_grad_enabled() is known when the call begins
    around = [contextlib.nullcontext, torch.no_grad]
    better_around = [torch.no_grad, torch.no_grad]

    def fn(x):
        return x * 2 if torch.is_grad_enabled() else x * 3  # <- matters

    calls = [(torch.ones(4),)] * 2


class Strides:
    """A transposed tensor where a contiguous one was."""

    told, remedy = "stride", "contiguous() before the call"

    def fn(x):
        return x.view(-1) + 1 if x.is_contiguous() else x + 1  # <- matters

    calls = [(torch.ones(4, 3),), (torch.ones(3, 4).t(),)]
    better_calls = [(torch.ones(4, 3),), (torch.ones(3, 4).t().contiguous(),)]


EXAMPLES = [value for value in list(vars().values()) if isinstance(value, type) and hasattr(value, "remedy")]
