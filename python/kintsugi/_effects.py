"""Which calls of torch could run twice without anybody noticing: what they write is asked of PyTorch's schemas and of the functions' signatures.

Calls run twice where a library that was told of compiling raises (docs/design/is-compiling.md), and where a custom backend gets a graph once
for a recording and once for its first replay. In doubt, a call changes something.
"""

import functools
import inspect
import operator

import torch

from ._operators import RUNNERS, check_equal, check_not, run_transform

ASSERTIONS = (torch._assert_async, torch._check, check_not, check_equal)
_SHOWN_TO_COMPUTE = (*RUNNERS, run_transform)  # the recording has read the functions that they run

# Functions of Python that change their first operand: setattr and the like, and those of module operator that work in place: iadd beside add, iand beside and_.
_IN_PLACE = {setattr, delattr, operator.setitem, operator.delitem} | {
    getattr(operator, name) for name in operator.__all__ if name[0] == "i" and {name[1:], name[1:] + "_"} & set(operator.__all__)}
# What a function of torch writes to besides its result, by the name of the argument that asks for it, and the value that does not.
_ASKS = {"inplace": False, "out": None, "max_norm": None, "generator": None}
# A layer's running statistics, and the arguments that say whether it updates them.
_STATISTICS, _UPDATES = "running_mean", ("training", "use_input_stats")


def only_compute(graphs):
    """Could the calls of these graphs run twice without anybody noticing?"""
    clones = {node["vid"] for graph in graphs for node in graph["nodes"] if node["callable"] is torch.Tensor.clone}  # they share memory with nobody
    return not any(changes_something(node) and not _fills(node, clones) for graph in graphs for node in graph["nodes"])


def _fills(node, tensors):
    target = node["args"][0] if node["callable"] is operator.setitem and node["args"] else None
    return isinstance(target, dict) and target.get("vid") in tensors


def changes_something(node):
    """Could running the call twice differ from running it once?"""
    fn = node["callable"]
    if fn in ASSERTIONS or fn in _SHOWN_TO_COMPUTE or node["switches"]:
        return False
    name = getattr(fn, "__name__", None) or node["target"].rpartition(".")[2]
    if getattr(operator, name, None) in _IN_PLACE or fn in _IN_PLACE:
        return True
    if node["op"] == "operator":
        return False
    if node["op"] == "call_function" and (fn is None or not is_torch(fn)):
        return True
    return (name.endswith("_") and not name.endswith("__")) or _writes_by_schema(name) or _is_asked_to_write(fn, name, node["args"], node["kwargs"])


@functools.cache
def _schemas(name):
    """Those of the operator of this name that work on a tensor, if there are any: some names are methods of lists as well."""
    schemas = torch._C._jit_get_schemas_for_operator("aten::" + name)
    return [schema for schema in schemas if schema.arguments and str(schema.arguments[0].type) == "Tensor"] or schemas


@functools.cache
def _writes_by_schema(name):
    """Does the operator write to an argument, whatever it is asked for, or give nothing?"""
    return any((not schema.returns and not any(arg.is_out for arg in schema.arguments)) or
               any(arg.alias_info is not None and arg.alias_info.is_write and not arg.kwarg_only for arg in schema.arguments) for schema in _schemas(name))


@functools.cache
def _signature(fn):
    """None: a function in C, or one that takes whatever it is given."""
    signature = inspect.signature(fn) if inspect.isfunction(fn) else None
    if signature is None or any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        return None
    return signature


def _named(fn, name, args, kwargs):
    """(name of the argument, value) of all that is given, or left at a default that says something; the name is None where nobody knows."""
    signature = _signature(fn)
    if signature is not None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # the call raises
            yield None, True
            return
        bound.apply_defaults()
        yield from bound.arguments.items()
        return
    schemas = _schemas(name)
    for i, arg in enumerate(args):
        names = {schema.arguments[i].name for schema in schemas if i < len(schema.arguments) and not schema.arguments[i].kwarg_only}
        for one in names or {None}:
            yield one, arg
    yield from kwargs.items()


def _is_asked_to_write(fn, name, args, kwargs):
    given = list(_named(fn, name, args, kwargs))
    if any(key in _ASKS and value is not _ASKS[key] for key, value in given):
        return True
    if any(key == _STATISTICS and value is not None for key, value in given):
        return not any(key in _UPDATES and value is False for key, value in given)
    return any(key is None and value is True for key, value in given)


def is_torch(fn):
    module = getattr(fn, "__module__", None) or getattr(getattr(fn, "__self__", None), "__name__", "") or ""
    return module.partition(".")[0] in ("torch", "_operator", "operator", "builtins", "math") or "torch" in str(type(fn))
