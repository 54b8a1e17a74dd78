"""The tensor calls of a recording as a Python function of their own, with each graph break kept or bridged.

A kept break asks for the same data at the same place. A bridged one is what the fix would make of it: a decision becomes torch.where, a
number stays a tensor, a break that was asked for is gone. Two such functions differ in nothing but the break, so that the difference of
their times is its price. They are functions of tensors without effects: running them changes nothing in the program.
"""

import dataclasses
import math
import re

import torch

from .. import _api, _launch, _symbols, fx
from .._config import config
from . import paths
from .screen import quiet


class NoProgram(Exception):
    """The recording cannot be written as such a function: its text says why."""


# What becomes of a break of these rows: see _Writer.add_break.
DECISIONS = ("DATA_DEPENDENT_BRANCH", "DATA_DEPENDENT_LOOP", "DATA_DEPENDENT_ASSERT")
NUMBERS = ("TENSOR_ITEM", "TENSOR_TO_NUMBER")
CALLS = 6  # of a function, until one is replayed: what it keeps from call to call may make the first ones differ
BRIDGED = (*DECISIONS, *NUMBERS, "EXPLICIT_BREAK")


def capture(observed, call, may_run, given=None):
    """(dump, {vid: value}): a recording of the call, and the values that its graphs were given. given: the (args, kwargs) to call it with, not copies."""
    engine = _api.start_engine()
    values = {}

    def backend(gm, inputs):
        vids = [node.meta.get("vid") for node in gm.graph.find_nodes(op="placeholder")]

        def run(*given):
            values.update((vid, value) for vid, value in zip(vids, given) if vid not in values)
            return gm.forward(*given)
        return run

    probe = engine.Compiled(observed.compiled.fn, name=observed.name, backend=backend, dynamic=False)
    with config.patch(step_aside=False), quiet(), call.modes():
        for number in range(CALLS if may_run else 0):
            if number >= 2 and values:
                break
            args, kwargs = given or call.copy()
            probe(*args, **kwargs)
    entries = probe.entries() or observed.compiled.entries()
    if not entries:
        raise NoProgram("nothing was recorded")
    return engine.dump(entries[0]), values


class Program:
    """write(bridged) gives a function of self.args without the breaks at these steps."""

    def __init__(self, dump, values):
        self.dump, self.values = dump, values
        self.path = sorted(paths.last(dump))
        taken = set(self.path)
        self.nodes = {index: node for index, node in _nodes_by_step(dump).items() if index in taken}
        self.breaks = {entry["step"]: entry for entry in dump["breaks"] if entry["step"] in taken}
        self.inside = set(self.epochs_inside())
        self.args = []
        self.externals = {}
        self.constants = {}
        self.write(())  # finds out what is given from outside
        if not self.nodes:
            raise NoProgram("it has no tensor calls")

    def epochs_inside(self):
        """Steps between two calls of a graph that look at objects again: compiled code ends there."""
        waiting, graph = [], 0
        for index in self.path:
            step = self.dump["steps"][index]
            if index in self.nodes:
                if step["graph"] == graph:
                    yield from waiting
                waiting, graph = [], step["graph"]
            elif step["kind"] == "epoch":
                waiting.append(index)

    def write(self, bridged, left_out=frozenset()):
        writer = _Writer(self, frozenset(bridged), left_out)
        text = writer.text()
        names = dict(writer.names)
        exec(compile(text, "<kintsugi: calls of a recording>", "exec"), names)
        return names["program"]

    def own_reads(self, wanted):
        """Those of these steps that have a price of their own: not reads that only side effects need, and not those that breaks are made of."""
        of_breaks = _Writer(self, frozenset(self.breaks), frozenset()).kept
        without = self.only_for_effects()
        return [index for index in wanted if index in self.nodes and index not in without and self.nodes[index]["vid"] not in of_breaks]

    def only_for(self, indices):
        """These steps, and those of tensor calls that nothing else needs."""
        steps, found, live, needed = self.dump["steps"], set(indices), set(), set()
        for index in reversed(self.path):
            node, operands = self.nodes.get(index), steps[index]["operands"]
            if index in found:
                needed.update(operands)
            elif node and node["vid"] and node["vid"] in needed and node["vid"] not in live and not node["target"].endswith("_"):
                found.add(index)
                needed.update(operands)
            elif node or index in self.breaks or steps[index]["kind"] != "check":
                live.update(operands)
        return frozenset(found)

    def only_for_effects(self):
        """Steps of tensor calls that nothing needs but side effects: `y.norm()` in `print(float(y.norm()))`."""
        steps = self.dump["steps"]
        taken = [(index, steps[index]) for index in self.path]
        live = {vid for index, step in taken if index not in self.nodes and (index in self.breaks or step["kind"] != "check" and not is_effect(step))
                for vid in step["operands"]}
        found = set()
        for index in sorted(self.nodes, reverse=True):
            node = self.nodes[index]
            if node["vid"] and node["vid"] not in live and not node["target"].endswith("_"):
                found.add(index)
            else:
                live.update(steps[index]["operands"])
        used = {vid for index, step in taken if is_effect(step) or index in found for vid in step["operands"]}
        return frozenset(index for index in found if self.nodes[index]["vid"] in used)

    def try_out(self):
        """Runs it once as it stands, for not all that a program does can be done apart from it: gradients of what other calls made, say."""
        try:
            self.write(())(*self.args)
        except Exception as error:
            raise NoProgram(f"its tensor calls cannot run apart from it ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})") from error

    def external(self, vid):
        """The parameter for a value that no call of the program makes."""
        if vid not in self.externals:
            if vid not in self.values:
                value = _imitation(self.dump, vid)
            else:
                value = self.values[vid]
            if value is None:
                raise NoProgram("its tensor calls take values that only the program makes, between them")
            if isinstance(value, torch.Tensor):
                self.externals[vid] = f"a{len(self.args)}"
                self.args.append(value)
            else:
                self.externals[vid] = None
                self.constants[vid] = value
        return self.externals[vid]


def is_effect(step):
    """A call that is repeated because of what it does."""
    return step["kind"] == "call" and not step["graph"] and "effect" in step["flags"]


def makes_number(node):
    """Does it make a number of a tensor of one element?"""
    return node["target"] == "item" or node["callable"] in _CONVERSIONS


_CONVERSIONS = (float, int, bool)


def reads(dump):
    """{index of a step: its node} where a graph reads the data of a tensor and goes on: for a number, or to test what is always so (docs/design/numbers.md)."""
    try:
        nodes = _nodes_by_step(dump)
    except NoProgram:
        return {}
    tensors = {node["vid"] for node in nodes.values() if fx.parse_note(node["note"] or "")}
    tensors.update(entry["vid"] for graph in dump["graphs"] for entry in graph["inputs"] if fx.parse_note(entry["note"] or ""))
    return {index: node for index, node in nodes.items() if (dump["steps"][index]["kind"] == "check" or makes_number(node))
            and any(isinstance(arg, dict) and arg.get("vid") in tensors for arg in node["args"])}


def goes_on_as_true(step):
    """Did the recording take the side on which the condition of a decision is true?"""
    return step["text"].endswith(", True)") if step["imm"] > 1 else step["imm"] == 0


def _nodes_by_step(dump):
    """{index of a step: its node}: nodes of a graph are in the order of its steps."""
    found = {}
    steps = {}
    for index, step in enumerate(dump["steps"]):
        if step["graph"] and "torch" in step["flags"]:
            steps.setdefault(step["graph"], []).append(index)
    for number, graph in enumerate(dump["graphs"], 1):
        indices = steps.get(number, [])
        if len(indices) != len(graph["nodes"]) or not graph["exact"]:
            raise NoProgram("a graph has calls whose arguments are only known at run time")
        found.update(zip(indices, graph["nodes"]))
    return found


def _imitation(dump, vid):
    for graph in dump["graphs"]:
        for entry in graph["inputs"]:
            if entry["vid"] == vid:
                value = _launch.imitate(entry["note"])
                if value is not None and value.is_floating_point():
                    value.normal_(generator=torch.Generator().manual_seed(0))
                return value
    return None


def _in_torch(fn, count):
    """What does with a tensor what `fn` does with a number, where that needs another function; or None."""
    if fn in (min, max) and count == 2:
        return _least if fn is min else _greatest
    if getattr(fn, "__module__", None) == "math":
        return getattr(torch, fn.__name__, None)
    return None


def _least(a, b):
    return torch.minimum(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a.clamp(max=b) if isinstance(a, torch.Tensor) else b.clamp(max=a)


def _greatest(a, b):
    return torch.maximum(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a.clamp(min=b) if isinstance(a, torch.Tensor) else b.clamp(min=a)


_NAME = re.compile(r"\b[vc]\d+\b")
INFIX = {"+", "-", "*", "/", "//", "%", "@", "**", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!="}


@dataclasses.dataclass
class _Side:
    """What a line behind a bridged decision makes so far."""

    place: tuple  # file, line
    note: str     # of its values, and of the one that the other side leaves
    before: str   # that one
    name: str     # the last value
    at: int       # where the text goes on behind it


class _Writer:
    def __init__(self, program, bridged, left_out):
        self.program, self.bridged = program, bridged
        tests = [index for index in bridged if index in program.nodes and not program.nodes[index]["vid"]]
        self.left_out = left_out | program.only_for(tests) if tests else left_out
        self.names = {"torch": torch, "graph_break": _api.graph_break}
        self.known = {}      # id of an object: its name
        self.made = {}       # vid: (name, note)
        self.used = set()
        self.waiting = None  # a bridged decision: the next line is one of its sides
        self.side = None
        self.lines = []
        self.kept = self.numbers_behind() | {program.nodes[index]["vid"] for index in bridged if index in program.nodes}
        self.tensors = set(self.kept)  # numbers of the program that are tensors here

    def numbers_behind(self):
        """Numbers made of tensors that bridged decisions depend on: vids. There the tensor stays a tensor."""
        makers = {node["vid"]: node for node in self.program.nodes.values() if node["vid"]}
        found, seen = set(), set()
        waiting = [vid for index in self.bridged if index in self.program.breaks and self.program.breaks[index]["why"] in NUMBERS
                   for vid in self.program.dump["steps"][index]["operands"]]
        while waiting:
            vid = waiting.pop()
            node = makers.get(vid)
            if vid in seen or node is None:
                continue
            seen.add(vid)
            if makes_number(node):
                found.add(vid)
            else:
                waiting += [arg["vid"] for arg in node["args"] if isinstance(arg, dict) and "vid" in arg]
        return found

    def text(self):
        behind = False  # a break that is kept: what was found out behind it, it made necessary
        for index in self.program.path:
            step = self.program.dump["steps"][index]
            if index in self.left_out:
                continue
            if index in self.program.nodes:
                self.add_node(self.program.nodes[index])
            elif index in self.program.breaks:
                self.add_break(index, step, self.program.breaks[index])
                behind = index not in self.bridged
            elif behind and step["kind"] == "epoch" and index in self.program.inside:
                self.lines.append("graph_break()")
        self.decide()
        results = self.program.dump["graphs"][-1]["outputs"] if self.program.dump["graphs"] else ()
        outputs = [name for vid, (name, _) in self.made.items() if vid not in self.used or vid in results and not self.goes_on(vid)]
        if self.waiting:
            outputs.append(self.waiting[0])
        params = ", ".join(name for name in self.program.externals.values() if name)
        body = [*self.dropping(self.lines, outputs), f"return [{', '.join(outputs)}]"]
        return f"def program({params}):\n    " + "\n    ".join(body) + "\n"

    def dropping(self, lines, outputs):
        """The lines, and `del` behind the last use of a name: a local variable that lives longer would have to be there at the next break.
        What the frames of the program hold on to stays."""
        held = {self.made[vid][0] for graph in self.program.dump["graphs"] for vid in graph["outputs"] if vid in self.made and not self.goes_on(vid)}
        last = {}
        for index, line in enumerate(lines):
            last.update((name, index) for name in _NAME.findall(line))
        for index, line in enumerate(lines):
            yield line
            dead = [name for name, at in last.items() if at == index and name not in outputs and name not in held]
            if dead:
                yield f"del {', '.join(sorted(dead))}"

    def goes_on(self, vid):
        """Is the value given to a later graph, or to a break? Then it lives until there, and not longer."""
        return any(entry["vid"] == vid for graph in self.program.dump["graphs"] for entry in graph["inputs"]) or \
            any(vid in self.program.dump["steps"][step]["operands"] for step in self.program.breaks)

    def add_node(self, node):
        if self.side and self.side.place != (node["filename"], node["line"]):
            self.decide()
        args = [self.value(arg) for arg in node["args"]]
        kwargs = [f"{name}={self.value(arg)}" for name, arg in node["kwargs"].items()]
        name = f"v{node['vid']}"
        if self.is_tensor_instead(node) and len(args) == 1 and makes_number(node):
            self.made[node["vid"]] = args[0], node["note"]
            return
        function = _in_torch(node["callable"], len(args)) if self.is_tensor_instead(node) and not kwargs else None
        if function is not None:
            text = f"{self.object(function)}({', '.join(args)})"
        elif node["op"] == "call_method":
            text = f"{args[0]}.{node['target']}({', '.join(args[1:] + kwargs)})"
        elif node["op"] == "operator" and node["target"] in INFIX and len(args) == 2:
            text = f"{args[0]} {node['target']} {args[1]}"
        elif node["callable"] is None:
            raise NoProgram(f"{node['target']} is not a known function")
        else:
            text = f"{self.object(node['callable'])}({', '.join(args + kwargs)})"
        if not node["vid"]:
            self.lines.append(text)
            return
        self.lines.append(f"{name} = {text}")
        if self.waiting:
            self.choose(name, node)
        self.made[node["vid"]] = name, node["note"]

    def is_tensor_instead(self, node):
        """Is its result a tensor here, where the program has a number?"""
        if node["vid"] not in self.tensors and node["note"] is None and any(isinstance(arg, dict) and arg.get("vid") in self.tensors for arg in node["args"]):
            self.tensors.add(node["vid"])
        return node["vid"] in self.tensors

    def choose(self, name, node):
        """Is `name` what one side of a bridged decision makes? It is like a value that its line was given, which the other side leaves."""
        if self.side:
            if node["note"] == self.side.note:
                self.side.name, self.side.at = name, len(self.lines)
            return
        for arg in node["args"] if fx.parse_note(node["note"]) else ():
            if isinstance(arg, dict) and "vid" in arg and self.note(arg["vid"]) == node["note"]:
                self.side = _Side((node["filename"], node["line"]), node["note"], self.value(arg), name, len(self.lines))
                return

    def decide(self):
        """The line of the side has come to its end."""
        if self.side:
            condition, wanted = self.waiting
            a, b = (self.side.name, self.side.before) if wanted else (self.side.before, self.side.name)
            self.lines.insert(self.side.at, f"{self.side.name} = torch.where({condition}, {a}, {b})")
            self.side = self.waiting = None

    def note(self, vid):
        if vid in self.made:
            return self.made[vid][1]
        for graph in self.program.dump["graphs"]:
            for entry in graph["inputs"]:
                if entry["vid"] == vid:
                    return entry["note"]
        return None

    def add_break(self, index, step, entry):
        bridged = index in self.bridged
        why = entry["why"]
        operand = step["operands"][-1] if step["operands"] else 0
        if (why in DECISIONS or why in NUMBERS and step["kind"] == "check") and operand in self.made:
            name = self.made[operand][0]
            self.used.add(operand)
            if bridged and why == "DATA_DEPENDENT_ASSERT":
                self.lines.append(f"torch._assert_async({name})")
            elif bridged:
                self.settle()
                self.waiting = name, goes_on_as_true(step)
            else:
                self.lines.append(f"if {name}: pass")
        elif why in NUMBERS and operand in self.made and step["out"]:
            name = self.made[operand][0]
            self.used.add(operand)
            if bridged:
                self.made[step["out"]] = name, None
                self.settle()
                self.waiting = f"{name} > 0", True
            else:
                made = f"v{step['out']}"
                self.lines += [f"{made} = {name}.item()", f"if {made} == 0.7432163: pass"]
                self.made[step["out"]] = made, None
        elif not bridged:
            self.lines.append("graph_break()")

    def settle(self):
        """A decision that no call followed: its condition is computed all the same."""
        self.decide()
        if self.waiting:
            name = f"c{len(self.lines)}"
            self.lines.append(f"{name} = {self.waiting[0]}")
            self.made[name] = name, None

    def value(self, arg):
        if isinstance(arg, dict):
            if "vid" not in arg:
                return "{" + ", ".join(f"{key!r}: {self.value(item)}" for key, item in arg["dict"]) + "}"
            vid = arg["vid"]
            if vid in self.made:
                self.used.add(vid)
                return self.made[vid][0]
            return self.program.external(vid) or self.constant(self.program.constants[vid])
        if type(arg) is _symbols.Sizes:
            return f"torch.Size({self.value(tuple(arg))})"
        if type(arg) is tuple:
            return "(" + "".join(self.value(item) + ", " for item in arg) + ")"
        if type(arg) is list:
            return "[" + ", ".join(map(self.value, arg)) + "]"
        if type(arg) is slice:
            return f"slice({self.value(arg.start)}, {self.value(arg.stop)}, {self.value(arg.step)})"
        return self.constant(arg)

    def constant(self, value):
        if value is None or value is Ellipsis or type(value) in (bool, int, str) or type(value) is float and math.isfinite(value):
            return "..." if value is Ellipsis else f"({value!r})" if type(value) in (int, float) and value < 0 else repr(value)
        return self.object(value)

    def object(self, value):
        if id(value) not in self.known:
            name = self.known[id(value)] = f"K{len(self.known)}"
            self.names[name] = value
        return self.known[id(value)]
