"""The data of tensors that a recorded call writes to, and what the containers hold that it changes: copied before, so that it can be put back and the call made
once more. What it has printed or logged is not printed again, if no code of the program's was part of that.

A custom backend's graphs serve the very call that they were made in (src/py/recorder/changes.c). What a torch call writes to is asked of PyTorch's schemas
(_effects.py). In doubt nothing is put back, and the graphs serve from the next call on.
"""

import _thread
import collections
import logging
import operator
import sys
import types
import warnings
import weakref

import torch
from torch.utils import _pytree

from ._effects import _schemas, changes_something

_OPERANDS_ARE_WRITTEN = ("inplace", "out", "max_norm", "running_mean", "training", "use_input_stats")


def _writes_only_to_operands(fn, name, args, kwargs):
    if kwargs.get("generator") is not None:
        return False
    if fn in (torch.Tensor.__setitem__, operator.setitem):
        return True
    schemas = _schemas(name)
    if name.startswith("_foreach_"):  # a list whose tensors are written to has no alias_info
        return bool(args) and isinstance(args[0], (list, tuple)) and all(isinstance(tensor, torch.Tensor) for tensor in args[0])
    written = any(arg.alias_info is not None and arg.alias_info.is_write for schema in schemas for arg in schema.arguments)
    asked = any(arg.name in _OPERANDS_ARE_WRITTEN for schema in schemas for arg in schema.arguments)
    return written or asked


class _Saved:
    """A tensor with the data and the version that it does not have now."""

    def __init__(self, tensor):
        self.tensor, self.root = tensor, tensor if tensor._base is None else tensor._base
        self.version, self.data = tensor._version, tensor.detach().clone()
        self.gradient = self.root.requires_grad, self.root.grad_fn
        self.place = tensor.data_ptr(), tensor.shape, tensor.stride()

    def has_changed(self):
        """Running statistics change without a new version. What is as it was may lie in memory that cannot be written to."""
        now = self.tensor.detach()
        return self.tensor._version != self.version or not torch.all((now == self.data) | ((now != now) & (self.data != self.data)))

    def is_in_place(self, first):
        """Is it the same memory, and do gradients come from where they came from? Not asked of what the recording itself has made."""
        made = self.gradient[1] is not None and self.gradient[1]._sequence_nr() >= first
        return self.place == (self.tensor.data_ptr(), self.tensor.shape, self.tensor.stride()) and (
            made or self.gradient == (self.root.requires_grad, self.root.grad_fn))

    def swap(self):
        now = self.tensor._version, self.tensor.detach().clone()
        self.tensor.detach().copy_(self.data)
        torch._C._autograd._unsafe_set_version_counter((self.tensor,), (self.version,))
        self.version, self.data = now


# How a container of exactly this class is copied, and filled again when it is empty. Neither runs code of the program's: hashes are kept.
_CONTAINERS = {
    list: (list, list.extend),
    dict: (dict.copy, dict.update),
    collections.defaultdict: (dict.copy, dict.update),
    collections.Counter: (dict.copy, dict.update),
    collections.OrderedDict: (lambda held: list(held.items()), lambda held, items: [collections.OrderedDict.__setitem__(held, *item) for item in items]),
    set: (set.copy, set.update),
    collections.deque: (list, collections.deque.extend),
    _thread.RLock: (_thread.RLock._is_owned, None),
    _thread.LockType: (_thread.LockType.locked, None),
}
_WORDS = (str, bytes, int, float, complex, bool, type(None), torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device)


def _holds_same(a, b):
    if isinstance(a, set):
        return set(map(id, a)) == set(map(id, b))
    if isinstance(a, dict):
        a, b = list(a.items()), list(b.items())
        return len(a) == len(b) and all(x[0] is y[0] and x[1] is y[1] for x, y in zip(a, b))
    return len(a) == len(b) and all(x is y for x, y in zip(a, b))


def _dies_quietly(value, depth=0):
    """Does nobody see when the object dies? What is saved lives on until the call has been made once more."""
    if weakref.getweakrefcount(value) > 0:
        return False
    if type(value) in _CONTAINERS or type(value) in (tuple, frozenset):
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else value if hasattr(value, "__iter__") else ()
        return depth < 4 and len(items) < 1000 and all(_dies_quietly(item, depth + 1) for item in items)
    return type(value) in _WORDS and not (isinstance(value, torch.Tensor) and value.__dict__)


def _shows_as_built_in(value, depth=0):
    """Does no code of the program's run where the value is printed?"""
    if type(value) in (list, tuple, dict) and depth < 4:
        items = [*value.keys(), *value.values()] if type(value) is dict else value
        return all(_shows_as_built_in(item, depth + 1) for item in items)
    return type(value) in _WORDS


def _writes_in_c(stream):
    return stream is None or isinstance(getattr(type(stream), "write", None), types.MethodDescriptorType)


def _is_usual(handler):
    usual = type(handler).__module__ in ("logging", "logging.handlers") and not handler.filters
    return usual and type(handler.formatter) in (type(None), logging.Formatter) and _writes_in_c(getattr(handler, "stream", None))


def _logs_as_usual(logger):
    while logger is not None:
        if type(logger) not in (logging.Logger, logging.RootLogger) or logger.filters or not all(map(_is_usual, logger.handlers)):
            return False
        logger = logger.parent if logger.propagate else None
    return logging.getLogRecordFactory() is logging.LogRecord and _writes_in_c(sys.stderr)


class Tensors:
    """What one recording writes to."""

    def __init__(self):
        self.first = torch._C._autograd._get_sequence_nr()
        self.saved, self.changed, self.locks = {}, [], []

    def judge(self, fn, operands, kwnames):
        """Does the call, which is about to happen, write to nothing but what is saved?"""
        with torch._C.DisableTorchFunction():
            names = kwnames or ()
            args, kwargs = operands[:len(operands) - len(names)], dict(zip(names, operands[len(operands) - len(names):]))
            name = getattr(fn, "__name__", "")
            op = "call_function" if hasattr(fn, "__module__") or hasattr(fn, "__self__") else "call_method"
            if not changes_something({"callable": fn, "switches": False, "op": op, "target": name, "args": args, "kwargs": kwargs}):
                return True
            found = [leaf for leaf in _pytree.tree_leaves(operands) if isinstance(leaf, torch.Tensor)]
            return _writes_only_to_operands(fn, name, args, kwargs) and bool(found) and all(map(self._save, found))

    def save(self, tensor):
        with torch._C.DisableTorchFunction():
            return self._save(tensor)

    def _save(self, tensor):
        if id(tensor) in self.saved:
            return True
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_inference()
        if not plain or torch.is_inference_mode_enabled() or torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
            return False
        if not any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):  # PyTorch writes to no such tensor
            self.saved[id(tensor)] = _Saved(tensor)
        return True

    def contents_of(self, container):
        """What the container holds, for exchange(), or whether a lock is held; None: that cannot be known. The names of a module are looked up by others meanwhile."""
        copy = _CONTAINERS.get(type(container), (None,))[0]
        if copy is None or (type(container) is dict and "__builtins__" in container) or not self.dies_quietly(container):
            return None
        contents = copy(container)
        if _CONTAINERS[type(container)][1] is None:
            self.locks.append((container, contents))
        if type(container) is set and (sys.getsizeof(contents) != sys.getsizeof(container) or any(a is not b for a, b in zip(contents, container))):
            return None  # items would come in another order
        return contents

    def dies_quietly(self, value):
        """... nor when anything dies that it holds?"""
        with torch._C.DisableTorchFunction():
            return _dies_quietly(value)

    def exchange(self, container, contents):
        """The container holds that; gives what it held."""
        copy, fill = _CONTAINERS[type(container)]
        held = copy(container)
        if fill is not None and not _holds_same(held, contents):
            type(container).clear(container)
            fill(container, contents)
        return held

    def tells(self, fn, operands, kwnames):
        """Does the call tell somebody something (print, logging, a warning), give None, and run no code of the program's?"""
        with torch._C.DisableTorchFunction():
            names = kwnames or ()
            args, kwargs = operands[:len(operands) - len(names)], dict(zip(names, operands[len(operands) - len(names):]))
            if fn is print:
                return _writes_in_c(kwargs.pop("file", None) or sys.stdout) and _shows_as_built_in([*args, *kwargs.values()])
            if fn is warnings.warn:
                return warnings.showwarning is warnings._showwarning_orig and _writes_in_c(sys.stderr) and _shows_as_built_in(args[:1])
            bound = getattr(fn, "__self__", None)
            logger, shown = (bound, args) if bound is not None else (args[0] if args else None, args[1:])
            method = getattr(logging.Logger, getattr(fn, "__name__", ""), None) if isinstance(logger, logging.Logger) else None
            return method is getattr(fn, "__func__", fn) and _logs_as_usual(logger) and _shows_as_built_in([*shown, *kwargs.values()])

    def take_back(self):
        """Puts back what there was before the call. False: that cannot be, and nothing has changed."""
        with torch._C.DisableTorchFunction():
            self.changed = [saved for saved in self.saved.values() if saved.has_changed()]
            locks = all(_CONTAINERS[type(lock)][0](lock) == held for lock, held in self.locks)
            if not locks or not all(saved.is_in_place(self.first) for saved in self.saved.values()):
                return False
            for saved in reversed(self.changed):
                saved.swap()
            return True

    def redo(self):
        with torch._C.DisableTorchFunction():
            for saved in self.changed:
                saved.swap()
            return True
