"""Causes: graph breaks and other losses of a compiled function, grouped by what the user can do about them.

The same break at the same line is one cause, however many layers run that line.
"""

import dataclasses
import linecache
import re

from .. import _logs, _messages
from . import anatomy, fixes, paths, program


_SLOT = re.compile(r"<(?:slot wrapper|method) '(?P<name>\w+)' of '(?P<owner>[\w.]+)' objects>")


@dataclasses.dataclass
class Cause:
    """Something that keeps calls from being one compiled graph."""

    kind: str                     # "failed", "break", "read", "eager", "recompile", "partial", "steps", "effect"
    title: str                    # first line of a report
    id: str = ""                  # KIN0001; "" where no row of the table explains it
    why: str = ""
    category: str = ""
    explanation: str = ""
    hints: list = dataclasses.field(default_factory=list)
    fix: str = ""                 # the general one
    page: str = ""                # PyTorch's
    own_page: str = ""            # Kintsugi's; "": `kintsugi breaks` has it
    filename: str = ""            # the line itself, of the user or of a library
    line: int = 0
    function: str = ""
    columns: tuple = (-1, -1, -1)
    user: tuple = ("", 0, "")     # the user's line that leads there; the same when it is the user's own
    user_columns: tuple = (-1, -1, -1)
    context: str = ""
    origin: list = dataclasses.field(default_factory=list)  # [(file, line, code)] where the data of a decision comes from
    count: int = 1                # times in one call
    steps: list = dataclasses.field(default_factory=list)   # of the trace
    reads: str = ""               # of a read: what makes a number of a tensor; "": a test
    skipped: bool = False         # a decision that left out the code that depends on it
    patch: object = None          # fixes.Patch, fitted to the user's code
    price_us: float = None        # of a call; None: not measured
    unpriced: str = ""            # ... for this reason
    entries: list = dataclasses.field(default_factory=list)  # of recompiles: numbers of the recordings that they made
    spread_us: float = 0.0
    how: str = ""                 # "measured", "modelled", "uncertain" (a note says why); "" where there is no price
    share: float = None           # of the call
    notes: list = dataclasses.field(default_factory=list)
    changes: list = dataclasses.field(default_factory=list)  # of a recompile: (what, was, now)
    sides: tuple = ()             # of a break: the last calls of the graph before it, the first ones of the graph behind it

    def doubt(self, why):
        """The price is not to be relied on."""
        self.how = "uncertain"
        self.notes.append(f"the price is uncertain: {why}")

    @property
    def code(self):
        return linecache.getline(self.filename, self.line).strip()

    @property
    def library(self):
        return _messages.library_of(self.filename)

    def as_dict(self):
        found = dataclasses.asdict(self)
        found["patch"] = self.patch.as_dict() if self.patch else None
        return found | {"code": self.code, "library": self.library}


def of_dump(dump):
    """Causes of the breaks of a recording."""
    found = {}
    makers = _makers(dump)
    for entry in dump["breaks"]:
        key = entry["why"], entry["filename"], entry["line"]
        if key in found:
            cause = found[key]
        else:
            cause = found[key] = _break_cause(entry, dump, makers)
            cause.sides = anatomy.sides(dump, entry["step"])
        cause.steps.append(entry["step"])
        step = dump["steps"][entry["step"]]
        cause.skipped = cause.skipped or (step["kind"] == "check" and (step["imm"] == 1 or step["text"].endswith(", False)")))
    ways = paths.of(dump)
    for cause in found.values():
        cause.count = max(len(way.intersection(cause.steps)) for way in ways)
    return list(found.values())


_RUNS, _RUN = " runs in every call", " run in every call"


def of_effects(dump):
    """Calls that are repeated in every call because of what they do, one for each line."""
    found = {}
    for entry in effects_of_call([dump]):
        name = (entry["text"].partition(" = ")[2] or entry["text"]).partition("(")[0]
        slot = _SLOT.match(name)
        name = f"{slot['owner']}.{slot['name']}" if slot else name
        if entry["kind"] != "call":
            continue
        place = entry["filename"], entry["line"], entry["function"]
        cause = found.setdefault(place, Cause("effect", f"`{name}`{_RUNS}", filename=place[0], line=place[1], function=place[2], count=0,
                                              user=_messages.user_place(entry.get("user_stack", ()), place),
                                              explanation="It is replayed in order, without a graph break.", fix="" if _messages.library_of(place[0]) else fixes.advise_effect(name)))
        cause.count += 1
        if f"`{name}`" not in cause.title:
            cause.title = f"{cause.title.removesuffix(_RUNS).removesuffix(_RUN)}, `{name}`{_RUN}"
    return list(found.values())


def effects_of_call(dumps):
    """Side effects, each as often as one call has it: ways through a recording that have it, too, and further recordings, are those of other calls."""
    found = {}
    for dump in dumps:
        for way in paths.of(dump):
            mine = {}
            for entry in dump["effects"]:
                if entry["step"] in way:
                    mine.setdefault((entry["filename"], entry["line"], entry["kind"], entry["text"].partition("(")[0]), []).append(entry)
            found |= {key: entries for key, entries in mine.items() if len(entries) > len(found.get(key, ()))}
    return [entry for entries in found.values() for entry in entries]


def of_reads(dump):
    """Places where a graph waits for data of a tensor, and goes on: numbers that are made of tensors, and tests of what is always so."""
    found, ways = {}, paths.of(dump)
    for index, node in program.reads(dump).items():
        place = node["filename"], node["line"], node["function"]
        name = node["target"] if node["vid"] else ""
        cause = found.get((bool(name), *place))
        if cause is None:
            cause = found[bool(name), *place] = Cause("read", title_of_read(node), filename=place[0], line=place[1], function=place[2], user=place, explanation=_NUMBER if name else _TEST)
            cause.reads, cause.fix = name, _KEEP if name else _SELDOM
        cause.steps.append(index)
    for cause in found.values():
        cause.count = max(len(way.intersection(cause.steps)) for way in ways)
    return list(found.values())


def title_of_read(node):
    what = "A test" if not node["vid"] else f"`.{node['target']}()`" if node["op"] == "call_method" else f"`{node['target']}()`"
    return f"{what} waits for the data of a tensor"


_NUMBER = "The graph goes on with the number, but compiled code ends there: what follows cannot be fused with what comes before."
_TEST = "The graph goes on where the test has its usual outcome, but the test is computed in every call, and compiled code ends there."
_KEEP = "keep it a tensor: arithmetic with a tensor of one element gives what a number gives, without waiting"
_SELDOM = "test less often (in every hundredth call, say), or once, outside of the compiled function"


def _break_cause(entry, dump, makers):
    place = entry["filename"], entry["line"], entry["function"]
    stack, columns = entry["user_stack"], entry.get("user_columns") or []
    user = _messages.user_place(stack, place)
    at = next((i for i in range(len(stack) - 1, -1, -1) if tuple(stack[i]) == user), None)
    return Cause("break", entry["type"], entry["id"], entry["why"], entry["category"], entry["explanation"], list(entry["hints"]),
                 "" if entry["fix"] == "defer" else entry["fix"], _messages.stock_page(entry), _messages.own_page(entry["why"]), *place,
                 columns=tuple(columns[-1]) if columns else (-1, -1, -1), user=user,
                 user_columns=tuple(columns[at]) if at is not None and at < len(columns) else (-1, -1, -1),
                 context=entry.get("context", ""), origin=_origin(entry, dump, makers))


def _makers(dump):
    """vid: the node of a graph, or the step, that makes it."""
    makers = {step["out"]: step for step in dump["steps"] if step["out"]}
    makers.update((node["vid"], node) for graph in dump["graphs"] for node in graph["nodes"] if node["vid"])
    return makers


def _origin(entry, dump, makers, most=4):
    """Lines that made the data that the break asks for, nearest first, without the line of the break itself."""
    found, seen = [], set()
    waiting = list(dump["steps"][entry["step"]]["operands"])
    while waiting and len(found) < most:
        vid = waiting.pop(0)
        maker = makers.get(vid)
        if vid in seen or maker is None:
            continue
        seen.add(vid)
        if "args" in maker:  # a node
            place = maker["filename"], maker["line"], maker["code_line"]
            if place[1] and place not in found and place[:2] != (entry["filename"], entry["line"]):
                found.append(place)
                break
            waiting += [arg["vid"] for arg in maker["args"] if isinstance(arg, dict) and "vid" in arg]
        else:
            waiting += maker["operands"]
    return found


def of_partial(observed, entry):
    """The rest of a call that runs eagerly because recording it ended early: at something that cannot be recorded, or where the function raised."""
    filename, line = observed.place()
    return Cause("partial", f"Recorded only in part: {entry.reason}", filename=filename, line=line, user=(filename, line, observed.name),
                 function=observed.name, explanation="What comes before is compiled; the rest of such a call runs as plain Python.")


# Reasons of eager calls that belong to the normal life of a compiled function.
USUAL = ("timed for comparison with compiled calls", "called while another call was being recorded")


def of_eager_calls(observed, stats):
    filename, line = observed.place()
    for reason, count in stats["eager_calls"].items():
        if reason in USUAL:
            continue
        event = next((e for e in reversed(observed.events) if e["event"] in ("fallback", "limit") and e.get("reason", reason) == reason), {})
        row = _messages.find_row(event["why"]) if event.get("why") else None
        cause = Cause("eager", f"{count} of {stats['calls']} calls ran eagerly: {reason}", filename=filename, line=line, function=observed.name,
                      user=(filename, line, observed.name), count=count)
        if row:
            cause.id, cause.why, cause.category = row["id"], row["why"], row["category"]
            cause.explanation, cause.hints = row["explanation"], list(row["hints"])
            cause.page, cause.own_page = _messages.stock_page(row), _messages.own_page(row["why"])
        yield cause


def of_failed_backend(observed):
    """A backend of the user's that raised: the function has no compiled calls until that is mended."""
    filename, line = observed.place()
    row = _messages.find_row("BACKEND_FAILED")
    for text, count in _logs.backend_failures(observed.names).items():
        yield Cause("failed", text, row["id"], row["why"], row["category"], row["explanation"], fix=row["fix"], filename=filename, line=line,
                    function=observed.name, user=(filename, line, observed.name), count=count, page=_messages.stock_page(row), own_page=_messages.own_page(row["why"]),
                    unpriced="there is no compiled call to compare with")


def of_kernels(observed, rows):
    """Graphs that run step by step, by PyTorch's own operators."""
    filename, line = observed.place()
    reasons = {}
    for row in rows:
        if not row["compiled"] and row["reason"] and row["settled"] and not (row["as_fast"] or row["waits"]):
            reasons.setdefault(row["reason"], []).append(row)
    for reason, found in reasons.items():
        yield Cause("steps", f"{_count(len(found), 'part')} of its graphs not compiled: {reason}", filename=filename, line=line, function=observed.name,
                    user=(filename, line, observed.name), count=len(found),
                    explanation="These calls run one by one, as PyTorch does them; nothing is fused.")


def _count(number, noun):
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
