"""Whatever a guard lets through would be recorded the same: over the corpus, random programs and models (oracle.py).

The defaults take about a minute; `make oracle` asks for everything.

KIN_ORACLE_CHANGES   changed calls per case (default 5; 0: all there are)
KIN_ORACLE_FUZZ      random programs (default 10), from KIN_ORACLE_SEED (default 0)
KIN_ORACLE_MODELS    names of models, or "all"
"""
import copy
import os

import pytest

pytest.importorskip("kintsugi._kintsugi", reason="the extension is not built", exc_type=ImportError)

import fuzz_programs   # noqa: E402
import models   # noqa: E402
import oracle   # noqa: E402
import trace_diff   # noqa: E402
from fuzz_generate import generate   # noqa: E402
from kincorpus import run   # noqa: E402
from kincorpus.isolate import Died   # noqa: E402

CHANGES = int(os.environ.get("KIN_ORACLE_CHANGES", "5"))
FIRST = int(os.environ.get("KIN_ORACLE_SEED", "0"))
COUNT = int(os.environ.get("KIN_ORACLE_FUZZ", "10"))

RUN = run.share(run.all_cases())
MODELS = os.environ.get("KIN_ORACLE_MODELS", "mlp lstm_cell_loop cnn breaks gpt2").split()
_seen = oracle.Report()

def isolated(action, hint):
    """The report of action() in a child; fails the test where there are differences."""
    try:
        report = action()
    except Died as e:
        pytest.fail(f"{hint}\n{e}", pytrace=False)
    _seen.add(oracle.Report([], report.calls, report.replays, report.exits, report.general))
    if report.differences:
        pytest.fail("\n".join([hint, *(f"{label}: {text}" for label, text in report.differences[:6])]), pytrace=False)


@pytest.mark.parametrize("path,case", [pytest.param(path, case, id=f"{path.stem}-{case.name}") for path, case in RUN])
def test_case(path, case):
    run.eager_run(path, case.name)   # loads here what torch imports at first use
    isolated(lambda: oracle.consult_case(path, case.name, case.calls, CHANGES),
             f"python tests/oracle/oracle.py {path.stem} {case.name}")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_program(seed):
    fuzz_programs.warm_up()
    isolated(lambda: oracle.consult_program(generate(seed), CHANGES), f"python tests/oracle/oracle.py --seed {seed}")


@pytest.mark.parametrize("name", [e.name for e in models.find(None if MODELS == ["all"] else MODELS)])
def test_model(name):
    entry, = models.find([name])
    if entry.needs:
        pytest.importorskip(entry.needs)
    entry.make()   # imports in this process what both worlds need
    isolated(lambda: oracle.consult_model(entry), f"python tests/oracle/oracle.py --model {name}")


def test_enough_was_compared(request):
    """Where all cases ran: the guards of most calls held, so the oracle has something to say."""
    if sum("test_case[" in item.nodeid for item in request.session.items) < len(RUN) or not CHANGES:
        pytest.skip("needs all of them")
    assert _seen.replays >= 0.35 * _seen.calls and _seen.general <= 0.02 * _seen.calls, _seen


# -- does the oracle see what is wrong? ------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def recording():
    """A recording with a graph, a break, an effect, facts of several kinds and two epochs."""
    import torch

    def f(x, table, n):
        y = x * n + len(table)
        print("seen", n)
        if y.sum() > 0:
            y = torch.relu(y) - table["k"]
        return y, [n, x]

    _, dump = oracle.record(f, (torch.ones(3), {"k": 2.0}, 3), {})
    assert dump["graphs"] and dump["breaks"] and dump["effects"] and len(dump["facts"]) > 8 and len(dump["steps"]) > 6
    return dump


def damaged(recording):
    """(what, dump) with one thing wrong each."""
    for key in ("steps", "facts", "breaks", "effects", "graphs"):
        for i in range(len(recording[key])):
            less = copy.deepcopy(recording)
            del less[key][i]
            yield f"{key} without {i}", less
            if recording[key][i] not in recording[key][:i] + recording[key][i + 1:]:
                twice = copy.deepcopy(recording)
                twice[key].insert(i, twice[key][i])
                yield f"{key} with {i} twice", twice
    for i, (key, vids) in enumerate(recording["steps"]):
        for field in range(len(key)):
            other = copy.deepcopy(recording)
            value = key[field]
            wrong = value + 1 if type(value) is int else value + ("x",) if type(value) is tuple else value + "x"
            other["steps"][i] = (key[:field] + (wrong,) + key[field + 1:], vids)
            yield f"step {i}, field {field}", other
        for j in range(1, len(vids)):
            other = copy.deepcopy(recording)
            other["steps"][i] = (key, vids[:j] + (10_000,) + vids[j + 1:])
            if any(vids[j] in v for k, (_, v) in enumerate(recording["steps"]) if k != i):
                yield f"step {i}, operand {j}", other
    for i, fact in enumerate(recording["facts"]):
        for field in range(len(fact)):
            other = copy.deepcopy(recording)
            other["facts"][i] = fact[:field] + ("wrong",) + fact[field + 1:]
            yield f"fact {i}, field {field}", other
    yield "one epoch more", {**recording, "epochs": recording["epochs"] + 1}


def test_damaged_recordings_are_noticed(recording):
    assert trace_diff.compare(recording, copy.deepcopy(recording)) == []
    wrong = list(damaged(recording))
    assert len(wrong) > 100
    missed = [what for what, dump in wrong if not trace_diff.compare(recording, dump)]
    assert not missed
    assert not [what for what, dump in wrong if not trace_diff.compare(dump, recording)]


def test_opaque_call_covers_a_modelled_one(recording):
    at, (key, vids) = next((i, s) for i, s in enumerate(recording["steps"]) if "opaque" in s[0][2])
    modelled = copy.deepcopy(recording)
    modelled["steps"][at] = ((*key[:2], ("pure",), *key[3:]), vids)
    assert trace_diff.does_it_really(recording, modelled)
    assert not trace_diff.does_it_really(modelled, recording)
    assert not trace_diff.does_it_really(recording, recording)


def test_called_class_covers_an_instance_made_step_by_step(recording):
    line = recording["steps"][0][0][3:]
    called = {**recording, "steps": [(("call", "% = mod.C(%)", ("opaque",), *line), (5, 1))]}
    made, other = ({**recording, "steps": [(("object", f"% = object({name})", ("pure",), *line), (5, 1))]} for name in ("mod.C", "mod.D"))
    assert trace_diff.does_it_really(called, made) and not trace_diff.does_it_really(made, called)
    assert not trace_diff.does_it_really(called, other)


def test_store_without_a_look_covers_a_followed_one(recording):
    line = recording["steps"][0][0][3:]
    store = (("set_subscr", "set_subscr(L['d'], 'k', 1)", ("effect",), *line), (0, 3, "str 'k'", "int 1"))
    look = (("check", "check(L['d'], 'k')", (), line[0], trace_diff.FITS, *line[2:]), (0, 3))
    other = (("set_subscr", "set_subscr(L['d'], 'l', 1)", ("effect",), *line), (0, 3, "str 'l'", "int 1"))
    plain, followed, wrong = ({**recording, "steps": steps} for steps in ([store], [look, store], [look, other]))
    assert trace_diff.does_it_really(plain, followed)
    assert not trace_diff.does_it_really(followed, plain) and not trace_diff.does_it_really(plain, wrong)


def test_dict_that_is_asked_for_covers_one_that_is_there():
    class Thing:
        def __init__(self):
            self.n = 2

    def f(x, thing):
        return x * len(vars(thing))

    import torch
    there = Thing()
    vars(there)
    (_, asked), (_, read) = (oracle.record(f, (torch.ones(2), thing), {}) for thing in (Thing(), there))
    assert trace_diff.compare(asked, read)
    assert trace_diff.does_it_really(asked, read) and not trace_diff.does_it_really(read, asked)


def test_equal_constants_are_one(recording):
    """... whether they are one object or two; others are not."""
    at, (key, vids) = next((i, s) for i, s in enumerate(recording["steps"]) if any(type(v) is str for v in s[1]))
    other = copy.deepcopy(recording)
    other["steps"][at] = (key, tuple(v + "0" if type(v) is str else v for v in vids))
    assert trace_diff.compare(recording, other)
    (_, one), (_, two) = (oracle.record(lambda d, e: [*d, *e], ({k: 1}, {e: 1}), {}) for k, e in (("ab_", "ab_"), ("ab_", "".join(["ab", "_"]))))
    assert trace_diff.compare(one, two) == []


def test_opaque_consumer_covers_a_recorded_one():
    class Number(int):
        def __gt__(self, other):
            return int(self) > other

    def f(rows, n):
        return sum(q for q in rows if q > n)

    (_, executed), (_, modelled) = (oracle.record(f, (rows, 0), {}) for rows in ([1, 2, Number(3)], [1, 2, 3]))
    at, _ = trace_diff.first_step_difference(executed["steps"], modelled["steps"], loose=True)
    assert "opaque" in executed["steps"][at][0][2]
    assert trace_diff.does_it_really(executed, modelled) and not trace_diff.does_it_really(modelled, executed)
    less = {**modelled, "steps": modelled["steps"][:at]}    # a recording that does not call sum at all
    assert not trace_diff.does_it_really(executed, {**less, "steps": less["steps"] + executed["steps"][-1:]})
    # what was asked about the rows before the fourth one made it give up does not count
    _, sooner = oracle.record(f, ([Number(1), 2, Number(3)], 0), {})
    assert trace_diff.compare(executed, sooner) == []


def test_numbers_of_values_do_not_matter(recording):
    other = copy.deepcopy(recording)
    other["steps"] = [(key, tuple(1000 - v if v and type(v) is int else v for v in vids)) for key, vids in other["steps"]]
    assert trace_diff.compare(recording, other) == []


def test_only_what_is_before_an_exit_counts(recording):
    last = len(recording["steps"]) - 1
    other = copy.deepcopy(recording)
    (kind, *rest), vids = other["steps"][last]
    other["steps"][last] = (("other", *rest), vids)
    assert trace_diff.compare_until(recording, other, last) == []
    assert trace_diff.compare_until(recording, other, last + 1)
    (kind, *rest), vids = other["steps"][2]
    other["steps"][2] = (("other", *rest), vids)
    assert trace_diff.compare_until(recording, other, last)
    assert trace_diff.compare_until(recording, other, 2) == []
    other["steps"][2:] = [(("exit", *rest), vids)]   # taken back to there: says nothing more
    assert trace_diff.compare_until(recording, other, last) == []


SOURCE = '''"""A case for the self-test."""
from kincorpus.case import T, case

SCALE = 2


@case(calls=4)
def f(x):
    return x * SCALE if SCALE > LEAST else x + 1


LEAST = 0
'''


class Sabotaged(oracle.Declared):
    """As if a fact about a global were missing: in the second world the decision is another one."""

    def __init__(self, count, least):
        super().__init__(count)
        self.least = least

    def __call__(self, k, module, case, state, fn):
        module.LEAST = self.least
        return super().__call__(k, module, case, state, fn)


def consult_sabotaged(folder, *least):
    path = folder / "sabotaged.py"
    path.write_text(SOURCE, encoding="utf-8")
    values = iter(least)
    return oracle.consult(path, "f", lambda: [Sabotaged(4, next(values))], isolate=False)


def test_missing_fact_is_noticed(tmp_path):
    report = consult_sabotaged(tmp_path, 0, 0)
    assert report.replays == 3 and not report.differences
    report = consult_sabotaged(tmp_path, 0, 5)
    assert any("results differ" in text for _, text in report.differences)
    assert any(text.startswith("step 1") for _, text in report.differences)
    # the same result by another decision is a difference too
    report = consult_sabotaged(tmp_path, 0, 1)
    assert report.replays == 3 and {text.split("[")[0] for _, text in report.differences} == {"facts"}
