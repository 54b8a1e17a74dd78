"""What a program's compiled functions are made of, as numbers that are the same in every run: written to a file, compared later."""

import dataclasses
import json
import os

import torch
from torch.utils._pytree import tree_leaves

from .. import _api, _kernels
from .._errors import CommandError
from . import causes as _causes
from . import observe, outside, recompiles, screen, state

VERSION = 1


class BaselineError(CommandError):
    """A file that is no baseline, or a program that cannot be compared with one."""


@dataclasses.dataclass
class Change:
    text: str
    filename: str = ""
    line: int = 0


# counter: (what it counts, by how many percent it may grow). Fewer of all of them is better.
COUNTERS = {
    "breaks": ("graph breaks in recordings", 0), "graphs": ("graphs", 0), "recompiles": ("recompiles", 0), "recordings": ("recordings", 0),
    "eager": ("calls that ran eagerly", 0), "not_compiled": ("graphs that run step by step", 0), "kernels": ("kernels", 0),
    "library_calls": ("calls of PyTorch's operators in compiled graphs", 0), "effects": ("side effects", 0), "guards": ("guards", 5),
    "guard_words": ("words that guards compare", 5), "steps": ("steps of a replay", 5),
}


def read(path):
    try:
        with open(path) as file:
            found = json.load(file)
    except OSError as error:
        raise BaselineError(f"{error.strerror}: {path}; --update writes it") from error
    except ValueError as error:
        raise BaselineError(f"{path} is no baseline: {error}") from error
    if not isinstance(found, dict) or found.get("version") != VERSION or "functions" not in found:
        raise BaselineError(f"{path} is no baseline of this version; --update writes it anew")
    return found


def write(path, found):
    with open(f"{path}.part", "w") as file:
        json.dump(found, file, indent=1, sort_keys=True)
        file.write("\n")
    os.replace(f"{path}.part", path)


def take(target, arguments=(), *, inputs=None, tell=lambda text: None):
    """What the target is made of now."""
    with observe.same_each_time(target, arguments, inputs) as functions:
        found = {}
        for name, one in zip(observe.unique_names(functions), functions):
            tell(f"{name}: calling it again")
            found[name] = describe(one)
        return {"version": VERSION, "torch": torch.__version__, "functions": found}


def describe(observed, results=True):
    """The entry of one function."""
    engine = _api.start_engine()
    compiled = observed.compiled
    entries = sorted(compiled.entries(), key=lambda entry: entry.number)
    dumps = [engine.dump(entry) for entry in entries]
    stats = compiled.stats()
    results = _results(observed, dumps) if results else None  # a last call: by now code is made of every graph of a function that was called once
    rows = _kernels.rows(engine, compiled)
    counters = {
        "breaks": sum(len(dump["breaks"]) for dump in dumps), "graphs": sum(len(dump["graphs"]) for dump in dumps),
        "recompiles": sum(event["event"] == "recompile" for event in observed.events), "recordings": stats["recordings"],
        "eager": sum(count for reason, count in stats["eager_calls"].items() if reason not in _causes.USUAL),
        "not_compiled": sum(not (row["compiled"] or row["waits"] or row["as_fast"]) and bool(row["reason"]) for row in rows), "kernels": sum(row["kernels"] for row in rows),
        "library_calls": sum(row["library_calls"] for row in rows), "effects": sum(len(dump["effects"]) for dump in dumps),
        "guards": sum(len(dump["facts"]) for dump in dumps), "guard_words": sum(row["guard_words"] for row in stats["variants"]),
        "steps": sum(len(dump["steps"]) for dump in dumps)}
    causes = {}
    for dump in dumps:
        for cause in _causes.of_dump(dump):
            causes.setdefault((cause.why, cause.filename, cause.line), cause)
    places = [_place(cause) for cause in (*causes.values(), *recompiles.of_function(observed, dumps))]
    return {"counters": counters, "causes": places, "results": results}


def _place(cause):
    filename, line, function = cause.user
    relative = os.path.relpath(filename)
    return {"kind": cause.kind, "why": cause.why or cause.title, "title": cause.title, "file": os.path.basename(filename),
            "path": "" if relative.startswith("..") else relative.replace(os.sep, "/"), "line": line, "function": function,
            "code": _code(filename, line), "notes": cause.notes,
            "library": f"{cause.library} ({os.path.basename(cause.filename)}:{cause.line}: {cause.code})" if cause.library else ""}


def _code(filename, line):
    import linecache

    return linecache.getline(filename, line).strip()


def _results(observed, dumps):
    """What a call gives, as a few numbers for each tensor; None: the call is not repeated."""
    if not observed.calls or outside.find_obstacle(dumps, observed):
        return None
    call = observed.calls[-1]
    try:
        with screen.quiet(), call.modes(), state.unchanged(observed.compiled.fn, call.args, call.kwargs) as kept:
            for _ in range(2):
                kept.restore()
                state.seed()
                args, kwargs = call.copy()
                value = observed.compiled(*args, **kwargs)
            return [_summary(leaf) for leaf in tree_leaves(value)]
    except Exception as error:
        return [f"raised {type(error).__name__}"]


def _summary(leaf):
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
        return leaf if isinstance(leaf, (bool, int, float, str)) else type(leaf).__name__
    numbers = torch.view_as_real(leaf.detach()) if leaf.is_complex() else leaf.detach()
    numbers = numbers.to(torch.float64).flatten()
    finite = numbers[numbers.isfinite()]
    weights = torch.arange(1, len(finite) + 1, dtype=torch.float64).remainder(97)
    norm = finite.abs().sum().item()
    return {"dtype": str(leaf.dtype).removeprefix("torch."), "shape": list(leaf.shape), "not_finite": len(numbers) - len(finite),
            "sum": finite.sum().item(), "norm": norm, "weighted": (finite * weights).sum().item() / 97}


# ---- comparing ----


def limits(found, most):
    """Functions with more graph breaks than are accepted."""
    worse = []
    for name, one in found["functions"].items():
        breaks = [cause for cause in one["causes"] if cause["kind"] == "break"]
        if one["counters"]["breaks"] > most:
            worse += [Change(f"{name}: {describe_place(cause)}; at most {most} accepted", cause["path"], cause["line"]) for cause in breaks]
    return worse


def compare(expected, found, tolerance=1e-4):
    """([worse], [better])."""
    worse, better = [], []
    before, now = expected["functions"], found["functions"]
    for name in before:
        if name not in now:
            worse.append(Change(f"{name}: was compiled, and is not called any more"))
    for name, one in now.items():
        if name not in before:
            better.append(Change(f"{name}: is new; --update takes it into the baseline"))
            continue
        _compare_function(name, before[name], one, tolerance, worse, better)
    return worse, better


def _compare_function(name, before, now, tolerance, worse, better):
    old = {_key(cause) for cause in before["causes"]}
    new = {_key(cause) for cause in now["causes"]}
    fresh = [cause for cause in now["causes"] if _key(cause) not in old]
    worse += [Change(f"{name}: new {describe_place(cause)}", cause["path"], cause["line"]) for cause in fresh]
    better += [Change(f"{name}: gone: {describe_place(cause)}") for cause in before["causes"] if _key(cause) not in new]
    first = fresh[0] if fresh else {"path": "", "line": 0}
    for counter, (what, percent) in COUNTERS.items():
        was, is_now = before["counters"].get(counter), now["counters"][counter]
        if was is None or was == is_now:
            continue
        text = f"{name}: {what}: {was} -> {is_now}"
        if is_now > was * (1 + percent / 100):
            worse.append(Change(text, first["path"], first["line"]))
        elif is_now < was:
            better.append(Change(text))
    if before["results"] is not None and now["results"] is not None:
        worse += [Change(f"{name}: {text}") for text in _compare_results(before["results"], now["results"], tolerance)]


def _key(cause):
    """The same cause although lines above it were added: its line is known by its code."""
    return cause["kind"], cause["why"] if cause["kind"] == "break" else cause["title"].rpartition(": ")[2], cause["file"], cause["function"], cause["code"]


def describe_place(cause):
    kind = "graph break" if cause["kind"] == "break" else cause["kind"]
    notes = f" ({'; '.join(cause['notes'][:2])})" if cause["notes"] and cause["kind"] == "recompile" else ""
    within = f", in {cause['library']}" if cause.get("library") else ""
    return f"{kind} at {cause['file']}:{cause['line']} in {cause['function']}: {cause['code']}{within} [{cause['why']}]{notes}"


def _compare_results(before, now, tolerance):
    if len(before) != len(now):
        yield f"a call gives {len(now)} values, and gave {len(before)}"
        return
    for number, (a, b) in enumerate(zip(before, now), 1):
        if not isinstance(a, dict) or not isinstance(b, dict):
            if a != b and not _close(a, b, tolerance):
                yield f"result {number}: {a!r} -> {b!r}"
        elif any(a[part] != b[part] for part in ("dtype", "shape", "not_finite")):
            yield f"result {number}: {a['dtype']}{a['shape']}, {a['not_finite']} not finite -> {b['dtype']}{b['shape']}, {b['not_finite']} not finite"
        else:
            worst = max(abs(a[part] - b[part]) for part in ("sum", "norm", "weighted")) / max(a["norm"], b["norm"], 1e-30)
            if worst > tolerance:
                yield f"result {number}: its values differ by {worst:.1e} (at most {tolerance:.0e} accepted)"


def _close(a, b, tolerance):
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (a, b))
    return numbers and abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-30)
