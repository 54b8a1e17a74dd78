"""Diagnosis of compiled functions: what a call takes, what keeps it from being faster, what that costs, and what to do about it.

`kintsugi explain`, `check` and `report` are views of a Diagnosis.
"""

import dataclasses

from .. import _api, _kernels
from . import causes as _causes
from . import anatomy, fixes, outside, paths, price, program, recompiles, screen


@dataclasses.dataclass
class Diagnosis:
    """One compiled function."""

    name: str
    filename: str
    line: int
    recordings: int
    graphs: int
    breaks: int
    ops: int
    calls: int
    causes: list
    verdict: price.Verdict
    effects: list
    kernels: list
    digest: dict
    sequence: list  # (kind, line, text) of the graphs, reads of data, breaks and effects of a recording, in order
    anatomy: list = dataclasses.field(default_factory=list)  # kernels of each compiled graph, with times where calls were repeated
    limits: dict = None      # what this machine reaches, where kernels have times
    guards: list = dataclasses.field(default_factory=list)   # by the line that needs them
    record_ms: list = dataclasses.field(default_factory=list)
    reads: int = 0           # of data, where a graph goes on behind them
    shown: int = 0           # the recording, counted from 1, that `sequence` is of: the one that the measured call used, as far as kernels tell

    def as_dict(self):
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return found | {"causes": [cause.as_dict() for cause in self.causes], "verdict": self.verdict.as_dict()}

    @property
    def priced(self):
        return [cause for cause in self.causes if cause.price_us is not None]


def diagnose(observed, *, measure=True, repeat=False, progress=lambda text: None, seconds=price.SECONDS, kernels=False):
    """The Diagnosis of a function that was observed. repeat: it is measured even if its calls have effects outside of the process; kernels: with the anatomy of
    its compiled graphs, which takes calls of its own, and half a second to find what the machine reaches."""
    engine = _api.start_engine()
    progress(f"{observed.name}: waiting for kernels that are compiled in the background")
    engine.wait_for_kernels()
    compiled = observed.compiled
    entries = sorted(compiled.entries(), key=lambda entry: entry.number)
    stats = compiled.stats()
    dumps = [engine.dump(entry) for entry in entries]
    found = _gather(observed, entries, dumps, stats)
    verdict = price.Verdict()
    if measure and observed.calls and entries:
        _measure(observed, dumps, found, verdict, progress, seconds, repeat)
    elif measure:
        failed = [cause.title for cause in found if cause.kind == "failed"]
        verdict.note = f"not measured: {failed[-1] if failed else 'no call was recorded'}"
    price.fill_eager(found, verdict, stats["calls"])
    found = [cause for cause in found if cause.kind not in price.SMALL or (cause.share or 0) >= price.WORTH_TELLING or cause.kind == "read" and not measure]
    left = list(_causes.of_kernels(observed, _kernels.rows(engine, compiled)))
    price.fill_steps(left, verdict)
    found += left
    price.fill_recompiles([cause for cause in found if cause.kind == "recompile"], observed.events, stats["calls"])
    if measure:
        price.say_why(found, verdict)
    for cause in found:
        if cause.kind in ("break", "read"):
            fixes.fit_into(cause)
    parts, limits = _kernels_of(observed, verdict) if kernels else ([], None)
    shown = next((row["recording"] for row in parts if row["us"]), len(dumps))
    found.sort(key=lambda cause: (-(cause.price_us or 0.0) if cause.kind != "recompile" else 0.0, _ORDER.index(cause.kind), cause.line))
    filename, line = observed.place()
    return Diagnosis(observed.name, filename, line, len(entries), sum(len(dump["graphs"]) for dump in dumps), sum(len(dump["breaks"]) for dump in dumps),
                     sum(len(graph["nodes"]) for dump in dumps for graph in dump["graphs"]), stats["calls"], found, verdict,
                     _causes.effects_of_call(dumps), _kernels.rows(engine, compiled), _digest(dumps, stats, observed),
                     _sequence(dumps[shown - 1]) if dumps else [], parts, limits, anatomy.guards(dumps), [dump["record_ns"] / 1e6 for dump in dumps],
                     sum(len(program.reads(dump)) for dump in dumps), shown)


_ORDER = ("failed", "eager", "partial", "break", "read", "effect", "recompile", "steps")


def _gather(observed, entries, dumps, stats):
    """Of several recordings each cause once."""
    found = {}
    for dump in dumps:
        for cause in (*_causes.of_dump(dump), *_causes.of_reads(dump)):
            key = cause.why or cause.title, cause.filename, cause.line
            if key not in found or cause.count > found[key].count:
                found[key] = cause
    return [*_causes.of_failed_backend(observed), *_causes.of_eager_calls(observed, stats), *(_causes.of_partial(observed, entry) for entry in entries if entry.reason),
            *found.values(), *(_causes.of_effects(dumps[0]) if dumps else ()), *recompiles.of_function(observed, dumps)]


def _measure(observed, dumps, found, verdict, progress, seconds, repeat):
    call = observed.calls[-1]
    obstacle = "" if repeat else outside.find_obstacle(dumps, observed)
    verdict.note = f"not measured: {obstacle}" if obstacle else ""
    try:
        left = any(_causes.of_kernels(observed, _kernels.rows(_api.start_engine(), observed.compiled)))
        price.measure(observed, call, found, verdict, progress, seconds, not obstacle, left)
    except Exception as error:  # what is measured is the user's code: it may raise anything
        verdict.note = f"not measured: calling it again raised {type(error).__name__}: {error}"


def _kernels_of(observed, verdict):
    """(anatomy of the compiled graphs, limits of the machine): with times only where the function was called again anyway."""
    engine = _api.start_engine()
    if not verdict.compiled:
        return anatomy.graphs(engine, observed.compiled), None
    try:
        with screen.quiet():
            return anatomy.profile(engine, observed), anatomy.limits()
    except Exception:  # the user's code may raise anything
        return anatomy.graphs(engine, observed.compiled), None


def _sequence(dump):
    """What a call goes through: its graphs, breaks and effects in order."""
    breaks = {entry["step"]: entry for entry in dump["breaks"]}
    found, seen, taken, reads = [], set(), paths.last(dump), program.reads(dump)
    for index, step in enumerate(dump["steps"]):
        if index not in taken:
            continue
        if index in breaks:
            found.append(("break", breaks[index]["line"], breaks[index]["type"]))
        elif step["graph"] and step["graph"] not in seen:
            seen.add(step["graph"])
            nodes = dump["graphs"][step["graph"] - 1]["nodes"]  # with lines of the user's code, where a step's is that of a library's
            calls = f"{len(nodes)} call{'' if len(nodes) == 1 else 's'}"
            found.append(("graph", nodes[0]["line"] if nodes else step["line"], f"graph {step['graph']}: {calls}"))
            found += [("read", node["line"], _causes.title_of_read(node)) for at, node in reads.items() if at in taken and dump["steps"][at]["graph"] == step["graph"]]
        elif "effect" in step["flags"] and "sunk" not in step["flags"] and not step["graph"] and step["kind"] == "call":
            found.append(("effect", step["line"], step["text"].partition(" = ")[2] or step["text"]))
    return found


def _digest(dumps, stats, observed):
    """Counters that are the same in every run of the same program."""
    return {"recordings": stats["recordings"], "graphs": sum(len(dump["graphs"]) for dump in dumps),
            "ops": sum(len(graph["nodes"]) for dump in dumps for graph in dump["graphs"]),
            "breaks": sum(len(dump["breaks"]) for dump in dumps), "effects": sum(len(dump["effects"]) for dump in dumps),
            "recompiles": sum(event["event"] == "recompile" for event in observed.events),
            "guards": sum(len(dump["facts"]) for dump in dumps), "steps": sum(len(dump["steps"]) for dump in dumps)}
