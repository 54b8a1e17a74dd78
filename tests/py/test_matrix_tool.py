"""tools/test_matrix.py: a part that is about kernels is wrong where none are made, and a row says nothing of another commit's code."""
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import test_matrix as matrix  # noqa: E402

KERNEL_PARTS = ["accuracy of kernels", "training", "corpus with kernels", "random tensor programs", "random programs that train, with kernels"]


class Doctor(matrix.Pair):
    """A pair whose doctor says `trial`, and whose tests are all right."""

    def __init__(self, trial):
        self.python, self.root, self.torch, self.trial = sys.executable, None, None, trial
        self.facts = {"python": "3.14.0", "tag": "cpython-314", "torch": "2.14.1", "machine": os.uname().machine}

    def run(self, command, timeout, **environ):
        said = self.trial if "doctor" in command else "7 passed in 1.0s"
        return subprocess.CompletedProcess(command, 0, said, "")


@pytest.mark.parametrize("trial, right", [("trial on   7 of 8 calls replayed, 5 with kernels; results equal eager's", True),
                                          ("trial on   7 of 8 calls replayed; results equal eager's", False), ("", False)])
def test_parts_with_kernels(trial, right):
    rows = dict(matrix.parts(64))
    for name in KERNEL_PARTS:
        outcome = rows[name](Doctor(trial), 60)
        assert (outcome[0] > 0, outcome[1] == 0) == (right, right), name
    assert rows["rules"](Doctor(trial), 60) == (7, 0, [])


def test_rows_of_another_commit_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "RESULTS", tmp_path / "versions.json")
    pair = Doctor("7 of 8 calls replayed, 5 with kernels")
    old = {"right": 1, "wrong": 0, "names": [], "share": 64, "ended": True, "seconds": 1}
    args = types.SimpleNamespace(no_build=True, no_page=False, share=64, corpus=64, programs=None, only=["rules"], limit=60)
    matrix.save(pair.name(), {**pair.facts, "debian": False, "parts": {"oracle": old}, "commit": "another"})
    matrix.run_pair(pair, args)
    row = json.loads(matrix.RESULTS.read_text())[pair.name()]
    assert list(row["parts"]) == ["rules"] and row["commit"] != "another"
    matrix.run_pair(pair, types.SimpleNamespace(**{**vars(args), "only": ["seeds"]}))
    assert sorted(json.loads(matrix.RESULTS.read_text())[pair.name()]["parts"]) == ["rules", "seeds"]
