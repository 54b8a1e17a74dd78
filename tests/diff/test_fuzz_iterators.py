"""A few programs of fuzz_iterators.py (KIN_FUZZ_ITERATORS: how many), most of them replayed."""
import os

import pytest

import fuzz_iterators as fuzz

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)
COUNT = int(os.environ.get("KIN_FUZZ_ITERATORS", "60"))


def test_programs():
    failures, replays = [], 0

    def compile(function):
        nonlocal compiled
        compiled = kintsugi.compile(function)
        return compiled

    for seed in range(COUNT):
        compiled = None
        failures.append(fuzz.run(seed, compile))
        replays += kintsugi.stats(compiled)["replays"]
        kintsugi.reset()
    failures = [f for f in failures if f is not None]
    assert not failures, "\n".join(failures)
    assert replays >= 2 * COUNT
