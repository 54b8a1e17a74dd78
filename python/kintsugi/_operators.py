"""torch.cond and its like under install(): what their own checks compile, and how often.

A higher order operator that runs outside torch.compile compiles the functions it was handed, to check them and to run
them. That is PyTorch's own compiler's work, and stays so. Once a torch.cond with these functions and this kind of operands
has passed, its meaning is known (`true_fn(*operands) if pred else false_fn(*operands)`), and that is what later calls do.
"""

import builtins
import collections
import dis
import functools
import importlib
import logging
import sys
import threading
import types

import torch

from ._engine import engine

LIMIT = 4096


def check_not(value):
    """In graphs: what was tested is false. Where it is not, the graph's steps run one by one."""
    if isinstance(value, torch.Tensor):
        torch._assert_async(torch.logical_not(value))
    else:
        torch._check(not value)


def check_equal(value, known):
    torch._check(value == known)


def greatest(a, b):
    """In graphs: max(a, b) of two tensors, which is one of them."""
    return torch.where(b > a, b, a)


def least(a, b):
    return torch.where(b < a, b, a)


_quiet = ("torch._dynamo.output_graph.__graph_code", "torch._dynamo.guards.__guards", "torch._dynamo.guards.__recompiles",
          "torch.fx.passes.runtime_assert.__graph_code")
_passed = set()


_own = threading.local()
_is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # torch 2.7 has it


def in_operator(fn=None):
    """True while an operator compiles the functions it was handed; fn: what is compiled, for versions in which nothing else tells."""
    utils = sys.modules.get("torch._higher_order_ops.utils")
    mark = getattr(utils, "_hop_compile_tls", None)
    return getattr(mark, "in_hop_compile", False) or getattr(_own, "inside", False) or \
        (getattr(fn, "__module__", None) or "").startswith("torch._higher_order_ops.")


def _inside(compiled):
    def run(*args, **kwargs):
        before, _own.inside = getattr(_own, "inside", False), True
        try:
            return compiled(*args, **kwargs)
        finally:
            _own.inside = before
    return run


def maker_of(code, namespace, name):
    """In graphs: makes the function that the program makes there, of its defaults and what its cells hold."""
    def make_function(defaults, kwdefaults, *cells):
        made = types.FunctionType(code, namespace, code.co_name, defaults, tuple(map(types.CellType, cells)))
        made.__kwdefaults__, made.__qualname__ = kwdefaults, name or code.co_name
        return made
    make_function.makes_function = True
    return make_function


def getter_of(value):
    """In graphs: gives a function, or another object that text cannot hold."""
    def get_object():
        return value
    get_object.makes_function = True
    return get_object


def makes_function(node):
    """Does the node of a graph make a function?"""
    return node.op == "call_function" and getattr(node.target, "makes_function", False)


def _hide(record):
    return not in_operator()


def compile_operator(stock_compile, fn, **kwargs):
    """What torch.compile(fn) is inside an operator."""
    compiled = _inside(_inside(stock_compile)(fn, **kwargs))
    for name in _quiet:  # the program has one graph, and that is ours
        logging.getLogger(name).addFilter(_hide)
    if fn.__module__ == "torch._higher_order_ops.cond":
        return functools.partial(_run_cond, compiled)
    return compiled


def _run_cond(compiled, pred, true_fn, false_fn, operands):
    key = _describe(pred, true_fn, false_fn, operands)
    if key is None or key not in _passed:
        result = compiled(pred, true_fn, false_fn, operands)
        if key is not None and len(_passed) < LIMIT:
            _passed.add(key)
        return result
    return run_cond(pred, true_fn, false_fn, operands)


def _describe(pred, true_fn, false_fn, operands):
    """What the operator's checks depend on, or None when that is not plain enough."""
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() or \
            torch._C._functorch.maybe_current_level() is not None or _is_exporting() or \
            torch.jit.is_tracing():
        return None
    tensors = [pred, *operands]
    if not (type(true_fn) is type(false_fn) is types.FunctionType and
            all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in tensors)):
        return None
    return (true_fn.__code__, false_fn.__code__, torch.is_grad_enabled(),
            *[(t.dtype, t.shape, t.stride(), t.device, t.requires_grad) for t in tensors])



# -- operators that run functions of the program ---------------------------------------------------------------------------------------

def _changing_methods():
    """The names of methods that change a container: those that its class has and no class of containers that cannot be changed."""
    fixed = {name for cls in (tuple, types.MappingProxyType, frozenset, bytes) for name in dir(cls)}
    return {name for cls in (list, collections.OrderedDict, set, collections.deque, bytearray) for name in dir(cls) if callable(getattr(cls, name))} - fixed


# Names that no function in a graph may read of an object: what changes containers, and of torch and files what acts or asks for data or for the compiler.
# (Methods that change tensors end in an underscore.)
_changing = _changing_methods()
_ACTING = _changing | {f"__i{name}__" for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift")} | {
    "write", "print", "backward", "register_hook", "register_post_accumulate_grad_hook", "item", "tolist", "numpy", "data", "manual_seed", "seed",
    "is_compiling", "is_dynamo_compiling", "graph_break", "disable", "set_grad_enabled", "set_default_dtype"}
# Canonical operations of the engine, the same for every CPython version.
_LOADS_NAME = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_NAME_OR_GLOBAL"}
_LOADS_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD"}
# In what a class of tensors does: it imports, raises, builds lists and dicts of its own.
_IN_CLASSES = frozenset({"IMPORT_NAME", "IMPORT_FROM", "IMPORT_ALL", "RAISE", "YIELD", "STORE_ITEM", "STORE_SLICE"})
_WITH_CONTEXT = frozenset({"STORE_ATTR", "RAISE"})
# In an autograd function whose operators our own captures see, so that they know what these write to, and which is handed no container.
_WITH_WRITES = frozenset({*_WITH_CONTEXT, "STORE_ITEM", "STORE_SLICE", "DELETE_ITEM"})
_ACTS = _IN_CLASSES | {"STORE_GLOBAL", "STORE_NAME", "STORE_ATTR", "DELETE_GLOBAL", "DELETE_NAME", "DELETE_ATTR", "DELETE_CELL", "DELETE_ITEM", "SEND",
                       "GET_AWAITABLE", "GET_ASYNC_ITER", "GET_ASYNC_NEXT", "LOAD_BUILD_CLASS", "BEGIN_ANNOTATIONS"}


_MAKES_NEW = {"BINARY_OP", "LOAD_CONST", "LOAD_SMALL_INT", "UNARY_NEGATIVE", "UNARY_INVERT"}


def _may_write(code):
    """Could `x += y` in the code, or a call that is told to, write to a tensor that the code has not made? A local variable that nothing but results of
    operators and constants are assigned to holds what the code has made."""
    if any(isinstance(const, tuple) and {"out", "inplace"} & {name for name in const if isinstance(name, str)} for const in code.co_consts):
        return True
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "EXTENDED_ARG", "NOP")]
    updated, others = set(), set(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)])
    for before, step in zip([None, *steps], steps):
        stored = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if before is not None and before.opname == "BINARY_OP" and before.argrepr.endswith("="):
            if not step.opname.startswith("STORE_FAST"):
                return True
            updated.add(stored[0])
        elif step.opname.startswith("STORE_FAST") and (before is None or before.opname not in _MAKES_NEW):
            others.add(stored[0])
        if step.opname.startswith("STORE_FAST_STORE"):
            others.add(stored[1])
    return not updated.isdisjoint(others)


@functools.lru_cache(maxsize=LIMIT)
def names_of(code, allowed=()):
    """The names that the code, and the functions in it, take from globals; None where it may do more than compute."""
    if _runners.get(code) is run_transform:
        return ()
    names, writes = [], allowed is _WITH_WRITES
    acting = _ACTING - _changing if writes else _ACTING
    for operation, name in engine._operations(code):
        if operation in _LOADS_NAME:
            names.append(name)
        elif operation in _ACTS and operation not in allowed:
            return None
        elif operation == "STORE_CELL" and name not in code.co_cellvars:
            return None
        elif operation in _LOADS_ATTRIBUTE and (name in acting or (not writes and name.endswith("_") and not name.endswith("__"))):
            return None
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            inner = names_of(const, allowed)
            if inner is None:
                return None
            names.extend(inner)
    if allowed is not _IN_CLASSES and not writes and _may_write(code):
        return None
    found = tuple(dict.fromkeys(names))
    return found if all(not hasattr(builtins, name) or _is_pure_builtin(getattr(builtins, name), bool(allowed)) for name in found) else None


@functools.cache
def _once_differentiable():
    """The code of what torch's decorator for functions that are differentiated once puts around them."""
    consts = torch.autograd.function.once_differentiable.__code__.co_consts
    return [const for const in consts if isinstance(const, types.CodeType) and const.co_name == "wrapper"]


def names_with_writes(code):
    """The same as names_with_context, of a function that may write to tensors, and to containers of its own."""
    return names_with_context(code, _WITH_WRITES)


@functools.lru_cache(maxsize=LIMIT)
def names_with_context(code, allowed=_WITH_CONTEXT):
    """The same of a function of an autograd.Function, which may store to its first argument's attributes and nothing else's."""
    if code in _once_differentiable():
        return ()  # it calls the function in its cell
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_ATTR" and (before if not isinstance(before, tuple) else before[-1]) != (code.co_varnames or (None,))[0]:
            return None
        before = instruction.argval
    return names_of(code, allowed)


# What the tensors that stand for the program's while a graph is captured answer in another way: their class, what was stored on them, their history.
_ASKING = {"isinstance", "issubclass", "type", "hasattr", "getattr", "vars", "dir", "id", "hash", "repr", "str"}
_ASKED = {"__class__", "__dict__", "grad", "grad_fn", "is_leaf", "retains_grad", "output_nr", "_version", "_base", "_is_view", "is_inference", "data_ptr",
          "untyped_storage", "storage"}


@functools.lru_cache(maxsize=LIMIT)
def asks_about_tensors(code):
    """Might the code, or a function in it, ask what a tensor that stands for another cannot tell? (torch.func.grad is no question.)"""
    if code in _once_differentiable() or _runners.get(code) is run_transform:
        return False
    before = None
    for operation, name in engine._operations(code):
        if (operation in _LOADS_NAME and name in _ASKING) or (operation in _LOADS_ATTRIBUTE and name in _ASKED and before != "func"):
            return True
        before = name
    return any(asks_about_tensors(const) for const in code.co_consts if isinstance(const, types.CodeType))


def _is_pure_builtin(value, in_class):
    """Does a builtin, as a function of the program calls it, compute and nothing else? The engine's table of callables says it."""
    if not callable(value):
        return True
    return engine._computes(value, not in_class) or (in_class and isinstance(value, type) and issubclass(value, BaseException))


def only_computes(function, depth=0):
    """Does a function, such as a class's __torch_dispatch__, do nothing that is seen afterwards, as far as its code and the functions that it calls by
    name tell? What it is handed, it may look at; classes that it calls make new objects."""
    function = getattr(function, "__func__", function)
    names = names_of(function.__code__, _IN_CLASSES) if isinstance(function, types.FunctionType) and depth < 4 else None
    if names is None:
        return False
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
    known = [function.__globals__[name] for name in names if name in function.__globals__]
    return all(_is_pure(value, depth) for value in (*cells, *known, *(function.__defaults__ or ())))


def _is_pure(value, depth):
    if isinstance(value, types.FunctionType) and not value.__module__.startswith("torch."):
        return only_computes(value, depth + 1)
    if isinstance(value, (types.BuiltinFunctionType, types.MethodType)):
        return isinstance(value.__self__, (types.ModuleType, type(None), type))
    stays = (type(None), type, types.FunctionType, types.ModuleType, int, float, str, bytes, tuple, frozenset, torch.dtype, torch.device)
    return isinstance(value, stays) or type(value).__module__.startswith("torch.")


def is_of_torch(function):
    return function.__globals__.get("__name__", "").partition(".")[0] == "torch" and function.__code__ not in _once_differentiable()


def runner_of(operator):
    """What does the operator's work at replay; None: it runs as an opaque step."""
    if not _runners:
        _find_operators()
    found = _runners.get(operator.__code__)
    return operator if found is _ITSELF else found


def _wants_gradients(*trees):
    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in torch.utils._pytree.tree_leaves(trees))


def run_cond(pred, true_fn, false_fn, operands=()):
    """What torch.cond computes. Its own checks have passed while the program was recorded."""
    return true_fn(*operands) if pred else false_fn(*operands)


_on_examples = False


def set_examples(on):
    """Tensors of ones are in the place of the program's (capture/data.c): of what comes, only the kind counts, and a loop need not end on them."""
    global _on_examples
    _on_examples = on


def run_while_loop(cond_fn, body_fn, carried_inputs):
    if _wants_gradients(carried_inputs):
        return _stock["while_loop"](cond_fn, body_fn, carried_inputs)
    if _on_examples:
        return body_fn(*carried_inputs)
    carried = carried_inputs
    while cond_fn(*carried):
        carried = body_fn(*carried)
    return carried if carried is not carried_inputs else torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, carried)


def _moves_scanned():
    """Do scan's results have the dimension of the scan where xs has it? Up to torch 2.11 it is their first. It is a function inside that moves them."""
    return any("movedim" in const.co_names for const in _stock["scan"].__code__.co_consts if isinstance(const, types.CodeType))


def run_scan(combine_fn, init, xs, *, dim=0, reverse=False, **more):
    """`more`: length, since torch 2.14."""
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten(xs)
    if not leaves or more or _wants_gradients(init, xs):
        return _stock["scan"](combine_fn, init, xs, dim=dim, reverse=reverse, **more)
    at = dim % leaves[0].ndim
    n = leaves[0].shape[at]
    carry, outs = init, [None] * n
    for i in reversed(range(n)) if reverse else range(n):
        carry, outs[i] = combine_fn(carry, pytree.tree_unflatten([x.select(at, i) for x in leaves], spec))
    flat = [pytree.tree_leaves(out, is_leaf=lambda v: v is None) for out in outs]
    stacked = [None if column[0] is None else torch.stack(column) for column in zip(*flat)]
    result = pytree.tree_unflatten(stacked, pytree.tree_structure(outs[0], is_leaf=lambda v: v is None))
    if at != 0 and _moves_scanned():
        result = pytree.tree_map(lambda x: torch.movedim(x, 0, at) if at < x.ndim else x, result)
    return carry, result


def run_map(f, xs, *args):
    from torch.utils import _pytree as pytree

    if _wants_gradients(xs, args):
        return _stock["map"](f, xs, *args)
    leaves, spec = pytree.tree_flatten(xs)
    outs = [f(pytree.tree_unflatten([x[i] for x in leaves], spec), *args) for i in range(leaves[0].shape[0])]
    return pytree.tree_map(lambda *rows: torch.stack(rows), *outs)


def asks_data(node):
    """Does the node of a graph decide by data, outside of an operator that a backend knows?"""
    return node.target is run_while_loop or (node.target is run_cond and isinstance(node.args[0], torch.fx.Node))


def run_transform(function, *args, **kwargs):
    """What a function that torch.func.jacrev or jacfwd has made does."""
    return function(*args, **kwargs)


def wrap_transform(wrapper, wrapped):
    """What the functions that torch.func's transforms make are decorated with."""
    from torch._functorch import apis

    return apis._wraps_without_dynamo_attrs(wrapped)(wrapper)


RUNNERS = (run_cond, run_while_loop, run_scan, run_map)
_ITSELF = object()
_runners, _stock = {}, {}


def _find_operators():
    own = {"cond.cond": run_cond, "while_loop.while_loop": run_while_loop, "scan.scan": run_scan, "map.map": run_map,
           "associative_scan.associative_scan": _ITSELF}
    for path, runner in own.items():
        module, _, name = path.partition(".")
        fn = getattr(importlib.import_module(f"torch._higher_order_ops.{module}"), name)
        if isinstance(fn, types.FunctionType):  # torch 2.6's map is an object
            _stock[name] = fn
            _runners[fn.__code__] = runner
    from torch._functorch import eager_transforms, vmap

    for fn in (vmap.vmap_impl, eager_transforms.grad_impl, eager_transforms.grad_and_value_impl):
        _runners[fn.__code__] = _ITSELF
    for fn in (eager_transforms.jacrev, eager_transforms.jacfwd):
        _runners.update({code: run_transform for code in fn.__code__.co_consts if isinstance(code, types.CodeType) and code.co_name == "wrapper_fn"})
    _runners[torch.autograd.Function.apply.__func__.__code__] = _ITSELF
