"""A few programs of fuzz_iterators.py (KIN_FUZZ_ITERATORS: how many), most of them replayed."""
import os
import subprocess
import sys

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


def test_programs_with_freed_memory_overwritten():
    """What is looked at after it is gone does not go by unseen."""
    command = [sys.executable, fuzz.__file__, "--seed", "4040", "--count", "20"]
    done = subprocess.run(command, env=os.environ | {"PYTHONMALLOC": "debug"}, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_programs_with_kernels():
    command = [sys.executable, fuzz.__file__, "--seed", "61050", "--count", "60"]
    done = subprocess.run(command, env=os.environ | {"KINTSUGI_KERNELS": "1"}, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
