"""The wrapper that compile() returns for a torch.nn.Module: looks like the module, calls the compiled one.

Libraries take it for what stock PyTorch returns: they ask isinstance(m, torch._dynamo.OptimizedModule), unwrap `_orig_mod`, look at the
signature of `forward`, replace `forward`, and compile other functions in the same way with `dynamo_ctx`.
"""

import copy
import functools
import sys

import torch

from ._start import make_compiled

_OWN = {"_orig_mod", "_kintsugi_compiled", "_kintsugi_forward", "_kintsugi_kwargs", "_kintsugi_name", "_wrapper_ready", "forward", "dynamo_ctx",
        "_torchdynamo_orig_callable", "get_compiler_config", "__dict__"}


class CompileContext:
    """Compiles a function as the module was compiled."""

    def __init__(self, kwargs):
        self.kwargs = dict(kwargs)

    def __call__(self, fn):
        return (OptimizedModule if isinstance(fn, torch.nn.Module) else make_compiled)(fn, self.kwargs)


class OptimizedModule(torch.nn.Module):
    """A compiled module. Attributes are those of the original module, which is `_orig_mod`."""

    def __init__(self, module, kwargs, name=None):
        object.__setattr__(self, "_wrapper_ready", False)
        object.__setattr__(self, "_orig_mod", module)
        super(OptimizedModule, self).__init__()
        self.__dict__.pop("_orig_mod", None)
        object.__setattr__(self, "_wrapper_ready", True)
        torch.nn.Module.__setattr__(self, "_orig_mod", module)
        compiled = make_compiled(module, kwargs, name or type(module).__name__)
        own = self.__dict__
        own["_kintsugi_kwargs"], own["_kintsugi_name"], own["_kintsugi_compiled"] = dict(kwargs), name, compiled
        own["dynamo_ctx"] = CompileContext(kwargs)
        own["_torchdynamo_orig_callable"] = module.forward
        own["forward"] = own["_kintsugi_forward"] = _make_forward(module, compiled)

    @property
    def __class__(self):
        """Once stock's compiler package is there its class for compiled modules, for those who ask isinstance."""
        stock = sys.modules.get("torch._dynamo.eval_frame")
        return getattr(stock, "OptimizedModule", OptimizedModule)

    def __call__(self, *args, **kwargs):
        own = self.__dict__
        if own["forward"] is not own["_kintsugi_forward"] or self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or \
                self._backward_pre_hooks:
            return super(OptimizedModule, self).__call__(*args, **kwargs)
        return own["_kintsugi_compiled"](*args, **kwargs)

    def get_compiler_config(self):
        """What stock's Inductor was told; here nothing."""
        return None

    @property
    def training(self):
        return self._orig_mod.training

    @training.setter
    def training(self, value):
        if self._wrapper_ready:
            self._orig_mod.training = value

    def __getattr__(self, name):
        if name == "_orig_mod":
            return self.__dict__["_modules"]["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name, value):
        if not self._wrapper_ready or name in _OWN or name in self.__dict__:
            super(OptimizedModule, self).__setattr__(name, value)
        elif name == "training":
            self._orig_mod.training = value
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name):
        if name in _OWN or name in self.__dict__:
            super(OptimizedModule, self).__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self):
        return sorted({*super(OptimizedModule, self).__dir__(), *dir(self._orig_mod)})

    def __len__(self):
        return len(self._orig_mod)

    def __iter__(self):
        return iter(self._orig_mod)

    def __getitem__(self, key):
        return self._orig_mod[key]

    def __contains__(self, item):
        return item in self._orig_mod

    def __bool__(self):
        return True

    def __reduce__(self):
        return OptimizedModule, (self._orig_mod, self._kintsugi_kwargs, self._kintsugi_name)

    def __deepcopy__(self, memo):
        return OptimizedModule(copy.deepcopy(self._orig_mod, memo), self._kintsugi_kwargs, self._kintsugi_name)

    def __copy__(self):
        return OptimizedModule(self._orig_mod, self._kintsugi_kwargs, self._kintsugi_name)


def _make_forward(module, compiled):
    """What the attribute `forward` is: a function that says whose it is."""

    @functools.wraps(module.__call__)
    def forward(*args, **kwargs):
        return compiled(*args, **kwargs)

    forward._torchdynamo_orig_callable = module.__call__
    return forward
