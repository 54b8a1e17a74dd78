"""The compiled functions that are alive, and the way from one to the engine's object and to what its author wrote."""

import sys
import weakref

# Every compiled function that is alive, for stats() and reports.
_alive = weakref.WeakSet()


made = None  # a list: of those that are made meanwhile, for who wants to know of calls that leave no recording (diagnose/observe.py)


def add(compiled):
    _alive.add(compiled)
    if made is not None:
        made.append(compiled)


def live_compiled():
    """All compiled functions that are alive. Other threads may add some and drop some, so the set is copied at one go."""
    return [compiled for compiled in (ref() for ref in list(_alive.data)) if compiled is not None]


def engine_of(fn):
    """The engine's object behind a compiled function or module; None for anything else."""
    from ._engine import engine

    if isinstance(fn, engine.Compiled):
        return fn
    inner = getattr(fn, "_kintsugi_compiled", None)
    if inner is None and is_module(fn):
        inner = getattr(fn, "_compiled_call_impl", None)
    return inner if isinstance(inner, engine.Compiled) else None


def is_module(fn):
    nn = sys.modules.get("torch.nn")  # nobody has a module before torch.nn is imported
    return nn is not None and isinstance(fn, nn.Module)


def function_of(fn):
    """What its author wrote: of a module that is forward, not the __call__ around it."""
    if isinstance(fn, type) or hasattr(fn, "__code__"):
        return fn
    return getattr(fn, "forward", None) or getattr(type(fn), "__call__", fn)
