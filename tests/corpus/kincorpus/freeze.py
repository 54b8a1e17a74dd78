"""Turns live objects into plain nested tuples that can be compared across worlds.

Identity is kept: every mutable object and tensor is numbered when first met, later meetings become ("same", n), so
two freezes are equal only if the aliasing is equal too.  Runs no user code: instance dicts and slots are read raw.
"""
import collections
import enum
import functools
import logging
import types

import torch

PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented),
         torch.dtype, torch.device, torch.layout, torch.memory_format)
SKIPPED_CLASS_NAMES = {"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__qualname__",
                       "__slots__", "__match_args__", "__dataclass_fields__", "__dataclass_params__",
                       "__abstractmethods__", "_abc_impl", "__orig_bases__", "__parameters__", "__hash__",
                       "__annotate_func__", "__annotations_cache__"}  # from 3.14 on made when somebody asks


def type_name(cls):
    return f"{cls.__module__}.{cls.__qualname__}"


class Freezer:
    """One numbering of objects: freeze everything that belongs to one observation with the same Freezer."""

    def __init__(self, world_name):
        self.world = world_name
        self.seen = {}
        self.storages = {}
        self.alive = []      # keeps ids unique while numbering

    def number(self, obj):
        known = self.seen.get(id(obj))
        if known is not None:
            return known, True
        self.seen[id(obj)] = len(self.seen)
        self.alive.append(obj)
        return len(self.seen) - 1, False

    def __call__(self, obj):
        cls = type(obj)
        if cls in PLAIN:
            return (cls.__name__, repr(obj))
        if cls is tuple or cls is slice or cls is range or cls is frozenset:
            return self.immutable(obj)
        if issubclass(type(obj), types.ModuleType):
            return ("module", obj.__name__)
        n, known = self.number(obj)
        if known:
            return ("same", n)
        return (type_name(cls), n) + self.contents(obj)

    def immutable(self, obj):
        if type(obj) is tuple:
            return ("tuple",) + tuple(self(v) for v in obj)
        if type(obj) is frozenset:
            return ("frozenset",) + self.unordered(obj)
        return (type(obj).__name__, repr(obj))

    def unordered(self, items):
        # numbering must not depend on hash order: sort by a freeze of their own, then freeze for real
        return tuple(self(v) for v in sorted(items, key=lambda v: repr(Freezer(self.world)(v))))

    def contents(self, obj):
        if issubclass(type(obj), torch.Tensor):
            return self.tensor(obj)
        if issubclass(type(obj), enum.Enum):
            return ("enum", obj._name_)
        if issubclass(type(obj), type):
            return self.klass(obj)
        if issubclass(type(obj), types.FunctionType):
            return self.function(obj)
        if issubclass(type(obj), (types.MethodType, types.BuiltinMethodType)):
            owner = obj.__self__
            return (obj.__name__, self(owner) if not isinstance(owner, types.ModuleType) else "module")
        if issubclass(type(obj), functools.partial):
            return (self(obj.func), self(obj.args), self(obj.keywords))
        if issubclass(type(obj), types.CellType):
            return self.cell(obj)
        if issubclass(type(obj), functools._lru_cache_wrapper):
            return (repr(obj.cache_info()),)
        if issubclass(type(obj), BaseException):
            return self.exception(obj)
        if issubclass(type(obj), types.GeneratorType):
            frame = obj.gi_frame
            return (obj.__qualname__, frame.f_lineno if frame else None)
        if issubclass(type(obj), logging.Logger):
            return (obj.name, obj.level)
        if issubclass(type(obj), torch.Generator):
            return (bytes(obj.get_state().numpy().tobytes()),)
        return self.container(obj) + self.attributes(obj)

    def tensor(self, t):
        with torch.no_grad(), torch._C.DisableTorchFunction():
            key = t.untyped_storage()._cdata
            storage = self.storages.setdefault(key, len(self.storages))
            self.alive.append(t.untyped_storage())
            data = torch.empty(0) if t.is_meta else t.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
            raw = data.view(torch.uint8).cpu().numpy().tobytes() if data.numel() else b""
            meta = (str(t.dtype), tuple(t.shape), tuple(t.stride()), t.storage_offset(), str(t.device),
                    ("requires_grad", t.requires_grad), ("is_leaf", t.is_leaf), ("conj", t.is_conj()),
                    ("grad_fn", t.grad_fn.name() if t.grad_fn is not None else None),
                    ("inference", t.is_inference()), ("storage", storage), ("data", str(t.dtype), raw))
            grad = t.grad if t.is_leaf and t.requires_grad else None
        extra = (("grad", self(grad)),) if grad is not None else ()
        attrs = t.__dict__
        if attrs:
            extra += tuple(("attr", k, self(v)) for k, v in attrs.items())
        return meta + extra

    def klass(self, cls):
        if cls.__module__ != self.world:
            return ()
        names = [k for k in cls.__dict__ if k not in SKIPPED_CLASS_NAMES]
        return (tuple(b.__qualname__ for b in cls.__mro__),
                tuple((k, self.class_value(cls.__dict__[k])) for k in names))

    def class_value(self, v):
        if isinstance(v, (staticmethod, classmethod)):
            return (type(v).__name__, self(v.__func__))
        if isinstance(v, (property, types.MemberDescriptorType, types.GetSetDescriptorType)):
            return (type(v).__name__,)
        return self(v)

    def function(self, f):
        if f.__module__ != self.world:
            return (f.__qualname__,)
        cells = tuple(self.cell(c) for c in f.__closure__ or ())
        return (f.__qualname__, self(f.__defaults__), self(f.__kwdefaults__), self(dict(f.__dict__)), cells)

    def cell(self, c):
        try:
            return ("cell", self(c.cell_contents))
        except ValueError:
            return ("cell", "empty")

    def exception(self, e):
        own = {k: v for k, v in e.__dict__.items()}
        return (self(e.args), self(own),
                ("cause", type(e.__cause__).__name__), ("context", type(e.__context__).__name__),
                ("suppress", e.__suppress_context__))

    def container(self, obj):
        if issubclass(type(obj), collections.OrderedDict):
            return ("items", tuple((self(k), self(v)) for k, v in collections.OrderedDict.items(obj)))
        if issubclass(type(obj), dict):
            extra = (self(obj.default_factory),) if issubclass(type(obj), collections.defaultdict) else ()
            return ("items", tuple((self(k), self(v)) for k, v in dict.items(obj))) + extra
        if issubclass(type(obj), list):
            return ("list", tuple(self(v) for v in list.__iter__(obj)))
        if issubclass(type(obj), tuple):
            return ("tuple", tuple(self(v) for v in tuple.__iter__(obj)))
        if issubclass(type(obj), (set, frozenset)):
            return ("set", self.unordered(set.__iter__(obj) if issubclass(type(obj), set) else frozenset.__iter__(obj)))
        if issubclass(type(obj), collections.deque):
            return ("deque", obj.maxlen, tuple(self(v) for v in list(obj)))
        if issubclass(type(obj), bytearray):
            return ("bytes", bytes(obj))
        for plain in (int, float, str, bytes, complex):
            if issubclass(type(obj), plain):
                return (plain.__name__, plain.__repr__(obj))
        if issubclass(type(obj), (types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))):
            return ("view", len(obj))
        return ()

    def attributes(self, obj):
        """Instance dict and slots, read without running descriptors of the user's."""
        cls = type(obj)
        out = []
        try:
            own = object.__getattribute__(obj, "__dict__")
        except AttributeError:
            own = None
        if isinstance(own, dict) and self.descends(cls):
            out += [(k, self(v)) for k, v in own.items()]
        for base in cls.__mro__:
            if base.__module__ != self.world:
                continue
            for name, member in base.__dict__.items():
                if isinstance(member, types.MemberDescriptorType):
                    try:
                        out.append((name, self(member.__get__(obj, cls))))
                    except AttributeError:
                        out.append((name, "unset"))
        return tuple(out)

    def descends(self, cls):
        if cls.__module__ == self.world or issubclass(cls, (torch.nn.Module, types.SimpleNamespace)):
            return True
        return any(base.__module__ == self.world for base in cls.__mro__)


def differences(a, b, path="", close=None):
    """Where two frozen values differ: a list of (path, left, right), the outermost place that explains each.
    close(a, b): may these two parts differ (tolerance.py)?"""
    if a == b or (close is not None and close(a, b)):
        return []
    if not (isinstance(a, tuple) and isinstance(b, tuple)) or len(a) != len(b):
        return [(path, a, b)]
    out = []
    for i, (x, y) in enumerate(zip(a, b)):
        label = x[0] if isinstance(x, tuple) and x and isinstance(x[0], str) else str(i)
        out += differences(x, y, f"{path}/{label}" if label != str(i) else f"{path}/{i}", close)
    return out
