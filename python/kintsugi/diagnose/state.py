"""What calls of a function find and leave besides their arguments and results, so that two calls can start from the same: what its code reaches through
closures, globals and attributes, and the random number generators.
"""

import collections
import contextlib
import random
import sys
import sysconfig
import types

import torch

MOST_OBJECTS = 200_000
KEEP_BYTES = 1 << 30  # of tensors that are copied; what lies beyond is not put back

_LIBRARIES = tuple(path for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} if path)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type, types.BuiltinFunctionType, types.CodeType, torch.dtype, torch.device, torch.Size)
_CONTAINERS = (dict, list, set, collections.deque, bytearray)


def seed(value=0):
    """All random number generators that a program commonly uses."""
    torch.manual_seed(value)
    random.seed(value)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(value)


@contextlib.contextmanager
def unchanged(*roots):
    """Whatever is called within: afterwards all is as before."""
    kept = State(*roots)
    try:
        yield kept
    finally:
        kept.restore()


class State:
    """What is reached from `roots` (a function, its arguments) as it is now."""

    def __init__(self, *roots):
        self.roots, self._undo, self._bytes = roots, [], 0
        self.paths = {}  # id of a tensor: (how the program calls it, the tensor)
        self._seen = {}  # id: object, which has to stay alive
        self._keep_generators()
        waiting, keys = collections.deque(("", root) for root in roots), collections.deque()
        while (waiting or keys) and len(self._seen) < MOST_OBJECTS:
            path, value = (waiting or keys).popleft()
            if isinstance(value, _PLAIN) or id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            for name, inner in self._keep(path, value):
                (keys if name is None else waiting).append((_join(path, name or ""), inner))

    def restore(self):
        with torch.no_grad():
            for undo in self._undo:
                undo()

    def tensors(self):
        """{how the program calls it: a copy} of what is reached now, gradients as well."""
        found = {}
        for path, value in State(*self.roots).paths.values():
            found[path] = value.detach().clone()
            if value.grad is not None:
                found[_join(path, "grad")] = value.grad.detach().clone()
        return found

    @contextlib.contextmanager
    def widened(self):
        """In float64 for as long as this lasts: for a call that says what is right."""
        with torch.no_grad():
            for _, value in self.paths.values():
                if value.is_floating_point():
                    grad, value.grad = value.grad, None
                    value.data = value.data.double()
                    value.grad = grad.double() if grad is not None else None
        try:
            yield
        finally:
            self.restore()

    # ---- what is kept of each kind of object ----

    def _keep(self, path, value):
        """Notes how to put the object back; gives (name, object) of what it holds. None: a key, which mostly has a name from elsewhere."""
        if isinstance(value, torch.Tensor):
            return self._keep_tensor(path, value)
        if isinstance(value, _CONTAINERS):
            return self._keep_container(value)
        if isinstance(value, (tuple, frozenset)):
            return [(str(i), inner) for i, inner in enumerate(value)]
        if isinstance(value, types.FunctionType):
            return self._keep_function(value)
        if isinstance(value, types.MethodType):
            return [("", value.__self__), ("", value.__func__)]
        if isinstance(value, (types.ModuleType, types.GeneratorType)):
            return ()
        if isinstance(value, torch.Generator):
            self._undo.append(lambda state=value.get_state(): value.set_state(state))
            return ()
        if isinstance(value, random.Random):
            self._undo.append(lambda state=value.getstate(): value.setstate(state))
            return ()
        if type(value).__module__.partition(".")[0] == "numpy":
            return self._keep_numpy(value)
        return self._keep_object(value)

    def _keep_tensor(self, path, value):
        if value.layout is not torch.strided or type(value) not in (torch.Tensor, torch.nn.Parameter) or self._bytes + value.nbytes > KEEP_BYTES:
            return ()
        self._bytes += value.nbytes
        self.paths[id(value)] = path, value
        alias, copy, grad, wanted = value.detach(), value.detach().clone(), value.grad if value.is_leaf else None, value.requires_grad

        def undo():
            moved = value.data_ptr() != alias.data_ptr() or value.shape != alias.shape or value.stride() != alias.stride() or value.dtype != alias.dtype
            if value.is_leaf and (value.grad is not grad or moved):
                value.grad = None
            if moved:
                value.data = alias
            if not torch.equal(alias, copy):  # versions do not tell: batch norm writes to its buffers without a new one
                alias.copy_(copy)
            if value.is_leaf and value.grad is not grad:
                value.grad = grad
            if value.is_leaf and value.requires_grad != wanted:
                value.requires_grad_(wanted)
        self._undo.append(undo)
        return [("grad", grad)] if grad is not None else ()

    def _keep_container(self, value):
        copy = list(dict.items(value)) if isinstance(value, dict) else list(value)

        def undo():
            now = list(dict.items(value)) if isinstance(value, dict) else list(value)
            if len(now) == len(copy) and all(_same(a, b) for a, b in zip(now, copy)):
                return
            value.clear()
            if isinstance(value, dict):
                for key, inner in copy:
                    dict.__setitem__(value, key, inner)
            else:
                (value.update if isinstance(value, set) else value.extend)(copy)
        self._undo.append(undo)
        if isinstance(value, dict):
            inside = [(str(key) if isinstance(key, (str, int)) else "", inner) for key, inner in copy]
            inside += [(None, key) for key, _ in copy]
        else:
            inside = [(str(i), inner) for i, inner in enumerate(copy)] if not isinstance(value, bytearray) else []
        return [*inside, *self._keep_object(value)]

    def _keep_function(self, fn):
        found = [*self._keep_attributes(fn), *((name, inner) for name, inner in (fn.__kwdefaults__ or {}).items()), *(("", inner) for inner in fn.__defaults__ or ())]
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
            found += self._keep_name(cell, "cell_contents", name)
        if not _is_library(fn.__code__.co_filename):
            for name in _names(fn.__code__):
                if name in fn.__globals__:
                    value = fn.__globals__[name]
                    self._undo.append(lambda name=name, value=value: fn.__globals__.__setitem__(name, value) if fn.__globals__.get(name) is not value else None)
                    found.append((name, value))
        return found

    def _keep_object(self, value):
        kind = type(value)
        if kind.__module__.partition(".")[0] in _OTHERS and not isinstance(value, _CONTAINERS):
            inner = getattr(value, "fn", None) if kind.__module__.startswith("kintsugi") else None
            inner = inner or (value.func if kind.__name__ == "partial" else None)
            return [("", inner)] if inner is not None else ()
        found = self._keep_attributes(value)
        for owner in kind.__mro__:
            for name in _slots(owner):
                found += self._keep_name(value, name, name)
            if not _is_library(getattr(sys.modules.get(owner.__module__), "__file__", None) or "<library>"):
                found += [("", inner) for inner in vars(owner).values() if isinstance(inner, types.FunctionType)]
        return found

    def _keep_attributes(self, value):
        held = getattr(value, "__dict__", None)
        if not isinstance(held, dict):
            return []
        return self._keep_container(held)

    def _keep_name(self, owner, attribute, name):
        try:
            value = getattr(owner, attribute)
        except (AttributeError, ValueError):  # an empty cell or slot
            return []
        self._undo.append(lambda: setattr(owner, attribute, value) if getattr(owner, attribute, None) is not value else None)
        return [(name, value)]

    def _keep_numpy(self, value):
        numpy = sys.modules["numpy"]
        if isinstance(value, numpy.ndarray) and value.dtype != object and value.flags.writeable and self._bytes + value.nbytes <= KEEP_BYTES:
            self._bytes += value.nbytes
            self._undo.append(lambda copy=value.copy(): numpy.copyto(value, copy))
        elif isinstance(value, numpy.random.Generator):
            self._undo.append(lambda state=value.bit_generator.state: setattr(value.bit_generator, "state", state))
        elif isinstance(value, numpy.random.RandomState):
            self._undo.append(lambda state=value.get_state(): value.set_state(state))
        return ()

    def _keep_generators(self):
        self._undo.append(lambda state=torch.get_rng_state(): torch.set_rng_state(state))
        self._undo.append(lambda state=random.getstate(): random.setstate(state))
        if "numpy" in sys.modules:
            numpy = sys.modules["numpy"]
            self._undo.append(lambda state=numpy.random.get_state(): numpy.random.set_state(state))


# Objects of these packages hold nothing of the program's: locks, files, loggers, compiled code.
_OTHERS = frozenset(sys.stdlib_module_names) - {"__main__", "collections", "dataclasses", "enum", "types"} | {"kintsugi", "_kintsugi", "rich"}


def _same(a, b):
    return a is b or type(a) is tuple and type(b) is tuple and len(a) == len(b) and all(x is y for x, y in zip(a, b))


def _names(code):
    """In the order of the code: the first way to a tensor is its name, which must not depend on how texts are hashed in this process."""
    found = dict.fromkeys(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= _names(inner)
    return found


def _slots(owner):
    names = vars(owner).get("__slots__", ())
    return [name for name in ([names] if isinstance(names, str) else names) if name not in ("__dict__", "__weakref__")]


def _is_library(path):
    return path.startswith(("<frozen", "<library", *_LIBRARIES))


def _join(path, name):
    """As the program calls it: a parameter is an attribute of its module."""
    if name in ("_parameters", "_buffers", "_modules"):
        return path
    return f"{path}.{name}" if path and name else path or name
