"""What a program's compiled functions are made of, as numbers that are the same in every run: written to a file, compared later."""

import dataclasses
import hashlib
import json
import os
import platform

import torch
from torch.utils._pytree import tree_leaves

from .. import _api, _kernels
from .._errors import CommandError
from . import causes as _causes
from . import differ, observe, outside, recompiles, screen, show, state

VERSION = 4
SLACK = 5  # percent by which numbers of guards and steps may grow where the baseline is of other versions
# Relative differences that are accepted, by dtype: on the machine and the versions that the baseline is of, where all is the same but what MKL makes of memory's
# alignment; and elsewhere. Gradients are sums over many values that may cancel.
TOLERANCE = {"float64": (1e-11, 1e-8), "complex128": (1e-11, 1e-8), "float32": (1e-6, 1e-4), "complex64": (1e-6, 1e-4)}
OF_HALF = 1e-3, 1e-2
OF_GRADIENTS = 1e-4
GRADIENTS = 3  # lines that are told about gradients that differ: where one does, most others do


class BaselineError(CommandError):
    """A file that is no baseline, or a program that cannot be compared with one."""


@dataclasses.dataclass
class Change:
    text: str
    filename: str = ""
    line: int = 0


# counter: what it counts. Fewer of all of them is better.
COUNTERS = {
    "breaks": "graph breaks in recordings", "reads": "places where graphs wait for the data of a tensor", "graphs": "graphs", "recompiles": "recompiles", "recordings": "recordings",
    "kinds": "recompiles of graphs for further sizes, strides or dtypes of their inputs", "eager": "calls that ran eagerly", "not_compiled": "graphs that run step by step",
    "kernels": "kernels", "library_calls": "calls of PyTorch's operators in compiled graphs", "effects": "side effects", "guards": "guards",
    "guard_words": "words that guards compare", "guard_tests": "tests of guards that run one by one", "steps": "steps of a replay",
}
OF_LIBRARIES = "guards", "guard_words", "guard_tests", "steps"  # they change in small ways with the versions of libraries


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
        return {"version": VERSION, "made_with": versions(), "machine": machine(), "functions": found}


def versions():
    return f"torch {torch.__version__}, Python {platform.python_version()}"


def machine():
    """What results depend on to the last digit."""
    facts = _api.start_engine()._doctor()
    target = facts["target"] or f"no kernels: {facts['target_why']}"  # the processor, all that it can, the version of LLVM
    return f"{target.partition(chr(10))[0]} ({hashlib.sha256(target.encode()).hexdigest()[:12]}), {show.count(torch.get_num_threads(), 'thread')}"


def describe_difference(expected, found):
    """What the baseline was made with, where that is something else; "": it is not."""
    if expected["made_with"] != found["made_with"]:
        return f"the baseline is of {expected['made_with']}, this is {found['made_with']}: numbers of guards and steps may grow by {SLACK}%, results differ more"
    return "" if expected["machine"] == found["machine"] else f"the baseline is of {expected['machine']}, this is {found['machine']}: results may differ more"


def describe(observed, results=True):
    """The entry of one function."""
    engine = _api.start_engine()
    compiled = observed.compiled
    entries = sorted(compiled.entries(), key=lambda entry: entry.number)
    dumps = [engine.dump(entry) for entry in entries]
    stats = compiled.stats()
    rows = _kernels.rows(engine, compiled) if stats["replays"] else None
    results = _results(observed, dumps) if results else None
    if rows is None:  # it was called once: the further calls for its results have made the code of its graphs. Of others they may run what the program does not
        rows = _kernels.rows(engine, compiled)
    made = {}  # by part of a graph: the rows of its versions
    for row in rows:
        made.setdefault((row["recording"], row["graph"], row["part"]), []).append(row)
    reads = [cause for dump in dumps for cause in _causes.of_reads(dump)]
    counters = {
        "breaks": sum(len(dump["breaks"]) for dump in dumps), "reads": len(reads), "graphs": sum(len(dump["graphs"]) for dump in dumps),
        "recompiles": sum(event["event"] == "recompile" for event in observed.events), "recordings": stats["recordings"],
        "eager": sum(count - observed.eager_before.get(reason, 0) for reason, count in stats["eager_calls"].items() if reason not in _causes.USUAL),
        "not_compiled": sum(not (row["compiled"] or row["waits"] or row["as_fast"]) and bool(row["reason"]) for row in rows), "kernels": sum(max(row["kernels"] for row in part) for part in made.values()),
        "library_calls": sum(max(row["library_calls"] for row in part) for part in made.values()),
        "kinds": sum(max(0, sum(row["compiled"] for row in part) - 1) for part in made.values()), "effects": sum(len(dump["effects"]) for dump in dumps),
        "guards": sum(len(dump["facts"]) for dump in dumps), "guard_words": sum(row["guard_words"] + row["later_guard_words"] for row in stats["variants"]),
        "guard_tests": sum(row["guard_tests"] for row in stats["variants"]),
        "steps": sum(len(dump["steps"]) for dump in dumps)}
    causes = {}
    for cause in (*(cause for dump in dumps for cause in _causes.of_dump(dump)), *reads):
        causes.setdefault((cause.kind, cause.why, cause.filename, cause.line), cause)
    places = [_place(cause) for cause in (*causes.values(), *recompiles.of_function(observed, dumps))]
    return {"counters": counters, "causes": places, "results": results}


def _place(cause):
    filename, line, function = cause.user
    relative = os.path.relpath(filename)
    return {"kind": cause.kind, "why": cause.why or cause.title, "title": cause.title, "file": os.path.basename(filename),
            "path": "" if relative.startswith("..") else relative.replace(os.sep, "/"), "shown": _shown(filename), "line": line, "function": function,
            "code": _code(filename, line), "notes": cause.notes,
            "library": f"{cause.library} ({os.path.basename(cause.filename)}:{cause.line}: {cause.code})" if cause.library else ""}


def _shown(filename):
    """Of the many files that are called __init__.py, which?"""
    folder, name = os.path.split(filename)
    return f"{os.path.basename(folder)}/{name}" if name.startswith("__") else name


def _code(filename, line):
    import linecache

    return linecache.getline(filename, line).strip()


def _results(observed, dumps):
    """{what it is: a few numbers} of what a call gives and leaves: results, gradients, tensors that it changes. None: the call is not repeated."""
    if not observed.calls or outside.find_obstacle(dumps, observed):
        return None
    call = observed.calls[-1]
    try:
        with screen.quiet(), call.modes(), state.unchanged(observed.compiled.fn, call.args, call.kwargs) as kept:
            before = {f"{name}, after the call,": value for name, value in kept.tensors().items()}
            inputs = (leaf for leaf in tree_leaves(call.copy()) if isinstance(leaf, torch.Tensor))
            before |= {f"argument {number}, after the call,": leaf for number, leaf in enumerate(inputs, 1)}
            for _ in range(2):
                side = differ.Side(observed.compiled, call, kept)
            return {name.removesuffix(","): _summary(value) for name, value in side.found.items() if name not in before or not _is_same(before[name], value)}
    except Exception as error:
        return {"a call": f"raised {type(error).__name__}"}


def _is_same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def _summary(leaf):
    """A line: dtype and sizes, elements that are not finite, sum, norm, sum weighted by place; of anything but a tensor what it is."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
        return leaf if isinstance(leaf, (bool, int, float, str)) else type(leaf).__name__
    numbers = torch.view_as_real(leaf.detach()) if leaf.is_complex() else leaf.detach()
    numbers = numbers.to(torch.float64).flatten()
    finite = numbers[numbers.isfinite()]
    weights = torch.arange(1, len(finite) + 1, dtype=torch.float64).remainder(97)
    sums = finite.sum().item(), finite.abs().sum().item(), (finite * weights).sum().item() / 97
    sizes = "x".join(map(str, leaf.shape))
    return " ".join(["tensor", str(leaf.dtype).removeprefix("torch."), f"[{sizes}]", str(len(numbers) - len(finite)), *map(repr, sums)])


# ---- comparing ----


def limits(found, most):
    """Functions with more graph breaks than are accepted."""
    worse = []
    for name, one in found["functions"].items():
        breaks = [cause for cause in one["causes"] if cause["kind"] == "break"]
        if one["counters"]["breaks"] > most:
            worse += [Change(f"{name}: {describe_place(cause)}; at most {most} accepted", cause["path"], cause["line"]) for cause in breaks]
    return worse


def compare(expected, found, tolerance=None):
    """([worse], [better]). tolerance: relative difference of results that is accepted; None: by their dtype."""
    worse, better = [], []
    before, now = expected["functions"], found["functions"]
    same = expected["made_with"] == found["made_with"]
    within = _Within(0 if same else SLACK, same and expected["machine"] == found["machine"], tolerance)
    for name in before:
        if name not in now:
            worse.append(Change(f"{name}: was compiled, and is not called any more"))
    for name, one in now.items():
        if name not in before:
            better.append(Change(f"{name}: is new; --update takes it into the baseline"))
            continue
        _compare_function(name, before[name], one, within, worse, better)
    return worse, better


@dataclasses.dataclass
class _Within:
    """What is accepted as the same."""

    slack: int            # percent, of OF_LIBRARIES
    same_machine: bool
    asked: float | None   # for results

    def tolerance(self, dtype):
        return self.asked if self.asked is not None else TOLERANCE.get(dtype, OF_HALF)[0 if self.same_machine else 1]


def _compare_function(name, before, now, within, worse, better):
    old = {_key(cause) for cause in before["causes"]}
    new = {_key(cause) for cause in now["causes"]}
    fresh = [cause for cause in now["causes"] if _key(cause) not in old]
    worse += [Change(f"{name}: new {describe_place(cause)}", cause["path"], cause["line"]) for cause in fresh]
    better += [Change(f"{name}: gone: {describe_place(cause)}") for cause in before["causes"] if _key(cause) not in new]
    first = fresh[0] if fresh else {"path": "", "line": 0}
    for counter, what in COUNTERS.items():
        was, is_now = before["counters"].get(counter), now["counters"][counter]
        if was is None or was == is_now:
            continue
        text = f"{name}: {what}: {was} -> {is_now}"
        if is_now > was * (1 + (within.slack if counter in OF_LIBRARIES else 0) / 100):
            worse.append(Change(text, first["path"], first["line"]))
        elif is_now < was:
            better.append(Change(text))
    if before["results"] is not None and now["results"] is not None:
        worse += [Change(f"{name}: {text}") for text in _compare_results(before["results"], now["results"], within)]


def _key(cause):
    """The same cause although lines above it were added: its line is known by its code."""
    return cause["kind"], cause["why"] if cause["kind"] == "break" else cause["title"].rpartition(": ")[2], cause["file"], cause["function"], cause["code"]


def describe_place(cause):
    kind = "graph break" if cause["kind"] == "break" else cause["kind"]
    notes = f" ({'; '.join(cause['notes'][:2])})" if cause["notes"] and cause["kind"] == "recompile" else ""
    within = f", in {cause['library']}" if cause.get("library") else ""
    place = f"{cause['path'] or cause.get('shown') or cause['file']}:{cause['line']} in {cause['function']}: {cause['code']}{within}"
    return f"place where a graph waits for the data of a tensor: {place}" if cause["kind"] == "read" else f"{kind} at {place} [{cause['why']}]{notes}"


def _compare_results(before, now, within):
    of_gradients = []  # (by how much, what is told)
    largest = max((_read(value).norm for name, value in before.items() if "grad" in name and _read(value)), default=0.0)
    for name in (*before, *(name for name in now if name not in before)):
        if name not in now or name not in before:
            yield f"{name} is {'new' if name in now else 'not there any more'}"
            continue
        a, b = _read(before[name]), _read(now[name])
        if a is None or b is None:
            if before[name] != now[name] and not _close(before[name], now[name], within.tolerance("float32")):
                yield f"{name}: {before[name]!r} -> {now[name]!r}"
        elif (a.dtype, a.sizes, a.not_finite) != (b.dtype, b.sizes, b.not_finite):
            yield f"{name}: {a.kind()} -> {b.kind()}"
        else:
            of_gradient = "grad" in name
            tolerance = max(within.tolerance(a.dtype), OF_GRADIENTS if of_gradient and within.asked is None else 0)
            worst = max(abs(x - y) for x, y in zip(a.sums(), b.sums())) / max(a.norm, b.norm, largest / 100 if of_gradient else 0, 1e-30)
            if worst > tolerance:
                told = f"{name}: its values differ by {worst:.1e} (at most {tolerance:.0e} accepted)"
                if of_gradient:
                    of_gradients.append((worst, told))
                else:
                    yield told
    of_gradients.sort(key=lambda one: -one[0])
    yield from (told for _, told in of_gradients[:GRADIENTS])
    if len(of_gradients) > GRADIENTS:
        yield f"{show.count(len(of_gradients) - GRADIENTS, 'more gradient')} differ, by up to {of_gradients[GRADIENTS][0]:.1e}"


@dataclasses.dataclass
class _Digest:
    """What _summary wrote of a tensor."""

    dtype: str
    sizes: str
    not_finite: int
    sum: float
    norm: float
    weighted: float

    def sums(self):
        return self.sum, self.norm, self.weighted

    def kind(self):
        return f"{self.dtype}{self.sizes.replace('x', ', ')}, {self.not_finite} not finite"


def _read(text):
    parts = text.split() if isinstance(text, str) and text.startswith("tensor ") else ()
    return _Digest(parts[1], parts[2], int(parts[3]), *map(float, parts[4:])) if len(parts) == 7 else None


def _close(a, b, tolerance):
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (a, b))
    return numbers and abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-30)
