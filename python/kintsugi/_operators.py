"""torch.cond and its like under install(): what their own checks compile, and how often.

A higher order operator that runs outside torch.compile compiles the functions it was handed, to check them and to run
them. That is PyTorch's own compiler's work, and stays so. Once a torch.cond with these functions and this kind of operands
has passed, its meaning is known (`true_fn(*operands) if pred else false_fn(*operands)`), and that is what later calls do.
"""

import functools
import logging
import sys
import types

import torch

LIMIT = 4096


def check_not(value):
    """In graphs: a decision on sizes that data decides turned out so. Where it does not, the graph's steps run one by one."""
    torch._check(not value)


def check_equal(value, known):
    torch._check(value == known)


def greatest(a, b):
    """In graphs: max(a, b) of two tensors, which is one of them."""
    return torch.where(b > a, b, a)


def least(a, b):
    return torch.where(b < a, b, a)


_quiet = ("torch._dynamo.output_graph.__graph_code", "torch._dynamo.guards.__guards", "torch._dynamo.guards.__recompiles")
_passed = set()


def in_operator():
    """True while an operator compiles the functions it was handed."""
    utils = sys.modules.get("torch._higher_order_ops.utils")
    return utils is not None and getattr(utils._hop_compile_tls, "in_hop_compile", False)


def _hide(record):
    return not in_operator()


def compile_operator(stock_compile, fn, **kwargs):
    """What torch.compile(fn) is inside an operator."""
    compiled = stock_compile(fn, **kwargs)
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
    return true_fn(*operands) if pred else false_fn(*operands)


def _describe(pred, true_fn, false_fn, operands):
    """What the operator's checks depend on, or None when that is not plain enough."""
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() or \
            torch._C._functorch.maybe_current_level() is not None or torch.compiler.is_exporting() or \
            torch.jit.is_tracing():
        return None
    tensors = [pred, *operands]
    if not (type(true_fn) is type(false_fn) is types.FunctionType and
            all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in tensors)):
        return None
    return (true_fn.__code__, false_fn.__code__, torch.is_grad_enabled(),
            *[(t.dtype, t.shape, t.stride(), t.device, t.requires_grad) for t in tensors])

