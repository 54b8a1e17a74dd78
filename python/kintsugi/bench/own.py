"""`kintsugi bench script.py | module:fn`: the user's own functions, eager against compiled, and against an earlier revision.

All ways take turns in one process. For a revision (`--against git:HEAD~1`) its files are laid out in a folder of their own and a second
process runs them; the two processes take turns, one waits while the other measures.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

from .._errors import CommandError
from ..commands import MODULE
from ..diagnose import child

FIRST = 6          # calls that count as first ones, at least
CERTAIN = 0.02     # difference from which there is a verdict, if the quartiles of the ratio agree
CHUNK = 0.2        # seconds of measuring, between which two processes change


class BenchError(CommandError):
    """It cannot be measured."""


def is_target(names):
    return len(names) == 1 and (names[0].endswith(".py") or ":" in names[0] or names[0].startswith(MODULE))


# ---- what is measured ----


class Subject:
    """A function and a call of it, in several ways: {engine: callable without arguments}."""

    def __init__(self, name, fn, compiled, call):
        self.name, self.fn, self.call = name, fn, call
        self.made = {"kintsugi": compiled} if compiled is not None else {}
        self.first, self.errors, self.difference = {}, {}, {}
        self.ways = {}

    def prepare(self, engines, ready=False):
        """First calls of each engine, timed. `ready`: the program has called the compiled function before."""
        from ..diagnose import observe, screen

        with screen.quiet(), self.call.modes():
            try:
                self._result(self.fn)
            except Exception as error:
                raise BenchError(f"a call of {self.name} ended with {observe.describe_end(error)}") from error
            eager = self.ways["eager"] = self._way(self.fn)
            plain = min(_seconds(eager) for _ in range(5))
            for engine in engines:
                try:
                    self._prepare(engine, plain, ready and engine == "kintsugi")
                    self.difference[engine] = _difference(self._result(self.fn), self._result(self.made[engine]))  # from the same state
                except Exception as error:  # the others are measured all the same
                    self.ways.pop(engine, None)
                    self.errors[engine] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"

    def _prepare(self, engine, plain, ready):
        from ..diagnose import timing

        start = time.perf_counter()
        if engine not in self.made or not ready:
            self.made[engine] = _compile(engine, self.fn)
        setup = time.perf_counter() - start
        way = self.ways[engine] = self._way(self.made[engine])
        inner = _inner(self.made[engine])
        spent, calls = setup, []

        def timed():
            nonlocal spent
            calls.append(_seconds(way))
            spent += max(0.0, calls[-1] - plain)
        for _ in range(FIRST):
            timed()
        timing.warm(timed, [inner] if inner is not None else ())
        if not ready:
            self.first[engine] = {"call": setup + calls[0], "spent": spent, "calls": len(calls)}

    def _way(self, fn):
        args, kwargs = self.call.copy()
        return lambda: fn(*args, **kwargs)

    def _result(self, fn):
        import torch
        from torch.utils import _pytree

        from ..diagnose import state

        args, kwargs = self.call.copy()
        with state.unchanged(self.fn, args, kwargs):
            state.seed()
            return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in _pytree.tree_leaves(fn(*args, **kwargs))]

    def sample(self, seconds):
        """{way: [(seconds of a call, was it interrupted?)]}."""
        from ..diagnose import screen, timing

        with screen.quiet(), self.call.modes():
            found = timing.turns(self.ways, seconds, least=3)
        return {name: list(zip(times.samples, times.interrupted or [0] * len(times.samples))) for name, times in found.items()}

    def kept(self):
        """Bytes that compiled code keeps between calls."""
        from .. import _kernels
        from .._engine import engine

        inner = _inner(self.made.get("kintsugi"))
        rows = _kernels.rows(engine, inner) if inner is not None else ()
        return sum(row["weights_bytes"] + row["scratch_bytes"] + row["code_bytes"] for row in rows)


def _inner(made):
    from .. import _api

    return _api.engine_of(made) if made is not None else None


def _compile(engine, fn):
    import torch

    import kintsugi

    return kintsugi.compile(fn) if engine == "kintsugi" else torch.compile(fn)


def _seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _difference(wanted, got):
    """Largest difference relative to the largest element of eager's result; None: they cannot be compared."""
    import torch

    if len(wanted) != len(got):
        return None
    worst = 0.0
    for x, y in zip(wanted, got):
        if isinstance(x, torch.Tensor) and x.layout is torch.strided and x.numel() and x.is_floating_point():
            scale = x.detach().abs().max().item() or 1.0
            worst = max(worst, (x.detach() - y.detach()).abs().max().item() / scale)
        elif isinstance(x, torch.Tensor) and not torch.equal(x, y):
            return float("inf")
    return worst


def subjects(target, arguments, inputs, engines):
    """Functions of a target, ready to be measured."""
    from ..diagnose import observe, screen

    if observe.split_target(target)[1] is not None:
        with _served():
            fn, call = observe.find(target, inputs)
        inner = _inner(fn)
        made = [Subject(fn.__name__ if hasattr(fn, "__name__") else type(fn).__name__, inner.fn if inner else fn, None, call)]
    else:
        with observe.Session() as session, screen.quiet():
            status = observe.run_script(target, arguments)
        if isinstance(status, Exception):
            raise BenchError(f"the script ended with {observe.describe_end(status)}")
        made = [Subject(found.name, found.compiled.fn, found.compiled, found.calls[-1]) for found in session.functions if found.calls]
        if not made:
            raise BenchError(observe.NOTHING.format(target))
    for subject in made:
        subject.prepare(engines)
    return made


@contextlib.contextmanager
def _served():
    from .. import _install

    before = _install.is_installed()
    _install.install()
    try:
        yield
    finally:
        if not before:
            _install.uninstall()


# ---- two processes ----


def serve():
    """The process for a revision: the first line is its task, the others how to sample its functions."""
    made = []

    def answer(task):
        if isinstance(task, dict):
            sys.path[:] = [moved(path, task["root"], task["copy"]) for path in sys.path]
            made.extend(subjects(task["target"], task["arguments"], task["inputs"], ["kintsugi"]))
            _need_own_files(task["root"], task["copy"])
            return {subject.name: {"first": subject.first, "errors": subject.errors, "difference": subject.difference} for subject in made}
        return sample(made, *task)
    child.serve(answer)


def sample(made, seconds, alone=False):
    """Of each subject what Subject.sample() gives; alone: on one thread."""
    from ..diagnose import timing

    with timing.one_thread() if alone else contextlib.nullcontext():
        return {subject.name: subject.sample(seconds) for subject in made}


def lay_out(revision, folder):
    """Writes the files of a revision of the repository around the current folder; returns that repository's folder."""
    top = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, check=False)
    if top.returncode:
        raise BenchError("--against: the current folder is in no git repository")
    root = top.stdout.decode().strip()
    archive = subprocess.run(["git", "-C", root, "archive", "--format=tar", revision], capture_output=True, check=False)
    if archive.returncode:
        raise BenchError(f"--against: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return root


def moved(path, root, copy):
    """The same place in a copy of the repository; one that the copy does not have stays where it is."""
    there = os.path.join(copy, os.path.relpath(os.path.realpath(path), root))
    return there if _is_in(path, root) and os.path.exists(there) else path


def _is_in(path, folder):
    return os.path.relpath(os.path.realpath(path), folder).split(os.sep)[0] != os.pardir


def _target_in(copy, root, target):
    """The target as the process for the revision is asked for it: a file that is named by its whole path is the copy's."""
    from ..diagnose import observe

    where, name = observe.split_target(target)
    if not where.endswith(".py"):
        return target
    if not _is_in(where, root):
        raise BenchError(f"--against: {where} is not in the repository of the current folder, {root}")
    where = os.path.join(copy, os.path.relpath(os.path.realpath(where), root)) if os.path.isabs(where) else where
    return where if name is None else f"{where}:{name}"


def _need_own_files(root, copy):
    """What the earlier revision ran is its own: an import that finds the repository by itself, as that of a package installed in editable mode, gives files of today."""
    package = __package__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name.partition(".")[0] != package and _is_in(file, root) and moved(file, root, copy) != file:
            raise BenchError(f"--against: the earlier revision would run {name} of the present one ({file}), because of how it is installed; "
                             f"put the folder that holds the package into PYTHONPATH, and each revision takes its own")


# ---- the command ----


def in_turns(sides, seconds, chunk):
    """({function: {way: samples}}, were they taken on one thread?). sides: {prefix of its ways: what samples it (seconds, on one thread?)}; they change after each chunk. Where
    other programs keep the processors that several threads need, all is measured once more on one."""
    import torch

    samples, one_thread = _in_turns(sides, seconds, chunk, False), False
    if torch.get_num_threads() > 1 and any(times(values).disturbed for ways in samples.values() for values in ways.values()):
        samples, one_thread = _in_turns(sides, seconds, chunk, True), True
    return samples, one_thread


def _in_turns(sides, seconds, chunk, alone):
    samples, stop = {}, time.perf_counter() + seconds
    while not samples or time.perf_counter() < stop:
        for prefix, ask in sides.items():
            for name, ways in ask(chunk, alone).items():
                for way, values in ways.items():
                    samples.setdefault(name, {}).setdefault(prefix + way, []).extend(values)
    return samples


def times(values):
    """timing.Times of samples with whether they were interrupted."""
    from ..diagnose import timing

    return timing.Times([value for value, _ in values], [often for _, often in values])


def measure(target, *, arguments=(), inputs=None, stock=False, seconds=3.0, against=None, tell=lambda text: None):
    """{function: {"times": {way: samples}, "first", "errors", "difference", "kept_bytes"}}; ways "before eager", ... are the revision's."""
    if against is not None and not against.startswith("git:"):
        raise BenchError(f"--against {against}: expected git: and a revision, such as git:HEAD~1")
    with contextlib.ExitStack() as stack:
        other = None
        if against is not None:
            tell(f"running {against[4:]}")
            copy = os.path.realpath(stack.enter_context(tempfile.TemporaryDirectory()))
            root = os.path.realpath(lay_out(against[4:], copy))
            asked = {"target": _target_in(copy, root, target), "arguments": list(arguments), "inputs": inputs, "root": root, "copy": copy}
            other = stack.enter_context(child.Child("from kintsugi.bench import own; own.serve()", "the earlier revision", moved(os.getcwd(), root, copy)))
            other.ask(asked)
        tell(f"running {target}")
        made = subjects(target, arguments, inputs, ["stock", "kintsugi"] if stock else ["kintsugi"])
        tell(f"measuring {', '.join(subject.name for subject in made)}, {seconds * len(made):.0f} s")
        sides = {"": lambda *how: sample(made, *how)} | ({"before ": lambda *how: other.ask(how)} if other else {})
        samples, one_thread = in_turns(sides, seconds * len(made), CHUNK if other else seconds)
        return {subject.name: {"times": samples[subject.name], "one_thread": one_thread, "first": subject.first, "errors": subject.errors,
                               "difference": subject.difference, "kept_bytes": subject.kept()} for subject in made}


def describe(row):
    """Numbers of a function, from its samples."""
    found = {way: times(values) for way, values in row["times"].items()}
    eager = found["eager"].typical
    ways = {}
    for way, one in found.items():
        engine = way.rpartition(" ")[2]
        first = row["first"].get(engine) if way == engine else None
        gain = eager - one.typical
        sure = not one.disturbed and not found["eager"].disturbed
        ways[way] = {"us": one.typical * 1e6, "median_us": one.median * 1e6, "low_us": one.low * 1e6, "high_us": one.high * 1e6,
                     "samples": len(one.samples), "certain": sure, "speedup": eager / one.typical if sure else None,
                     "first_call_ms": first["call"] * 1e3 if first else None, "warm_up_ms": first["spent"] * 1e3 if first else None,
                     "break_even_calls": round(first["spent"] / gain) if first and sure and gain > 0.02 * eager else None}
    return ways


def verdict(row, ways, a="kintsugi", b="eager", names=None):
    """A sentence about a against b: which is faster, and how sure that is."""
    from ..diagnose import timing

    if a not in ways or b not in ways:
        return f"{a}: {row['errors'].get(a, 'not measured')}"
    names = names or _NAMES
    first, second = names.get(a, a), names.get(b, b)
    slow, fast = times(row["times"][b]), times(row["times"][a])
    ratio, low, high = timing.ratio(slow, fast)
    if slow.disturbed or fast.disturbed or high > timing.CERTAIN * low:
        return (f"uncertain whether {first} is faster than {second}: other programs used the processors ({low:.2g}x to {high:.2g}x in parts of the measurement); "
                "measure again when the machine is less busy")
    def sure(least, most):
        return f"{least:.2f}x to {most:.2f}x in {timing.PARTS} parts of the measurement" + (", on one thread" if row.get("one_thread") else "")
    if low > 1 + CERTAIN:
        return f"{first} is {ratio:.2f}x as fast as {second} ({sure(low, high)})"
    if high < 1 - CERTAIN:
        return f"{first} takes {1 / ratio:.2f}x as long as {second} ({sure(1 / high, 1 / low)})"
    return f"no clear difference between {first} and {second} ({sure(low, high)})"


_NAMES = {"kintsugi": "compiled code", "eager": "eager", "stock": "stock torch.compile", "before kintsugi": "compiled code of the earlier revision"}


def _sentences(row, ways):
    yield verdict(row, ways)
    if "stock" in ways:
        yield verdict(row, ways, "kintsugi", "stock")
    if "before kintsugi" in ways:
        yield "this revision: " + verdict(row, ways, "kintsugi", "before kintsugi")
    if row.get("one_thread"):
        yield "measured on one thread: other programs use the processors that more threads would need"
    calls = ways.get("kintsugi", {}).get("break_even_calls")
    if calls is not None:
        yield f"recording and compiling are paid back after {calls} calls"
    for engine, text in row["errors"].items():
        yield f"{engine}: {text}"
    for engine, value in row["difference"].items():
        if value is None:
            yield f"{engine}: its result has another structure than eager's"
        elif not value < 1e-3:
            yield f"{engine}: results differ from eager's by {value:.2g} of the largest element"
    if row["kept_bytes"] > 100_000:
        yield f"compiled code keeps {row['kept_bytes'] / 1e6:.1f} MB between calls"


def _show(name, row, ways):
    from .. import _tables
    from ..diagnose import show

    def time_of(value):
        return show.us(value) if value is not None else ""
    rows = [(way, time_of(one["us"]), f"{time_of(one['low_us'])} - {time_of(one['high_us'])}", f"{one['speedup']:.2f}x" if one["certain"] else "uncertain",
             time_of(one["first_call_ms"] * 1e3 if one["first_call_ms"] is not None else None)) for way, one in ways.items()]
    print(name)
    _tables.show(_tables.table(("", "a call", "10% - 90%", "speed of eager", "first call"), rows, right=(1, 2, 3, 4)))
    for sentence in _sentences(row, ways):
        print(f"  {sentence}")


def main(options):
    from ..diagnose import screen

    with screen.progress() as tell:
        found = measure(options.models[0], arguments=getattr(options, "args", None) or (), inputs=options.inputs, stock=options.stock,
                        seconds=options.seconds or (0.5 if options.quick else 3.0), against=options.against, tell=tell)
    described = {name: describe(row) for name, row in found.items()}
    if options.json:
        with open(options.json, "w") as file:
            json.dump({name: {"ways": described[name], "verdict": list(_sentences(row, described[name])), "kept_bytes": row["kept_bytes"],
                              "difference": row["difference"]} for name, row in found.items()}, file, indent=1)
    for number, (name, row) in enumerate(found.items()):
        if number:
            print()
        _show(name, row, described[name])
    return 0
