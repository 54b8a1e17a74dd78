"""Small changes of the state a call can see: the arguments, the globals that its code names, closures, defaults, and
the attributes and items behind them. A guard may hold or not after a change; when it holds, the oracle compares.

A change is made at one place and undone after the call. Both worlds list the places in the same order.
"""
import builtins
import collections
import copy
import types

import torch

DEPTH = 4


class Text(str):
    pass


class Number(int):
    pass


class Real(float):
    pass


class Row(list):
    pass


class Table(dict):
    pass


class Place:
    """Somewhere a value is stored: can be assigned and set back."""

    def __init__(self, name, value, assign):
        self.name, self.value, self.assign = name, value, assign


def set_item(owner, key):
    return lambda value: owner.__setitem__(key, value)


def codes_in(code):
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from codes_in(c)


class Walk:
    """Lists places, each object once."""

    def __init__(self, world):
        self.world, self.seen, self.places, self.shadows = world, set(), [], []

    def own(self, cls):
        return getattr(cls, "__module__", None) == self.world.__name__

    def add(self, name, value, assign, depth):
        self.places.append(Place(name, value, assign))
        self.inside(name, value, depth)

    def inside(self, name, value, depth):
        if depth > DEPTH or id(value) in self.seen:
            return
        if type(value) not in (int, float, str, bool, type(None)):
            self.seen.add(id(value))
        if type(value) in (list, collections.deque):
            for i, item in enumerate(list(value)[:4]):
                self.add(f"{name}[{i}]", item, set_item(value, i), depth + 1)
        elif type(value) in (dict, collections.OrderedDict, collections.defaultdict):
            for k, item in list(value.items())[:6]:
                self.add(f"{name}[{k!r}]" if type(k) is str else f"{name}[..]", item, set_item(value, k), depth + 1)
        elif type(value) is types.FunctionType:
            self.function(name, value, depth)
        elif isinstance(value, types.MethodType):
            self.inside(name + ".__func__", value.__func__, depth + 1)
            self.inside(name + ".__self__", value.__self__, depth + 1)
        elif isinstance(value, type):
            if self.own(value):
                self.klass(name, value, depth)
        elif self.own(type(value)) or isinstance(value, (torch.nn.Module, types.SimpleNamespace)):
            self.instance(name, value, depth)

    def instance(self, name, value, depth):
        own = getattr(value, "__dict__", None)
        for k, item in list(own.items())[:12] if type(own) is dict else ():
            if type(k) is str and not (k.startswith("_") and isinstance(value, torch.nn.Module) and not item):
                self.add(f"{name}.{k}", item, set_item(own, k), depth + 1)
        self.inside(f"type({name})", type(value), depth)

    def klass(self, name, cls, depth):
        for k, item in list(vars(cls).items()):
            if k.startswith("__") and k not in ("__init__", "__call__", "__getattr__", "__len__", "__bool__", "__eq__"):
                continue
            if type(item) in (types.GetSetDescriptorType, types.MemberDescriptorType):
                continue
            self.add(f"{name}.{k}", item, lambda v, k=k: setattr(cls, k, v), depth + 1)
            if isinstance(item, property) and item.fget is not None:
                self.inside(f"{name}.{k}.fget", item.fget, depth + 1)

    def function(self, name, fn, depth):
        if fn.__globals__ is not vars(self.world):
            return
        for i, v in enumerate(fn.__defaults__ or ()):
            def assign(new, i=i):
                fn.__defaults__ = fn.__defaults__[:i] + (new,) + fn.__defaults__[i + 1:]
            self.add(f"{name}.__defaults__[{i}]", v, assign, depth + 1)
        for k, v in (fn.__kwdefaults__ or {}).items():
            self.add(f"{name}.__kwdefaults__[{k}]", v, set_item(fn.__kwdefaults__, k), depth + 1)
        for cell, k in zip(fn.__closure__ or (), fn.__code__.co_freevars):
            try:
                v = cell.cell_contents
            except ValueError:
                continue
            self.add(f"{name}:{k}", v, lambda new, cell=cell: setattr(cell, "cell_contents", new), depth + 1)
        names = dict.fromkeys(n for code in codes_in(fn.__code__) for n in code.co_names)
        for n in names:
            if n in fn.__globals__:
                if (n, "global") not in self.seen:
                    self.seen.add((n, "global"))
                    self.add(n, fn.__globals__[n], set_item(fn.__globals__, n), depth + 1)
            elif hasattr(builtins, n) and n not in self.shadows:
                self.shadows.append(n)


# -- changes of a value: name -> function that gives another value, or None where it does not apply -------------------


def other_tensor(t, data):
    if type(t) is torch.nn.Parameter:
        return torch.nn.Parameter(data, requires_grad=t.requires_grad)
    if t.requires_grad and data.dtype.is_floating_point:
        data.requires_grad_()
    return data


def tensor_changes(t):
    d = t.detach()
    if d.is_sparse or d.is_quantized or d.layout != torch.strided:
        return
    if d.dtype == torch.bool:
        yield "data", lambda: other_tensor(t, ~d)
    elif d.dtype.is_floating_point or d.dtype.is_complex:
        yield "data", lambda: other_tensor(t, d * -1.5 + 0.25)
        yield "dtype", lambda: other_tensor(t, d.to(torch.float64 if d.dtype == torch.float32 else torch.float32))
        yield "grad", lambda: d.clone().requires_grad_(not t.requires_grad)
    else:
        yield "data", lambda: other_tensor(t, d + 1)
    yield "copy", lambda: other_tensor(t, d.clone())
    if d.dim():
        yield "longer", lambda: other_tensor(t, torch.cat([d, d]))
        yield "shorter", lambda: other_tensor(t, d[:1].clone())
        yield "unsqueezed", lambda: other_tensor(t, d.unsqueeze(0).clone())
    if d.dim() >= 2:
        yield "strides", lambda: other_tensor(t, d.transpose(0, 1).contiguous().transpose(0, 1))
        yield "wider", lambda: other_tensor(t, torch.cat([d, d], -1))
    if type(t) is torch.nn.Parameter:
        yield "plain tensor", lambda: d.clone()
    elif type(t) is torch.Tensor and t.is_leaf:
        yield "parameter", lambda: torch.nn.Parameter(d.clone(), requires_grad=t.requires_grad)


def number_changes(v):
    if type(v) is bool:
        yield "not", lambda: not v
        yield "int", lambda: int(v)
        return
    yield "more", lambda: v + 1
    yield "negative", lambda: -v
    if type(v) is int:
        yield "float", lambda: float(v)
        yield "subclass", lambda: Number(v)
        if v in (0, 1):
            yield "bool", lambda: bool(v)
    else:
        yield "subclass", lambda: Real(v)
        yield "nan", lambda: float("nan")


def list_changes(v):
    yield "copy", lambda: list(v)
    yield "reversed", lambda: v[::-1]
    yield "longer", lambda: v + v[-1:]
    yield "shorter", lambda: v[:-1]
    yield "tuple", lambda: tuple(v)
    yield "subclass", lambda: Row(v)


def tuple_changes(v):
    yield "copy", lambda: tuple(list(v))
    yield "reversed", lambda: v[::-1]
    yield "longer", lambda: v + v[-1:]
    yield "shorter", lambda: v[:-1]
    yield "list", lambda: list(v)


def dict_changes(v):
    yield "copy", lambda: dict(v)
    yield "reversed", lambda: dict(reversed(list(v.items())))
    yield "one more", lambda: {**v, "unrelated": 1}
    yield "one less", lambda: dict(list(v.items())[:-1])
    yield "first one less", lambda: dict(list(v.items())[1:])
    yield "subclass", lambda: Table(v)
    yield "ordered", lambda: collections.OrderedDict(v)


def set_changes(v):
    yield "copy", lambda: set(list(v))
    yield "one more", lambda: v | {"unrelated"}
    yield "one less", lambda: set(sorted(v, key=repr)[1:])
    yield "frozen", lambda: frozenset(v)


def function_changes(f):
    yield "copy", lambda: types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
    yield "wrapped", lambda: lambda *args, **kwargs: f(*args, **kwargs)


def instance_changes(v):
    def subclass():
        new = copy.copy(v)
        new.__class__ = type(type(v).__name__, (type(v),), {"__module__": type(v).__module__})
        return new

    def more():
        new = copy.copy(v)
        vars(new)["unrelated"] = 1
        return new

    def reordered():
        new = copy.copy(v)
        items = list(vars(new).items())
        vars(new).clear()
        vars(new).update(reversed(items))
        return new
    yield "copy", lambda: copy.copy(v)
    yield "subclass", subclass
    yield "one attribute more", more
    yield "attributes reordered", reordered


def changes_of(value, walk):
    cls = type(value)
    if cls in (torch.Tensor, torch.nn.Parameter):
        return list(tensor_changes(value))
    if cls in (int, float, bool):
        return list(number_changes(value))
    if cls is str:
        return [("other", lambda: value + "_"), ("copy", lambda: "".join(list(value))), ("subclass", lambda: Text(value))]
    if value is None:
        return [("zero", lambda: 0)]
    for kind, made in ((list, list_changes), (tuple, tuple_changes), (dict, dict_changes), (set, set_changes),
                       (types.FunctionType, function_changes)):
        if cls is kind:
            return list(made(value))
    if not isinstance(value, type) and (walk.own(cls) or isinstance(value, (types.SimpleNamespace, torch.nn.Module))):
        return list(instance_changes(value))
    return []


class Change:
    """One change: apply() returns how to undo it."""

    def __init__(self, name, apply):
        self.name, self.apply = name, apply


def at_place(place, name, make):
    def apply():
        place.assign(make())
        return lambda: place.assign(place.value)
    return Change(f"{place.name}: {name}", apply)


def shadow(world, name):
    def apply():
        original = getattr(builtins, name)
        vars(world)[name] = (lambda *args, **kwargs: original(*args, **kwargs)) if callable(original) else original
        return lambda: vars(world).pop(name, None)
    return Change(f"a global named {name}", apply)


def exchanges(places):
    """Two tensors, or two values of one class, exchanged or made the same object."""
    for i in range(len(places)):
        for j in range(i + 1, len(places)):
            a, b = places[i], places[j]
            if type(a.value) is not type(b.value) or a.value is b.value:
                continue

            def swap(a=a, b=b):
                a.assign(b.value), b.assign(a.value)
                return lambda: (a.assign(a.value), b.assign(b.value))

            def alias(a=a, b=b):
                b.assign(a.value)
                return lambda: b.assign(b.value)
            yield Change(f"{a.name} and {b.name} exchanged", swap)
            yield Change(f"{b.name} is {a.name}", alias)


def all_changes(world, fn, args, kwargs):
    """Every change for a call of fn(*args, **kwargs); args is a list that the changes write to."""
    walk = Walk(world)
    for i, value in enumerate(args):
        walk.add(f"args[{i}]", value, set_item(args, i), 1)
    for k, value in kwargs.items():
        walk.add(k, value, set_item(kwargs, k), 1)
    top = list(walk.places)
    walk.inside("f", fn, 0)
    out = [at_place(p, name, make) for p in walk.places for name, make in changes_of(p.value, walk)]
    out += exchanges([p for p in top if type(p.value) not in (int, float, str, bool, type(None))][:5])
    return out + [shadow(world, n) for n in walk.shadows]
