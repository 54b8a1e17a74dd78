"""A program run once in a process of its own, perhaps with changed sources: what it computes, what stands in its way, what its calls take.

`kintsugi debug` starts one for the program as it is and one for each proposed change, and compares them (compare_values).
"""

import hashlib
import os
import sys

import torch

from .. import _validate
from ..commands import MODULE
from . import child, diagnose, observe, outside, overlay, price, screen, state

CALLS = 4        # of each function whose values are compared
FACTORS = (-1.0, 1e3, 0.0)  # what arguments are multiplied by, so that decisions go the other way, too
KEEP_BYTES = 256 << 20  # of values


class Trial(child.Child):
    """The parent's side."""

    def __init__(self, task, what):
        super().__init__("from kintsugi.diagnose import trial; trial.serve()", what, drop=("TORCH_LOGS", "TORCH_TRACE"))
        try:
            found = self.ask({"do": "start", **task})
        except BaseException:
            self.process.kill()
            self.close()
            raise
        self.functions, self.files, self.failure = found["functions"], found["files"], found["failure"]

    def values(self, folder):
        """{function: None where calls are not repeated, else a list of dicts}."""
        path = os.path.join(folder, f"values{self.process.pid}")
        self.ask({"do": "values", "path": path})
        try:
            return torch.load(path, weights_only=True)
        finally:
            os.unlink(path)

    def diagnose(self, measure, seconds=price.SECONDS):
        return self.ask({"do": "diagnose", "measure": measure, "seconds": seconds})

    def prepare(self):
        return self.ask({"do": "prepare"})

    def sample(self, seconds, alone=False):
        return self.ask({"do": "sample", "seconds": seconds, "alone": alone})


def serve():
    """The other side."""
    run = _Run()
    child.serve(lambda task: getattr(run, "do_" + task.pop("do"))(**task))


class _Run:
    def do_start(self, target, arguments, inputs, strict, repeat, changed):
        from .._config import config

        config.strict_breaks, self.repeat = strict, repeat
        state.seed()
        self.sources = overlay.installed(changed)
        self.sources.__enter__()  # for as long as the process lives: functions may import later
        status, self.functions = observe.watch(target, arguments, inputs)
        self.names = observe.unique_names(self.functions)
        self.subjects = []
        failure = observe.describe_end(status)
        return {"functions": self.names, "failure": failure, "files": _files(target)}

    def do_values(self, path):
        torch.save({name: self._values(one) for name, one in zip(self.names, self.functions)}, path)

    def _values(self, one):
        from .._api import start_engine

        engine = start_engine()
        if not self.repeat and outside.find_obstacle([engine.dump(entry) for entry in one.compiled.entries()], one):
            return None
        found, size = [], 0
        for call in one.calls[-CALLS:]:
            for factor in (None, *FACTORS):
                row = {"factor": factor, "eager": _outcome(one.compiled.fn, call, factor), "compiled": _outcome(one.compiled, call, factor)}
                size += sum(leaf.nbytes for side in ("eager", "compiled") for leaf in row[side] if isinstance(leaf, torch.Tensor))
                if size > KEEP_BYTES:
                    return found
                found.append(row)
        return found

    def do_diagnose(self, measure, seconds):
        return [diagnose(one, measure=measure, repeat=self.repeat, seconds=seconds).as_dict() for one in self.functions]

    def do_prepare(self):
        from ..bench import own

        for name, one in zip(self.names, self.functions):
            if not one.calls:
                continue
            subject = own.Subject(name, one.compiled.fn, one.compiled, one.calls[-1])
            subject.prepare(["kintsugi"], ready=True)
            self.subjects.append(subject)
        return {subject.name: {"first": subject.first, "errors": subject.errors, "difference": subject.difference, "kept_bytes": subject.kept()}
                for subject in self.subjects}

    def do_sample(self, seconds, alone):
        from ..bench import own

        return own.sample(self.subjects, seconds, alone)


def _files(target):
    """{path: digest} of the files of the user's that the program is made of."""
    where, _ = observe.split_target(target)
    by_name = where.startswith(MODULE)
    paths = [os.path.abspath(observe.file_of(where))] if where.endswith(".py") or by_name else []
    folder = os.path.dirname(paths[0]) if paths and not by_name else os.getcwd()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and os.path.abspath(file).startswith(folder + os.sep) and "site-packages" not in file:
            paths.append(os.path.abspath(file))
    return {path: digest(path) for path in paths if os.path.isfile(path)}


def digest(path):
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


# ---- values ----


def _outcome(fn, call, factor):
    """Leaves of the result and of the arguments behind the call; [text] where it raised."""
    from torch.utils import _pytree

    args, kwargs = call.copy()
    if factor is not None:
        args, kwargs = _pytree.tree_map(lambda leaf: _scaled(leaf, factor), (args, kwargs))
    try:
        with screen.quiet(), call.modes(), state.unchanged(fn, args, kwargs):
            state.seed()
            value = fn(*args, **kwargs)
            return [_plain(leaf) for leaf in _pytree.tree_leaves((value, args, kwargs))]
    except Exception as error:
        return [f"raised {type(error).__name__}"]


def _scaled(leaf, factor):
    if type(leaf) is not torch.Tensor or not leaf.is_floating_point() or leaf.layout is not torch.strided:
        return leaf
    return (leaf.detach() * factor).requires_grad_(leaf.requires_grad)


def _plain(leaf):
    if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
        return leaf.detach().clone(memory_format=torch.contiguous_format)
    return leaf if isinstance(leaf, (bool, int, float, str)) or leaf is None else type(leaf).__name__


def compare_values(before, after):
    """(what differs or "", calls compared, calls with changed arguments compared). None for the numbers: nothing could be compared."""
    calls = changed = 0
    if any(rows is None for rows in before.values()):
        return "", None, None
    for name, rows in before.items():
        if name not in after or after[name] is None or len(after[name]) != len(rows):
            return f"{name}: it is called in another way", calls, changed
        for row, now in zip(rows, after[name]):
            if row["factor"] is not None and _raised(row["eager"]):
                continue  # arguments that the program does not take
            for side in ("eager", "compiled"):
                text = _compare(row["eager"], now[side])
                if text:
                    what = "its result" if row["factor"] is None else f"its result with arguments times {row['factor']:g}"
                    return f"{name}: {what} {text}", calls, changed
            calls, changed = calls + (row["factor"] is None), changed + (row["factor"] is not None)
    return "", calls, changed


def _raised(outcome):
    return len(outcome) == 1 and isinstance(outcome[0], str) and outcome[0].startswith("raised ")


def _compare(wanted, got):
    if _raised(wanted) or _raised(got):
        return "" if _raised(wanted) and _raised(got) else f"{got[0]}" if _raised(got) else "does not raise any more"
    if len(wanted) != len(got):
        return f"has {len(got)} values, not {len(wanted)}"
    for a, b in zip(wanted, got):
        if isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor) or isinstance(b, torch.Tensor) and not isinstance(a, torch.Tensor):
            a, b = (torch.as_tensor(value) if isinstance(value, (bool, int, float)) else value for value in (a, b))
        if type(a) in (int, float) and type(b) in (int, float):
            a, b = (torch.as_tensor(float(value)) for value in (a, b))
        text = _validate.difference(a, b)
        if text:
            return text
    return ""
