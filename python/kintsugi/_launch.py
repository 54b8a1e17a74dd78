"""Graphs compiled by a custom backend, as replay launches them.

The engine asks `make_subgraph` for a callable for every graph of a new recording (what stands between its calls waits for its end or runs with its
results; a graph comes in pieces only where something else than a report may run the program's code, or change what later calls work on). A backend is a function (gm, example_inputs); it gets
a torch.fx.GraphModule and real tensors: the ones of the recorded call, or zeros of the same kind where those are gone
(results of earlier graphs), which require grad if a tensor of the call did. It is called again when the metadata of the inputs changes, up to eight times per graph; sizes that
the recording leaves open are symbols (_symbols.py), so that one call serves them all.

A backend that raises ends the call with torch._dynamo.exc.BackendCompilerFailed, as in stock PyTorch: somebody who tries one backend
after the other has to see which of them work. With config.suppress_errors it costs a warning and an event, and the graph runs step by
step. The same holds for what a backend returned, whose own error is raised.
"""

import contextlib
import copy
import inspect
import itertools
import logging
import operator
import re
import time

import torch
from torch.utils import _pytree as pytree

from . import _messages, _operators, _symbols, fx
from ._config import config
from ._effects import ASSERTIONS, changes_something, is_torch

_SOURCE = re.compile(r"\b[LG]\['(\w+)'\]")  # a variable of the function, or a global
_LINE = re.compile(r'File "(?P<file>.*?)", line (?P<line>\d+)')

LIMIT = 8
KEYS = 1024  # kinds of inputs of which is known what serves them
_ALL = "all"
_NOTHING = object()
_without_overrides = torch._C.DisableTorchFunctionSubclass
_len_function_modes = torch._C._len_torch_function_stack
_len_dispatch_modes = torch._C._len_torch_dispatch_stack


def keep_settings(_):
    """Whoever closes it puts the settings back."""
    stack = contextlib.ExitStack()
    stack.enter_context(_settings())
    stack.callback(torch.clear_autocast_cache)
    return stack


@contextlib.contextmanager
def _compiling(subgraph, context):
    """What PyTorch tells backends about a compilation: torch._guards.TracingContext and CompileContext."""
    from . import _logs

    frame, recording = _logs.ids_of_entry(subgraph.entry, subgraph.name)
    compilation = torch._guards.CompileContext(torch._guards.CompileId(frame_id=frame, frame_compile_id=recording))
    with torch._guards.compile_context(compilation), torch._guards.tracing(context):
        yield


_DEVICES = ("cpu", "cuda")
# Getters and setters of others that graphs switch: those that src/core/trace/callables.def has as settings that are stored.
_SWITCHED = [(torch.get_default_dtype, torch._C._set_default_dtype)] + [
    (getattr(torch._C, f"_get_{kernel}_sdp_enabled"), getattr(torch._C, f"_set_sdp_use_{kernel}"))
    for kernel in ("flash", "mem_efficient", "math", "cudnn") if hasattr(torch._C, f"_get_{kernel}_sdp_enabled")]


@contextlib.contextmanager
def _settings():
    """The settings that a graph may switch are behind it as they were: the program's own steps switch them where they stand."""
    grad, cache = torch.is_grad_enabled(), torch.is_autocast_cache_enabled()
    others = [(setter, getter()) for getter, setter in _SWITCHED]
    casts = [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in _DEVICES]
    try:
        yield
    finally:
        torch._C._set_grad_enabled(grad)
        torch.set_autocast_cache_enabled(cache)
        for setter, value in others:
            setter(value)
        for device, on, dtype in casts:
            torch.set_autocast_enabled(device, on)
            torch.set_autocast_dtype(device, dtype)


def make_subgraph(backend, graph, examples, numbers, dynamic, name, entry, number):
    """The engine's callable for one graph, or None when it has to run step by step. Raises only what the user is to see."""
    subgraph = Subgraph(backend, graph, numbers, dynamic, name, entry, number)
    if not graph["exact"]:
        subgraph.note("one of its calls takes arguments that are only known at run time")
        return None
    if not subgraph.pure and any(node["callable"] in ASSERTIONS for node in graph["nodes"]):
        subgraph.note("it changes a tensor and makes an assertion: where that does not hold, the change could not be taken back")
        return None
    if not subgraph.pure and any(node["callable"] in (max, min) and fx.parse_note(node["note"]) is not None for node in graph["nodes"]):
        subgraph.note("it changes a tensor, perhaps the one that max() or min() has chosen")
        return None
    try:
        subgraph.gm = fx.to_graph_module(graph, numbers)
    except Exception as error:
        subgraph.note(f"it cannot be written as a torch.fx graph: {error}")
        return None
    if any(node["callable"] in _operators.RUNNERS for node in graph["nodes"]):
        from . import _bodies

        _bodies.lower(subgraph.gm, _example_of)
        subgraph.shapes = [fx.parse_note(leaf["note"]) for leaf in subgraph.entries]
        if any(map(_operators.asks_data, subgraph.gm.graph.nodes)):
            subgraph.note("what the functions of one of its operators do cannot be written as graphs")
            return None
    if backend is census:
        subgraph.off = True
    else:
        subgraph.build_example(examples)
    return subgraph


def census(gm, inputs):
    """Stands for any custom backend where it is only asked which graphs one would get: it is never called."""
    raise AssertionError("a backend that stands for others was called")


def _example_of(node):
    """A tensor like what the node gives, as it was recorded; None: it is none."""
    return imitate(node.meta.get("note"))


class Declined(Exception):
    """A backend of ours has nothing for this graph, and says why; from now on it runs step by step."""


class Busy(Declined):
    """... for this call only."""


class Seen(Declined):
    """Declined after the graph's calls have run: the results of this call are there."""

    def __init__(self, why, results):
        super().__init__(why)
        self.results = results


class _Waited(BaseException):
    """A signal's handler that had to wait for our own code has raised: no failure of the backend."""

    def __init__(self, error):
        super().__init__(error)
        self.error = error


class Subgraph:
    """One graph: what the backend made of it, by the metadata of its inputs. Answers None to be run step by step."""

    __slots__ = ("backend", "graph", "numbers", "entries", "inputs", "gm", "name", "entry", "number", "count", "pure", "made", "nmade",
                 "classes", "by_torch", "sizes", "told_exact", "dynamic", "waiting", "shapes", "switches", "nested", "quick", "off")

    def __init__(self, backend, graph, numbers, dynamic, name, entry, number):
        self.backend, self.name = backend, name
        self.graph, self.numbers = graph, numbers
        self.entry, self.number = entry, number
        self.entries = _symbols.leaves(graph, numbers)
        self.inputs = [leaf["vid"] for leaf in self.entries]  # what the engine hands over
        self.gm = None
        self.count = len(graph["outputs"])
        several = {node["vid"] for node in graph["nodes"] if node["note"] is None}
        self.nested = any(vid in several for vid in graph["outputs"])  # an output may be a tuple of tensors
        self.pure = not any(map(changes_something, graph["nodes"]))
        classes = {node["vid"]: node["class"] for node in graph["nodes"] if node["class"] is not None}
        self.by_torch = any(map(_is_handled_by_torch, classes.values()))
        changes = {node["vid"]: node["class"] or torch.Tensor for node in graph["nodes"] if fx.is_change_of_class(node)}
        classes |= changes
        self.classes = [(i, classes[vid], vid in changes) for i, vid in enumerate(graph["outputs"]) if vid in classes]
        self.switches = any(node["switches"] for node in graph["nodes"])
        self.made = {}
        self.nmade = 0
        self.sizes = _symbols.OpenSizes(self.entries, dynamic)
        self.told_exact = set()  # (input, dim)
        self.dynamic = []  # (Symbolic, inputs that share memory, function of all inputs): for all sizes that fit
        self.shapes = None  # the functions of its operators are graphs for inputs like these: notes, parsed
        self.waiting = None  # made for inputs that are like those of the recorded call, as far as is known: their kind, and what it is
        self.off = False  # a backend of ours has nothing for it
        self.quick = None  # results for inputs that a backend of ours knows again by itself, or None

    def __call__(self, *inputs):
        if self.off:
            return None
        if _len_function_modes() or _len_dispatch_modes():
            return None
        if not self.switches:
            return self._run(inputs)
        with _settings():
            return self._run(inputs)

    def _run(self, inputs):
        if self.quick is not None:
            results = self.quick(inputs)
            if results is not None:
                return self._outputs(results)
        key = self._key(inputs)
        fn = self.made.get(key, _NOTHING)
        if fn is _NOTHING:
            fn = self._find(key, inputs)
        if fn is None:
            return None
        try:
            with self._overriding(inputs):
                results = self._outputs(fn(*inputs))
            self.quick = getattr(fn, "quick", None)
            return results
        except Declined as declined:
            return self._decline(key, declined)
        except Exception as error:
            if not self.pure:
                raise
            if self._is_programs_error(inputs):
                return None
            if not config.suppress_errors:
                raise
            self.made[key] = None
            self.suppress(error, f"what {_name(self.backend)} made of it raised {_messages.describe_error(error)}")
            return None

    def _decline(self, key, declined):
        if not isinstance(declined, Busy):
            self.note(f"it is not launched as a CUDA graph: {declined}")
            self.made[key] = None
            self.off = not any(self.made.values())
        return self._outputs(declined.results) if isinstance(declined, Seen) else None

    def _overriding(self, inputs):
        """Graphs run without __torch_function__: what it does is in them, unless torch itself does it."""
        by_torch = self.by_torch or any(_is_handled_by_torch(type(value)) for value in inputs)
        return contextlib.nullcontext() if by_torch else _without_overrides()

    def _is_programs_error(self, inputs):
        """Do the program's own calls raise? Step by step they do so at the right line."""
        try:
            with self._overriding(inputs):
                self._quiet(self.gm, self.gm)(*inputs)
        except Exception:
            return True
        return False

    def _outputs(self, result):
        if isinstance(result, torch.Tensor):
            result = (result,)
        result = tuple(result)
        if len(result) != self.count:
            raise RuntimeError(f"the backend returned {len(result)} results for a graph with {self.count} outputs")
        return self._with_classes(result) if self.classes else result

    def _with_classes(self, result):
        """Graphs compute with tensors of whatever class; results have the classes that were recorded."""
        result = list(result)
        for i, cls, exact in self.classes:
            if isinstance(result[i], torch.Tensor) and not (type(result[i]) is cls if exact else isinstance(result[i], cls)):
                result[i] = result[i].as_subclass(cls)
        return tuple(result)

    def _key(self, inputs):
        key = tuple(map(_describe, inputs))
        shared = frozenset() if self.pure else _shared(inputs)
        return (*key, shared) if shared else key

    def _find(self, key, inputs):
        if self.waiting is not None:
            waiting_key, fn = self.waiting
            self.waiting = None
            if waiting_key == key:
                self.made[key] = fn
                return fn
        for symbolic, shared, fn in reversed(self.dynamic):
            if symbolic.fits(inputs) and (self.pure or shared == _shared(inputs)):
                return self._keep(key, fn)
        if self.nmade >= LIMIT:
            self.note(f"the backend was called {LIMIT} times, each for other sizes, dtypes or numbers among its inputs")
            return None
        return self._keep(key, self.build(inputs, launched=True))

    def _keep(self, key, fn):
        if len(self.made) >= KEYS:
            self.made.clear()
        self.made[key] = fn
        return fn

    def build_example(self, examples):
        inputs = [examples[leaf["vid"]] if leaf["vid"] in examples else _imitate(leaf["note"], leaf.get("class"), leaf.get("grad")) for leaf in self.entries]
        if any(value is _NOTHING for value in inputs):
            return  # built at the first launch
        fn = self.build(inputs)
        key = self._key(inputs)
        if all(leaf["vid"] in examples for leaf in self.entries):
            self.made[key] = fn
        elif not self.dynamic:
            self.waiting = key, fn

    def build(self, inputs, launched=False):
        """Calls the backend; None when it raised and that is suppressed, or when the graph itself raises for the inputs of a launch."""
        if self.shapes is not None and not all(map(_is_like, inputs, self.shapes)):
            self.note("the functions of its operators were recorded for other sizes")
            return None
        from ._engine import engine

        self.nmade += 1
        with _settings():  # who runs the graph's nodes may leave them switched
            return engine._run_held(self._compile, inputs, launched)

    def _compile(self, inputs, launched):
        symbolic = self._find_symbols(inputs) if self.shapes is None and _reads_metadata(self.backend) else None
        start = time.perf_counter_ns()
        try:
            try:
                fn = self._call_backend(inputs, symbolic)
            except Exception as error:
                if symbolic is None or not symbolic.floats or type(error).__name__ != "TensorifyScalarRestartAnalysis":
                    raise
                self.sizes.floats = False  # AOTAutograd: what is made holds for one value of a float
                symbolic = self._find_symbols(inputs)
                fn = self._call_backend(inputs, symbolic)
        except _Waited as waited:
            raise waited.error from None
        except Declined as declined:
            self.note(f"it is not launched as a CUDA graph: {declined}")
            return None
        except Exception as error:
            if launched and self.pure and self._is_programs_error(inputs):
                return None
            failed = f"backend {_name(self.backend)} raised {_messages.describe_error(error)}"
            if not config.suppress_errors:

                from ._engine import engine

                engine._log_fallback(self.name, failed, "BACKEND_FAILED")
                raise _backend_failed(self.backend, error) from error
            self.suppress(error, failed)
            return None
        from ._engine import engine

        engine._log_lower(self.name, self.entry, self.number, _name(self.backend), time.perf_counter_ns() - start)
        if symbolic is not None:
            self.dynamic.append((symbolic, None if self.pure else _shared(inputs), fn))
        return fn

    def _find_symbols(self, inputs):
        """Symbols, where a size is open in the recording; None: there is none, or PyTorch has no symbols for such inputs."""
        opens = self.sizes.find(inputs)
        floats = self.sizes.floats
        free = self.sizes.dynamic is not False and any(type(value) is int or (floats and type(value) is float) for value in inputs)
        if not any(opens) and not free and not any(leaf["vid"] in self.numbers for leaf in self.entries):
            return None
        try:
            symbolic = _symbols.Symbolic(self.entries, inputs, opens, floats)
            symbolic.again = self.pure
            return symbolic
        except Exception as error:
            self.note(f"its sizes cannot be symbols, so it is compiled for each: {type(error).__name__}: {error}")
            return None

    def _call_backend(self, inputs, symbolic):
        """A function of all inputs."""
        if symbolic is None:
            with self._describe_nodes(inputs) if _reads_metadata(self.backend) else contextlib.nullcontext():
                gm, join = self._open_outputs() if self.nested else (self.gm, None)
                return _joined(self._quiet(_check_callable(self._ask_backend(gm, list(inputs))), gm), join)
        gm = fx.to_graph_module(self.graph, self.numbers, symbolic)
        free = {i for i, dim in symbolic.places if dim is None}  # numbers, which are inputs by themselves
        given, places, tensors = [], [], iter(i for i in range(len(inputs)) if i not in free)
        for node in gm.graph.find_nodes(op="placeholder"):
            i, dim = node.meta.pop("place", None) or (next(tensors), _ALL)
            places.append((i, dim))
            fake = symbolic.fakes[i] if dim in (None, float, _ALL) else symbolic.fakes[i].size(dim)
            node.meta["example_value"] = fake
            given.append(inputs[i] if dim == _ALL else symbolic.floats[i] if dim is float else fake)
        with _compiling(self, symbolic.context):
            fixing = {}  # a size: the node that leaves one value of it
            fill_example_values(gm, symbolic.mode, lambda node: fixing.update(dict.fromkeys(symbolic.fixed_sizes() - set(fixing), node)))
            join = _split_outputs(gm) if self.nested else None
            fn = _joined(self._quiet(_check_callable(self._ask_backend(gm, given)), gm), join)
        fixing.update(dict.fromkeys(symbolic.fixed_sizes() - set(fixing)))
        self._tell_exact_sizes(inputs, fixing)
        return lambda *now: fn(*(now[i].shape[dim] if type(dim) is int else _symbols.float_tensor(now[i]) if dim is float else now[i] for i, dim in places))

    def _tell_exact_sizes(self, inputs, fixing):
        """Sizes that the program has marked as dynamic, and that what was compiled accepts one value of: each once for a recording."""
        from ._engine import engine

        for (i, dim), node in sorted(fixing.items()):
            if dim not in _symbols.marked(inputs[i], "dynamic") or (i, dim) in self.told_exact:
                continue
            self.told_exact.add((i, dim))
            source = _SOURCE.sub(r"\1", self.entries[i]["source"]) + f".shape[{dim}]"
            line = _LINE.search(node.meta.get("stack_trace") or "") if node is not None else None
            why = f"{_name(node.target) if callable(node.target) else node.target}() holds for this size only" if node is not None else f"backend={_name(self.backend)!r} assumes this size"
            engine._log_exact_size(self.name, self.entry, source, inputs[i].shape[dim], line and line["file"], int(line["line"]) if line else 0,
                                   f"{source} is marked with mark_dynamic, but graph {self.number} is compiled for {inputs[i].shape[dim]} only, because {why}. The backend is called "
                                   "again for each other size. To leave the size open, write the line so that it holds for every size; to keep it as it is, use maybe_mark_dynamic, or drop the mark.")

    def _ask_backend(self, gm, inputs):
        from ._engine import engine

        try:
            engine._run_admitted()
        except BaseException as error:
            raise _Waited(error) from None
        return engine._run_admitted(self.backend, gm, inputs)

    def _describe_nodes(self, inputs):
        """Notes what the graph's nodes give, as far as PyTorch can say; its context of a compilation, for the call of the backend."""
        try:
            known = _symbols.Symbolic(self.entries, inputs)
        except Exception:  # PyTorch has no fake tensors of such a kind
            return contextlib.nullcontext()
        for node, fake in zip(self.gm.graph.find_nodes(op="placeholder"), known.fakes):
            node.meta["example_value"] = fake
        fill_example_values(self.gm, known.mode)
        return _compiling(self, known.context)

    def _open_outputs(self):
        """The graph with the items of its tuples as outputs, and what makes tuples of them again."""
        gm = torch.fx.GraphModule(self.gm, copy.deepcopy(self.gm.graph))
        return gm, _split_outputs(gm)

    def _quiet(self, fn, given):
        """A graph module prints the place of an error before it raises it. Where nobody has changed the graph the error is the program's own, which
        raises it again at its line; an assertion that does not hold is nobody's error."""
        ours = isinstance(fn, torch.fx.GraphModule) and not (fn._forward_hooks or fn._forward_pre_hooks)
        asserts = ours and any(node["callable"] in ASSERTIONS for node in self.graph["nodes"])
        return fn.forward if asserts or (ours and fn is given) else fn

    def suppress(self, error, reason):
        self.note(reason, "BACKEND_FAILED")
        logging.getLogger("torch._dynamo").warning("backend=%r raised: %r; the graph runs step by step (suppress_errors is on)",
                                                   _name(self.backend), error)

    def note(self, reason, why=""):
        from ._engine import engine

        if self.backend is census:
            return
        engine._log_fallback(self.name, f"graph {self.number} of entry {self.entry} runs step by step: {reason}", why)


def _is_handled_by_torch(kind):
    """Is it a class of torch's own (nested tensors), whose functions see to its operators?"""
    return kind is not torch.Tensor and issubclass(kind, torch.Tensor) and kind.__module__.startswith("torch.") and \
        getattr(kind.__torch_function__, "__func__", None) not in (None, fx.DEFAULT_OVERRIDE)


def _reads_metadata(backend):
    """Does it look at what the graph's nodes give, and take sizes as symbols? Backends of users do; ours say so."""
    return getattr(backend, "reads_metadata", True)


def _check_callable(fn):
    if not callable(fn):
        raise TypeError(f"the backend returned {type(fn).__name__}, expected a callable")
    return fn


def _split_outputs(gm):
    """Backends expect tensors and numbers as outputs: a tuple or list of tensors (x.chunk(4), torch.max(x, 0)) is replaced by its items. Returns
    (class, number of items) for each output, None for one that stays; None: all of them stay."""
    (output,) = gm.graph.find_nodes(op="output")
    items, join = [], []
    for node in output.args[0]:
        value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
        if not isinstance(value, (tuple, list)) or not all(isinstance(item, torch.Tensor) for item in value):
            items.append(node)
            join.append(None)
            continue
        join.append((type(value), len(value)))
        with gm.graph.inserting_before(output):
            for i, item in enumerate(value):
                items.append(gm.graph.call_function(operator.getitem, (node, i)))
                items[-1].meta["example_value"] = item
    if not any(join):
        return None
    output.args = (tuple(items),)
    gm.recompile()
    return join


def _joined(fn, join):
    """fn with the items of each tuple put together again."""
    if join is None:
        return fn

    def run(*inputs):
        items = iter(fn(*inputs))
        return [next(items) if part is None else part[0](itertools.islice(items, part[1])) for part in join]

    return run


def fill_example_values(gm, mode, seen=None):
    """meta["example_value"] of all nodes, as far as PyTorch can say. Functions and operators of the program are not run for it. seen: is told of each node that was run."""
    class Interpreter(torch.fx.Interpreter):
        def run_node(self, node):
            args = pytree.tree_leaves(self.fetch_args_kwargs_from_env(node))
            fn = fx.torchscript_of(node.target) or node.target
            if (node.op == "call_function" and not is_torch(fn)) or not all(map(_is_of_library, args)) or makes_own_kernels((fn, *args)):
                raise NotImplementedError
            value = super().run_node(node)
            node.meta["example_value"] = value
            if seen is not None:
                seen(node)
            return value

    placeholders = [node.meta["example_value"] for node in gm.graph.find_nodes(op="placeholder")]
    try:
        with mode:
            Interpreter(gm).run(*placeholders)
    except Exception:
        pass


def _name(backend):
    return getattr(backend, "__name__", type(backend).__name__)


class _Named:
    """Stands for a backend that is an object, where PyTorch asks for a function's name."""

    def __init__(self, backend):
        self.__name__ = repr(backend)


def _describe(value):
    """What a compiled graph may depend on, apart from the data."""
    if not isinstance(value, torch.Tensor):
        return (type(value), value) if type(value) in (int, float, bool, str) else type(value)
    if value.is_nested:
        return type(value), _symbols.sizes_of(value), value.layout, value.dtype, value.device, value.requires_grad
    strides = value.stride() if value.layout is torch.strided else None
    return type(value), value.shape, strides, value.dtype, value.device, value.requires_grad


def _shared(inputs):
    """Which inputs are one tensor, or share memory with an earlier one, and where: in a graph that writes, a write to one is seen in the other."""
    tensors, memory, shared = {}, {}, []
    for i, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_nested:
            continue
        same = tensors.setdefault(id(value), i)
        try:
            first = memory.setdefault(value.untyped_storage()._cdata, i)
        except RuntimeError:  # a class without memory of its own
            first = same
        if first != i:
            shared.append((i, same, first, value.storage_offset() - inputs[first].storage_offset()))
    return frozenset(shared)


def _is_like(value, parts):
    if parts is None or not isinstance(value, torch.Tensor):
        return parts is None and not isinstance(value, torch.Tensor)
    return (value.dtype, list(_symbols.sizes_of(value))) == (parts[0], parts[1])


def imitate(note, cls=None):
    """A tensor of zeros that looks like the recorded one, or None."""
    value = _imitate(note, cls)
    return None if value is _NOTHING else value


def _imitate(note, cls=None, grad=False):
    parts = fx.parse_note(note)
    if parts is None:
        return _NOTHING
    dtype, sizes, strides, device = parts
    with torch.no_grad():
        value = torch.empty_strided(sizes, strides, dtype=dtype, device=device).zero_()
    may_require = value.is_floating_point() or value.is_complex()
    if cls is torch.nn.Parameter:
        return torch.nn.Parameter(value, requires_grad=may_require)
    return value.requires_grad_() if grad and may_require else value


def _backend_failed(backend, error):
    """PyTorch's exception; from 2.7 on it is told of a frame, too."""
    from torch._dynamo.exc import BackendCompilerFailed
    frame = [None] if len(inspect.signature(BackendCompilerFailed.__init__).parameters) > 3 else []
    return BackendCompilerFailed(backend if hasattr(backend, "__name__") else _Named(backend), error, *frame)


def makes_own_kernels(call):
    """Does TorchScript make kernels for a function, call[0], where its operands are (GPUs; Debian's PyTorch, also the CPU)? They would look for a fake
    tensor's data."""
    fn, *args = call
    if fx.torchscript_of(fn) is None:
        return False
    on_cpu = all(arg.device.type == "cpu" for arg in args if isinstance(arg, torch.Tensor))
    return torch._C._jit_can_fuse_on_cpu() if on_cpu else torch._C._jit_can_fuse_on_gpu()


def _is_of_library(value):
    """Is the class PyTorch's or Python's own? Operators of others run code of the program."""
    return type(value).__module__.partition(".")[0] in ("torch", "builtins", "kintsugi")
