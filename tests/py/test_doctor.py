"""`kintsugi doctor`: each part is tried, what is off says why, and the exit status tells whether compiling works."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from kintsugi import config, doctor  # noqa: E402


def states():
    return {part: (state, text) for part, state, text in doctor.rows()}


def run(*arguments, **env):
    done = subprocess.run([sys.executable, "-m", "kintsugi", "doctor", *arguments], capture_output=True, text=True,
                          env={**os.environ, **env})
    return done.returncode, done.stdout, done.stderr


def test_everything_is_on_where_it_is_supported():
    status, out, err = run("--json", KINTSUGI_KERNELS="1")
    found = {row["part"]: row for row in json.loads(out)}
    assert status == 0, err
    assert {part for part, row in found.items() if row["state"] == "on"} >= {"python", "recording", "trial"}
    assert found["trial"]["text"].startswith("7 of 8 calls replayed")


def test_own_products_are_told_as_the_processor_has_them():
    state, text = states()["own products"]
    with open("/proc/cpuinfo") as file:
        here = {"avx2", "fma", "f16c"} <= set(file.read().split())
    assert (state == "on") == here and ("need AVX2" in text) != here


def test_the_text_has_a_line_for_each_part():
    lines = doctor.report([("python", "on", "3.11"), ("kernels", "off", "no LLVM")]).splitlines()
    assert lines == ["python          on   3.11", "kernels         off  no LLVM"]


def test_another_tool_is_named():
    sys.settrace(lambda *a: None)
    try:
        found = states()
    finally:
        sys.settrace(None)
    assert found["recording"][0] == "off" and "traces this interpreter" in found["recording"][1]
    assert found["trial"][0] == "off"


def test_no_cache_folder():
    with config.patch(cache_dir=None):
        assert states()["kernel cache"][0] == "off"


def test_disabled_by_the_environment():
    status, out, _ = run(TORCH_COMPILE_DISABLE="1")
    assert "everything runs eagerly" in out
    assert status == 1


def test_an_engine_that_does_not_load(monkeypatch):
    from kintsugi import _engine

    class Broken:
        def _doctor(self):
            raise ImportError("wrong ABI")

    monkeypatch.setattr(_engine, "engine", Broken())
    found = states()
    assert found["engine"][0] == "off" and "wrong ABI" in found["engine"][1]
