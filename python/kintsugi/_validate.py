"""What counts as the same result: compiled code against the steps that it replaces. The engine asks when validation is on.

Sums in another order differ in the last digits. Both are compared relative to the largest element, with a tolerance for each dtype; where they differ
by more, and the steps could be run in float64, that is the referee: compiled code may be as far from it as eager is, and twice that.
"""

import torch

# Share of the largest element, by dtype; what is no float has to be equal.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.complex64: 1e-4, torch.complex128: 1e-10}


def keep(tensors):
    """Copies."""
    with torch.no_grad():
        return [tensor.detach().clone() for tensor in tensors]


def widen(inputs):
    """Inputs as float64; None: there is nothing to widen."""
    if not any(isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64 for value in inputs):
        return None
    with torch.no_grad():
        return [value.detach().double() if isinstance(value, torch.Tensor) and value.is_floating_point() else
                value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs]


def disturb(inputs):
    """The tensors as a list, each float and complex one another in its last digits: up to six units of rounding, not the same for neighbours."""
    with torch.no_grad():
        return [_disturbed(tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor for tensor in inputs]


def _sevens(tensor):
    """0 to 6 in turns, in the tensor's shape: neighbours differ."""
    return (torch.arange(tensor.numel()) % 7).reshape(tensor.shape)


def _disturbed(tensor):
    factors = 1 + (_sevens(tensor) - 3).double() * (2 * torch.finfo(tensor.dtype).eps)
    return torch.empty_like(tensor).copy_(tensor.detach() * factors).requires_grad_(tensor.requires_grad)


def with_gradients(outputs, inputs):
    """The outputs, and behind them what flows back to each input. Programs see nothing of it, so hooks must not either."""
    results = [value for value in outputs if isinstance(value, torch.Tensor) and value.grad_fn is not None]
    wanted = [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]
    if not results or not wanted or any(tensor._backward_hooks for tensor in results + wanted):
        return outputs
    with torch.no_grad():
        tangents = [(_sevens(tensor) - 2.5).to(tensor.dtype) for tensor in results]
    return outputs + list(torch.autograd.grad(results, wanted, tangents, retain_graph=True, allow_unused=True))


def compare(eager, compiled, eager_written, compiled_written, referee):
    """None, or in words what differs."""
    with torch.no_grad():
        for number, (a, b) in enumerate(zip(eager, compiled), 1):
            truth = referee[number - 1] if referee is not None and number <= len(referee) else None
            text = difference(a, b, truth)
            if text:
                return f"output {number} of {len(eager)} {text}"
        for a, b in zip(eager_written, compiled_written):
            text = difference(a, b, None)
            if text:
                return f"an input that is written to {text}"
    return None


def difference(a, b, truth=None):
    """"" when eager's `a` and compiled `b` are the same as far as they can be, else how they differ."""
    if type(a) is float and type(b) is float and abs(a - b) <= TOLERANCE[torch.float32] * abs(a):
        return ""  # a number of Python's that a tensor gave
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return "" if type(a) is type(b) and (a == b or a != a and b != b) else f"is {b!r}, not {a!r}"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"is {_kind(b)}, not {_kind(a)}"
    if a.layout is not torch.strided or a.numel() == 0:
        return ""
    tolerance = TOLERANCE.get(a.dtype)
    if tolerance is None:
        wrong = int((a != b).sum())
        return f"differs in {wrong} of {a.numel()} elements ({_kind(a)})" if wrong else ""
    off, finite = _distance(a, b)
    if not finite:
        return f"has NaNs or infinities where eager's has none, or the other way round ({_kind(a)})"
    if off <= tolerance or _referee_says_the_same(a, b, truth, tolerance):
        return ""
    return f"differs by {off:.2g} of its largest element ({_kind(a)})"


def _referee_says_the_same(a, b, truth, tolerance):
    if not isinstance(truth, torch.Tensor) or truth.dtype != torch.float64 or truth.shape != a.shape:
        return False
    (eager, ok), (ours, also) = _distance(truth, a.double()), _distance(truth, b.double())
    return ok and also and ours <= 2 * eager + tolerance / 10


def _distance(a, b):
    """(largest difference relative to the largest finite element, are the same elements finite and the others equal?)."""
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.detach().to(wide), b.detach().to(wide)
    here = a.isfinite() & b.isfinite()
    same = bool((here | (a == b) | (a.isnan() & b.isnan())).all())
    if not bool(here.any()):
        return 0.0, same
    a, b = a[here], b[here]
    scale = a.abs().max().item()
    return (a - b).abs().max().item() / scale if scale else b.abs().max().item(), same


def _kind(tensor):
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
