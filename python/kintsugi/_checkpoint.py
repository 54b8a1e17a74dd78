"""torch.utils.checkpoint.checkpoint as compiled code calls it: the function inside is compiled, too.

With re-entry torch's own checkpoint calls the compiled function, forward and again for backward. Without, compiled graphs do by themselves what it is
for: their nodes save inputs only, and the function is called once more when gradients come, launched as before (src/py/training/recompute.c). That needs functions
that do nothing but compute, all of it in graphs that are compiled; until a function is known to be such a one, and whenever somebody else looks
at what is saved, torch's checkpoint runs as it is.
"""

import contextlib
import inspect
import types

import torch
from torch.utils import checkpoint as library

from ._engine import engine

PATIENCE = 48  # calls within torch's checkpoint, after which a function whose graphs are still not compiled is left to it
MOST = 256     # functions by code
_regions = {}


def forget():
    _regions.clear()


def runner_of(operator):
    """What is called at replay in place of torch's function; None: itself."""
    return run if operator is library.checkpoint else None


def _call(function, args, kwargs):
    return function(*args, **kwargs)


class _Region:
    """What is known of the functions of one code."""

    def __init__(self, name):
        from ._start import make_compiled

        own = types.FunctionType(_call.__code__, _call.__globals__, "checkpointed")
        self.compiled = make_compiled(own, {"fullgraph": False, "dynamic": None, "backend": None, "options": {}, "disable": False}, f"checkpoint of {name}")
        self.calls, self.ready = 0, False

    def prepare(self, function):
        """What torch's checkpoint is handed until graphs can do its work: compiled on the way forward, with eager's steps; the function itself when values
        are made again. Numbers and the like around it that are other ones by then would have other code: such a function stays torch's."""
        first, around = True, _around(function)

        def step(*args, **kwargs):
            nonlocal first
            if not first:
                if any(now is not before for now, before in zip(_around(function), around)):
                    self.calls = PATIENCE
                return function(*args, **kwargs)
            first = False
            result, fit, unfit, _ = engine._checkpointed(self.compiled, (function, args, kwargs), None)
            self.calls += 1
            self.ready = (fit > 0 and unfit == 0 and self.is_pure()) or (self.ready and self.calls < PATIENCE)
            return result
        return step

    def launch(self, function, args, kwargs):
        """What the function gives, as a tuple; None: nothing was done, as nothing recorded fits the call, or does what eager would do a second time."""
        again = _Again(self.compiled, (function, args, kwargs))
        given = engine._checkpointed(self.compiled, (function, args, kwargs), again)
        if given is None:
            torch.set_rng_state(again.random)
            return None
        self.ready = given[3] > 0
        return given[:1]

    def is_pure(self):
        """Nothing of what was recorded is what eager would do a second time on the way back, but for writes to tensors: of these the engine knows."""
        if any(v["effects"] or v["breaks"] for v in self.compiled.stats()["variants"]):
            self.calls = PATIENCE
        return self.calls < PATIENCE


class _Again:
    """The call of a region once more, as eager's: with the random numbers and the autocast of the first, and whatever else has changed as it is now."""

    def __init__(self, compiled, call):
        self.compiled, self.call, self.random, self.autocast, self.made = compiled, call, torch.get_rng_state(), _autocast(), {}

    def __call__(self, number):
        """(number, graph, what it saves) of one of the nodes; None: the call does not come by it. All nodes ask once in a way back."""
        if number not in self.made:
            self.collect()
        return self.made.pop(number, None)

    def collect(self):
        collected, now = [], torch.get_rng_state()
        torch.set_rng_state(self.random)
        try:
            with torch.enable_grad(), torch.autocast("cpu", **self.autocast) if self.autocast != _autocast() else contextlib.nullcontext():
                if engine._checkpointed(self.compiled, self.call, collected) is None:
                    function, args, kwargs = self.call
                    function(*args, **kwargs)  # raises what eager raises
        finally:
            torch.set_rng_state(now)
        self.made = {one[0]: one for one in collected}


def _autocast():
    return {"enabled": torch.is_autocast_enabled("cpu"), "dtype": torch.get_autocast_dtype("cpu"), "cache_enabled": torch.is_autocast_cache_enabled()}


def _around(function):
    """What variables of a function around this one hold, tensors and modules left out."""
    cells = getattr(_plain(function), "__closure__", None) or ()
    return [None if isinstance(content, (torch.Tensor, torch.nn.Module)) else content for content in map(_content, cells)]


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _plain(function):
    """By whose code functions are told apart: a module by its class, a bound method by its function."""
    while True:
        if hasattr(function, "func") and hasattr(function, "keywords"):
            function = function.func
        elif isinstance(function, types.MethodType):
            owner = function.__self__
            function = type(owner).forward if isinstance(owner, torch.nn.Module) else function.__func__
        elif isinstance(function, torch.nn.Module):
            function = type(function).forward
        else:
            return function


def _region_of(function):
    function = _plain(function)
    code = getattr(function, "__code__", None)
    region = _regions.get(code)
    if region is None and code is not None and len(_regions) < MOST:
        region = _regions[code] = _Region(code.co_name)
    return region


_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # torch 2.6 does not tell


def _is_watched():
    return (_top_hooks is None or torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() or torch.is_anomaly_enabled()
            or _top_hooks(True) is not None or library._checkpoint_debug_enabled)


_DEFAULTS = {name: p.default for name, p in inspect.signature(library.checkpoint).parameters.items() if p.kind is p.KEYWORD_ONLY} | {
    "preserve_rng_state": True, "determinism_check": None, "use_reentrant": None, "early_stop": None}


def _is_plain(kwargs):
    return all(name not in _DEFAULTS or _DEFAULTS[name] is None or _DEFAULTS[name] == value for name, value in kwargs.items())


def run(function, *args, **kwargs):
    region = None if _is_watched() else _region_of(function)
    if region is None:
        return library.checkpoint(function, *args, **kwargs)
    if kwargs.get("use_reentrant") is not False:
        return library.checkpoint(lambda *given: region.compiled(function, given, {}), *args, **kwargs)
    if not _is_plain(kwargs) or region.calls >= PATIENCE or not torch.is_grad_enabled():
        return library.checkpoint(function, *args, **kwargs)
    if region.ready:
        given = region.launch(function, args, {name: value for name, value in kwargs.items() if name not in _DEFAULTS})
        if given is not None:
            return given[0]
    return library.checkpoint(region.prepare(function), *args, **kwargs)
