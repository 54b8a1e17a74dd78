"""The harness itself: engines that are wrong in a known way must be caught by the corpus."""
import pytest
import torch

from kincorpus import engines, run
from kincorpus.freeze import Freezer, differences

ENOUGH = {
    "broken_stale_globals": 15, "broken_stale_defaults": 3, "broken_drops_prints": 4, "broken_runs_twice": 40,
    "broken_keeps_result": 60, "broken_wrong_lines": 30, "broken_rounds": 60,
}


def cases_caught(engine, enough):
    """Names of cases that tell `engine` from eager; stops when there are enough."""
    caught = []
    for path in run.topics():
        for case in run.cases_of(path):
            if run.compare(run.eager_run(path, case.name), run.run_case(path, case.name, engine)):
                caught.append(case.name)
                if len(caught) >= enough:
                    return caught
    return caught


@pytest.mark.parametrize("broken", engines.BROKEN, ids=lambda cls: cls.name)
def test_broken_engine_is_caught(broken):
    enough = ENOUGH[broken.name]
    assert len(cases_caught(broken(), enough)) >= enough


def freeze_one(value):
    return Freezer("world_none")(value)


def test_freeze_sees_aliasing():
    a = torch.zeros(2)
    assert freeze_one((a, a)) != freeze_one((a, a.clone()))
    assert freeze_one((a, a[:])) != freeze_one((a, a.clone()))
    shared = [1]
    assert freeze_one([shared, shared]) != freeze_one([[1], [1]])


@pytest.mark.parametrize("a,b", [
    (0.0, -0.0), (1, True), (1, 1.0), ((1,), [1]), ({1: 2, 3: 4}, {3: 4, 1: 2}), (torch.zeros(2), torch.zeros(2, 1)),
    (torch.zeros(2), torch.zeros(2, dtype=torch.float64)), (torch.zeros(2), torch.zeros(2).requires_grad_()),
    (torch.zeros(2, 2), torch.zeros(2, 2).t()), (torch.tensor(0.0), torch.tensor(-0.0)), ("a", b"a"),
], ids=str)
def test_freeze_tells_apart(a, b):
    assert differences(freeze_one(a), freeze_one(b))


def test_freeze_handles_cycles_and_nan():
    loop = []
    loop.append(loop)
    nan = torch.tensor(float("nan"))
    assert freeze_one(loop) == freeze_one(loop)
    assert freeze_one((nan, float("nan"))) == freeze_one((nan.clone(), float("nan")))
