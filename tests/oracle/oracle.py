"""The oracle: where the guards of a recording hold, recording the call afresh must say the same.

A guard claims that Python would take the same decisions and make the same calls again. So a sequence of calls is made
in two worlds. In the first one the engine records and replays. In the second one every call that was a replay in the
first is recorded from scratch, by a compiled object of its own, and the two recordings are compared (trace_diff.py):
steps, facts, graphs, breaks, effects. Where a replay left its recording on the way, what lies before the exit is
compared. Results are compared too.

    python tests/oracle/oracle.py containers dict_order      one case of the corpus, all changes
    python tests/oracle/oracle.py --seed 7                   one random program
"""
import contextlib
import dataclasses
import gc
import io
import pathlib
import random
import signal
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "diff"), str(HERE.parent / "corpus")]

import torch   # noqa: E402

import kintsugi   # noqa: E402
from kincorpus import freeze, run, world   # noqa: E402
from kincorpus.case import Args, State   # noqa: E402
from kincorpus.isolate import in_child   # noqa: E402

import trace_diff   # noqa: E402
import variations   # noqa: E402

CALL_SECONDS = 2
WORLD_SECONDS = 300   # all calls of a case, with every change there is, on a busy machine


@dataclasses.dataclass
class Report:
    """What the oracle saw: differences as (call, text), and how much it could compare."""
    differences: list = dataclasses.field(default_factory=list)
    calls: int = 0
    replays: int = 0    # compared to the end
    exits: int = 0      # compared up to where the replay left

    general: int = 0    # not compared: the recording executes what was modelled now

    def add(self, other):
        self.differences += other.differences
        self.general += other.general
        self.calls, self.replays, self.exits = (self.calls + other.calls, self.replays + other.replays,
                                                self.exits + other.exits)
        return self


@contextlib.contextmanager
def no_collection():
    """A collection may run a finaliser of somebody else at any instruction; the recording then knows less from there on
    (an epoch more). That is right, but when it happens depends on all that was allocated before."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def call(fn, args, kwargs):
    """Result and type of the exception, as plain data."""
    with no_collection(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            result, error = fn(*args, **kwargs), None
        except Exception as e:
            result, error = None, f"{type(e).__name__}: {trace_diff.plain(str(e))}"
    return result, error


class TooLong(BaseException):
    """A call did not end."""


@contextlib.contextmanager
def deadline():
    def too_long(*_):
        raise TooLong
    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, CALL_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Watched:
    """A compiled object whose calls say what became of them: ("replay", dump), ("exit", dump, step) or None."""

    def __init__(self, fn):
        self.compiled = kintsugi.compile(fn)
        self.engine = kintsugi._api.engine_of(self.compiled)
        self.missed = False     # by the last call
        self.useless = False    # the first call left no recording: a later one would know more than a fresh one

    def counts(self):
        stats = self.engine.stats()
        return stats["recordings"], [(v["hits"], v["exits"]) for v in stats["variants"]]

    def __call__(self, args, kwargs):
        before = self.counts()
        kintsugi._kintsugi.events()
        seen = call(self.compiled, args, kwargs)
        after = self.counts()
        self.missed = after == before
        self.useless |= after[0] == 0
        return seen, self.outcome(before, after)

    def outcome(self, before, after):
        if self.useless or before[0] != after[0] or len(before[1]) != len(after[1]):
            return None
        moved = [(i, b[0] - a[0], b[1] - a[1]) for i, (a, b) in enumerate(zip(before[1], after[1])) if a != b]
        if len(moved) != 1 or sum(moved[0][1:]) != 1:
            return None    # not one run of one recording: it called itself, say
        dump = trace_diff.simplify(kintsugi._kintsugi.dump(self.engine.entries()[moved[0][0]]))
        if moved[0][1]:
            return "replay", dump
        left = [e for e in kintsugi._kintsugi.events() if e["event"] == "exit"]
        return ("exit", dump, left[-1]["step"]) if left else None


def record(fn, args, kwargs):
    """The call, recorded from scratch: ((result, error), dump or None)."""
    fresh = Watched(fn)
    seen = call(fresh.compiled, args, kwargs)
    entries = fresh.engine.entries()
    return seen, trace_diff.simplify(kintsugi._kintsugi.dump(entries[0])) if entries else None


@contextlib.contextmanager
def fresh_case(path, name):
    """(module, case, state, function) in a world of its own."""
    with world.fresh_ambient("ignore"):
        module = world.load(pathlib.Path(path), "world_" + pathlib.Path(path).stem)
        case = module.CASES[name]
        state = State()
        if case.setup:
            case.setup(state)
        yield module, case, state, case.fn(state) if case.build else case.fn


def arguments(case, i, state):
    made = case.args(i, state)
    return made if isinstance(made, Args) else Args(*made)


# A plan says what call number k is: prepare(k, module, case, state, fn) -> (args, kwargs, name, undo)

class Declared:
    """The calls of a case as the corpus makes them."""

    def __init__(self, count):
        self.count = count

    def __call__(self, k, module, case, state, fn):
        if case.mutate:
            case.mutate(k, state)
        made = arguments(case, k, state)
        return list(made.args), made.kwargs, f"call {k}", lambda: None

    def outdated(self, k, watched):
        return watched.missed


class Changed:
    """Call 0 again and again with one change each. `limit` bounds the changes (0: all there are)."""

    def __init__(self, limit, seed):
        self.limit, self.seed, self.chosen, self.count = limit, seed, [None], 1

    def outdated(self, k, watched):
        return watched.missed and self.chosen[k - 1] is None

    def __call__(self, k, module, case, state, fn):
        if k == 0 and case.mutate:
            case.mutate(0, state)
        made = arguments(case, 0, state)
        args, kwargs = list(made.args), made.kwargs
        # Listing the changes reads every __dict__, which the program can tell: so always, also where none is made.
        changes = variations.all_changes(module, fn, args, kwargs)
        if k == 0:
            self.chosen = choose(len(changes), self.limit, self.seed)
            self.count = len(self.chosen)
        number = self.chosen[k]
        if number is None or number >= len(changes):
            return args, kwargs, "unchanged", lambda: None
        try:
            undo = changes[number].apply()
        except Exception as e:
            return args, kwargs, f"unchanged ({type(e).__name__} from {changes[number].name})", lambda: None
        return args, kwargs, changes[number].name, undo


def choose(total, limit, seed):
    """Which changes to make; None, an unchanged call, in between shows whether the state has moved on."""
    numbers = list(range(total))
    if limit and total > limit:
        numbers = sorted(random.Random(seed).sample(numbers, limit))
    out = [None, None]
    for i, n in enumerate(numbers):
        out += [n] if i % 8 else [n, None]
    return out


def frozen(name, value):
    try:
        return freeze.Freezer(name)(value)
    except Exception as e:
        return f"cannot be read: {type(e).__name__}"


def calls_in_a_world(path, name, plan, make_call):
    """make_call(k, fn, args, kwargs) -> ((result, error), more) for each call; a list of (label, seen, more)."""
    out = []
    kintsugi.reset()
    with fresh_case(path, name) as (module, case, state, fn):
        k = 0
        while k < plan.count:
            args, kwargs, label, undo = plan(k, module, case, state, fn)
            try:
                with deadline():
                    seen, more = make_call(k, fn, args, kwargs)
            except TooLong:   # a change made it run for ever
                break
            out.append((label, frozen(module.__name__, seen), more))
            with contextlib.suppress(Exception):
                undo()
            k += 1
    return out


def first_world(path, name, plan):
    """The calls as the engine replays them."""
    watched = []

    def engine_call(k, fn, args, kwargs):
        # A compiled object remembers values that changed between its recordings, which a fresh one cannot: so each one
        # records once, and when it no longer fits, the next takes over.
        if not watched or watched[-1].useless or plan.outdated(k, watched[-1]):
            watched.clear()
            kintsugi.reset()
            watched.append(Watched(fn))
        return watched[-1](args, kwargs)

    return calls_in_a_world(path, name, plan, engine_call)


def second_world(path, name, plan, first):
    """The same calls, recorded afresh where the first world replayed."""
    def afresh(k, fn, args, kwargs):
        if k >= len(first) or first[k][2] is None:
            return call(fn, args, kwargs), None
        return record(fn, args, kwargs)

    return calls_in_a_world(path, name, plan, afresh)


def consult(path, name, plans, isolate=True):
    """A Report about a case. plans() lists what is done in each world; each world is a process of its own, since
    cases also change what belongs to the process. isolate=False is for a debugger."""
    def in_order(world_of, more):
        with kintsugi.config.patch(side_trace_limit=0, recompile_limit=1):
            return [world_of(path, name, plan, *rest) for plan, *rest in zip(plans(), *more)]

    here = (lambda action: in_child(action, WORLD_SECONDS)) if isolate else lambda action: action()
    first = here(lambda: in_order(first_world, []))
    second = here(lambda: in_order(second_world, [first]))
    report = Report()
    for x, y in zip(first, second):
        report.calls += len(x)
        for k, ((label, seen, outcome), (_, seen_now, dump)) in enumerate(zip(x, y)):
            judge(report, f"{label} (call {k})", outcome, dump, seen, seen_now)
    return report


def judge(report, label, outcome, dump, seen, seen_now):
    if outcome is None:
        return
    if seen != seen_now:
        x = freeze.differences(seen, seen_now)[0]
        report.differences.append((label, f"results differ: {x!r:.500}"))
    if dump is None:
        if outcome[0] == "replay":
            report.differences.append((label, "was replayed, but cannot be recorded"))
        return
    if trace_diff.does_it_really(outcome[1], dump):
        report.general += 1
        return
    if outcome[0] == "replay":
        report.replays += 1
        found = trace_diff.compare(outcome[1], dump)
    else:
        report.exits += 1
        found = trace_diff.compare_until(outcome[1], dump, outcome[2])
    report.differences += [(label, text) for text in found]


def consult_case(path, name, calls, limit=0):
    """The declared calls of a case, then the changed ones."""
    return consult(path, name, lambda: [Declared(calls), Changed(limit, name)])


def consult_program(program, limit=0):
    """A random program of tests/diff."""
    with tempfile.TemporaryDirectory(prefix="oracle_") as folder:
        path = pathlib.Path(folder) / "fuzz_program.py"
        path.write_text(program.source(), encoding="utf-8")
        return consult_case(path, "f", len(program.rows), limit)


def consult_model(entry, calls=3):
    """A model of bench/models.py, other data in each call."""
    def run_model(make_call):
        out = []
        kintsugi.reset()
        with kintsugi.config.patch(side_trace_limit=0, recompile_limit=1), torch.no_grad(), world.fresh_ambient("ignore"):
            fn = entry.call(entry.make())
            for i in range(calls):
                args, kwargs = entry.inputs(i)
                seen, more = make_call(i, fn, args, kwargs)
                out.append((f"call {i}", frozen("", seen), more))
        return out

    def first_calls():
        watched = []

        def engine_call(i, fn, args, kwargs):
            if not watched:
                watched.append(Watched(fn))
            return watched[0](args, kwargs)
        return run_model(engine_call)

    first = in_child(first_calls)
    second = in_child(lambda: run_model(
        lambda i, fn, args, kwargs: record(fn, args, kwargs) if first[i][2] else (call(fn, args, kwargs), None)))
    report = Report(calls=calls)
    for (label, seen, outcome), (_, seen_now, dump) in zip(first, second):
        judge(report, label, outcome, dump, seen, seen_now)
    return report


def main(argv):
    if argv[:1] == ["--model"]:
        sys.path.append(str(HERE.parents[1] / "bench"))
        import models
        entry, = models.find(argv[1:])
        report = consult_model(entry)
    elif argv[:1] == ["--seed"]:
        from fuzz_generate import generate
        program = generate(int(argv[1]))
        report = consult_program(program)
        print(program.source().split("OBJ = Obj(1)\n", 1)[-1])
    else:
        path = run.CASES_DIR / f"{argv[0]}.py"
        calls = {c.name: c.calls for c in run.cases_of(path)}[argv[1]]
        report = consult_case(path, argv[1], calls)
    for label, text in report.differences:
        print(f"{label}: {text}")
    print(f"{report.calls} calls, {report.replays} replays and {report.exits} exits compared, "
          f"{len(report.differences)} differences")
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
