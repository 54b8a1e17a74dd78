"""What stands in for the C engine where it does not fit: everything runs eagerly, and what was asked for is answered.

A program that was written for Kintsugi keeps working on an interpreter or a build of PyTorch that Kintsugi does not know; it is told so once.
"""

import functools
import sys
import sysconfig
import types
import warnings


def why_not():
    """Why the engine is not even tried on this interpreter, as a sentence; None: nothing speaks against it."""
    if sys.implementation.name != "cpython":
        return f"this is {sys.implementation.name}, and calls are recorded on CPython only"
    if not (3, 11) <= sys.version_info[:2] <= (3, 14):
        return f"CPython {sys.version_info[0]}.{sys.version_info[1]} is not among the supported versions, 3.11 to 3.14"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this is a free-threaded build of CPython, where other threads could change what a replay relies on"
    jit = getattr(sys, "_jit", None)
    if jit is not None and jit.is_enabled():
        return "CPython's own JIT is on, which runs code that cannot be watched; without PYTHON_JIT=1 it is off"
    return None


def warn(reason):
    try:
        warnings.warn(f"kintsugi runs everything eagerly: {reason}", RuntimeWarning, stacklevel=2)
    except RuntimeWarning as warning:  # warnings are errors here, and ours is no reason for the program to end
        print(warning, file=sys.stderr)


class Compiled:
    """A function as it is, with the questions that a compiled one answers."""

    def __init__(self, fn, *, name="", reason="", **kwargs):
        self.fn = self._torchdynamo_orig_callable = fn
        self.kwargs = kwargs
        self._name, self._reason, self._calls = name, reason, 0
        try:
            functools.update_wrapper(self, fn)
        except (AttributeError, TypeError):
            pass  # a callable object without a name
        self.__dict__.setdefault("__name__", name or getattr(fn, "__name__", type(fn).__name__))  # reports ask modules for it, too

    def __call__(self, *args, **kwargs):
        self._calls += 1
        return self.fn(*args, **kwargs)

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def stats(self):
        name = self._name or getattr(self.fn, "__qualname__", type(self.fn).__name__)
        return {"name": name, "calls": self._calls, "recordings": 0, "replays": 0, "guard_misses": 0, "bail_outs": 0, "branches": 0,
                "breaks": 0, "variants": [], "eager_calls": {self._reason: self._calls} if self._calls else {}}

    def entries(self):
        return []

    def reset(self):
        self._calls = 0


class Engine(types.ModuleType):
    """Has the names of the engine's module. A setting is taken and means nothing; a question has an empty answer."""

    def __init__(self, reason):
        super().__init__("kintsugi._eager_engine", "the engine where nothing is recorded")
        self.reason = reason
        self.Compiled = type("Compiled", (Compiled,), {"__init__": functools.partialmethod(Compiled.__init__, reason=reason)})

    def is_recording(self):
        return False

    def _doctor(self):
        raise RuntimeError(self.reason)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _EMPTY.get(name, _take)


def _take(*args, **kwargs):
    return None


_EMPTY = {
    "break_rows": lambda: [],
    "event_kinds": lambda: [],
    "events_since": lambda *args: [],
    "kernels": lambda *args: [],
    "kernel_totals": lambda: {},
    "options": lambda: {},
    "take_recorded": lambda *args: [],
    "dump": lambda *args: [],
}
