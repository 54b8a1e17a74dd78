"""The data of tensors that a recorded call writes to: copied before it does, so that it can be put back and the call made once more.

A custom backend's graphs serve the very call that they were made in (src/py/recorder/changes.c). What a torch call writes to is asked of PyTorch's schemas
(_effects.py). In doubt nothing is put back, and the graphs serve from the next call on.
"""

import operator

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


class Tensors:
    """What one recording writes to."""

    def __init__(self):
        self.first = torch._C._autograd._get_sequence_nr()
        self.saved, self.changed = {}, []

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

    def take_back(self):
        """Puts back what there was before the call. False: that cannot be, and nothing has changed."""
        with torch._C.DisableTorchFunction():
            self.changed = [saved for saved in self.saved.values() if saved.has_changed()]
            if not all(saved.is_in_place(self.first) for saved in self.saved.values()):
                return False
            for saved in reversed(self.changed):
                saved.swap()
            return True

    def redo(self):
        with torch._C.DisableTorchFunction():
            for saved in self.changed:
                saved.swap()
            return True
