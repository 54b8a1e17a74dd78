"""The wrapper that compile() returns for a torch.nn.Module: looks like the module, calls the compiled one."""

import copy

import torch

from . import _api

_OWN = {"_orig_mod", "_kintsugi_compiled", "_kintsugi_kwargs", "_kintsugi_name", "_wrapper_ready", "forward", "__dict__"}


class OptimizedModule(torch.nn.Module):
    """A compiled module. Attributes are those of the original module, which is `_orig_mod`."""

    def __init__(self, module, kwargs, name=None):
        object.__setattr__(self, "_wrapper_ready", False)
        object.__setattr__(self, "_orig_mod", module)
        super().__init__()
        self.__dict__.pop("_orig_mod", None)
        object.__setattr__(self, "_wrapper_ready", True)
        torch.nn.Module.__setattr__(self, "_orig_mod", module)
        self.__dict__["_kintsugi_kwargs"] = dict(kwargs)
        self.__dict__["_kintsugi_name"] = name
        self.__dict__["_kintsugi_compiled"] = _api.make_compiled(module, kwargs, name or type(module).__name__)

    def __call__(self, *args, **kwargs):
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks:
            return super().__call__(*args, **kwargs)
        return self._kintsugi_compiled(*args, **kwargs)

    def forward(self, *args, **kwargs):
        return self._kintsugi_compiled(*args, **kwargs)

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
            super().__setattr__(name, value)
        elif name == "training":
            self._orig_mod.training = value
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name):
        if name in _OWN or name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self):
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

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
        return OptimizedModule(copy.copy(self._orig_mod), self._kintsugi_kwargs, self._kintsugi_name)
