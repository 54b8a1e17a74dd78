"""Frozen values that may differ in the last digits: results of compiled kernels, which sum in another order than eager.

Where a graph gives gradients, one node of autograd stands for all of eager's. Floats are close, in tensors, in Python objects and in printed text; all else (integers, bools, strides, aliasing, generators of
random numbers, exceptions) has to be equal.
"""
import math
import re

import torch

# dtype: relative to the largest number of the tensor, for each element. What is in float64 may have been computed in float32.
_BOUNDS = {"torch.float64": 1e-5, "torch.float32": 1e-4, "torch.float16": 1e-2, "torch.bfloat16": 2e-2,
           "torch.complex64": 1e-4, "torch.complex128": 1e-5}
_OWN_NODE = "CompiledFunctionBackward"  # one node for what a compiled graph does
_PYTHON_BOUND = 1e-4   # a Python float may come from a tensor of any dtype
_NODE = re.compile(r"grad_fn=<\w+>")
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")


def _close_floats(a, b, bound=_PYTHON_BOUND):
    return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= bound * max(1.0, abs(a), abs(b))


def _close_text(a, b):
    """The same words between numbers; numbers with a point or an exponent may differ a little, others not."""
    a, b = _NODE.sub("grad_fn=<a node>", a), _NODE.sub("grad_fn=<a node>", b)
    if _NUMBER.split(a) != _NUMBER.split(b):
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(x == y or (not (x + y).isdigit() and _close_floats(float(x), float(y))) for x, y in pairs)


def _close_data(a, b):
    (_, dtype, x), (_, other, y) = a, b
    if dtype != other or dtype not in _BOUNDS or len(x) != len(y):
        return False
    kind = getattr(torch, dtype.removeprefix("torch."))
    x, y = (torch.frombuffer(bytearray(raw), dtype=kind) for raw in (x, y))
    finite = x[torch.isfinite(x)].abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    bound = _BOUNDS[dtype]
    return torch.allclose(x, y, rtol=bound, atol=bound * scale, equal_nan=True)


def close(a, b):
    """Is one frozen value (freeze.py) what the other is, but for last digits? Asked of each part where two differ."""
    if isinstance(a, str) and isinstance(b, str):
        return _close_text(a, b)
    if not (isinstance(a, tuple) and isinstance(b, tuple)) or len(a) != len(b) or not a or a[0] != b[0]:
        return False
    if a[0] == "data" and len(a) == 3:
        return _close_data(a, b)
    if a[0] == "grad_fn":
        return None not in (a[1], b[1]) and _OWN_NODE in (a[1], b[1])
    return a[0] == "float" and len(a) == 2 and _close_floats(float(a[1]), float(b[1]))
