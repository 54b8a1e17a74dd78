"""explain(fn)(*args): what one call becomes when it is compiled."""

import collections
import dataclasses
import functools
import itertools
import linecache
import os
import sys
import types

from . import _api, _kernels, _launch, _logs, _messages, fx, passes as _passes
from ._compiled import engine_of, function_of
from ._start import start_engine


@dataclasses.dataclass
class GraphCompileReason:
    """One graph break: the whole reason text and the user's frames, innermost last."""

    reason: str
    user_stack: list
    graph_break: bool = True
    entry: dict = dataclasses.field(default_factory=dict, repr=False)

    def __str__(self):
        where = self.user_stack[-1] if self.user_stack else None
        place = f" ({where.filename}:{where.lineno} in {where.name})" if where else ""
        return self.reason.partition("\n")[0] + place


@dataclasses.dataclass(frozen=True)
class Guard:
    """One entry test."""

    name: str
    kind: str
    text: str
    filename: str
    line: int
    function: str

    def __str__(self):
        return (f'Name: "{self.name}"\n    Create Function: {self.kind}\n    Check: {self.text}\n'
                f"    Needed by: {self.filename}:{self.line} in {self.function}\n")


class ExplainOutput:
    """The answer of explain(). `graphs` are torch.fx.GraphModules, made when they are asked for.

    graph_count, graph_break_count, op_count, break_reasons, ops_per_graph, out_guards, compile_times,
    backend_graph_count, backend_parts (what the custom backend of a compiled function gets: more than graph_count where something has to run between the calls
    of a graph; None for functions without one),
    deferred_effects, handed_out, exact_sizes, frames, graph_texts, kernels and passes (of the function as compiled before: graphs are compiled when replayed).
    """

    def __init__(self, dumps, frames, kernels=(), no_kernels="", passes=(), calls="", parts=None):
        self._graphs = [graph for dump in dumps for graph in dump["graphs"]]
        self._dumps = dumps
        self.frames = frames
        self.kernels = list(kernels)
        self.passes = list(passes)
        self.no_kernels = no_kernels
        self.calls = calls
        self.graph_count = len(self._graphs)
        self.backend_parts = parts
        self.backend_graph_count = None if parts is None else len(parts)
        self.op_count = sum(len(graph["nodes"]) for graph in self._graphs)
        self.ops_per_graph = [[_op_of(node) for node in graph["nodes"]] for graph in self._graphs]
        self.graph_texts = [graph["code"] for graph in self._graphs]
        breaks = [entry for dump in dumps for entry in dump["breaks"]] + [_whole_break(frame) for frame in frames if frame.get("why")]
        self.graph_break_count = len(breaks)
        self.break_reasons = [_reason(entry) for entry in breaks]
        self.out_guards = [_guard(fact) for dump in dumps for fact in dump["facts"]]
        self.deferred_effects = [effect for dump in dumps for effect in dump["effects"]]
        self.handed_out = [row for dump in dumps for row in dump["handed_out"]]
        self.is_compiling = [row for dump in dumps for row in dump["asked"]]
        self.exact_sizes = [row for dump in dumps for row in dump["exact_sizes"]]
        self.compile_times = _times(frames[0]["name"] if frames else "?", dumps)

    @functools.cached_property
    def causes(self):
        """What keeps the call from being one graph: the same break at the same line once, with where its data comes from and a fitted fix."""
        from .diagnose import causes, fixes

        found = {}
        for dump in self._dumps:
            for cause in causes.of_dump(dump):
                found.setdefault((cause.why, cause.filename, cause.line), cause)
        for cause in found.values():
            fixes.fit_into(cause)
        return list(found.values())

    def summary(self):
        """One screen: the verdict, then each cause with its line, the reason and the fix. `kintsugi explain` prices them as well."""
        from .diagnose import show

        graphs = f"{show.count(self.graph_count, 'graph')}, {show.count(self.graph_break_count, 'graph break')}"
        lines = [f"{self.frames[0]['name']} ({self.frames[0]['filename']}:{self.frames[0]['line']}): {graphs}; "
                 f"{show.count(len(self.causes), 'cause')}" if self.frames else graphs]
        for number, cause in enumerate(self.causes, 1):
            lines += ["", *(text for text, _ in show.cause_lines(number, cause))]
        lines += [f"\n{line}" for line in _exact_lines(self.exact_sizes)]
        lines += [f"{frame['outcome']}" for frame in self.frames if frame["outcome"] != "recorded"]
        return "\n".join(lines) + "\n"

    @functools.cached_property
    def graphs(self):
        from . import fx

        return [fx.to_graph_module(graph) for graph in self._graphs]

    def __str__(self):
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}",
                 f"Op Count: {self.op_count}", "Break Reasons:" if self.break_reasons else "Break Reasons: none"]
        for number, reason in enumerate(self.break_reasons, 1):
            block = "\n".join("    " + line if line else "" for line in reason.reason.splitlines())
            lines += [f"  Break Reason {number}:", "    Reason: " + block.lstrip(), "    User Stack:"]
            lines += [f"      {line}" for line in _stack_lines(reason.user_stack)]
        lines += _part_lines(self.graph_count, self.backend_parts)
        lines += _effect_lines(self.deferred_effects)
        lines += _handed_out_lines(self.handed_out)
        lines += _asked_lines(self.is_compiling)
        lines += _exact_lines(self.exact_sizes)
        lines.append("Ops per Graph:" if self.ops_per_graph else "Ops per Graph: none")
        for number, ops in enumerate(self.ops_per_graph, 1):
            lines += [f"  Ops {number}:", *(f"    {_op_name(op)}" for op in ops)]
        lines += _guard_lines(self.out_guards)
        lines.append("Frames:")
        for frame in self.frames:
            lines.append(f"  {frame['name']} ({frame['filename']}:{frame['line']}): {frame['outcome']}")
            lines += [f"    {line}".rstrip() for line in frame.get("details", "").splitlines()]
        if self.calls:
            lines.append(self.calls)
        lines.append("Kernels:")
        lines += _kernel_lines(() if self.no_kernels else self.kernels)
        if self.no_kernels:
            lines.append(f"  {self.no_kernels}")
        lines.append(f"Compile Times: {self.compile_times}")
        return "\n".join(lines) + "\n"

    def __repr__(self):
        return (f"<kintsugi.ExplainOutput: {self.graph_count} graphs, {self.graph_break_count} graph breaks, "
                f"{self.op_count} ops>")


def _whole_break(frame):
    """A function that runs eagerly as a whole, for a reason that has a row, breaks where it begins."""
    row = _messages.find_row(frame["why"])
    place = {"filename": frame["filename"], "line": frame["line"], "function": frame["name"]}
    return {**row, "why": frame["why"], "context": frame["reason"], "user_stack": [tuple(place.values())], **place}


def _reason(entry):
    return GraphCompileReason(_messages.break_block(entry, entry.get("context", "")),
                              list(_messages.frames(entry["user_stack"])), entry=entry)


def _guard(fact):
    return Guard(fact["source"], fact["guard"], fact["text"], fact["filename"], fact["line"],
                 fact["function"])


def _guard_lines(guards):
    """Those that the user's code needs, and those on arguments, by the line that needs them; how many others library code needs."""
    lines, libraries, last = [f"Out Guards: {len(guards)}"], collections.Counter(), None
    for guard in guards:
        package = _messages.library_of(guard.filename)
        if package and ("." in guard.name or not guard.name.startswith("L[")):
            libraries[package] += 1
            continue
        place = (guard.filename, guard.line)
        if place != last:
            code = linecache.getline(*place).strip()
            lines.append(f"  {guard.filename}:{guard.line} in {guard.function}" + (f": {code}" if code else ""))
            last = place
        lines.append(f"    {guard.kind}: {guard.text}")
    if libraries:
        counts = ", ".join(f"{package} {n}" for package, n in libraries.most_common())
        lines.append(f"  needed by library code: {counts} (listed in .out_guards)")
    return lines


_TOLD = {("program", True): "the program itself asks",
         ("library", True): "the branch for compilers usually has no graph breaks; its speed is compared with eager calls",
         ("library", False): "the branch for compilers was measured to be slower than eager calls",
         ("optimizer", False): "told True, an optimizer computes its step in another way than in eager"}


def _handed_out_lines(rows):
    if not rows:
        return []
    return ["Generators, map and filter objects that code outside of the graphs asks for items (what they compute runs eagerly):",
            *(f"  {row['function']}  # {row['filename']}:{row['line']}" for row in rows)]


def _asked_lines(rows):
    if not rows:
        return []
    return ["torch.compiler.is_compiling() was asked:",
            *(f"  {row['filename']}:{row['line']} in {row['function']}: answered {row['answer']} ({_TOLD[row['who'], row['answer']]})"
              for row in rows)]


def _exact_lines(rows):
    if not rows:
        return []
    return ["Sizes that are marked as dynamic and tested exactly:", *(f"  {row['filename']}:{row['line']} in {row['function']}: {row['text']}" for row in rows)]


# Frames of torch that stand between a module and its forward.
_CALLERS = ("_wrapped_call_impl", "_call_impl", "inner")


def _stack_lines(stack):
    shown = [f for f in stack if not (f.name in _CALLERS and f.filename.endswith(os.path.join("torch", "nn", "modules", "module.py")))]
    return [f"{f.filename}:{f.lineno} in {f.name}" + (f": {f.line}" if f.line else "") for f in shown or stack]


def _part_lines(graphs, parts):
    """Where a custom backend gets another number of graphs than are counted."""
    if parts is None or len(parts) == graphs:
        return []
    lines = [f"Graphs for a Custom Backend: {len(parts)}"]
    if len(parts) < graphs:
        lines.append("  the calls of the others are handed to no backend: PyTorch runs them")
    for part, following in itertools.pairwise(parts):
        if part["ends"] and part["graph"] == following["graph"]:
            lines.append(f"  graph {part['graph']} is divided behind {part['ends']}")
    return lines


def _is_internal(effect):
    """Does code of PyTorch's call a function of PyTorch's, or somebody one of its internals? Users know of neither."""
    text = effect["text"]
    return text.startswith("torch._C.") or _messages.library_of(effect["filename"]) == "torch" and text.startswith("torch.")


def _effect_lines(effects):
    shown = [effect for effect in effects if not _is_internal(effect)]
    lines = [f"  {effect['text']}  {_messages.effect_place(effect)}" for effect in shown]
    hidden = len(effects) - len(shown)
    if hidden:
        lines.append(f"  of library code: torch {hidden} (listed in .deferred_effects)")
    return ["Deferred Effects (they end no graph):", *lines] if lines else []


def _op_of(node):
    """What a node calls: of torch.Tensor.__torch_function__, that is what it hands the call on to."""
    handed_on = node["callable"] is fx.DEFAULT_OVERRIDE and len(node["args"]) > 1 and callable(node["args"][1])
    return node["args"][1] if handed_on else node["callable"] or node["target"]


def _op_name(op):
    """torch.sin, Tensor.sum, operator.add, my_module.my_function."""
    name = getattr(op, "__name__", None)
    if not callable(op) or name is None:
        return str(op).removesuffix(".__closure__[0].__dynamo_disable").replace("torch.optim.optimizer.", "torch.optim.")  # a wrapper of PyTorch's
    torch = sys.modules.get("torch")
    if torch is not None and getattr(torch, name, None) is op:
        return f"torch.{name}"
    if torch is not None and getattr(torch.Tensor, name, None) is op:
        return f"Tensor.{name}"
    module = getattr(op, "__module__", None) or ""
    if isinstance(op, types.BuiltinFunctionType) and module:
        return f"{module.lstrip('_')}.{name}" if module != "builtins" else name  # the class of what it is bound to is no part of its name
    return f"{module.lstrip('_')}.{getattr(op, '__qualname__', name)}" if module and module != "builtins" else name


def _times(name, dumps):
    lines = ["Kintsugi recording times:", "Function, Runtimes (s)"]
    lines += [f"{name}, {dump['record_ns'] / 1e9:.6f}" for dump in dumps]
    return "\n".join(lines)


def _kernel_lines(rows):
    """What became of each part of a graph; kinds of inputs (sizes, mostly) of which the same is to be said share a line."""
    blocks = collections.Counter()
    for row in rows:
        more = [f"    {line}" for line in row["not_fused"]] + ([f"    the next part begins behind {row['ends']}"] if row["ends"] else [])
        blocks[(f"  {_kernels.describe(row)}", *more)] += 1
    return [line for (first, *more), number in blocks.items() for line in (first + (f" ({number} kinds of inputs)" if number > 1 else ""), *more)]


def explain(fn, *extra_args, **extra_kwargs):
    """explain(fn)(*args, **kwargs) runs one call and says what it becomes. explain(fn, *args) works as well.

    Effects of the call happen; recordings of `fn` made elsewhere are not touched.
    """

    _api.check_callable("explain", fn)

    def run(*args, **kwargs):
        engine = start_engine()
        inner = engine_of(fn)
        target = inner.fn if inner is not None else fn
        custom = inner is not None and not _kernels.is_ours(inner)
        compiled = engine.Compiled(target, backend=_launch.census if custom else None)
        compiled(*args, **kwargs)
        entries = compiled.entries()
        dumps = [engine.dump(entry) for entry in entries]
        kernels = _kernels.rows(engine, inner) if inner is not None else ()
        passes = _passes.rows(engine, inner) if inner is not None else ()
        return ExplainOutput(dumps, _frames(compiled, entries, dumps), kernels, _kernels.none(inner, kernels), passes,
                             _kernels.describe_calls(inner) if inner is not None else "", _parts_for_backends(compiled, entries) if custom else None)

    return run(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else run


def _parts_for_backends(compiled, entries):
    """The graphs that a custom backend would get of what was recorded here, one after another."""
    return [{"recording": number, "graph": graph, "ends": _kernels.describe_end(end)}
            for number, entry in enumerate(entries, 1) for graph, end in compiled._divide(entry, _launch.census)]


def _frames(compiled, entries, dumps):
    """What happened to the compiled function: recorded, partly recorded, or run eagerly and why."""
    code = getattr(function_of(compiled.fn), "__code__", None)
    place = {"name": _name_of(compiled, code), "filename": code.co_filename if code else "?",
             "line": code.co_firstlineno if code else 0}
    found = []
    for entry, dump in zip(entries, dumps):
        reason = entry.reason
        outcome = f"partly recorded, the rest runs eagerly: {reason}" if reason else "recorded"
        found.append({**place, "outcome": outcome, "reason": reason})
    if not found:
        reason, why = _fallback_reason(compiled)
        row = _messages.find_row(why) if why else None
        found.append({**place, "outcome": "ran eagerly: " + reason, "reason": reason, "why": why,
                      "details": _messages.break_block(row, reason) if row else ""})
    return found


def _name_of(compiled, code):
    """The function's name; of a module's forward with its class, as the class alone could be any of its methods."""
    if code is None or isinstance(compiled.fn, type) or hasattr(compiled.fn, "__code__"):
        return compiled.__name__
    return f"{type(compiled.fn).__name__}.{code.co_name}"


def _fallback_reason(compiled):
    """The reason in words and the stable name of the row that explains it ("" = none)."""
    names = compiled.__name__, compiled.stats()["name"]
    for event in reversed(_logs.events()):
        if event["event"] in ("record", "fallback") and event.get("name") in names and event.get("reason"):
            return event["reason"], event.get("why", "")
    return "nothing was recorded", ""
