"""Checks one model: an eager copy and a compiled copy of the same weights, the same data, compared
as closely as the engine promises (mostly: bit by bit).

Evaluation: several calls with different data. Training: several optimizer steps with dropout active; loss, outputs,
gradients, parameters after the step, and buffers are compared. In both, the state of the random number generator and
the arguments must come out of the call as they do in eager.
"""
import os
import random
import time

import numpy
import torch
from torch.utils import _pytree

from bitwise import count_tensors, difference, module_state

CALLS = 3
STEPS = 3
DEVICE = os.environ.get("KIN_DEVICE", "cpu")  # where models and their arguments are put


def on_device(arguments):
    """(args, kwargs) with their tensors there."""
    return _pytree.tree_map_only(torch.Tensor, lambda value: value.to(DEVICE), arguments)


def random_states():
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
    return [torch.get_rng_state(), *devices]


def seeded(call):
    """Runs call() from a known state of the random number generators; returns its result and the state of torch's after it."""
    torch.manual_seed(99)
    numpy.random.seed(99)
    random.seed(99)
    result = call()
    return result, random_states()


def call_both(eager, compiled, args_eager, args_compiled, close):
    """One call of each; the first difference of results, arguments or random numbers, and how many tensors were seen."""
    (a, rng_a) = seeded(lambda: eager(*args_eager[0], **args_eager[1]))
    (b, rng_b) = seeded(lambda: compiled(*args_compiled[0], **args_compiled[1]))
    wrong = (difference(a, b, close=close) or difference(args_eager, args_compiled, "arguments", close)
             or difference(rng_a, rng_b, "random numbers"))
    return a, b, wrong, count_tensors(a)


def compile_with(engine, entry, module):
    """The compiled form, and the names of plain attributes that compiling itself put on the module (stock does)."""
    before = module_state(module)
    compiled = engine.compile(entry.call(module) if not module.training else module)
    return compiled, [name for name in module_state(module) if name not in before]


def check_eval(entry, engine, calls=CALLS):
    eager_module, module = entry.make().to(DEVICE), entry.make().to(DEVICE)
    compiled, added = compile_with(engine, entry, module)
    eager = entry.call(eager_module)
    wrong, tensors = None, 0
    with torch.no_grad():
        for i in range(calls):
            _, _, wrong, seen = call_both(eager, compiled, on_device(entry.inputs(i)), on_device(entry.inputs(i)), engine.close)
            wrong = wrong or difference(module_state(eager_module), module_state(module, added), "module", engine.close)
            tensors += seen
            if wrong:
                wrong = f"call {i}: {wrong}"
                break
    return wrong, tensors, engine.stats(compiled)


def take_step(optimizer, out):
    loss = out[0]
    if loss.dim():
        raise ValueError("the training inputs of an entry must make its first result a loss")
    optimizer.zero_grad()
    loss.backward()
    return loss.detach()


def check_train(entry, engine, steps=STEPS):
    modules = entry.make_train().to(DEVICE), entry.make_train().to(DEVICE)
    compiled, added = compile_with(engine, entry, modules[1])
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in modules]
    wrong, tensors = None, 0
    for i in range(steps):
        a, b, wrong, _ = call_both(modules[0], compiled, *(on_device(entry.training_inputs(i)) for _ in modules), engine.close)
        losses = take_step(optimizers[0], a), take_step(optimizers[1], b)
        states = [module_state(m, added) for m in modules]
        tensors += sum(isinstance(v, torch.Tensor) for v in states[0].values())
        wrong = wrong or difference(*losses, "loss", engine.close) or difference(*states, "module", engine.close)
        for optimizer in optimizers:
            optimizer.step()
        wrong = wrong or difference(*(module_state(m, added) for m in modules), "after the step", engine.close)
        if wrong:
            wrong = f"step {i}: {wrong}"
            break
    return wrong, tensors, engine.stats(compiled)


def check(entry, engine, train=False, count=None):
    """A plain dict about one run; `verdict` is ok, not replayed, wrong, or raised."""
    torch.set_num_threads(1)
    row = {"model": entry.name, "mode": "train" if train else "eval"}
    start = time.perf_counter()
    try:
        run = check_train if train else check_eval
        wrong, row["tensors"], stats = run(entry, engine, count or (STEPS if train else CALLS))
        row.update(stats)
        row["detail"] = wrong or ""
        row["verdict"] = "wrong" if wrong else "not replayed" if stats.get("replays") == 0 else "ok"
        if not row["tensors"]:
            row.update(verdict="wrong", detail="no tensor was compared")
    except Exception as error:  # the row says so; the other models still run
        row.update(verdict="raised", detail=f"{type(error).__name__}: {error}"[:400])
    row["seconds"] = time.perf_counter() - start
    return row
