"""Logs and trace folders of stock PyTorch (TORCH_LOGS, TORCH_TRACE) and event logs of Kintsugi, as findings: a line at a time, so that a large file
takes no more memory than what is found in it.
"""

import dataclasses
import json
import os
import re

from .. import _messages
from .._errors import CommandError

MOST = 2000        # findings of a file; what follows is counted
LONGEST = 1 << 16  # bytes of a line that are looked at
TEXT = 8000        # characters that are kept of what a log says about a finding, and of a line of it
PAYLOAD = 4000     # lines that are kept of a payload, or of a graph
CHANGES = 100      # guards that failed, of a function
GRAPHS = 200       # graphs that are kept, and the characters of all of them together
OF_GRAPHS = 2_000_000
OFTEN = 1 << 16    # lines, between which it is told how far reading is


class ReportError(CommandError):
    """It cannot be read."""


@dataclasses.dataclass
class Finding:
    """A graph break, a recompile, a function that stays eager (skip) or a failure that a log tells of."""

    kind: str
    title: str
    filename: str = ""
    line: int = 0
    text: str = ""
    page: str = ""
    count: int = 1
    changes: list = dataclasses.field(default_factory=list)  # of a recompile: (the guard that failed, where its line is, that line), in order


@dataclasses.dataclass
class Read:
    """What a log holds."""

    source: str
    findings: list
    compiled: list        # {"id", "name", "filename", "line", "graph_ops", "guards", "seconds", "backend", "failure"} of each compilation, where a trace says so
    graphs: list = dataclasses.field(default_factory=list)  # {"name", "calls", "text"}
    known: int = 0        # lines that are PyTorch's, whatever they tell
    lines: int = 0
    skipped: int = 0      # lines that could not be understood
    left_out: int = 0


# What PyTorch writes before a line, or, with TORCH_LOGS_FORMAT=short, before the first line of a message.
_PREFIX = re.compile(r"^(?:\[rank\d+\]:)?(?P<level>[VIWEC])\d{4} \d\d:\d\d:\d\d\.\d+ \d+ (?P<source>\S+?):\d+\](?: \[[^\]]+\])?(?: \[__\w+\])? ?"
                     r"|^(?:\[rank\d+\]:)?(?P<word>DEBUG|INFO|WARNING|ERROR|CRITICAL):(?P<logger>[\w.]+):")
_OURS = "torch/", "kintsugi/", "torch."  # files and loggers
# Behind a prefix of the user's own (TORCH_LOGS_FORMAT), too.
_BREAK = re.compile(r"(?:^|(?<=[\s:\])|]))Graph break(?P<again> \(user stack suppressed due to duplicate graph break\))?(?: in user code at |: from user code at:? ?)(?P<file>.+?):(?P<line>\d+)")
_RECOMPILE = re.compile(r"(?:^|(?<=[\s:\])|]))Recompiling function (?P<name>\S+) in (?P<file>.+):(?P<line>\d+)")
_SKIPPED = re.compile(r"^WON'T CONVERT (?P<name>\S+) (?P<file>.+) line (?P<line>\d+)")
_FAILED = re.compile(r"^torch\.(?:_dynamo|_inductor)\.exc\.(?P<type>\w+): (?P<title>.*)")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in ')
_NO_FRAME = re.compile(r"frame skipped: (?P<name>\S+) \((?P<file>.+) line (?P<line>\d+)\)")
_NEEDED = re.compile(r"\s{2,}# (?P<code>.+?)  # (?P<place>\S+:\d+)(?: in |$)")  # behind a guard: the line that needs it
_CALL = re.compile(r"^\s+\w+(?:: \"[^\"]*\")? = (?!\w+(?:;|\s*$))")     # of a graph: not another name for an input
_PAGE = re.compile(r"please visit: (?P<page>\S+)")


class _Collector:
    def __init__(self, source):
        self.read = Read(source, [], [])
        self.known = {}
        self.users = {}       # line of a library -> the user's line that led there, of breaks whose traceback was told
        self.frames = {}      # frame id of a trace -> (name, file, line) of the function
        self.recompiles = []  # (frame id, reasons), until all frames are known
        self.room, self.seen = OF_GRAPHS, set()

    def add(self, finding, key=None):
        """The finding, or the same one of before. key: what makes it the same."""
        finding.filename = finding.filename if isinstance(finding.filename, str) else ""
        finding.line = finding.line if isinstance(finding.line, int) else 0
        finding.title = str(finding.title)
        key = key or (finding.kind, finding.title, finding.filename, finding.line)
        if key in self.known:
            self.known[key].count += 1
            return self.known[key]
        if len(self.known) >= MOST:
            self.read.left_out += 1
            return finding
        self.known[key] = finding
        self.read.findings.append(finding)
        return finding

    def add_recompile(self, name, file, line, reasons):
        """All of a function are one finding, with the guards that failed in order."""
        first = reasons[0].partition("\n")[0] if reasons else ""
        guard, needed = first.partition("   ")[0], _NEEDED.search(first)
        frame = next(filter(None, (_FRAME.match(part) for reason in reasons for part in reason.split("\n"))), None) if needed else None
        place = f"{frame['file']}:{frame['line']}" if frame else needed["place"] if needed else ""
        text = "\n".join(reasons)[:TEXT]
        found = self.add(Finding("recompile", f"{name} was compiled again{': ' if guard else ''}{guard}"[:500], file, line, text), ("recompile", name, file, line))
        if found.count > 1:
            found.title = f"{name} was compiled again {found.count} times"[:500]
            found.text = f"{found.text}\n\n{text}"[:TEXT]
        if guard and len(found.changes) < CHANGES:
            found.changes.append((guard[:500], place, needed["code"][:500] if needed else ""))

    def add_skip(self, name, file, line, why):
        """A function that stays eager; a log may tell of it in more than one way."""
        known = next((one for key, one in self.known.items() if key[0] == "skip" and (one.filename, one.line) == (file, line)), None)
        if known is None:
            self.add(Finding("skip", f"{name} runs eagerly: {why}"[:500], file, line))

    def add_graph(self, name, lines, frame=None):
        text = "\n".join(lines)
        if hash(text) in self.seen:  # a trace may tell of a graph more than once
            return
        if len(self.read.graphs) >= GRAPHS or len(text) > self.room:
            self.read.left_out += 1
            return
        self.seen.add(hash(text))
        self.room -= len(text)
        self.read.graphs.append({"name": name, "frame": frame, "calls": sum(_CALL.match(line) is not None for line in lines), "text": text})

    def finish(self):
        for frame, reasons in self.recompiles:
            self.add_recompile(*self.frames.get(frame, (f"frame {frame}", "", 0)), reasons)
        for graph in self.read.graphs:
            frame = graph.pop("frame")
            graph["name"] += f" {self.frames[frame][0]}" if frame in self.frames else ""
        return self.read


def read(path, tell=lambda text: None):
    """A Read of a log file, a trace file, or a folder of these."""
    if os.path.isdir(path) and os.path.isfile(os.path.join(path, "raw.log")):  # what tlparse has written: the trace that it has read lies beside its pages
        collector = _Collector(path)
        _read_file(os.path.join(path, "raw.log"), collector, tell)
    elif os.path.isdir(path):
        files = sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith((".log", ".jsonl", ".json")))
        if not files:
            raise ReportError(f"{path}: no log in this folder; TORCH_TRACE={path} makes PyTorch write some")
        collector = _Collector(path)
        for file in files:
            _read_file(file, collector, tell)
    elif os.path.isfile(path):
        collector = _Collector(path)
        _read_file(path, collector, tell)
    else:
        raise ReportError(f"no such file or folder: {path!r}")
    found = collector.finish()
    if not (found.findings or found.compiled or found.graphs or found.known):
        raise ReportError(f"{path}: {found.lines} lines read, and nothing in them that a report could show; expected the output of TORCH_LOGS, a "
                          "TORCH_TRACE folder, or a file of `kintsugi run --events`")
    return found


def _read_file(path, collector, tell):
    open_break = None
    payload = None
    size = os.path.getsize(path) or 1
    with open(path, "rb") as file:
        while True:
            raw = file.readline(LONGEST)
            if not raw:
                break
            if len(raw) == LONGEST and not raw.endswith(b"\n"):
                _skip_line(file)
            collector.read.lines += 1
            if collector.read.lines % OFTEN == 0:
                tell(f"reading {path}: {file.tell() / size:.0%}")
            line = raw.decode(errors="replace").rstrip("\n")
            if line.startswith("\t") and payload is not None:
                if len(payload) < PAYLOAD:
                    payload.append(line[1:TEXT])
                continue
            if payload is not None:
                _take_payload(payload, collector)
                payload = None
            prefix = _PREFIX.match(line)
            body = line[prefix.end():] if prefix else line
            collector.read.known += prefix is not None and (prefix["source"] or prefix["logger"]).startswith(_OURS)
            if body.startswith("{") and (prefix or line.startswith("{")):
                payload = _take_json(body, collector)
                continue
            open_break = _take_line(body, open_break, collector, prefix is None or (prefix["level"] or prefix["word"])[0] in "WEC")
    if payload is not None:
        _take_payload(payload, collector)
    _close(open_break, collector)


def _skip_line(file):
    while True:
        raw = file.readline(LONGEST)
        if not raw or raw.endswith(b"\n"):
            return


def _take_line(body, open_one, collector, serious=True):
    """One line of TORCH_LOGS; returns what is still being told: [kind, file, line, text]. serious: not a line that only informs, or is part of another report."""
    skipped = "frame skipped" in body and _NO_FRAME.search(body)
    if skipped:
        collector.add_skip(skipped["name"], skipped["file"], int(skipped["line"]), "PyTorch cannot go on behind a graph break in it (one in a loop, for instance)")
    begun = _begin(body, open_one, serious)
    if begun is not None:
        _close(open_one, collector)
        return begun
    if open_one is None:
        return None
    kind, file, _, text, *_ = open_one
    if kind in _GO_ON:
        return _GO_ON[kind](body, open_one, collector)
    page = _PAGE.search(body)
    if page or body.startswith("User code traceback") or len(text) > 60:
        if _is_library(file):  # its traceback follows, with the user's line
            return ["traceback", file, open_one[2], text, page["page"] if page else "", 0, (file, open_one[2])]
        _close(open_one, collector, page["page"] if page else "")
        return None
    text.append(body[:TEXT])
    return open_one


def _begin(body, open_one, serious):
    """What a line begins to tell of, if anything."""
    match = "Graph break" in body and _BREAK.search(body)
    if match:
        return ["break", match["file"], int(match["line"]), []]
    match = "Recompiling" in body and _RECOMPILE.search(body)
    if match:
        return ["recompile", match["file"], int(match["line"]), [match["name"]]]
    if body == "TRACED GRAPH":
        return ["graph", "", 0, []]
    match = _SKIPPED.match(body)
    if match:
        return ["skip", match["file"], int(match["line"]), [match["name"]]]
    match = _FAILED.match(body) if serious and (open_one is None or open_one[0] != "skip") else None
    return ["failure", "", 0, [f"{match['type']}: {match['title']}"[:TEXT]]] if match else None


def _is_library(file):
    return bool(_messages.library_of(file)) or file.startswith(_messages.STANDARD)


def _find_user_line(body, found, collector):
    """A line of the traceback of a break in a library: the innermost frame that is the user's is where it is told."""
    found[5] += 1
    frame = _FRAME.match(body)
    if frame and not _is_library(frame["file"]):
        found[1], found[2] = frame["file"], int(frame["line"])
    if found[5] <= 80 and (frame or not body.strip() or body.startswith(("    ", "User code traceback"))):
        return found
    _close(found, collector)
    return None


def _go_on(body, failure, collector):
    """A line behind the first one of an exception; it ends with the last frame of the user's code."""
    frame = _FRAME.match(body)
    if frame:
        failure[1], failure[2] = frame["file"], int(frame["line"])
    if body.startswith("Set TORCHDYNAMO_VERBOSE") or len(failure[3]) > 60:
        _close(failure, collector)
        return None
    failure[3].append(body[:TEXT])
    return failure


def _take_reason(body, recompile, collector):
    """A guard that failed, each behind a dash."""
    reason = body.strip()
    if reason.startswith("- ") and len(recompile[3]) < 60:
        recompile[3].append(reason[2:][:TEXT])
    elif "guard failure" not in reason:
        _close(recompile, collector)
        return None
    return recompile


def _find_why(body, skipped, collector):
    """Why a function stays eager: the exception that ends the traceback."""
    match = _FAILED.match(body)
    if match is None:
        return skipped
    skipped[3].append(match["title"])
    _close(skipped, collector)
    return None


def _take_graph(body, graph, collector):
    """A line of a graph's code: a name between equals signs, and a class whose last line returns."""
    graph[3].append(body[:TEXT])
    if body.lstrip().startswith("return ") or len(graph[3]) > PAYLOAD:
        _close(graph, collector)
        return None
    return graph


_GO_ON = {"graph": _take_graph, "failure": _go_on, "traceback": _find_user_line, "recompile": _take_reason, "skip": _find_why}


def _close(open_one, collector, page=""):
    """What was told of a break or failure is all there is: the log ends here, or goes on with something else."""
    if open_one is None:
        return
    kind, file, line, text, *more = open_one
    page = page or (more[0] if more else "")
    if kind in ("break", "traceback"):
        if kind == "traceback" and not _is_library(file) and len(collector.users) < MOST:
            collector.users[more[2]] = file, line
        _finish_break(*collector.users.get((file, line), (file, line)), text, page, collector)
        return
    if kind == "recompile":
        collector.add_recompile(text[0], file, line, text[1:])
        return
    if kind == "graph":
        if len(text) > 1:
            collector.add_graph(text[0].strip(" ="), text[1:])
        return
    if kind == "skip":
        name, *why = text
        if why or not any((one.filename, one.line) == (file, line) for one in collector.read.findings):  # else the log has told why
            collector.add_skip(name, file, line, "".join(why) or "the log does not say why")
        return
    found = next((match["page"] for match in map(_PAGE.search, text) if match), "")
    collector.add(Finding("failure", text[0], file, line, "\n".join(text).strip()[:TEXT], found))


def _finish_break(file, line, text, page, collector):
    reason = "\n".join(text).removeprefix("Graph Break Reason: ").strip()
    parts = [part for part in reason.split("\n") if part.strip()]
    first = parts[0] if parts else "graph break"
    if first.startswith(("Encountered graph break when attempting to trace", "Failed to handle graph break gracefully")) and len(parts) > 1:
        first = next((part for part in parts[1:] if not part.startswith("Encountered graph break")), first)
    collector.add(Finding("break", first[:500], file, line, reason[:TEXT], page))


def _take_json(body, collector):
    """An event of a trace, or of Kintsugi's event log; a list where a payload follows."""
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        collector.read.skipped += 1
        return None
    try:
        return _take_event(event, collector)
    except (AttributeError, TypeError, ValueError):  # its fields are not what they should be
        collector.read.skipped += 1
        return [None] if isinstance(event, dict) and "has_payload" in event else None


def _take_event(event, collector):
    if isinstance(event.get("event"), str):
        _take_own(event, collector)
        return None
    metrics = event.get("compilation_metrics")
    if isinstance(metrics, dict):
        _take_metrics(metrics, collector, event)
    artifact = event.get("artifact")
    name = artifact.get("name") if isinstance(artifact, dict) else "dynamo_output_graph" if "dynamo_output_graph" in event else None
    if event.get("has_payload") is not None:
        return [(name, _frame(event), _id(event))] if name in _TAKEN else [None]
    return None


_TAKEN = ("dynamo_graph_break_reason", "recompile_reasons", "dynamo_output_graph")


def _frame(event):
    return event.get("frame_id") if isinstance(event.get("frame_id"), (int, str)) else None


def _id(event):
    """Of a compilation, as PyTorch's tools write it."""
    found = [event.get(name) for name in ("frame_id", "frame_compile_id", "attempt")]
    return "" if found[0] is None else f"{found[0]}/{found[1]}" + (f"_{found[2]}" if found[2] else "")


def _take_metrics(metrics, collector, event):
    frame = _frame(event)
    file, line = metrics.get("co_filename") or "", metrics.get("co_firstlineno") or 0
    if len(collector.frames) < MOST:
        collector.frames.setdefault(frame, (str(metrics.get("co_name") or "?"), file, line))
    failure = str(metrics.get("fail_reason") or "")
    restarts = metrics.get("restart_reasons") or ()
    told = failure or (f"begun again: {restarts[0]}" + (f", and {len(restarts) - 1} more" if len(restarts) > 1 else "") if restarts else "")
    if len(collector.read.compiled) < MOST:
        collector.read.compiled.append({"id": _id(event), "name": str(metrics.get("co_name") or "?"), "filename": str(file), "line": int(line), "graph_ops": metrics.get("graph_op_count"),
                                        "guards": metrics.get("guard_count"), "seconds": _seconds(metrics.get("entire_frame_compile_time_s")),
                                        "backend": _seconds(metrics.get("backend_compile_time_s")), "failure": told.partition("\n")[0][:500]})
    skipped = _NO_FRAME.search(failure)
    if skipped:
        collector.add_skip(skipped["name"], skipped["file"], int(skipped["line"]), failure.partition("\n")[0])
    elif failure:
        collector.add(Finding("failure", failure.split("\n")[0], metrics.get("fail_user_frame_filename") or file,
                              metrics.get("fail_user_frame_lineno") or line, failure[:TEXT]))


def _seconds(value):
    return value if isinstance(value, (int, float)) else None


def _take_payload(payload, collector):
    if payload[0] is None:
        return
    (name, frame, number), *lines = payload
    if name == "dynamo_output_graph":
        collector.add_graph(number, lines, frame)
    elif name == "dynamo_graph_break_reason":
        open_break = None
        for line in lines:
            open_break = _take_line(line, open_break, collector, serious=False)
        _close(open_break, collector)
    elif len(collector.recompiles) < MOST:
        text = "\n".join(lines)
        try:
            reasons = [str(reason) for reason in json.loads(text)]
        except (ValueError, TypeError):
            reasons = [text.strip("[]\n \"")]
        collector.recompiles.append((frame, reasons))
    else:
        collector.read.left_out += 1


def _take_own(event, collector):
    from kintsugi import _messages

    place = event.get("filename") or "", event.get("line") or 0
    if event["event"] == "break":
        row = _messages.find_row(event.get("why", ""))
        collector.add(Finding("break", event.get("type", "graph break"), *place, _messages.break_block(row) if row else "",
                              _messages.BREAK_PAGE.format(row["stock"][0].lower()) if row and row["stock"] else ""))
    elif event["event"] == "recompile":
        collector.add_recompile(event.get("name"), *place, [part.strip().removeprefix("- ") for part in event.get("failures", "").splitlines() if part.strip()])
    elif event["event"] in ("bug", "limit", "differ"):
        collector.add(Finding("failure", f"{event.get('name')}: {event.get('message') or event.get('text') or 'recompile limit reached'}", *place))
    elif event["event"] == "record":
        collector.read.compiled.append({"id": "", "name": str(event.get("name", "?")), "filename": str(place[0]), "line": int(place[1]), "graph_ops": event.get("ops"), "guards": None,
                                        "seconds": event.get("record_ns", 0) / 1e9, "backend": None, "failure": str(event.get("reason") or "")})
