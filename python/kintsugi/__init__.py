"""Kintsugi: torch.compile built again in C, with every graph break found, explained and fixed.

    import kintsugi

    @kintsugi.compile
    def f(x, y):
        return (x.sin() + y).sum()

    print(kintsugi.explain(f)(x, y))   # graphs, graph breaks, guards of one call

Importing this package is cheap: PyTorch and its compiler modules are loaded when something needs them.
"""

from ._api import compile, disable, graph_break, is_compiling, reset, stats, wait_for_kernels
from ._config import config

__version__ = "0.1.0"
__all__ = [
    "Unsupported",
    "compile",
    "config",
    "disable",
    "events",
    "explain",
    "graph_break",
    "install",
    "is_compiling",
    "list_backends",
    "recompiles",
    "reset",
    "stats",
    "uninstall",
    "wait_for_kernels",
]

_LAZY = {
    "explain": "_explain",
    "ExplainOutput": "_explain",
    "install": "_install",
    "uninstall": "_install",
    "Unsupported": "_errors",
    "events": "_logs",
    "list_backends": "backends",
    "CompileProfiler": "_profiler",
    "recompiles": "diagnose.recompiles",
}


def __getattr__(name):
    from importlib import import_module

    if name in _LAZY:
        value = getattr(import_module("." + _LAZY[name], __name__), name)
    elif name in ("fx", "backends", "cache"):
        value = import_module("." + name, __name__)
    else:
        raise AttributeError(f"module 'kintsugi' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_LAZY, "fx", "backends", "cache"})
