"""Every case of the corpus behaves under the engine as in eager, and is replayed as often as it promises.

    pytest tests/corpus                         the engine
    pytest tests/corpus --engine=eager          the corpus against itself
    pytest tests/corpus --engine=kintsugi_kernels   with kernels; last digits of floats may differ
    pytest tests/corpus --every-k               and leave before every k-th step of each replay
"""
import functools
import os

import pytest

from kincorpus import run
from kincorpus.isolate import WANTED as ISOLATE, Died, in_child

ALL = run.all_cases()
RUN = run.share(ALL)
IDS = [f"{path.stem}-{c.name}" for path, c in RUN]
VISIBLE = ("exception", "result", "stdout", "stderr", "warnings", "logs", "after", "arguments")
every_case = pytest.mark.parametrize("path,case", RUN, ids=IDS)
PER_CHILD = 6   # forced exits tried in one child
_actual = {}


def safe_run(engine, path, name, force_exit=-1):
    """run_case in a child (KIN_ISOLATE=0: in this process, for a debugger); a crash fails only this test."""
    run.eager_run(path, name)   # also loads here what torch imports at first use
    action = functools.partial(run.run_case, path, name, engine, force_exit)
    return in_child(action) if engine.counts and ISOLATE else action()


def engine_run(engine, path, name):
    key = (engine.name, path, name)
    if key not in _actual:
        try:
            _actual[key] = safe_run(engine, path, name)
        except Died as e:
            _actual[key] = e
    if isinstance(_actual[key], Died):
        pytest.fail(str(_actual[key]), pytrace=False)
    return _actual[key]


def whole_replays(stats):
    """Replays to the end, or to where the program was known to leave; one whose rest was recorded is none."""
    return stats["replays"] - stats["branches"]


def replays_of(engine, path, name):
    try:
        return whole_replays(engine_run(engine, path, name).stats)
    except pytest.fail.Exception:
        return 0   # it died; test_behaves_as_eager says so


def fail_if_different(engine, expected, actual):
    differences = run.compare(expected, actual, engine.close)
    if differences:
        pytest.fail("\n".join(differences[:12]), pytrace=False)


def test_size_of_the_corpus():
    """More than half of the cases change state outside of the arguments (Case.state; test_case_is_what_it_says proves it)."""
    changing = [c for _, c in ALL if c.state]
    print(f"{len(changing)} of {len(ALL)} cases change hidden state")
    assert len(ALL) >= 170
    assert 2 * len(changing) > len(ALL), (len(changing), len(ALL))
    assert all(c.mutate and not c.inert for c in changing)
    assert all(c.calls >= 5 for _, c in ALL)


@every_case
def test_case_is_what_it_says(path, case):
    """Eager alone: raises only where declared, and what changes between calls can be seen in a result."""
    expected = run.eager_run(path, case.name)
    raised = tuple(i for i, o in enumerate(expected.observations) if o["exception"])
    assert raised == case.raises, [expected.observations[i]["exception"] for i in raised]
    if case.mutate:
        unchanged = run.run_case(path, case.name, run.engines.Eager(), mutate=False)
        seen = any(a.get(k) != b.get(k) for a, b in zip(expected.observations, unchanged.observations) for k in VISIBLE)
        assert seen != case.inert


@every_case
def test_behaves_as_eager(engine, path, case):
    fail_if_different(engine, run.eager_run(path, case.name), engine_run(engine, path, case.name))


@every_case
def test_replays(engine, path, case):
    if not engine.counts:
        pytest.skip("the stand-in counts nothing")
    stats = engine_run(engine, path, case.name).stats
    assert whole_replays(stats) >= case.min_replays, stats


def test_replays_of_the_whole_corpus(engine):
    if not engine.counts:
        pytest.skip("the stand-in counts nothing")
    possible = sum(c.could_replay for _, c in RUN)
    done = sum(min(c.could_replay, replays_of(engine, p, c.name)) for p, c in RUN)
    print(f"{done} of {possible} later calls that could be replays were")
    assert done >= 0.9 * possible, (done, possible)


def forced_exits(stats):
    return stats.get("forced_exits", stats.get("bail_outs", 0))


def exits_at(engine, path, name, ks):
    """For each k: how many exits were forced, and where the outcome differs from eager."""
    expected, out = run.eager_run(path, name), []
    for k in ks:
        actual = run.run_case(path, name, engine, k)
        out.append((k, forced_exits(actual.stats), run.compare(expected, actual, engine.close)[:12]))
    return out


def safe_exits_at(engine, path, name, ks):
    """exits_at in one child; when that dies, k by k, to find the one that is to blame."""
    action = functools.partial(exits_at, engine, path, name)
    if not engine.counts or not ISOLATE:
        return action(ks)
    try:
        return in_child(functools.partial(action, ks))
    except Died as e:
        if len(ks) == 1:
            pytest.fail(f"exit before step {ks[0]}: {e}", pytrace=False)
    return [row for k in ks for row in safe_exits_at(engine, path, name, [k])]


def fail_if_any_differs(rows):
    for k, _, differences in rows:
        if differences:
            pytest.fail(f"exit before step {k}\n" + "\n".join(differences), pytrace=False)


@every_case
def test_forced_exits(engine, request, path, case):
    """Leaves before step k of each replay: two k for each case, others with another KIN_TURN; with --every-k before
    steps 0, 1, 2, ... until no exit happens any more."""
    if not request.config.getoption("--every-k", False):
        turn = int(os.environ.get("KIN_TURN", 739941)) + IDS.index(f"{path.stem}-{case.name}")
        fail_if_any_differs(safe_exits_at(engine, path, case.name, [turn % 4, 4 + turn % 13]))
        return
    natural = forced_exits(engine_run(engine, path, case.name).stats)
    last, quiet = request.config.getoption("--max-k", None) or 150, 0
    for first in range(0, last, PER_CHILD):
        rows = safe_exits_at(engine, path, case.name, list(range(first, min(first + PER_CHILD, last))))
        fail_if_any_differs(rows)
        for _, exits, _ in rows:
            quiet = quiet + 1 if exits <= natural else 0
        if quiet >= 3:   # a case may also leave by itself, so one quiet k proves little
            break
