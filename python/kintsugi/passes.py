"""The passes of the pipeline (docs/design/pipeline.md) that made the graphs of a compiled function.

`kintsugi.explain(fn)(*args).passes` lists them; TORCH_LOGS=kintsugi.passes logs how long each took, TORCH_LOGS=+kintsugi.passes also what each
left. (PyTorch accepts the names of modules there, and no artifact that it does not know.)
"""

import dataclasses
import logging

_logger = logging.getLogger(__name__)


@dataclasses.dataclass
class Pass:
    """One run of a pass. `before` and `after` are texts of the graph, made when they are asked for."""

    name: str
    part: str
    ms: float
    changed: bool
    recording: int
    graph: int
    _texts: object = dataclasses.field(repr=False, compare=False)

    @property
    def after(self):
        """What it left; None: it cannot be made again (machine code is not)."""
        return self._texts.after(self.name, self.part)

    @property
    def before(self):
        return self._texts.before(self.name, self.part)


class _Texts:
    """What each pass of one compilation left: the passes run once more, without machine code, on the text of the captured graph."""

    def __init__(self, engine, entry, subgraph, version):
        self._place = engine, entry, subgraph, version
        self._made = None

    def _all(self):
        if self._made is None:
            engine, *place = self._place
            self._made = [((row["name"], row["part"]), row["text"]) for row in engine.pass_texts(*place)]
        return self._made

    def after(self, name, part):
        return dict(self._all()).get((name, part))

    def before(self, name, part):
        """Of the pass before it; the first pass of a part begins with what divided the graph into parts."""
        last = None
        for (other, its_part), text in self._all():
            if (other, its_part) == (name, part):
                return last
            if its_part == part or its_part == "main" and other == "hoist":
                last = text
        return last


def rows(engine, compiled):
    """A Pass for each pass of each graph that was compiled, in their order."""
    return [row for number, entry in enumerate(compiled.entries()) for row in of_entry(engine, entry, number)]


def of_entry(engine, entry, number=0):
    found = []
    for i, subgraph in enumerate(engine.kernels(entry)):
        for j, version in enumerate(subgraph["versions"]):
            texts = _Texts(engine, entry, i, j)
            found += [Pass(row["name"], row["part"], row["ns"] / 1e6, row["changed"], number, subgraph["graph"], texts)
                      for row in version["passes"]]
    return found


def logger():
    """The logger when somebody asked for it by name, else None: a program that wants everything in its own log does not want this."""
    return _logger if _logger.level != logging.NOTSET and _logger.isEnabledFor(logging.INFO) else None


def log_record(name, graph, passes, texts):
    """All passes as text: how long each took; texts: also what it left where that is something else than before."""
    lines = [f"Passes of {name}, graph {graph}:"]
    for i, row in enumerate(passes):
        part = f" ({row.part})" if row.part != "main" else ""
        lines.append(f"  {row.name}{part}: {row.ms:.3f} ms" + ("" if row.changed else ", nothing changed"))
        if texts and (row.changed or i == 0) and row.after is not None:
            lines += ["      " + line for line in row.after.splitlines()]
    return "\n".join(lines)
