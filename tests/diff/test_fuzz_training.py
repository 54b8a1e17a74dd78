"""A few random programs that train (KIN_TRAIN_COUNT, KIN_TRAIN_SEED), and the proof that the comparison sees what is wrong."""
import os

import pytest
import torch

import fuzz_training as fuzz
from training_programs import generate

FIRST = int(os.environ.get("KIN_TRAIN_SEED", "0"))
COUNT = int(os.environ.get("KIN_TRAIN_COUNT", "40"))


@pytest.mark.parametrize("kernels", [False, True], ids=["steps", "kernels"])
def test_programs(kernels):
    programs = [generate(seed) for seed in range(FIRST, FIRST + COUNT)]
    results = fuzz.check_apart(fuzz.Way(kernels), programs)
    failures = [f"python tests/diff/fuzz_training.py --seed {p.seed}{' --kernels' * kernels}\n" + "\n".join(found[:4])
                for p, (found, _) in zip(programs, results) if found]
    assert not failures, "\n".join(failures)
    if kernels:
        assert sum(launches > 0 for _, launches in results) >= 0.8 * COUNT


def test_same_seed_same_program():
    assert generate(7).source() == generate(7).source() != generate(8).source()


def test_most_programs_train():
    good = 0
    for seed in range(30):
        seen, _ = fuzz.run_program(generate(seed), fuzz.identity)
        good += all(s["raised"] is None for s in seen)
    assert good >= 24


class Broken(fuzz.Way):
    """An engine that does something else in each call but the first."""

    def __init__(self, kernels, harm):
        super().__init__(kernels)
        self.harm = harm

    def compiler(self, fn):
        made = super().compiler(fn)
        calls = []

        def wrong(*args, **kwargs):
            calls.append(1)
            return self.harm(made, args, kwargs) if len(calls) > 1 else made(*args, **kwargs)
        return wrong if not isinstance(fn, torch.nn.Module) else made


def scaled(fn, args, kwargs):
    loss = fn(*args, **kwargs)
    return loss * 1.01 if isinstance(loss, torch.Tensor) else loss


def draws(fn, args, kwargs):
    torch.rand(1)
    return fn(*args, **kwargs)


def twice(fn, args, kwargs):
    fn(*args, **kwargs)
    return fn(*args, **kwargs)


@pytest.mark.parametrize("harm", [scaled, draws, twice], ids=lambda f: f.__name__)
def test_a_broken_engine_is_caught(harm, monkeypatch):
    monkeypatch.setattr(fuzz.kintsugi, "stats", lambda fn: {"kernels": []})
    programs = [p for p in map(generate, range(40)) if p.compiled != "module"][:16]
    caught = sum(bool(Broken(True, harm).check(p)[0]) for p in programs)
    assert caught >= 8, caught
