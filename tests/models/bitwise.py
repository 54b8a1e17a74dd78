"""Exact comparison of results: two structures are the same only if every tensor is, bit for bit, and sharing agrees.

`difference(a, b)` returns None, or one line that says where and how the structures first differ. Values are walked in parallel:
containers, dataclasses and plain objects (such as caches) by their parts. Tensors must agree in type, dtype, shape,
strides, requires_grad and bytes, so that NaN equals the same NaN and -0.0 is not 0.0. An object met twice on one side
must be met at the same two places on the other. Kernels sum in another order than eager: with `close` the elements of
floating-point tensors, and Python floats, may differ by what it accepts; all else is as exact.
"""
import struct
import types

import torch

ATOMS = (int, str, bytes, bool, type(None), type(...), type(NotImplemented), torch.dtype, torch.device, torch.layout,
         torch.memory_format)
BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.nn.Module)


def tensor_bytes(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)


def nearly(a, b):
    """Are two tensors of one dtype the same but for last digits, as seen from their largest element?"""
    bound = {torch.float16: 1e-2, torch.bfloat16: 2e-2}.get(a.dtype, 1e-4)
    finite = a[torch.isfinite(a)].abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return (a.is_floating_point() or a.is_complex()) and torch.allclose(a, b, rtol=bound, atol=bound * scale, equal_nan=True)


def tensor_difference(a, b, close=None):
    if type(a) is not type(b):
        return f"{type(a).__name__} against {type(b).__name__}"
    for what in ("dtype", "device", "layout", "shape", "requires_grad", "is_leaf"):
        x, y = getattr(a, what), getattr(b, what)
        if x != y:
            return f"{what} {x} against {y}"
    if a.layout != torch.strided:
        return None if torch.equal(a.to_dense(), b.to_dense()) else "different values"
    if a.stride() != b.stride():
        return f"strides {a.stride()} against {b.stride()}"
    x, y = tensor_bytes(a), tensor_bytes(b)
    if torch.equal(x, y) or (close is not None and close(a.detach(), b.detach())):
        return None
    unequal = (x != y).reshape(a.numel(), -1).any(1)
    first = int(unequal.nonzero()[0])
    values = a.detach().reshape(-1)[first].item(), b.detach().reshape(-1)[first].item()
    return f"{int(unequal.sum())} of {a.numel()} elements differ, the first is number {first}: {values[0]!r} against {values[1]!r}"


def parts(value):
    """The named parts of a container or object, in order; None for a value that has none we know."""
    if isinstance(value, dict):
        named = [(f"[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        named = [(f"[{i}]", item) for i, item in enumerate(value)]
    elif isinstance(value, (set, frozenset)):
        named = [(f"{{{key!r}}}", None) for key in sorted(value, key=repr)]
    elif hasattr(value, "__dict__"):
        named = []
    else:
        return None
    if isinstance(value, torch.Tensor) or not hasattr(value, "__dict__"):
        return named
    return named + [(f".{name}", item) for name, item in vars(value).items()]


def unlike_names(a, b, most=4):
    missing, extra = [n for n in a if n not in b], [n for n in b if n not in a]
    if not missing and not extra:
        return "the parts come in another order"
    said = [f"{what} {', '.join(names[:most])}{' ...' if len(names) > most else ''}"
            for what, names in (("misses", missing), ("has in addition", extra)) if names]
    return " and ".join(said)


class Walk:
    def __init__(self, close=None):
        self.close = close
        self.seen_a, self.seen_b, self.keep = {}, {}, []

    def sharing(self, a, b):
        """Have these objects been met? (True, message or None) when the walk need not go in again."""
        at_a, at_b = self.seen_a.get(id(a)), self.seen_b.get(id(b))
        if at_a is None and at_b is None:
            number = len(self.seen_a)
            self.seen_a[id(a)] = self.seen_b[id(b)] = number
            self.keep += [a, b]
            return False, None
        return True, None if at_a == at_b else "objects are shared differently"

    def compare(self, a, b, path):
        if isinstance(a, ATOMS) or isinstance(b, ATOMS):
            same = type(a) is type(b) and a == b
            return None if same else f"{path}: {a!r} against {b!r}"
        if isinstance(a, (float, complex)):
            return self.numbers(a, b, path)
        if isinstance(a, BY_NAME):
            same = type(a) is type(b)
            return None if same else f"{path}: {type(a).__name__} against {type(b).__name__}"
        known, message = self.sharing(a, b) if a != () else (False, None)
        if known:
            return f"{path}: {message}" if message else None
        if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
            message = tensor_difference(a, b, self.close)
            return f"{path}: {message}" if message else None
        return self.containers(a, b, path)

    def numbers(self, a, b, path):
        if type(a) is not type(b):
            return f"{path}: {a!r} against {b!r}"
        bits = [struct.pack("dd", complex(v).real, complex(v).imag) for v in (a, b)]
        same = bits[0] == bits[1] or (self.close is not None and self.close(torch.tensor(a), torch.tensor(b)))
        return None if same else f"{path}: {a!r} against {b!r}"

    def containers(self, a, b, path):
        if type(a) is not type(b):
            return f"{path}: {type(a).__name__} against {type(b).__name__}"
        parts_a, parts_b = parts(a), parts(b)
        if parts_a is None:
            return None if a == b else f"{path}: {a!r} against {b!r}"
        names = [name for name, _ in parts_a], [name for name, _ in parts_b]
        if names[0] != names[1]:
            return f"{path}: {unlike_names(*names)}"
        for (name, x), (_, y) in zip(parts_a, parts_b):
            message = self.compare(x, y, path + name)
            if message:
                return message
        return None


def difference(a, b, name="result", close=None):
    return Walk(close).compare(a, b, name)


def module_state(module, without=()):
    """What a call may change on a module: parameters, gradients, buffers, and plain attributes that are numbers."""
    state = {}
    for name, parameter in module.named_parameters():
        state[name] = parameter.detach()
        state[name + ".grad"] = parameter.grad
    state.update(module.named_buffers())
    for name, child in module.named_modules():
        state.update({f"{name}.{key}": value for key, value in vars(child).items()
                      if isinstance(value, (int, float, str, bool))})
    for name in without:
        state.pop(name, None)
    return state


def count_tensors(value):
    """How many tensors the structure holds: a comparison that sees none would prove nothing."""
    seen, total, todo = set(), 0, [value]
    while todo:
        item = todo.pop()
        if isinstance(item, ATOMS + BY_NAME) or id(item) in seen:
            continue
        seen.add(id(item))
        total += isinstance(item, torch.Tensor)
        if not isinstance(item, torch.Tensor):
            todo += [part for _, part in parts(item) or ()]
    return total
