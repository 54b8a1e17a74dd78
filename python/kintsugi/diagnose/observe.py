"""What a program compiles and with which arguments: a session watches it run; targets are what commands are given to look at."""

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import os
import runpy
import sys

import torch

from .. import _api, _compiled, _engine, _logs, _messages
from .._config import config
from .._errors import CommandError
from ..commands import MODULE
from . import state
from .causes import USUAL

KEEP_BYTES = 1 << 30  # of arguments that a session copies; larger ones are held as they are


class TargetError(CommandError):
    """The target of a command cannot be found or called."""


class Call:
    """One call: arguments as they were before it, and the modes it ran under."""

    def __init__(self, args, kwargs):
        self.args, self.kwargs = copy_tensors((args, kwargs))
        self.grad, self.inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    @contextlib.contextmanager
    def modes(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode() if self.inference else torch.set_grad_enabled(self.grad))
            yield

    def copy(self):
        return copy_tensors((self.args, self.kwargs))


def copy_tensors(values):
    """The same with copies of tensors, as far as they are few enough to be copied."""
    from torch.utils import _pytree

    leaves, spec = _pytree.tree_flatten(values)
    total = sum(leaf.nbytes for leaf in leaves if type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.layout is torch.strided)
    if total > KEEP_BYTES:
        return values
    copies = {}
    return _pytree.tree_unflatten([_copy(leaf, copies) for leaf in leaves], spec)


def _copy(leaf, copies):
    if type(leaf) is not torch.Tensor or leaf.layout is not torch.strided:
        return leaf
    if id(leaf) not in copies:
        with torch.no_grad():
            made = torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device=leaf.device) if _is_dense(leaf) else leaf.detach().clone()
            if made.numel() and _is_dense(leaf):
                made.copy_(leaf.detach())
        copies[id(leaf)] = made.requires_grad_(leaf.requires_grad)
    return copies[id(leaf)]


def _is_dense(leaf):
    """Does no element lie where another one does? An expanded tensor cannot be written to."""
    return all(stride > 0 or size <= 1 for size, stride in zip(leaf.size(), leaf.stride()))


class Observed:
    """A compiled function, the calls of it that were recorded, and the events about it."""

    def __init__(self, compiled, eager_before=None):
        """eager_before: its eager calls by reason before it was observed."""
        self.compiled, self.name = compiled, compiled.__name__
        self.eager_before = eager_before or {}
        if self._is_ours():
            self.name = compiled.stats()["name"]
        self.names = {self.name, compiled.stats()["name"], getattr(compiled.fn, "__qualname__", self.name)}  # as events call it
        self.calls = []
        self.events = []

    def place(self):
        """Where the user's own function begins: inside of torch.no_grad() and other decorators."""
        if self._is_ours():
            return next(((node["filename"], node["line"]) for entry in self.compiled.entries() for graph in _api.start_engine().dump(entry)["graphs"]
                         for node in graph["nodes"]), ("?", 0))
        return _begin(inspect.unwrap(self.compiled.fn))

    def _is_ours(self):
        """Was it made here for a part of the program, such as a region of checkpoint()?"""
        return getattr(getattr(self.compiled.fn, "__code__", None), "co_filename", "").startswith(os.path.dirname(_api.__file__) + os.sep)

    def place_in_events(self):
        return _begin(self.compiled.fn)

    def is_about(self, event):
        """Events that name the line where their function begins belong to that one, others to the functions of that name."""
        begins = event["event"] in ("record", "recompile", "limit", "fallback", "extend") and event.get("filename")
        return (event["filename"], event["line"]) == self.place_in_events() if begins else event.get("name") in self.names


def _begin(fn):
    if not isinstance(fn, type) and not hasattr(fn, "__code__"):
        fn = inspect.unwrap(getattr(fn, "forward", None) or getattr(type(fn), "__call__", fn))
    code = getattr(fn, "__code__", None) or getattr(getattr(fn, "__func__", None), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("?", 0)


class Session:
    """with Session() as session: run a program; then session.functions are the compiled functions that were called, in order."""

    MOST_CALLS = 64  # of one function that are kept

    def __init__(self):
        self._by_id = {}
        self._busy = False

    @property
    def functions(self):
        return list(self._by_id.values())

    def __enter__(self):
        from .. import _install

        self._installed = _install.is_installed()
        _install.install()
        self._engine = _api.start_engine()
        seen = _logs.events()
        self._first = seen[-1]["seq"] + 1 if seen else 0
        self._engine.set_option("record_hook", self._hear)
        self._before = {id(compiled): compiled.stats() for compiled in _compiled.live_compiled()}
        self._made, _compiled.made = _compiled.made, []
        return self

    def __exit__(self, *error):
        from .. import _install

        self._engine.set_option("record_hook", None)
        self._take_others()
        if not self._installed:
            _install.uninstall()
        for event in _logs.events():
            if event["seq"] >= self._first:
                self._note(event)
        return False

    def _hear(self, compiled, args, kwargs):
        if self._busy:
            return
        self._busy = True
        try:
            found = self._observed(compiled)
            if len(found.calls) < self.MOST_CALLS:
                found.calls.append(Call(args, kwargs))
        finally:
            self._busy = False

    def _observed(self, compiled):
        if id(compiled) not in self._by_id:
            self._by_id[id(compiled)] = Observed(compiled, self._before.get(id(compiled), {}).get("eager_calls"))
        return self._by_id[id(compiled)]

    def _take_others(self):
        """Functions that were called and not recorded meanwhile: generators, for instance, and those that had been recorded before."""
        for compiled in dict.fromkeys([*_compiled.live_compiled(), *_compiled.made]):
            stats = compiled.stats()
            before = self._before.get(id(compiled))
            if stats["calls"] > (before["calls"] if before else 0) and (set(stats["eager_calls"]).difference(USUAL) or before and stats["replays"] > before["replays"]):
                self._observed(compiled)
        _compiled.made = self._made

    def _note(self, event):
        for found in self._by_id.values():
            if found.is_about(event):
                found.events.append(event)


# ---- targets ----


def split_target(text):
    """(file or module, function or None): script.py, script.py:fn, package.module:fn, package.module."""
    where, colon, name = text.rpartition(":")
    if not colon or os.path.sep in name or (os.name == "nt" and len(where) == 1):
        return text, None
    return where, name


def load(where):
    """The module of a target; a file is loaded as a module of its own name, with its folder on sys.path."""
    if not where.endswith(".py"):
        sys.path.insert(0, "")
        return _imported(where, lambda: importlib.import_module(where))
    need_script(where)
    sys.path.insert(0, os.path.dirname(os.path.abspath(where)))
    name = os.path.splitext(os.path.basename(where))[0]
    spec = importlib.util.spec_from_file_location(name, where)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _imported(where, lambda: spec.loader.exec_module(module))
    return module


def _need_engine():
    if _engine.reason is not None:
        raise TargetError(f"nothing is compiled here: {_engine.reason}; python -m kintsugi doctor tells more")


def need_script(path):
    if not os.path.isfile(path):
        near = difflib.get_close_matches(os.path.basename(path), _scripts(os.path.dirname(path) or "."), 1)
        raise TargetError(f"no such script: {path!r}" + (f"; did you mean {os.path.join(os.path.dirname(path), near[0])!r}?" if near else ""))


def file_of(target):
    """The file that a script, or a module behind -m, is run from. The packages around a module are imported."""
    if not target.startswith(MODULE):
        need_script(target)
        return target
    name = target.removeprefix(MODULE)
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    spec = _imported(name, lambda: importlib.util.find_spec(name))
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _imported(name, lambda: importlib.util.find_spec(f"{name}.__main__"))
        if spec is None:
            raise TargetError(f"{name} is a package without a __main__; name one of its modules")
    if spec is None or not spec.origin:
        raise TargetError(f"no module named {name!r} can be found from this folder")
    return spec.origin


def _scripts(folder):
    return [name for name in os.listdir(folder) if name.endswith(".py")] if os.path.isdir(folder) else []


def _imported(where, do):
    """What is imported may do anything, exit as well."""
    try:
        return do()
    except ModuleNotFoundError as error:
        if error.name and (where == error.name or where.startswith(error.name + ".")):
            raise TargetError(f"no module named {error.name!r} can be found from this folder; a file is named as {where.replace('.', os.sep)}.py:function") from error
        raise TargetError(f"{where} cannot be imported: {describe_end(error)}") from error
    except (Exception, SystemExit) as error:
        raise TargetError(f"{where} cannot be imported: {describe_end(error)}") from error


def find(text, inputs=None):
    """(callable, Call) of `module:fn`; inputs: name of a function of that module (or an expression in it) that gives its arguments."""
    where, name = split_target(text)
    module = load(where)
    fn = module
    for part in name.split("."):
        if not hasattr(fn, part):
            raise TargetError(f"{where} has no {name!r}; {_callables(module, name)}")
        fn = getattr(fn, part)
    if not callable(fn):
        raise TargetError(f"{text} is of type {type(fn).__name__}, which cannot be called; {_callables(module, name)}")
    return fn, Call(*_arguments(text, module, fn, inputs))


def _callables(module, name):
    """What a module has to call, the most similar names first."""
    own = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_") and getattr(value, "__module__", None) == module.__name__
           or isinstance(value, torch.nn.Module)]
    found = [*difflib.get_close_matches(name, own, 3), *own]
    return f"it has {', '.join(list(dict.fromkeys(found))[:6])}" if own else "it defines nothing that can be called"


NOTHING = "{0} calls no function that torch.compile or kintsugi.compile returned; name one as module:function or file.py:function"
HOW = "--inputs takes the name of a function in that module that returns them, or an expression such as 'torch.randn(8, 16), 2'"


def _arguments(text, module, fn, inputs):
    if inputs is None:
        inputs = next((name for name in ("example_inputs", "get_inputs", "inputs") if hasattr(module, name)), None)
    if inputs is None:
        try:
            inspect.signature(fn).bind()
        except (TypeError, ValueError):
            raise TargetError(f"{text} takes arguments: {HOW}") from None
        return (), {}
    value = _value_of(module, inputs)
    if isinstance(value, dict):
        args, kwargs = (), value
    elif isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[0], (tuple, list)) and isinstance(value[1], dict):
        args, kwargs = tuple(value[0]), value[1]
    else:
        args, kwargs = tuple(value) if isinstance(value, (tuple, list)) else (value,), {}
    try:
        inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).bind(*args, **kwargs)
    except TypeError as error:
        raise TargetError(f"{text} does not take what --inputs {inputs!r} gives: {error}") from None
    except ValueError:  # it has no signature
        pass
    return args, kwargs


def _value_of(module, inputs):
    """What the user of the command line wrote."""
    try:
        if not inputs.isidentifier():
            return eval(inputs, {"torch": torch, **vars(module)})
        if hasattr(module, inputs):
            value = getattr(module, inputs)
            return value() if callable(value) else value
    except Exception as error:
        raise TargetError(f"--inputs {inputs!r}: {describe_end(error)}; {HOW}") from error
    raise TargetError(f"--inputs {inputs!r}: {module.__name__} has no such name; {HOW}")


def watch(target, arguments=(), inputs=None):
    """(exit status of the script or the exception that ended it, the functions that ran): a script is run, module:fn is called three times, compiled."""
    _need_engine()
    if split_target(target)[1] is None:
        if not target.endswith(".py") and not target.startswith(MODULE):
            raise TargetError(f"{target}: expected a script that ends in .py, module:function, or -m and a module")
        with Session() as session:
            status = run_script(target, arguments)
        return status, session.functions
    with Session():  # what the module compiles at import is served, and not looked at
        fn, call = find(target, inputs)
    if _api.engine_of(fn) is not None:
        _api.reset()  # what the import recorded of it would only be replayed
    with Session() as session, call.modes():
        compiled = fn if _api.engine_of(fn) is not None else _api.compile(fn)
        try:
            for _ in range(3):
                args, kwargs = call.copy()
                compiled(*args, **kwargs)
        except (Exception, SystemExit) as error:
            given = f" with --inputs {inputs!r}" if inputs is not None else ""
            raise TargetError(f"a call of {target}{given} ended with {describe_end(error)}") from error
    return 0, session.functions


@contextlib.contextmanager
def same_each_time(target, arguments=(), inputs=None, **options):
    """The functions of a target, which runs to its end as in every other run: with the same random numbers, and with code that is used as soon as it is made, since
    comparisons depend on the clock. options: of the engine, for as long as this lasts."""
    _need_engine()
    engine = _api.start_engine()
    options = {"trials": 0, **options}
    before = {name: engine.options()[name] for name in options}
    state.seed()
    try:
        with config.patch(step_aside=False, async_compile=False):
            for name, value in options.items():
                engine.set_option(name, value)
            status, functions = watch(target, arguments, inputs)
            if describe_end(status):
                raise TargetError(f"{target} ended with {describe_end(status)}")
            yield functions
    finally:
        for name, value in before.items():
            engine.set_option(name, value)


def describe_end(status):
    """How a script ended, in words, with the innermost line that is the user's own; "": well."""
    if isinstance(status, SystemExit):
        status = status.code
    if isinstance(status, BaseException):
        if isinstance(status, SyntaxError):
            return f"{type(status).__name__}: {status}" + (f": {status.text.strip()}" if status.text else "")
        return _messages.describe_error(status)
    return f"exit status {status}" if status not in (0, None) else ""


def unique_names(functions):
    """Their names; of several with one name, the later ones get a number."""
    names = []
    for one in functions:
        name, number = one.name, 2
        while name in names:
            name, number = f"{one.name}#{number}", number + 1
        names.append(name)
    return names


def run_script(path, arguments=()):
    """Runs a script as `python path arguments` would, or `python -m module arguments`; returns the exit status it asked for, or the exception that ended it."""
    saved = sys.argv, sys.path[:]
    file = file_of(path)
    sys.argv = [file, *arguments]
    try:
        if path.startswith(MODULE):
            runpy.run_module(path.removeprefix(MODULE), run_name="__main__", alter_sys=True)
        else:
            sys.path[0:1] = [os.path.dirname(os.path.abspath(path))]
            runpy.run_path(path, run_name="__main__")
    except SystemExit as stop:
        return stop.code
    except Exception as error:
        return error
    finally:
        sys.argv, sys.path[:] = saved
    return 0
