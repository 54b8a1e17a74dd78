"""Graphs with sizes that change, as custom backends get them: symbols in place of sizes, as stock PyTorch's compiler gives them.

The recording leaves sizes open ("open" of a graph's inputs) and knows how numbers are computed of them (`numbers`). Each open size
is an input of the graph of its own, a torch.SymInt, in front of the first tensor that has it; a float that changes is a tensor
of which the graph takes the item; fake tensors with these sizes are in the
nodes' meta["example_value"]. What the backend assumes of the symbols while it compiles is asked of later sizes; where it does not
hold, the backend is called again.
"""

import math
import operator

import torch

_BINARY = ("add", "and_", "floordiv", "lshift", "matmul", "mul", "mod", "or_", "pow", "rshift", "sub", "truediv", "xor")
_UNARY = ("neg", "pos", "invert", "not_")
_COMPARE = ("lt", "le", "eq", "ne", "gt", "ge")


def prepare():
    """Imports what PyTorch's fake tensors and symbols need, before anything is recorded: imports in a call make its guards fail afterwards (the abc
    module's token of registered classes)."""
    from torch._dynamo.source import LocalSource  # noqa: F401
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: F401
    from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: F401


class Sizes(tuple):
    """Where the program has a torch.Size whose numbers the graph computes."""

    __slots__ = ()


def operator_of(kind, imm):
    """The function that a step of numbers applies; in-place operators of numbers are the plain ones."""
    names = {"binary": _BINARY, "unary": _UNARY, "compare": _COMPARE}[kind]
    return getattr(operator, names[imm % len(names)])


def leaves(graph, numbers):
    """The inputs that a graph takes: not those that it can compute of the sizes of its other values."""
    tensors = {entry["vid"] for entry in graph["inputs"] if entry["vid"] not in numbers}
    tensors.update(node["vid"] for node in graph["nodes"])
    known = {}

    def is_computed(vid):
        if vid not in known:
            kind, _, operands = numbers[vid]
            known[vid] = all(o["vid"] in tensors or (kind != "size" and o["vid"] in numbers and is_computed(o["vid"]))
                             for o in operands if isinstance(o, dict))
        return known[vid]

    return [entry for entry in graph["inputs"] if entry["vid"] not in numbers or not is_computed(entry["vid"])]


class Symbolic:
    """Symbols and fake tensors for one set of example inputs, and what was assumed of them. Without `opens` there are no symbols. `floats`:
    numbers of that class are open too. As in stock PyTorch a graph gets them as tensors, of which it takes the item."""

    def __init__(self, entries, examples, opens=None, floats=False):
        from torch._dynamo.source import FloatTensorSource, LocalSource
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        self.opens = opens or [frozenset()] * len(examples)
        self.again = False  # can the graph's calls be done again step by step, if one of them raises? The error may then have other words
        self.shape_env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.shape_env, static_shapes=False)
        self.context = torch._guards.TracingContext(self.mode)
        self.fakes, self.places, self.symbols, self.floats, self.seen = [], [], [], {}, 0
        for i, (entry, example, dims) in enumerate(zip(entries, examples, self.opens)):
            source = LocalSource(entry["name"], is_input=True)
            if isinstance(example, torch.Tensor):
                self.fakes.append(self._fake(example, dims, source))
                self._add((i, d, self.fakes[-1].size(d)) for d in sorted(dims))
            elif type(example) is int and opens is not None:
                symbol = self.shape_env.create_unspecified_symbol(example, source, DimDynamic.DYNAMIC)  # 0 and 1 are numbers like others
                self.fakes.append(self.shape_env.create_symintnode(symbol, hint=example, source=source))
                self._add([(i, None, self.fakes[-1])])
            elif type(example) is float and floats and math.isfinite(example):
                self.floats[i] = float_tensor(example)
                self.fakes.append(self._fake(self.floats[i], frozenset(), FloatTensorSource(source)))
                self._add([(i, None, self.fakes[-1].item())])
            else:
                self.fakes.append(example)
        self.fixed = [(i, value) for i, value in enumerate(examples) if type(value) is int and (i, None) not in self.places]
        self.layouts = self._layouts(examples)

    def _layouts(self, inputs):
        return [float if i in self.floats and type(value) is float and not math.isnan(value) else _layout(value, dims)
                for i, (value, dims) in enumerate(zip(inputs, self.opens))]

    def _fake(self, tensor, dims, source):
        context = _context_of(tensor, dims, source)
        self.context.tensor_to_context[tensor] = context
        return self.mode.from_tensor(tensor, symbolic_context=context, source=source)

    def _add(self, found):
        for i, d, symbol in found:
            if isinstance(symbol, (torch.SymInt, torch.SymFloat)):
                self.places.append((i, d))
                self.symbols.append(symbol)

    def fixed_sizes(self):
        """Places of the symbols of which one value is left."""
        return {place for place, symbol in zip(self.places, self.symbols) if place[1] is not None and getattr(symbol.node.expr, "is_number", False)}

    def values(self, inputs):
        return [inputs[i] if d is None else inputs[i].shape[d] for i, d in self.places]

    def fits(self, inputs):
        """Does what was compiled for the examples hold for these inputs, too?"""
        if self.layouts != self._layouts(inputs) or any(inputs[i] != value for i, value in self.fixed):
            return False
        guards = self.shape_env.produce_guards_expression(self.symbols)
        return guards is None or self.shape_env.evaluate_guards_expression(guards, self.values(inputs))


def float_tensor(value):
    return torch.tensor(value, dtype=torch.float64)


def _context_of(tensor, dims, source):
    """Which dims are symbols, in the tensor and in those that it is made of, if its class says that it is."""
    from torch._dynamo.source import AttrSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatefulSymbolicContext, SubclassSymbolicContext

    ragged = {d for d, size in enumerate(tensor.shape) if not isinstance(size, int)} if tensor.is_nested else ()  # no number has such a size
    known = {"dynamic_sizes": [DimDynamic.DYNAMIC if d in ragged else DimDynamic.DUCK if d in dims else DimDynamic.STATIC for d in range(tensor.dim())],
             "constraint_sizes": [None] * tensor.dim(), "tensor_source": source, "shape_env_to_source_to_symbol_cache": {}}
    if not torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor):
        return StatefulSymbolicContext(**known)
    inner = {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}
    return SubclassSymbolicContext(**known, inner_contexts={name: _context_of(part, dims if part.dim() == tensor.dim() else (), AttrSource(source, name))
                                                            for name, part in inner.items()})


class OpenSizes:
    """Which sizes of a graph's inputs are symbols when it is compiled next: all that the recording leaves open, and, where nothing in
    the recording depends on a size, those that were seen to change (dynamic=None) or all (True)."""

    def __init__(self, entries, dynamic):
        self.dynamic = dynamic
        self.floats = dynamic is not False  # are they open, too?
        self.recorded = [frozenset(entry.get("open", ())) if dynamic is not False else frozenset() for entry in entries]
        self.changed = [set() for _ in entries]
        self.seen = None

    def find(self, inputs):
        shapes = [tuple(value.shape) if isinstance(value, torch.Tensor) and not value.is_nested else None for value in inputs]
        if self.seen is not None and self.dynamic is None:
            for changed, before, now in zip(self.changed, self.seen, shapes):
                if before is not None and now is not None and len(before) == len(now):
                    changed.update(d for d in range(len(now)) if before[d] != now[d])
        self.seen = shapes
        return [(recorded | self._more(value, changed)) - marked(value, "static")
                for value, recorded, changed in zip(inputs, self.recorded, self.changed)]

    def _more(self, value, changed):
        if self.dynamic and isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) and not value.is_nested:
            return set(range(value.dim()))
        return changed if self.dynamic is False else changed | marked(value, "dynamic") | marked(value, "weak_dynamic")


def _is_value(value):
    """Is it a constant for whoever compiles: code is made for each?"""
    if type(value) in (tuple, torch.Size):
        return all(map(_is_value, value))
    return type(value) in (int, float, bool, str, bytes, complex, slice, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))


def sizes_of(tensor):
    """Its sizes, as a tuple; of a nested tensor, which may have none, those of what it holds."""
    if not tensor.is_nested:
        return tuple(tensor.shape)
    return () if tensor.is_meta else tuple(tuple(part.shape) for part in tensor.unbind())  # without data, its parts have no sizes


def marked(value, how):
    """Dims that torch._dynamo.mark_dynamic and its like have marked."""
    return set(getattr(value, f"_dynamo_{how}_indices", ())) if isinstance(value, torch.Tensor) else set()


def _layout(value, dims):
    """All that a compiled graph may depend on but for the open sizes: 0 and 1 are sizes of their own."""
    if not isinstance(value, torch.Tensor):  # an array, or another object of the program's, is asked nothing: its == may be anything
        return (type(value), value) if type(value) is not int and _is_value(value) else type(value)
    sizes = tuple(min(n, 2) if d in dims else n for d, n in enumerate(sizes_of(value)))
    dense = value.layout is torch.strided and not value.is_nested
    if not dense or not dims:
        strides = value.stride() if dense else None
    elif value.is_contiguous():
        strides = "contiguous"
    elif value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        strides = "channels last"
    else:
        strides = value.stride()
    return type(value), sizes, strides, value.dtype, value.device, value.requires_grad
