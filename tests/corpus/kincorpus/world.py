"""One world: a fresh copy of a topic file as a module of its own, with the ambient state of the process reset.

Both sides of a comparison execute the same file under the same module name, so that qualified names, file names and
line numbers agree, while globals, classes and objects are separate.
"""
import contextlib
import logging
import os
import random
import sys
import types
import warnings

import torch
from torch.utils.hooks import RemovableHandle

try:
    import numpy
except ImportError:
    numpy = None


def load(path, name):
    module = types.ModuleType(name)
    module.__file__ = str(path)
    with open(path, encoding="utf-8") as f:
        source = f.read()
    sys.modules[name] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def default_device():
    """torch.get_default_device() of torch 2.6 fails once set_default_device(None) has been called."""
    try:
        return str(torch.get_default_device())
    except AttributeError:
        return "cpu"


def ambient():
    """What a call may leave changed in the process, as plain data."""
    return (
        ("grad", torch.is_grad_enabled()), ("inference", torch.is_inference_mode_enabled()),
        ("default_dtype", str(torch.get_default_dtype())), ("default_device", default_device()),
        ("autocast", torch.is_autocast_enabled("cpu"), str(torch.get_autocast_dtype("cpu"))),
        ("deterministic", torch.are_deterministic_algorithms_enabled()),
        ("environ", tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith("KINCORPUS_")))),
        ("recursion_limit", sys.getrecursionlimit()), ("cwd", os.getcwd()),
        ("exc_info", str(sys.exc_info()[0])),
    )


def rng():
    """All generators a program is likely to use."""
    with torch._C.DisableTorchFunction():
        states = [torch.get_rng_state().numpy().tobytes(), repr(random.getstate())]
        if torch.cuda.is_initialized():
            states += [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        states.append((kind, keys.tobytes(), *rest))
    return tuple(states)


class LogList(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.rows = []

    def emit(self, record):
        self.rows.append((record.name, record.levelname, record.getMessage(), os.path.basename(record.pathname),
                          record.lineno, record.funcName))


@contextlib.contextmanager
def fresh_ambient(warn_action):
    """Resets and afterwards restores process state; yields (warning list, log handler)."""
    saved = (torch.get_rng_state(), random.getstate(), torch.get_default_dtype(), torch.is_grad_enabled(),
             sys.getrecursionlimit(), RemovableHandle.next_id, torch.are_deterministic_algorithms_enabled())
    environ, modules = dict(os.environ), dict(sys.modules)
    handler, root = LogList(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    torch.manual_seed(0)
    random.seed(0)
    if numpy is not None:
        numpy.random.seed(0)
    RemovableHandle.next_id = 0
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(warn_action)
            yield caught, handler
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        for name, logger in logging.Logger.manager.loggerDict.items():
            if name.startswith("kincorpus") and isinstance(logger, logging.Logger):
                logger.setLevel(logging.NOTSET)
        torch.set_default_device(None)
        torch.set_rng_state(saved[0])
        random.setstate(saved[1])
        torch.set_default_dtype(saved[2])
        torch.set_grad_enabled(saved[3])
        torch.set_autocast_enabled("cpu", False)
        sys.setrecursionlimit(saved[4])
        RemovableHandle.next_id = saved[5]
        torch.use_deterministic_algorithms(saved[6])
        os.environ.clear()
        os.environ.update(environ)
        for name in set(sys.modules) - set(modules):
            if name.startswith("world_"):
                del sys.modules[name]
