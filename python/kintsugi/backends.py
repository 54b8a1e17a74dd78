"""Backends by name. Built-in names mean the engine, with or without kernels; a callable gets graphs as torch.fx modules."""

import importlib.util
import sys

from . import _errors

# name -> meaning; the names of PyTorch's own backends are accepted so that existing scripts run.
_BUILTIN = {
    "kintsugi": "the default: recorded calls, graphs of them as kernels where no gradient is wanted",
    "eager": "replays the recorded torch calls as they are, without kernels: bitwise eager's results",
    "inductor": "alias of kintsugi",
    "aot_eager": "alias of eager",
    "cudagraphs": "kintsugi; graphs on a GPU are launched as CUDA graphs",
}
# What stock's registry lists without looking whether it is there.
_PACKAGES = {"tvm": "tvm", "openxla": "torch_xla", "openxla_eval": "torch_xla"}
_EAGER = ("eager", "aot_eager")
_registered = {}


def list_backends(exclude_tags=()):
    """Names that compile(backend=...) accepts.

    >>> "kintsugi" in list_backends()
    True
    """
    return sorted([*_BUILTIN, *_registered])


def list_all_backends(exclude_tags=("debug", "experimental")):
    """... and those of PyTorch's own registry, which get the graphs of recordings."""
    return sorted({*list_backends(), *_stock_names(exclude_tags)})


def _stock_names(exclude_tags):
    """Of backends that are registered with PyTorch and whose packages are installed."""
    if "torch._dynamo" not in sys.modules and exclude_tags:
        return []
    from torch._dynamo.backends import registry

    return [name for name in registry.list_backends(exclude_tags) if name not in _BUILTIN and _is_there(registry, name)]


def _is_there(registry, name):
    needs = _PACKAGES.get(name)
    return needs is None or importlib.util.find_spec(needs) is not None


def register_backend(compiler_fn=None, name=None, tags=()):
    """Makes a callable `(gm, example_inputs) -> callable` known by name; usable as a decorator."""
    if compiler_fn is None:
        return lambda fn: register_backend(fn, name, tags)
    if not callable(compiler_fn):
        raise TypeError(f"register_backend(compiler_fn={compiler_fn!r}): expected a function (gm, example_inputs)")
    name = name if name is not None else getattr(compiler_fn, "__name__", None)
    if not isinstance(name, str) or not name:
        raise TypeError(f"register_backend(name={name!r}): expected a str that is not empty; "
                        f"pass one for a {type(compiler_fn).__name__} without a name")
    _registered[name] = compiler_fn
    return compiler_fn


def lookup_backend(backend):
    """None for the engine with its kernels, "eager" without, else the callable behind a name or the callable itself."""
    if backend is None or (isinstance(backend, str) and backend in _BUILTIN):
        return "eager" if backend in _EAGER else None
    if isinstance(backend, str):
        if backend in _registered:
            return _registered[backend]
        if backend in _stock_names(()):
            from torch._dynamo.backends.registry import lookup_backend as find

            return find(backend)
        raise _errors.invalid_backend(_unknown(backend))
    if callable(backend):
        return backend
    raise TypeError(
        f"compile(backend={backend!r}): expected a name ({', '.join(list_backends())}) or a function (gm, example_inputs)"
    )


class WithArguments:
    """A function (gm, example_inputs, mode=..., options=...) with what compile() was told."""

    def __init__(self, fn, kwargs):
        self.fn, self.kwargs = fn, kwargs
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)

    def __call__(self, gm, example_inputs):
        return self.fn(gm, example_inputs, **self.kwargs)

    def reset(self):
        reset_backend(self.fn)


def with_arguments(fn, mode, options):
    """A backend of the program gets mode and options when there are any; what they mean is its affair."""
    kwargs = {"mode": mode} if mode not in (None, "default") else {}
    if options:
        kwargs["options"] = options
    return WithArguments(fn, kwargs) if kwargs else fn


def reset_backend(fn):
    """Backends that keep something are told of a reset."""
    reset = getattr(fn, "reset", None)
    if callable(reset):
        reset()


def _unknown(name):
    from difflib import get_close_matches

    close = get_close_matches(name, list_backends(), 1)
    guess = f", did you mean: '{close[0]}'?" if close else "."
    return (f"compile(backend={name!r}): Invalid backend: '{name}'{guess} "
            f"Expected one of: {', '.join(list_backends())}; or a function (gm, example_inputs)")
