"""Runs a case in a world, observes each call, and compares two runs."""
import contextlib
import dataclasses
import functools
import io
import os
import pathlib
import re
import traceback

import torch

from . import engines, isolate, world
from .case import Args, State
from .freeze import Freezer, differences, type_name

torch.set_num_threads(1)   # a forked child cannot use the thread pool that its parent has started

CASES_DIR = pathlib.Path(__file__).resolve().parent.parent / "cases"
HIDDEN = {"CASES", "__builtins__", "__file__", "__name__", "__doc__", "__package__", "__loader__", "__spec__",
          "__warningregistry__"}


@dataclasses.dataclass
class Run:
    """What one side did: one observation (a dict of plain data) per call, and the engine's counters."""
    observations: list
    stats: dict


def topics():
    return sorted(CASES_DIR.glob("*.py"))


def cases_of(path):
    """The cases of a topic file, as declared (the file is executed once for it)."""
    with world.fresh_ambient("ignore"):
        return list(world.load(path, "world_" + path.stem).CASES.values())


def all_cases():
    return [(path, case) for path in topics() for case in cases_of(path)]


def share(cases):
    """KIN_CORPUS_SHARE=i/n: every n-th of them, from number i on; otherwise all."""
    i, n = map(int, os.environ.get("KIN_CORPUS_SHARE", "1/1").split("/"))
    return cases[i - 1::n]


def frames_in(tb, path):
    return tuple((os.path.basename(f.filename), f.lineno, f.name) for f in traceback.extract_tb(tb)
                 if f.filename == str(path))


def describe_exception(e, path, freeze, depth=0):
    """Type, arguments, the lines of frames in the topic file, and the chain behind it."""
    if e is None or depth > 4:
        return None
    return (type_name(type(e)), ("args", freeze(e.args)), ("traceback", frames_in(e.__traceback__, path)),
            ("notes", tuple(getattr(e, "__notes__", ()))), ("suppress_context", e.__suppress_context__),
            ("cause", describe_exception(e.__cause__, path, freeze, depth + 1)),
            ("context", describe_exception(e.__context__, path, freeze, depth + 1)))


def describe_warnings(caught, path):
    out = []
    for w in caught:
        here = os.path.basename(w.filename) == os.path.basename(str(path))
        out.append((type_name(w.category), str(w.message), os.path.basename(w.filename), w.lineno if here else None))
    return tuple(out)


def call_once(compiled, call):
    try:
        return compiled(*call.args, **call.kwargs), None
    except Exception as e:
        return None, e


def without_logs(text):
    """What Kintsugi logs (a recompile limit) is no output of the program; torch 2.14 may write it to the stderr of this moment."""
    return re.sub(r"^[VDIWEC]\d{4} .* kintsugi/_logs\.py:\d+\] .*\n", "", text, flags=re.M)


def observe(module, path, case, state, compiled, call, i, caught, handler):
    """One call and everything it could have changed, as plain data."""
    out, err = io.StringIO(), io.StringIO()
    start_warnings, start_logs = len(caught), len(handler.rows)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        result, error = call_once(compiled, call)
    after_rng, after_ambient = world.rng(), world.ambient()
    freeze = Freezer(module.__name__)
    seen = {
        "exception": describe_exception(error, path, freeze),
        "result": freeze(result),
        "stdout": out.getvalue(), "stderr": without_logs(err.getvalue()),
        "warnings": describe_warnings(caught[start_warnings:], path),
        "logs": tuple(handler.rows[start_logs:]),
        "rng": after_rng, "ambient": after_ambient,
    }
    if case.after is not None:
        try:
            seen["after"] = freeze(case.after(i, state, result))
        except Exception as e:
            seen["after"] = describe_exception(e, path, freeze)
    seen["arguments"] = (freeze(tuple(call.args)), freeze(call.kwargs))
    seen["state"] = freeze(state)
    seen["globals"] = tuple((k, freeze(v)) for k, v in list(module.__dict__.items()) if k not in HIDDEN)
    return seen


def run_case(path, name, engine, force_exit=-1, mutate=True):
    """All calls of a case in a fresh world under `engine`; mutate=False leaves out what changes between calls."""
    path = pathlib.Path(path)
    engine.reset()
    with world.fresh_ambient("always") as (caught, handler):
        module = world.load(path, "world_" + path.stem)
        case = module.CASES[name]
        world.warnings.simplefilter(case.warn)
        state = State()
        if case.setup:
            case.setup(state)
        fn = case.fn(state) if case.build else case.fn
        compiled = engine.compile(fn)
        observations = []
        engine.force_exit(force_exit)
        try:
            for i in range(case.calls):
                if case.mutate and mutate:
                    case.mutate(i, state)
                call = case.args(i, state)
                call = call if isinstance(call, Args) else Args(*call)
                observations.append(observe(module, path, case, state, compiled, call, i, caught, handler))
        finally:
            engine.force_exit(-1)
        return Run(observations, dict(engine.stats(compiled)))


@functools.lru_cache(maxsize=None)
def eager_run(path, name):
    action = functools.partial(run_case, path, name, engines.Eager())
    return action() if not isolate.WANTED or isolate.gradients_after_fork() else isolate.in_child(action)


def shorten(value, limit=300):
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."


def compare(expected, actual, close=None):
    """Readable differences between two runs; an empty list means equal. `close`: of the engine (engines.py)."""
    out = []
    if len(expected.observations) != len(actual.observations):
        out.append("different number of calls")
    for i, (a, b) in enumerate(zip(expected.observations, actual.observations)):
        for key in a:
            if a[key] == b.get(key):
                continue
            for path, x, y in differences(a[key], b.get(key), key, close)[:3]:
                out.append(f"call {i}: {path}\n    eager:  {shorten(x)}\n    engine: {shorten(y)}")
    return out
