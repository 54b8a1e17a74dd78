"""PyTorch's meta kernels without torch._dynamo.

Many meta kernels are Python functions that PyTorch wraps so that its own compiler does not look inside
(torch._compile._disable_dynamo). The first call of such a wrapper imports torch._dynamo, a second or two, to have nothing
done: what was never imported looks at nothing. So these functions are given a stand-in for the disabled function that the
wrapper wants; once torch._dynamo is there, it makes way for the real one.
"""

import gc
import sys
import types

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
