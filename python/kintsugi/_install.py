"""install(): torch.compile and its relatives are served by Kintsugi until uninstall().

torch._dynamo is patched when it is imported, so that install() does not have to import it.
"""

import importlib.abc
import importlib.util
import logging
import sys

from . import _api, _settings, _stance
from ._config import config

_saved = []  # (owner, name, original), undone in reverse
_MISSING = object()
# Settings of torch._dynamo.config that have a counterpart here.
_SAME = {"recompile_limit": "recompile_limit", "cache_size_limit": "recompile_limit", "verbose": "verbose",
         "suppress_errors": "suppress_errors", "disable": "disable"}


def install():
    """Serves torch.compile, Module.compile, torch._dynamo.explain and reset. Calling it again changes nothing."""
    if _saved:
        return
    import torch

    _api.start_engine()
    _replace(torch, "compile", compile)
    _replace(torch.compiler, "reset", _api.reset)
    _replace(torch.compiler, "disable", _api.disable)
    _replace(torch.compiler, "list_backends", _list_backends)
    for finder in _finders:
        if finder.name in sys.modules:
            finder.patch(sys.modules[finder.name])
        else:
            sys.meta_path.insert(0, finder)


def uninstall():
    """Gives torch.compile back to PyTorch."""
    for finder in _finders:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
    while _saved:
        owner, name, original = _saved.pop()
        if original is _MISSING:
            delattr(owner, name)
        elif name == "__class__":
            object.__setattr__(owner, name, original)
        else:
            setattr(owner, name, original)
    _stance.forget()


def is_installed():
    return bool(_saved)


def _replace(owner, name, value):
    _saved.append((owner, name, owner.__dict__.get(name, _MISSING) if hasattr(owner, "__dict__") else getattr(owner, name)))
    setattr(owner, name, value)


def compile(model=None, *, fullgraph=False, dynamic=None, backend=None, mode=None, options=None, name=None, disable=False,
            recompile_limit=None, isolate_recompiles=False, dynamic_shapes=None, shapes_spec=None):
    """torch.compile, served by Kintsugi (kintsugi.uninstall() gives PyTorch's own back)."""
    if "torch._higher_order_ops.utils" in sys.modules:
        from . import _operators

        if _operators.in_operator(model):
            return _operators.compile_operator(_stock("compile"), model, fullgraph=fullgraph, backend=backend)
    backend = _stance.backend_for(backend)
    return _api.compile(model, fullgraph=fullgraph, dynamic=_dynamic_by_default() if dynamic is None else dynamic, backend=backend, mode=mode, options=options,
                        name=name, disable=disable, recompile_limit=recompile_limit)


def _stock(name):
    """What `name` of torch was before install()."""
    return next(original for owner, saved, original in _saved if saved == name and owner is sys.modules["torch"])


def _dynamic_by_default():
    """What torch._dynamo.config says of sizes where compile() says nothing."""
    settings = sys.modules.get("torch._dynamo.config")
    if settings is None:
        return None
    if not settings.automatic_dynamic_shapes:
        return False
    return None if settings.assume_static_by_default else True


def _list_backends(exclude_tags=("debug", "experimental")):
    from .backends import list_all_backends

    return list_all_backends(exclude_tags)


# ---- torch._dynamo ----


def _optimize(backend="inductor", *, nopython=False, disable=False, dynamic=None, **hooks):
    """torch._dynamo.optimize: a decorator. Hooks for guards (guard_fail_fn, guard_export_fn, guard_filter_fn) see PyTorch's own guard
    objects, which do not exist here: with one of them, PyTorch's compiler does the work as before. So it does what an operator compiles, whose
    torch.compile ends here."""
    from . import _operators

    if any(hook is not None for hook in hooks.values()) or _operators.in_operator():
        import torch._dynamo.eval_frame as eval_frame

        return eval_frame.optimize(backend, nopython=nopython, disable=disable, dynamic=dynamic, **hooks)
    return compile(backend=backend, fullgraph=nopython, disable=disable, dynamic=dynamic)


def _optimize_assert(backend, **options):
    """torch._dynamo.optimize_assert: a graph break is an error."""
    return _optimize(backend, nopython=True, **options)


def _patch_dynamo(dynamo):
    import torch._dynamo.config as dynamo_config
    import torch._dynamo.utils as dynamo_utils

    from . import _counters, _explain, _profiler

    for name, value in (("explain", _explain.explain), ("reset", _api.reset), ("disable", _api.disable),
                        ("list_backends", _list_backends), ("optimize", _optimize), ("optimize_assert", _optimize_assert)):
        _replace(dynamo, name, value)
    _replace(dynamo_utils, "CompileProfiler", _profiler.CompileProfiler)
    _counters.flush(dynamo_utils)
    _patch_stance(dynamo)
    for name in (*_SAME, *_stance._flags):
        # Set before install(). An alias of another setting, and one that this torch does not have, is left out.
        if name in dynamo_config._config and not dynamo_config._is_default(name):
            _take_over(name, getattr(dynamo_config, name))
    _watch_settings(dynamo_config, _make_config_class)


def _patch_inductor_config(module):
    _watch_settings(module, _make_watched_class)


def _watch_settings(module, make_class):
    original = type(module)
    _saved.append((module, "__class__", original))
    # The module's own __setattr__ takes only settings.
    object.__setattr__(module, "__class__", make_class(original))


def _patch_stance(dynamo):
    """Every change of the stance goes through one function."""
    import torch._dynamo.decorators as decorators
    import torch._dynamo.eval_frame as eval_frame

    change = decorators._set_stance

    def set_stance(stance):
        _stance.check(stance)
        before = change(stance)
        _stance.follow(stance)
        if stance.backend is not None and before.backend is None:
            _stance.warn_backend()
        return before

    set_stance._dynamo_forbidden = True
    _replace(decorators, "_set_stance", set_stance)
    _stance.follow(eval_frame._stance)


def _take_over(name, value):
    """What a setting of torch._dynamo.config means here."""
    if name in _SAME:
        setattr(config, _SAME[name], value)
    elif _stance.is_flag(name):
        _stance.set_flag(name, value)


def _make_config_class(original):
    """torch._dynamo.config with the names that scripts use but no version has: log_level and cache_dir."""

    class DynamoConfig(_make_watched_class(original)):
        def __getattr__(self, name):
            if name == "log_level":
                return logging.getLevelName(logging.getLogger("torch._dynamo").getEffectiveLevel())
            if name == "cache_dir":
                return str(config.cache_dir)
            return super().__getattr__(name)

        def __setattr__(self, name, value):
            if name == "log_level":
                return _set_log_level(value)
            if name == "cache_dir":
                config.cache_dir = value
                return None
            super().__setattr__(name, value)
            _take_over(name, value)
            return None

    return DynamoConfig


def _make_watched_class(original):
    """A module of settings that says what became of one when a program sets it."""

    class WatchedConfig(original):
        def __setattr__(self, name, value):
            entry = self._config.get(name) if isinstance(self._config, dict) else None
            if entry is not None:
                _settings.note_set(self.__name__, name, value, entry.default)
            super().__setattr__(name, value)

    return WatchedConfig


def _set_log_level(level):
    number = logging.getLevelName(level) if isinstance(level, str) else level
    if not isinstance(number, int):
        raise ValueError(f"torch._dynamo.config.log_level = {level!r}: expected a level such as \"INFO\" or logging.INFO")
    logging.getLogger("torch._dynamo").setLevel(number)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a module as usual, and patches it once it has been executed."""

    def __init__(self, name, patch):
        self.name, self.patch = name, patch

    def find_spec(self, fullname, path, target=None):
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                self.patch(sys.modules[fullname])  # a module of settings has taken its place

            spec.loader.exec_module = exec_module
        return spec


def _patch_tracing(module):
    """Stock's compiler traces a compiled function, where torch.export(strict=True) meets one, as the function itself."""
    from ._engine import engine

    variables = module.UserDefinedObjectVariable
    traced = variables.call_function

    def call_function(self, tx, args, kwargs):
        if engine is None or type(self.value) is not engine.Compiled:
            return traced(self, tx, args, kwargs)
        from torch._dynamo.source import AttrSource
        from torch._dynamo.variables.base import VariableTracker

        source = AttrSource(self.source, "fn") if self.source is not None else None
        return VariableTracker.build(tx, self.value.fn, source=source).call_function(tx, args, kwargs)

    _replace(variables, "call_function", call_function)


_finders = [_Finder("torch._dynamo", _patch_dynamo), _Finder("torch._inductor.config", _patch_inductor_config),
            _Finder("torch._dynamo.variables.user_defined", _patch_tracing)]
