"""Graphs of a dump as torch.fx.GraphModules: what custom backends and explain().graphs get."""

import operator
import re
import types

import torch
import torch.fx
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from . import _operators, _symbols


_Guard = torch._C._InferenceMode
_enter_guard, _exit_guard = (getattr(method, "__func__", method) for method in (_Guard.__enter__, _Guard.__exit__))
_APPLY = torch.autograd.Function.apply.__func__


class ConversionError(RuntimeError):
    """A graph holds a call that torch.fx cannot express."""


def to_graph_module(graph, numbers=None, symbolic=None):
    """A runnable GraphModule: takes the values of graph["inputs"], returns a tuple of graph["outputs"].

    numbers   how numbers are computed of sizes: {vid: (kind, operator, operands)}. They are nodes then, not inputs
    symbolic  a _symbols.Symbolic: its symbols are inputs, too
    """
    return _Converter(graph, numbers or {}, symbolic).convert()


def _named(fn):
    """The function under a name that the text of a graph can have: what torch.jit.trace made of a lambda has none, and all that torch.jit.script makes
    have that of their class."""
    def traced_function(*args, **kwargs):
        return fn(*args, **kwargs)
    name = getattr(fn, "name", None)
    if isinstance(name, str) and name.isidentifier():
        traced_function.__name__ = traced_function.__qualname__ = name
    traced_function.__wrapped__ = fn
    return traced_function


def torchscript_of(target):
    """The TorchScript function that a node of a graph calls; None: it calls something else."""
    fn = getattr(target, "__wrapped__", target)
    return fn if isinstance(fn, torch.jit.ScriptFunction) else None


def _spread(entry):
    """The positional arguments. A graph's text knows torch.Size as a tuple, which to x.new() and torch.Tensor() is data: they get its numbers one by one."""
    args, sizes = entry["args"], (torch.Size, _symbols.Sizes)
    legacy = entry["target"] == "new" if entry["op"] == "call_method" else isinstance(entry["callable"], type)
    return (*args[:-1], *args[-1]) if legacy and args and isinstance(args[-1], sizes) else args


def _not_in_place(fn, args):
    """`n *= x` with a number n is n * x; the text of a graph would assign to the number."""
    if args and type(args[0]) in (int, float, complex, bool) and getattr(fn, "__module__", None) == "_operator" and \
            getattr(operator, f"__{fn.__name__}__", None) is fn and hasattr(operator, f"__{fn.__name__[1:]}__") and fn.__name__.startswith("i"):
        return getattr(operator, f"__{fn.__name__[1:]}__")
    return fn


DEFAULT_OVERRIDE = torch.Tensor.__torch_function__.__func__


def _handed_on(entry, args):
    """What torch.Tensor.__torch_function__ calls. Classes are no part of a graph: it runs without __torch_function__, and what it gives gets them."""
    fn, operands = entry["args"][1], args[3]
    kwargs = dict(args[4]) if len(args) > 4 and args[4] else {}
    if getattr(fn, "__objclass__", None) is not None:
        return {**entry, "op": "call_method", "target": fn.__name__, "callable": None}, operands, kwargs
    return {**entry, "op": "call_function", "callable": fn}, operands, kwargs


def is_change_of_class(entry):
    """x.as_subclass(cls): no call of the graph, whose results get the classes that were recorded."""
    return entry["target"] == "as_subclass" or entry["callable"] is torch.Tensor.as_subclass


def _is_number(value):
    """Is it a node that gives a number, for which graphs may have a symbol?"""
    return isinstance(value, torch.fx.Node) and value.meta.get("number", False)


def _selected(tensor, index):
    """(dim, number) for each number of x[number, :, ...] that is a symbol, the last dim first, and the index without them. x[number] would ask for its value,
    x.select(dim, number) does not. None: nothing to do, or an index that is not made of numbers, slices and the like."""
    items = index if type(index) is tuple else (index,)
    parts = parse_note(tensor.meta.get("note")) if isinstance(tensor, torch.fx.Node) else None
    if parts is None or not any(map(_is_number, items)) or not all(_is_number(item) or type(item) in (int, slice, type(None), type(...)) for item in items):
        return None
    taking = [k for k, item in enumerate(items) if item is not None and item is not ...]
    hidden = items.index(...) if ... in items else len(items)
    dims = {k: i if k < hidden else len(parts[1]) - len(taking) + i for i, k in enumerate(taking)}
    numbers = [(dims[k], items[k]) for k in reversed(taking) if _is_number(items[k])]
    return numbers, tuple(item for item in items if not _is_number(item))


# Objects that the text of a graph cannot hold, and that graphs may be handed: they only say which code runs, or which numbers are drawn. (Of others it has the
# repr(), and the graph is refused: a context manager, for one, acts on what is around the graph.)
_HELD = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, torch.Generator)


class _Converter:
    def __init__(self, source, numbers, symbolic):
        self.source, self.numbers, self.symbolic = source, numbers, symbolic
        self.sizes = {}  # (vid, dim): node
        self.root = torch.nn.Module()
        self.graph = torch.fx.Graph()
        self.values = {}
        self.constants = {}
        self.objects = {}  # id: what gives an object that the graph's text cannot hold
        self.inference = {}  # vid of the guard: the node that entered inference mode and that none has left

    def convert(self):
        for i, entry in enumerate(_symbols.leaves(self.source, self.numbers)):
            if self.symbolic is not None:
                self.add_symbols(i, entry)
            if entry["vid"] not in self.values:
                node = self.graph.placeholder(entry["name"])
                node.meta["note"], node.meta["vid"] = entry["note"], entry["vid"]
                self.values[entry["vid"]] = node
        for entry in self.source["nodes"]:
            self.values[entry["vid"]] = self.add(entry)
        for entered in self.inference.values():
            self.graph.call_function(_exit_inference_mode, (entered,))
        self.graph.output(tuple(self.value({"vid": vid}) for vid in self.source["outputs"]))
        module = torch.fx.GraphModule(self.root, self.graph, class_name="GraphModule")
        module.meta["kintsugi_code"] = self.source["code"]
        return module

    def add_symbols(self, i, entry):
        """Placeholders for the symbols that input i is the first to have."""
        by_name = {node.name: node for node in self.graph.nodes}
        for (k, dim), symbol in zip(self.symbolic.places, self.symbolic.symbols):
            if k != i:
                continue
            if k in self.symbolic.floats:
                node = self.graph.placeholder(entry["name"])
                node.meta["place"] = (k, float)
                self.values[entry["vid"]] = self.graph.call_method("item", (node,))
                self.values[entry["vid"]].meta["number"] = True
                continue
            name = str(symbol)
            node = by_name.get(name) if dim is not None else None
            if node is None:
                node = by_name[name] = self.graph.placeholder(name, type_expr=torch.SymInt)
                node.meta["place"] = (k, dim)
            node.meta["number"] = True
            if dim is None:
                self.values[entry["vid"]] = node
            else:
                self.sizes[entry["vid"], dim] = node

    def number(self, vid):
        kind, imm, operands = self.numbers[vid]
        if kind == "size":
            tensor = operands[0]["vid"]
            found = self.sizes.get((tensor, imm))
            return found if found is not None else self.graph.call_method("size", (self.values[tensor], imm))
        return self.graph.call_function(_symbols.operator_of(kind, imm), tuple(map(self.value, operands)))

    def switch_inference(self, entry, args):
        """The guard of inference mode: what it is told, the node that enters, the node that leaves."""
        if entry["callable"] is _Guard:
            return args[0]
        vid = entry["args"][0]["vid"]
        if entry["callable"] is _enter_guard:
            self.inference[vid] = self.graph.call_function(_enter_inference_mode, (self.values[vid],))
            return self.inference[vid]
        return self.graph.call_function(_exit_inference_mode, (self.inference.pop(vid),))

    def add(self, entry):
        if entry.get("switches") and entry["callable"] in (_Guard, _enter_guard, _exit_guard):
            return self.switch_inference(entry, [self.value(arg) for arg in entry["args"]])
        given = _spread(entry)
        if entry["callable"] is DEFAULT_OVERRIDE:  # class, function and classes are no part of the graph
            given = (None, None, None, *given[3:])
        args = tuple(map(self.value, given))
        kwargs = {name: self.value(arg) for name, arg in entry["kwargs"].items()}
        if entry["callable"] is DEFAULT_OVERRIDE:
            entry, args, kwargs = _handed_on(entry, args)
        elif is_change_of_class(entry):
            return args[0]
        elif entry["callable"] is _APPLY:  # of a class that text may have no name for
            entry, args = {**entry, "callable": args[0].apply}, args[1:]
        if self.symbolic is not None and self.symbolic.again:
            entry, args = self.with_symbols(entry, args, kwargs)
        if entry["op"] == "call_method":
            node = self.graph.create_node("call_method", entry["target"], args, kwargs, name=entry["name"])
        elif entry["callable"] is None:
            raise ConversionError(f"{entry['target']} at {entry['filename']}:{entry['line']} is not a known function")
        else:
            node = self.graph.create_node("call_function", _not_in_place(self.function(entry), args), args, kwargs, name=entry["name"])
        node.meta["note"] = entry["note"]
        if entry["line"]:
            node.meta["stack_trace"] = (
                f'  File "{entry["filename"]}", line {entry["line"]}, in {entry["function"]}\n    {entry["code_line"]}\n'
            )
        return node

    def with_symbols(self, entry, args, kwargs):
        """Indexing and torch.tensor() with numbers ask for their values, so that the graph would hold for these alone; what computes the same does not."""
        if entry["callable"] is torch.tensor and any(map(_is_number, torch.utils._pytree.tree_leaves(args))) and set(kwargs) <= {"dtype", "device"}:
            return {**entry, "callable": torch._refs.tensor}, args
        found = _selected(*args) if entry["callable"] is operator.getitem and len(args) == 2 else None
        if found is None:
            return entry, args
        numbers, rest = found
        tensor = args[0]
        for dim, number in numbers[:-1] if not rest else numbers:
            tensor = self.graph.call_function(torch.select, (tensor, dim, number))
        return ({**entry, "callable": torch.select}, (tensor, *numbers[-1])) if not rest else (entry, (tensor, rest))

    def function(self, entry):
        """max() and min() of tensors ask data which of the two it is: a graph computes that."""
        if entry["callable"] in (max, min) and parse_note(entry["note"]) is not None:
            return _operators.greatest if entry["callable"] is max else _operators.least
        name = getattr(entry["callable"], "__name__", None)
        has_name = isinstance(name, str) and name.isidentifier() and torchscript_of(entry["callable"]) is None
        return entry["callable"] if has_name else _named(entry["callable"])

    def value(self, arg):
        if isinstance(arg, dict):
            if "vid" in arg:
                if arg["vid"] not in self.values and arg["vid"] in self.numbers:
                    self.values[arg["vid"]] = self.number(arg["vid"])
                    self.values[arg["vid"]].meta["number"] = True
                return self.values[arg["vid"]]
            if "function" in arg:
                return self.graph.call_function(_operators.maker_of(*arg["function"]), tuple(self.value(part) for part in arg["parts"]))
            return {key: self.value(item) for key, item in arg["dict"]}
        if type(arg) in (tuple, _symbols.Sizes):
            return tuple(self.value(item) for item in arg)
        if type(arg) is list:
            return [self.value(item) for item in arg]
        if type(arg) is slice:
            return slice(self.value(arg.start), self.value(arg.stop), self.value(arg.step))
        if isinstance(arg, torch.Tensor):
            return self.constant(arg)
        if not isinstance(arg, _HELD):
            return arg
        if id(arg) not in self.objects:  # made once, so that it stays one object in the graph
            self.objects[id(arg)] = _operators.getter_of(arg)
        return self.graph.call_function(self.objects[id(arg)])

    def constant(self, tensor):
        """A tensor that the program holds on to becomes an attribute of the module."""
        if id(tensor) not in self.constants:
            name = f"_tensor_constant{len(self.constants)}"
            if isinstance(tensor, torch.nn.Parameter):
                self.root.register_parameter(name, tensor)
            else:
                self.root.register_buffer(name, tensor)
            self.constants[id(tensor)] = name
        return self.graph.get_attr(self.constants[id(tensor)])


DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "b8": torch.bool,
    "c64": torch.complex64, "c128": torch.complex128,
}
_NOTE = re.compile(r"^(\w+?)\[([\d, ]*)\]\[([\d, ]*)\](.+)$")


def parse_note(note):
    """dtype, sizes, strides and device of a note such as "f32[3, 4][4, 1]cpu"; None for anything else."""
    match = _NOTE.match(note or "")
    if match is None or match[1] not in DTYPES:
        return None
    sizes, strides = ([int(n) for n in part.split(",") if n.strip()] for part in (match[2], match[3]))
    return DTYPES[match[1]], sizes, strides, match[4]


def example_inputs(graph):
    """Fake tensors that look like the recorded inputs (no memory behind them); None where one was no tensor."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    found = []
    for entry in graph["inputs"]:
        parts = parse_note(entry["note"])
        if parts is None:
            found.append(None)
            continue
        dtype, sizes, strides, device = parts
        with mode:
            found.append(torch.empty_strided(sizes, strides, dtype=dtype, device=device))
    return found
