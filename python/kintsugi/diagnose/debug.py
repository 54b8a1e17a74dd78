"""The work of `kintsugi debug`: find graph breaks, order them, try the fix that fits each one, keep those that hold, measure what was gained.

A fix is tried on the text of the program in a process of its own (trial, overlay); files are left alone until all is done and the user says so. What was
tried is kept in a file, so that the work goes on where it was left, unless the program has changed since.
"""

import contextlib
import difflib
import json
import linecache
import os
import tempfile

from ..bench import own
from . import child, price, show, trial

VERSION = 1
CHUNK = 0.2  # seconds of measuring, between which the two programs change


STATE, PATCH = "state.json", "fixes.patch"


def forget(folder):
    """Removes what an earlier run wrote into `folder`, and nothing else in it."""
    for name in (STATE, PATCH):
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, name))


class Job:
    """One program. `record` is what the file keeps: plain data, the same as --json."""

    def __init__(self, target, arguments=(), inputs=None, *, strict=False, repeat=False, folder="kintsugi-debug", seconds=1.0, tell=lambda text: None):
        self.task = {"target": target, "arguments": list(arguments), "inputs": inputs, "strict": strict, "repeat": repeat}
        self.folder, self.seconds, self.tell = folder, seconds, tell
        self.path = os.path.join(folder, STATE)
        self.record = self._fresh()
        self.resumed = False

    def _fresh(self):
        return {"version": VERSION, "task": self.task, "files": {}, "before": None, "attempts": [], "changed": {}, "after": None, "measured": None, "done": False}

    def load(self):
        """Takes what an earlier run has done, if it was of this program as it is now."""
        try:
            with open(self.path) as file:
                found = json.load(file)
        except (OSError, ValueError):
            return
        if isinstance(found, dict) and found.get("version") == VERSION and found.get("task") == self.task and found.get("files") \
                and all(trial.digest(path) == known for path, known in found["files"].items()):
            self.record, self.resumed = found, True

    def save(self):
        os.makedirs(self.folder, exist_ok=True)
        with open(self.path + ".part", "w") as file:
            json.dump(self.record, file, indent=1)
        os.replace(self.path + ".part", self.path)

    def start(self, what, changed):
        return trial.Trial({**self.task, "changed": changed}, what)

    # ---- the phases ----

    def work(self, most=None):
        """Everything that is left to do; `most`: fixes that are tried."""
        if self.record["done"]:
            return
        self.detect()
        with tempfile.TemporaryDirectory() as scratch:
            values = None
            while (cause := self.next_cause()) is not None and (most is None or most > 0):
                if values is None:
                    with self.start("the program", {}) as first:
                        values = first.values(scratch)
                most = most - 1 if most is not None else None
                self.attempt(cause, scratch, values)
                self.save()
        self.record["done"] = self.next_cause() is None
        if self.record["done"] and self.record["changed"]:
            self.measure()
        self.save()

    def detect(self):
        """Which graph breaks there are, and what each costs. In a process of its own: measuring calls functions often, which may change their state."""
        if self.record["before"] is not None:
            return
        self.tell("running the program, and measuring what each graph break costs")
        with self.start("the program", {}) as first:
            if first.failure:
                raise child.ChildError(f"the program ended with {first.failure}")
            self.record["files"] = first.files
            self.record["before"] = self.record["after"] = first.diagnose(True, min(0.25, self.seconds))
        self.save()

    def causes(self, when):
        """Causes of the program before or after the fixes: (function, cause), the most expensive first."""
        prices = {key(cause): cause for found in self.record["before"] or () for cause in found["causes"]}
        found = [(one["name"], cause) for one in self.record[when] or () for cause in one["causes"]]
        if when == "after":
            found = [pair for pair in found if not self.was_too_small(pair[1], prices)]
            for _, cause in found:
                known = prices.get(key(cause))
                cause["original"] = known["user"] if known else None  # where the line stands in the program as it is
                if known and cause["price_us"] is None:
                    cause["price_us"], cause["share"], cause["how"] = known["price_us"], known["share"], known["how"]
        return sorted(found, key=lambda pair: (pair[1]["kind"] == "recompile", -(pair[1]["price_us"] or 0.0)))  # later calls do not pay for recompiles

    def was_too_small(self, cause, prices):
        """The program is measured before its fixes only: what cost too little to be told of then is still there, without a price."""
        return cause["kind"] in price.SMALL and key(cause) not in prices and cause["code"] in map(str.strip, linecache.getlines(cause["filename"]))

    def next_cause(self):
        tried = {(tuple(one["key"]), one["lines"]) for one in self.record["attempts"]}
        return next((cause for _, cause in self.causes("after")
                     if cause["patch"] is not None and (key(cause), "\n".join(cause["patch"]["lines"])) not in tried), None)

    def attempt(self, cause, scratch, values):
        """Tries the fix of one cause; keeps it if the break is gone, no other came, and the values are the same."""
        patch = cause["patch"]
        path = os.path.abspath(patch["filename"])
        self.tell(f"trying a fix at {os.path.basename(path)}:{cause['line']}")
        text = self.record["changed"].get(path) or _read(path)
        self.record["files"].setdefault(path, trial.digest(path))
        changed = {**self.record["changed"], path: apply(text, patch)}
        made = {"key": list(key(cause)), "lines": "\n".join(patch["lines"]), "cause": cause, "outcome": "dropped", "values": "", "after_breaks": None}
        self.record["attempts"].append(made)
        try:
            compile(changed[path], path, "exec")
            with self.start("the changed program", changed) as now:
                made["reason"], after = self.judge(now, scratch, values, made)
        except (child.ChildError, SyntaxError, MemoryError) as error:
            made["reason"] = str(error)
            return
        if not made["reason"]:
            made["outcome"], self.record["changed"], self.record["after"] = "kept", changed, after
            self.record["measured"] = None

    def judge(self, now, scratch, values, made):
        """(why the fix does not hold, or "", the diagnoses of the changed program)."""
        if now.failure:
            return f"the changed program ended with {now.failure}", None
        after = now.diagnose(False)
        left, before = (sum(one["breaks"] for one in when) for when in (after, self.record["after"]))
        made["after_breaks"] = left
        if made["cause"]["kind"] == "read" and left == before:
            waits, waited = sum(one["reads"] for one in after), self.reads("after")
            if waits >= waited:
                return f"the program still waits for data ({show.count(waited, 'time')} before, {waits} after)", None
        elif left >= before:
            fresh = {key(c) for one in after for c in one["causes"]} - {key(c) for one in self.record["after"] for c in one["causes"]}
            names = ", ".join(sorted(f"{title(k, after)}" for k in fresh))
            return f"the graph still breaks ({before} graph breaks before, {left} after" + (f": {names})" if names else ")"), None
        text, calls, varied = trial.compare_values(values, now.values(scratch))
        if text and self.unsteady(scratch, values):
            made["values"] = "not compared: the program computes something else in each run"
        elif text:
            return f"other values: {text}", None
        elif calls is None:
            made["values"] = "not compared: a call has effects outside of the process (--repeat compares all the same)"
        else:
            made["values"] = f"the same in {show.count(calls, 'call')}" + (f" and {varied} with changed arguments" if varied else "")
        return "", after

    def unsteady(self, scratch, values):
        """Does the program as it is differ from itself?"""
        with self.start("the program", {}) as again:
            return bool(trial.compare_values(values, again.values(scratch))[0])

    def measure(self):
        """The program as it was against the one with all fixes, in turns."""
        self.tell("measuring the program with its fixes")
        with self.start("the program", {}) as first, self.start("the changed program", self.record["changed"]) as last:
            first.prepare()
            about = last.prepare()
            samples, one_thread = own.in_turns({"before ": first.sample, "": last.sample}, self.seconds, CHUNK)
        self.record["measured"] = {name: _numbers(about[name] | {"one_thread": one_thread}, samples[name]) for name in about
                                   if "before kintsugi" in samples.get(name, {})}

    # ---- what comes of it ----

    def reads(self, when):
        return sum(one["reads"] for one in self.record[when] or ())

    def breaks(self, when):
        return sum(one["breaks"] for one in self.record[when] or ())

    def diff(self):
        """All fixes that were kept, as one patch for `patch -p0` or `git apply -p0`."""
        parts = []
        for path, text in self.record["changed"].items():
            name = os.path.relpath(path)
            parts += difflib.unified_diff(_read(path).splitlines(keepends=True), text.splitlines(keepends=True), name, name)
        return "".join(part if part.endswith("\n") else part + "\n\\ No newline at end of file\n" for part in parts)

    def write_patch(self):
        path = os.path.join(self.folder, PATCH)
        with open(path, "w") as file:
            file.write(self.diff())
        return path

    def apply(self):
        """Writes the fixes to the program's files; only those that are as they were when they were looked at."""
        for path in self.record["changed"]:
            if trial.digest(path) != self.record["files"].get(path):
                raise child.ChildError(f"{path} has changed since; nothing was written")
        for path, text in self.record["changed"].items():
            with open(path, "w") as file:
                file.write(text)
        return list(self.record["changed"])


def _numbers(about, ways):
    row = {"times": ways, **about}
    described = own.describe(row)
    us = {way: own.times(values).typical * 1e6 for way, values in ways.items()}
    certain = not any(own.times(ways[way]).disturbed for way in ("kintsugi", "before kintsugi"))
    return {"ways": described, "verdict": own.verdict(row, described, "kintsugi", "before kintsugi", {"kintsugi": "it", "before kintsugi": "before"}),
            "certain": certain, "before_us": us["before kintsugi"], "after_us": us["kintsugi"], "eager_us": us["before eager"]}


def key(cause):
    """A cause again, although lines above it moved."""
    return cause["why"] or cause["kind"], os.path.basename(cause["filename"]), cause["function"], cause["code"]


def title(wanted, diagnoses):
    cause = next(cause for one in diagnoses for cause in one["causes"] if key(cause) == wanted)
    return f"{cause['title']} at line {cause['line']}"


def apply(text, patch):
    lines = text.splitlines(keepends=True)
    return "".join(lines[:patch["first"] - 1]) + "".join(line + "\n" for line in patch["lines"]) + "".join(lines[patch["last"]:])


def _read(path):
    with open(path) as file:
        return file.read()
