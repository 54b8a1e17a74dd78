"""Which pass of the compiler, or which kernel, is behind a difference between compiled code and eager.

The passes run once more on the text of a graph; after each one, what it left is run by PyTorch's own operators (interpret) and compared with what the graph itself gives. The
first text that gives something else names the pass. Where all of them are right, the machine code is wrong: then it is a kernel.
"""

import dataclasses
import difflib
import re

import torch

from .. import _validate
from . import interpret

# Forms of a program that are no texts that interpret knows: what is wrong behind the last one that is right, is one of these, or what the last of them made.
_LATE = ("fuse", "memory", "codegen")


@dataclasses.dataclass
class Finding:
    """Of one graph of a compiled function."""

    function: str
    graph: int
    wrong: bool = True            # does the graph give something else than eager?
    text: str = ""                # how results differ
    passed: str = ""              # the pass; "": none of those that could be run
    part: str = "main"
    change: list = dataclasses.field(default_factory=list)   # lines of the text before and after that pass
    kernels: list = dataclasses.field(default_factory=list)  # [(name, its loops)]
    right: list = dataclasses.field(default_factory=list)    # passes whose result is right
    unknown: list = dataclasses.field(default_factory=list)  # [(pass, why it could not be run)]

    def as_dict(self):
        return dataclasses.asdict(self)

    @property
    def verdict(self):
        """One sentence."""
        if self.passed:
            where = f" ({self.part})" if self.part != "main" else ""
            return f"pass {self.passed}{where} is the first one whose result gives something else: {self.text}"
        if self.unknown:
            return f"what the passes up to {self.right[-1] if self.right else 'the first'} leave is right; what {self.unknown[0][0]} leaves could not be run ({self.unknown[0][1]})"
        if not self.right:
            return "the graph has no passes that could be run again"
        if not self.wrong:
            return "what every pass leaves is right, and so is the compiled graph"
        names = ", ".join(name for name, _ in self.kernels)
        return f"what the passes up to {self.right[-1]} leave is right: what follows is wrong ({', '.join(_LATE)})" + (f", in {names}" if names else "")


def of_function(engine, compiled, graphs=None, wrong=None):
    """Findings for the compiled graphs of a function; graphs: only those numbers; wrong: those that differ from eager, None: all."""
    found = []
    for entry in compiled.entries():
        for i, subgraph in enumerate(engine.kernels(entry)):
            if graphs is not None and subgraph["graph"] not in graphs:
                continue
            for j, version in enumerate(subgraph["versions"]):
                rows = engine.pass_texts(entry, i, j)
                if rows:
                    found.append(of_rows(compiled.__name__, subgraph["graph"], rows))
                    found[-1].wrong = wrong is None or subgraph["graph"] in wrong
                    break
    return found


def of_rows(function, number, rows):
    """rows: what each pass left, the captured graph first."""
    found = Finding(function, number)
    try:
        graph = interpret.Graph(rows[0]["text"], rows[0].get("libraries"))
        trials = [(inputs, graph.run(dict(inputs))) for inputs in (graph.make_inputs(seed) for seed in range(2))]
    except Exception as error:  # operators may refuse inputs that are made up
        found.unknown.append((rows[0]["name"], f"{type(error).__name__}: {error}"))
        return found
    state = _State(graph, trials)
    for row in rows[1:]:
        if not row["text"].startswith(("%", "return", "once:\n%", "once:\nreturn")):
            found.kernels = _kernels(row["text"]) or found.kernels
            continue
        text = state.judge(row, found)
        if text:
            found.passed, found.part, found.text = row["name"], row["part"], text
            found.change = _change(state.before, row["text"])
            found.kernels = []
            return found
    return found


class _State:
    """Texts of the parts so far: `once` gives inputs to `main`."""

    def __init__(self, graph, trials):
        self.graph, self.trials = graph, trials
        self.texts = {}
        self.before = ""

    def judge(self, row, found):
        """How results differ with this text, or ""."""
        self.before = self.texts.get(row["part"], self.texts.get("main", ""))
        texts = {**self.texts, **_parts(row)}
        try:
            text = next((text for text in (self._compare(texts, *trial) for trial in self.trials) if text), "")
        except interpret.Unknown as error:
            found.unknown.append((row["name"], str(error)))
            self.texts = texts
            return ""
        except Exception as error:  # a wrong program may be one that no operator takes
            text = f"it cannot be run: {type(error).__name__}: {error}"
        if not text:
            self.texts = texts
            if row["name"] not in found.right:
                found.right.append(row["name"])
            found.unknown.clear()  # a later text that is right says that what came before is
        return text

    def _compare(self, texts, inputs, ran):
        wanted, after = ran
        given = dict(inputs)
        if "once" in texts:
            for number, value in enumerate(interpret.run_program(texts["once"], given, self.graph), len(inputs)):
                given[number] = value
        if "main" not in texts:
            return ""
        got = interpret.run_program(texts["main"], given, self.graph)
        written = re.findall(r" into (\d+)", texts["main"].rpartition("return ")[2])
        if len(got) == len(wanted) + len(written):
            wanted = wanted + [after[int(number)] for number in written]
        return _validate.compare(wanted, [value.contiguous() if isinstance(value, torch.Tensor) else value for value in got], (), (), None) or ""


def _parts(row):
    """{part of the program: its text}: passes that divide it leave both."""
    if not row["text"].startswith("once:\n"):
        return {row["part"]: row["text"]}
    once, _, main = row["text"].removeprefix("once:\n").partition("in each call:\n")
    return {"once": once, "main": main}


def _kernels(text):
    """[(name, loops)] of a program of loops."""
    found = []
    for block in text.split("\n\n"):
        match = re.match(r"^(\w+):\n", block)
        if match:
            found.append((match[1], block))
    return found


def _change(before, after, most=16):
    """What the pass did, by operations: numbers of values are left out of the comparison, for one more value moves all of them."""
    if not before:
        return after.splitlines()[:most]
    old, new = before.splitlines(), after.splitlines()
    bare = [[re.sub(r"%\d+", "%", line) for line in lines] for lines in (old, new)]
    found = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, *bare, autojunk=False).get_opcodes():
        if kind != "equal":
            found += [f"- {line}" for line in old[a:b]] + [f"+ {line}" for line in new[c:d]]
    return found if len(found) <= most else [*found[:most], f"... {len(found) - most} more lines"]
