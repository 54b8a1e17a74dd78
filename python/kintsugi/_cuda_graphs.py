"""mode="reduce-overhead" on a GPU: graphs are launched as CUDA graphs.

Where kernels are short, a GPU waits for the processor that launches them one by one. A CUDA graph is a recording of such launches, with
the addresses that they read and write, that the driver launches as one. The engine hands over each graph of a recording whose tensors are on a
GPU; here its first call runs the calls as they are and looks at what they do, the second captures them, and later ones replay. What cannot be
captured soundly is declined with a reason, and runs step by step.

Soundness. A captured graph reads fixed addresses, so an input is either where it was (weights: the address is compared at every
launch, which makes it the same memory, whoever owns it) or copied into a tensor that the graph owns. It must not write to inputs, draw random
numbers, touch other devices, or look at data: a dispatch mode sees every operator of the first call. Settings that choose among kernels are part of what
a captured graph is looked up by. Results are copied out, so that the next launch does not overwrite them.
"""

import gc
import operator
import statistics
import struct
import threading
import time
import warnings

import torch
from torch.utils import _pytree

from ._launch import Busy, Declined, Seen
from .fx import torchscript_of

CAPTURES = 8  # captured graphs for each graph of a recording; more kinds of inputs run step by step
TRIES = 3
WORTH = 0.97  # of the time of its calls: a captured graph that takes longer is not used
_NAMESPACES = ("aten", "prims", "prim")


class Device:
    """A GPU, as far as capturing needs it. Tests put a device of their own in its place."""

    def __init__(self, index):
        self.index = index
        self.pool = torch.cuda.graph_pool_handle()  # of all graphs: they run one after the other, and results are copied out
        self.stream = torch.cuda.Stream(index)  # for captures
        self.lock = threading.RLock()
        self.event = torch.cuda.Event()  # behind the last launch of a captured graph
        self.used = None  # the stream of that launch
        self.launches = 0
        self.broken = self.failed = None  # why nothing is captured any more, and the graph with which that began
        zeros = torch.zeros(1, device=f"cuda:{index}")
        self.keeper = self.capture(lambda: zeros + 1)  # a pool goes with the last of its graphs, and cannot be used again

    @staticmethod
    def is_capturing():
        return torch.cuda.is_current_stream_capturing()

    def random_state(self):
        return torch.cuda.get_rng_state(self.index)

    def has(self, tensor):
        return tensor.device.type == "cuda" and tensor.device.index == self.index

    def capture(self, run):
        """(graph, what run() returned): the tensors that each launch of the graph fills anew."""
        if self.broken is not None:
            raise RuntimeError(self.broken)
        graph = torch.cuda.CUDAGraph()
        self.stream.wait_stream(torch.cuda.current_stream(self.index))
        collects = gc.isenabled()
        gc.disable()  # what it frees might end the capture
        try:
            with torch.cuda.stream(self.stream):
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                try:
                    results = run()
                finally:
                    self._end(graph)
        finally:
            if collects:
                gc.enable()
        torch.cuda.current_stream(self.index).wait_stream(self.stream)
        return graph, results

    def _end(self, graph):
        """A capture that the driver has ended on its own leaves PyTorch waiting for its end: the generator of random numbers, which is given a state of its own
        again, and the pool, in which nothing is captured any more."""
        try:
            graph.capture_end()
        except Exception as error:
            self.broken = f"an earlier capture failed ({str(error).splitlines()[0]}), and no other can follow in this process"
            self.failed = graph  # the pool still asks it
            generator = torch.cuda.default_generators[self.index]
            generator.graphsafe_set_state(generator.clone_state())
            raise

    def enter_launch(self):
        """Launches of captured graphs share memory: one on another stream waits for the one before."""
        stream = torch.cuda.current_stream(self.index)
        if self.used is not None and self.used != stream:
            stream.wait_event(self.event)
        self.used = stream
        self.launches += 1

    def leave_launch(self):
        self.event.record(self.used)

    def wait(self):
        torch.cuda.synchronize(self.index)


_devices = {}
_readers = None
_lock = threading.Lock()


def device_of(tensor):
    """The Device of a tensor that captured graphs may work on; None: it is on none."""
    if tensor.device.type != "cuda":
        return None
    with _lock:
        if tensor.device.index not in _devices:
            _devices[tensor.device.index] = Device(tensor.device.index)
        return _devices[tensor.device.index]


def _settings_readers():
    """Functions without arguments that return the settings which choose among kernels (core/trace/callables.def)."""
    global _readers
    if _readers is None:
        from ._engine import engine

        found = []
        for name in engine._settings_readers():
            read = getattr(torch._C, name, None)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    hash(read())
            except Exception:  # it needs arguments, is deprecated, or asks for something that is not there
                continue
            found.append(read)
        _readers = found
    return _readers


def settings():
    return tuple([read() for read in _settings_readers()]), torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")


def backend(gm, inputs):
    """The callable for one graph and inputs of one kind (kintsugi._launch). Raises Declined."""
    tensors = _tensors(inputs)
    if not tensors:
        raise Declined("it takes no tensor")
    if tensors[0].is_cuda and Device.is_capturing():
        raise Declined("its first call is part of a capture of the program's")
    device = device_of(tensors[0])
    if device is None:
        raise Declined(f"it takes a tensor on {tensors[0].device}")
    odd = [value for value in inputs if not (isinstance(value, torch.Tensor) or _is_plain(value))]
    if odd:
        raise Declined(f"it takes a {type(odd[0]).__name__}")
    held = [node.target for node in gm.graph.nodes if node.op in ("get_attr", "call_module")]
    if held:
        raise Declined(f"it holds something of its own ({held[0]})")
    scripted = [node.target for node in gm.graph.nodes if torchscript_of(node.target) is not None]
    if scripted:
        raise Declined(f"it calls {scripted[0].__name__}, which is TorchScript: it may make its kernels while the graph is captured")
    return Captures(gm, device)


backend.__name__ = "cuda_graphs"
backend.reads_metadata = False


class Captures:
    """A graph of a recording for inputs of one kind: the CUDA graphs of it, by settings."""

    def __init__(self, gm, device):
        self.gm, self.device = gm, device
        self.captured = {}
        self.first = None  # settings and addresses of the first call
        self.why = None
        self.tries = 0

    def quick(self, inputs):
        """The results, where a captured graph fits; None: there is none, or the program is capturing itself."""
        graph = self.captured.get(settings())
        if graph is None or self.device.is_capturing():
            return None
        try:
            return graph.launch(inputs)
        except Exception as error:
            self._stop(f"launching it raised {_in_words(error)}")
            return None

    def __call__(self, *inputs):
        if self.why is not None:
            raise Declined(self.why)
        if self.device.is_capturing():
            raise Busy
        with self.device.lock:
            results = self.quick(inputs)
            if results is not None:
                return results
            if self.why is not None:
                raise Declined(self.why)
            try:
                return self._learn(inputs, settings())
            except Declined as declined:
                self._stop(str(declined))
                raise

    def _stop(self, why):
        self.why = why
        self.captured.clear()

    def _learn(self, inputs, now):
        """The first call runs and is looked at, the second is captured."""
        if torch.is_grad_enabled() and any(value.requires_grad for value in _tensors(inputs)):
            raise Declined("gradients are wanted")
        if self.first is None or self.first[0] != now:
            results = look(self.gm, inputs, self.device)
            self.first = now, _addresses(inputs)
            return results
        moved = {i for i, (a, b) in enumerate(zip(self.first[1], _addresses(inputs))) if a != b}
        graph = self.captured.get(now)
        if graph is not None:
            moved |= graph.copied
        self.tries += 1
        if self.tries > CAPTURES // 2:  # inputs move now and then: all that may
            moved |= {i for i, value in enumerate(inputs) if type(value) is torch.Tensor}
        if self.tries > CAPTURES:
            raise Declined(f"its inputs or settings changed more than {CAPTURES} times")
        graph = Graph(self.gm, self.device, inputs, moved)
        try:
            if not graph.pays(inputs):
                raise Declined("measured: its calls are as fast one by one")
            self.captured[now] = graph
            return graph.launch(inputs)
        except Declined:
            raise
        except Exception as error:
            raise Declined(f"launching it raised {_in_words(error)}") from error


def _is_plain(value):
    """Something that is the same wherever it is equal."""
    return type(value) in (int, float, bool, str, type(None), torch.dtype, torch.device, torch.memory_format) or (
        type(value) in (tuple, torch.Size, slice) and all(map(_is_plain, (value.start, value.stop, value.step) if type(value) is slice else value)))


def _tensors(inputs):
    return [value for value in inputs if isinstance(value, torch.Tensor)]


def _addresses(inputs):
    return [value.data_ptr() if isinstance(value, torch.Tensor) else 0 for value in inputs]


def look(gm, inputs, device):
    """Runs the graph's calls as they are; raises Declined afterwards, with nothing lost, never instead."""
    watch = _Watch(inputs, device)
    before = device.random_state()
    torch._C._push_on_torch_dispatch_stack(watch)
    try:
        results = gm.forward(*inputs)
    except Exception as error:
        if watch.changed:  # not to be done again
            raise
        raise Declined(f"its calls raised {_in_words(error)}") from error  # step by step they do so at the right line
    finally:
        torch._C._pop_torch_dispatch_stack(None)
    if not watch.launches:
        watch.why = watch.why or "nothing is computed in it"
    elif not torch.equal(before, device.random_state()):
        watch.why = watch.why or "it draws random numbers"
    for value in _pytree.tree_leaves(results):
        if watch.why is None:
            watch.why = _why_not_result(value, _tensors(inputs), device)
    if watch.why is not None:
        raise Seen(watch.why, results)
    return results


def _why_not_result(value, inputs, device):
    if any(value is given for given in inputs):
        return None
    if type(value) is not torch.Tensor or value.layout is not torch.strided or value.is_conj() or value.is_neg():
        return f"a result is a {type(value).__name__} of a kind that is not copied"
    if value.requires_grad:
        return "a result requires a gradient"
    if not device.has(value):
        return f"a result is on {value.device}"
    if value.numel() and any(_shares(value, given) for given in inputs):
        return "a result is a view of an argument"
    return None


def _shares(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _in_words(error):
    return f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"


class _Watch:
    """A dispatch mode that looks at each operator: could a recording of its launches be replayed? (PyTorch's own class of modes imports its
    compiler, which takes seconds.)"""

    def __init__(self, inputs, device):
        self.device, self.why = device, None
        self.changed = False  # an input, or the state of a generator
        self.launches = 0  # operators that are no views
        self.memory = {value.untyped_storage().data_ptr() for value in _tensors(inputs) if value.numel()}

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        why = self._changes(op, args, kwargs) or self._why_not(op, args, kwargs)
        self.why = self.why or why
        self.launches += not all(part.alias_info is not None and not part.alias_info.is_write for part in op._schema.returns)
        return op(*args, **kwargs)

    def _why_not(self, op, args, kwargs):
        if torch.Tag.data_dependent_output in op.tags or (torch.Tag.dynamic_output_shape in op.tags and not _indexes_by_numbers(op, args)):
            return f"what {op} gives depends on data"
        return self._why_not_tensors(op, (*args, *kwargs.values()))

    def _changes(self, op, args, kwargs):
        """What doing it twice would change, in words."""
        why = None
        if op.namespace not in _NAMESPACES:
            why = f"{op} is not an operator of PyTorch's, and may do more than launch kernels"
        elif torch.Tag.nondeterministic_seeded in op.tags and not _drops_nothing(op, args, kwargs):
            why = f"{op} draws random numbers"
        elif self._writes(op, args, kwargs):
            why = f"{op} writes to an argument"
        self.changed = self.changed or why is not None
        return why

    def _writes(self, op, args, kwargs):
        given = _arguments(op, args, kwargs)
        written = [name for name, argument in zip(given, op._schema.arguments) if argument.alias_info is not None and argument.alias_info.is_write]
        if given.get("training", given.get("train")) is True:  # some of these do not say that they write
            written += [name for name in ("running_mean", "running_var") if name in given]
        return any(self._is_input(given[name]) for name in written)

    def _is_input(self, value):
        parts = value if isinstance(value, (tuple, list)) else (value,)
        return any(isinstance(part, torch.Tensor) and part.numel() and part.untyped_storage().data_ptr() in self.memory for part in parts)

    def _why_not_tensors(self, op, values):
        for value in values:
            for part in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(part, torch.Tensor) and part.layout is not torch.strided:
                    return f"{op} works on a tensor that is not strided"
                if isinstance(part, torch.Tensor) and not self.device.has(part):
                    return f"{op} works on a tensor on {part.device}"
        return None


def _arguments(op, args, kwargs):
    """By name, as far as they are given."""
    return {argument.name: args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value if argument.has_default_value() else None)
            for i, argument in enumerate(op._schema.arguments)}


def _drops_nothing(op, args, kwargs):
    """Attention may draw random numbers, for dropout alone."""
    return _arguments(op, args, kwargs).get("dropout_p", 1) == 0


def _indexes_by_numbers(op, args):
    """x[i]: the sizes that it gives follow from those of i, unless i is a mask."""
    return op is torch.ops.aten.index.Tensor and all(index is None or index.dtype not in (torch.bool, torch.uint8) for index in args[1])


class Graph:
    """A captured graph for inputs of one kind."""

    def __init__(self, gm, device, inputs, moved):
        from ._engine import engine

        self.gm, self.device, self.fits = gm, device, engine._inputs_fit
        self.at = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        self.numbers = [(i, value) for i, value in enumerate(inputs) if not isinstance(value, torch.Tensor)]
        self.records = engine._describe_inputs(tuple(inputs[i] for i in self.at))
        if self.records is None:
            raise Declined("an input is of a class of its own, or not strided")
        self.copied = frozenset(moved)
        self.order = sorted(moved)
        if any(_overlaps(inputs[i]) for i in moved):
            raise Declined("an input of which several elements are in one place comes at another one")
        self.places = struct.pack(f"{len(self.at)}Q", *(0 if i in moved else inputs[i].data_ptr() for i in self.at))
        self.own = [torch.empty_strided(inputs[i].size(), inputs[i].stride(), dtype=inputs[i].dtype, device=inputs[i].device) for i in self.order]
        given = list(inputs)
        for i, own in zip(self.order, self.own):
            given[i] = own
        with torch.no_grad():
            self._copy(inputs)
            self.graph, results = self._capture(given)
        results, self.tree = _flatten(results)
        self.given = [next((i for i, value in enumerate(given) if value is result), None) for result in results]
        self.results = [None if at is not None else value for at, value in zip(self.given, results)]
        self.groups = _by_memory(self.results)

    def _copy(self, inputs):
        if self.own:
            torch._foreach_copy_(self.own, [inputs[i] for i in self.order])

    def _capture(self, given):
        cached = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)  # a weight that was cast inside of the capture lives in its memory
        try:
            with self.device.lock:
                return self.device.capture(lambda: self.gm.forward(*given))
        except Exception as error:
            raise Declined(f"capturing it raised {_in_words(error)}") from error
        finally:
            torch.set_autocast_cache_enabled(cached)

    def launch(self, inputs):
        """The results; None: it was captured for other inputs."""
        tensors = inputs if not self.numbers else tuple(inputs[i] for i in self.at)
        if any(type(inputs[i]) is not type(value) or inputs[i] != value for i, value in self.numbers) or \
                not self.fits(tensors, self.records, self.places):
            return None
        with self.device.lock, torch.no_grad():
            self.device.enter_launch()
            self._copy(inputs)
            self.graph.replay()
            results = [inputs[at] if at is not None else None for at in self.given]
            for group in self.groups:
                for at, value in group():
                    results[at] = value
            self.device.leave_launch()
        return results if self.tree is None else _pytree.tree_unflatten(results, self.tree)

    def pays(self, inputs):
        """Both ways in turns, each with its waiting."""
        times = [], []
        for _ in range(TRIES):
            for taken, run in zip(times, (lambda: self.gm.forward(*inputs), lambda: self.launch(inputs))):
                self.device.wait()
                start = time.perf_counter()
                run()
                self.device.wait()
                taken.append(time.perf_counter() - start)
        return statistics.median(times[1]) < WORTH * statistics.median(times[0])


def _flatten(results):
    """Tensors, and how tuples among the results are made of them; None: there are none."""
    leaves, tree = _pytree.tree_flatten(results)
    return (list(results), None) if len(leaves) == len(results) and all(map(operator.is_, leaves, results)) else (leaves, tree)


def _overlaps(value):
    """May two of its elements be at one place?"""
    reach = 1
    for size, stride in sorted(zip(value.size(), value.stride()), key=operator.itemgetter(1)):
        if size > 1 and stride < reach:
            return True
        reach = max(reach, (size - 1) * stride + 1) if size else reach
    return False


def _by_memory(results):
    """Functions that copy what shares memory, and give (number, copy) of each result."""
    groups = {}
    for at, value in enumerate(results):
        if value is not None:
            groups.setdefault(value.untyped_storage()._cdata, []).append(at)
    return [_copier(results, members) for members in groups.values()]


def _copier(results, members):
    first = results[members[0]]
    alone = len(members) == 1 and not _overlaps(first) and first.numel() * first.element_size() == first.untyped_storage().nbytes()
    if alone:
        return lambda: ((members[0], first.clone()),)
    memory = torch.empty(0, dtype=torch.uint8, device=first.device).set_(first.untyped_storage())
    shapes = [(at, results[at].dtype, results[at].size(), results[at].stride(), results[at].storage_offset()) for at in members]

    def copy():
        copied = memory.clone()
        return [(at, copied.view(dtype).as_strided(size, stride, offset)) for at, dtype, size, stride, offset in shapes]

    return copy
