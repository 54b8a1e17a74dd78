"""May a call be repeated only to look at it? Not where its effects reach outside of the process: those that its recording tells of are known before, others are stopped
when they are about to happen."""

import builtins
import collections.abc
import contextlib
import inspect
import os
import sys
import sysconfig

import torch

from .. import _messages
from . import screen, show, state

# Calls whose effects stay in the process, or are not seen while calls are repeated (what is printed).
_HARMLESS = ("print", "logging.", "_warnings.", "warnings.", "list.", "dict.", "set.", "deque.", "collections.", "torch.", "TensorBase.", "DisableTorchFunctionSubclass.", "time.", "random.",
             "itertools.", "str.", "_json.", "json.", "re.", "math.", "numpy.", "ndarray.", "object.__setattr__", "<slot wrapper '__setattr__'")
_OUTSIDE = ("numpy.save", "numpy.memmap", "numpy.ndarray.tofile", "ndarray.tofile", "ndarray.dump", "torch.save")
_BUILTINS = frozenset(name for name in vars(builtins) if not name.startswith("_")) - {"open", "exec", "eval", "input", "compile", "breakpoint", "exit", "quit"}
# What layers and optimizers of PyTorch call changes tensors and their own state: hooks and modules of the program are called as functions of its files.
_OF_TORCH = tuple(os.path.join(os.path.dirname(torch.__file__), name) + os.sep for name in ("nn", "optim"))
_COMPUTING = tuple(os.path.join(sysconfig.get_path("stdlib"), name) + os.sep for name in ("re", "json"))  # packages whose C code only computes
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def find_obstacle(dumps, observed=None):
    """Why a function is not called again only to look at it; "": it may be."""
    for dump in dumps:
        for entry in dump["effects"]:
            text = entry["text"].partition(" = ")[2] or entry["text"]
            name = text.partition("(")[0]
            stays = (name.startswith(_HARMLESS) or name in _BUILTINS) and not name.startswith(_OUTSIDE) and not (name == "print" and "'file'" in text)
            if entry["kind"] == "call" and not stays and not entry["filename"].startswith((*_OF_TORCH, *_COMPUTING)):
                place = _messages.user_place(entry.get("user_stack", ()), (entry["filename"], entry["line"], ""))
                return f"a call has effects that may reach outside of the process (`{name}`, {show.place(*place[:2])}); --repeat calls it all the same"
    if observed is None or not observed.calls:
        return ""
    iterator = _iterator_of(observed)
    return f"its argument {iterator} is an iterator, which a second call would find at its end" if iterator else _try(observed)


def _try(observed):
    """An eager call, in which effects that reach outside are stopped."""
    call, fn = observed.calls[-1], observed.compiled.fn
    args, kwargs = call.copy()
    try:
        with screen.quiet(), call.modes(), state.unchanged(fn, args, kwargs), _stopped() as seen:
            fn(*args, **kwargs)
    except Exception:  # the program's own; it may also have caught what was raised here
        pass
    return f"a call has effects that reach outside of the process ({seen[0]}); --repeat calls it all the same" if seen else ""


def _iterator_of(observed):
    """The name of an argument that can be gone through only once; "": none."""
    call = observed.calls[-1]
    try:
        given = inspect.signature(observed.compiled.fn).bind(*call.args, **call.kwargs).arguments
    except (TypeError, ValueError):
        given = {str(i): value for i, value in enumerate(call.args, 1)} | call.kwargs
    return next((name for name, value in given.items() if isinstance(value, collections.abc.Iterator)), "")


# ---- what is about to happen ----


class Outside(OSError):
    """What a call was about to do. An OSError, since programs expect those of files and connections."""


_EVENTS = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown", "os.system", "os.exec", "os.posix_spawn", "os.spawn",
           "os.startfile", "subprocess.Popen", "shutil.", "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "smtplib.", "urllib.Request", "sqlite3.connect")
_seen, _installed = None, False


@contextlib.contextmanager
def _stopped():
    """Files that are about to be written, processes and connections about to be made raise Outside instead. Gives a list of what was."""
    global _seen, _installed
    if not _installed:
        sys.addaudithook(_look)
        _installed = True
    _seen = []
    try:
        yield _seen
    finally:
        _seen = None


def _look(event, args):
    if _seen is None or not (event == "open" or event.startswith(_EVENTS)):
        return
    if event == "open":
        path, mode, flags = args
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        if not writes or path == os.devnull or isinstance(path, int):
            return
    if sys._getframe(1).f_code.co_filename.startswith((_OWN, "<frozen")):  # kernels on disk, modules that are compiled
        return
    _seen.append(f"writing {args[0]!r}" if event == "open" else event)
    raise Outside(f"{_seen[-1]} was stopped, since this call is only looked at")
