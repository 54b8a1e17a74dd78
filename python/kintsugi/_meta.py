"""PyTorch's meta kernels without torch._dynamo and without sympy.

Many meta kernels are Python functions that PyTorch wraps so that its own compiler does not look inside
(torch._compile._disable_dynamo). The first call of such a wrapper imports torch._dynamo, a second or two, to have nothing
done: what was never imported looks at nothing. So these functions are given a stand-in for the disabled function that the
wrapper wants; once torch._dynamo is there, it makes way for the real one.

Meta kernels also ask whether a condition between sizes holds with functions that work for symbols as well, and import them where they are used. They
come with sympy, half a second or more. Among plain numbers the answer is the condition itself, so while a meta kernel runs (`call`), such an import of
PyTorch's gives it functions that say so. What they are not made for is handed on to the real functions, which are imported then.

Some give other results for other devices. What PyTorch's function for that says of a meta tensor is "cuda"; in a call of ours it is the device of the
tensors that the meta tensors stand for.
"""

import builtins
import gc
import importlib
import operator
import sys
import threading
import types
from functools import reduce

import torch

_KERNELS = ("torch._refs", "torch._prims", "torch._decomp", "torch._meta_registrations")
_ready = False


def _put_off(fn, recursive):
    """fn, as long as there is nobody to be kept out."""
    def call(*args, **kwargs):
        disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
        if disable is None:
            return fn(*args, **kwargs)
        fn.__dynamo_disable = disabled = disable(fn, recursive, wrapping=False)
        return disabled(*args, **kwargs)
    return call


def _wrappers():
    """Every function that the decorator has made of a meta kernel: the functions with the code of its inner one."""
    from torch import _compile

    constants = _compile._disable_dynamo.__code__.co_consts
    codes = [c for c in constants if isinstance(c, types.CodeType) and "__dynamo_disable" in c.co_consts + c.co_names]
    return [f for f in gc.get_referrers(*codes) if type(f) is types.FunctionType and (f.__module__ or "").startswith(_KERNELS)]


def prepare():
    """Called before the first call of a meta kernel; what fails leaves PyTorch as it is."""
    global _ready
    if _ready or "torch._dynamo" in sys.modules:
        return
    _ready = True
    for wrapper in _wrappers():
        cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__))
        fn = cells["fn"].cell_contents
        if getattr(fn, "__dynamo_disable", None) is None:
            fn.__dynamo_disable = _put_off(fn, cells["recursive"].cell_contents)


# -- conditions between sizes -----------------------------------------------------------------------------------------

_SYMBOLS = "torch.fx.experimental.symbolic_shapes"


def _is_plain(value):
    if type(value) in (tuple, list, torch.Size):
        return all(map(_is_plain, value))
    if type(value) is torch.Tensor:
        return _is_plain([*value.shape, *value.stride(), value.storage_offset()])
    return type(value) in (bool, int, float)


def _equal(x, y):
    return list(x) == list(y) if isinstance(x, (tuple, list)) else x == y


_ANSWERS = {"guard_bool": lambda value: value,
            "guard_or_false": lambda value: value,
            "guard_or_true": lambda value: value,
            "guard_size_oblivious": lambda value: value,
            "guarding_hint_or_throw": lambda value: value,
            "expect_true": lambda value: value,
            "statically_known_true": lambda value: value,
            "has_guarding_hint": lambda value: True,
            "is_nested_int": lambda value: False,
            "free_unbacked_symbols": lambda value: frozenset(),
            "sym_and": lambda *values: reduce(operator.and_, values),
            "sym_or": lambda *values: reduce(operator.or_, values),
            "sym_eq": _equal}


def _condition(name, answer):
    def ask(*args):
        return answer(*args) if all(map(_is_plain, args)) else getattr(importlib.import_module(_SYMBOLS), name)(*args)
    return ask


class _StandIn(types.ModuleType):
    def __getattr__(self, name):
        return getattr(importlib.import_module(self.__name__), name)


def _stand_in(name, **contents):
    made = _StandIn(name)
    vars(made).update(contents)
    return made


class _NoSymbol:
    """sympy.Basic as long as there is no sympy: nothing is an instance of it."""


_STAND_INS = {_SYMBOLS: _stand_in(_SYMBOLS, **{name: _condition(name, answer) for name, answer in _ANSWERS.items()}),
              "sympy": _stand_in("sympy", Basic=_NoSymbol)}


# -- a call of a meta kernel ----------------------------------------------------------------------------------------------

_lock = threading.Lock()
_running = 0
_kept = False  # something else calls _import_for_meta, which stays what it is
_import = None


def _import_for_meta(name, globals=None, locals=None, fromlist=(), level=0):
    """builtins.__import__ while a meta kernel runs. locals is None for an import in a function: what it binds lasts as long as the call."""
    made = _STAND_INS.get(name)
    if made is None or name in sys.modules or _running == 0 or locals is not None or not _is_torch(globals) or not (fromlist or made.__name__ == "sympy"):
        return _import(name, globals, locals, fromlist, level)
    return made


def _is_torch(globals):
    return globals is not None and str(globals.get("__name__")).partition(".")[0] == "torch"


def _enter():
    global _running, _import
    with _lock:
        _running += 1
        if _running == 1:
            _import, builtins.__import__ = builtins.__import__, _import_for_meta


def _leave():
    global _running, _kept
    with _lock:
        _running -= 1
        if builtins.__import__ is not _import_for_meta:
            _kept = True
        elif _running == 0:
            builtins.__import__ = _import


def _answers_for_device():
    """Has torch._meta_registrations.device_hint answer for our calls; False: this PyTorch has none."""
    kernels = sys.modules.get("torch._meta_registrations")
    theirs = getattr(kernels, "device_hint", None)
    if theirs is None:
        return False

    def device_hint(tensor):
        device = getattr(_here, "device", None)
        return device if device is not None and tensor.is_meta else theirs(tensor)
    kernels.device_hint = device_hint
    return True


_here = threading.local()
_has_hint = _answers_for_device()


def _call(op, args, kwargs):
    if _kept or _SYMBOLS in sys.modules:
        return op(*args, **kwargs)
    _enter()
    try:
        return op(*args, **kwargs)
    finally:
        _leave()


def call(op, args, kwargs, device="cpu"):
    """op(*args, **kwargs), on meta tensors that stand for tensors of that type of device."""
    global _has_hint
    _has_hint = _has_hint or _answers_for_device()
    _here.device, before = device, getattr(_here, "device", None)
    try:
        return _call(op, args, kwargs)
    finally:
        _here.device = before
