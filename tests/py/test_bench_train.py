"""`kintsugi bench --train`: what it measures, and the page it writes."""
import pytest
import torch

pytest.importorskip("kintsugi")
from kintsugi.bench import training  # noqa: E402


@pytest.fixture
def small(monkeypatch):
    def row(torch, nn):
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4))
        return model, (torch.randn(12, 8), torch.randint(0, 4, (12,))), lambda m, x, t: nn.functional.cross_entropy(m(x), t)
    monkeypatch.setitem(training.ROWS, "small", row)
    return "small"


def test_losses_of_both_are_compared(small):
    row = training._steps({"model": small, "steps": 8})
    assert len(row["losses"]["eager"]) == 8 and len(set(row["losses"]["eager"])) == 8
    for engine in ("kintsugi", "whole"):
        assert row[engine]["loss"] < 1e-4 and row[engine]["gradients"] < 1e-4 and row[engine]["ms"] > 0
    assert row["buffers"] < 1e-4 and 0 < row["referee"]["eager"] < 1e-3


def test_memory_of_a_step(small):
    found = training._memory({"model": small, "engine": "eager"})
    assert found["peak"] >= found["between"] * 0.5 > 0


def test_the_page_is_written_around_what_people_wrote(tmp_path, small):
    page = tmp_path / "training.md"
    page.write_text(f"before\n{training.MARKS[0]}\nstale\n{training.MARKS[1]}\nbehind\n")
    rows = {"small": {"steps": training._steps({"model": small, "steps": 6}), "memory": {}}, "broken": {"steps": {"error": "no"}}}
    training.write_docs(rows, "about this", tmp_path)
    told = training.tell("small", rows["small"]).splitlines()
    assert told[0] == "small" and "compiled whole step, times as fast" in told[3] and told[3].endswith("x") and not any("memory" in line for line in told)  # it was not measured
    assert training.tell("broken", rows["broken"]) == "broken: failed: no"
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nbehind\n") and "stale" not in text and "| small |" in text and "failed: no" in text
    assert (tmp_path / "training-loss.svg").read_text().count("polyline") == 3


def test_unknown_rows_are_told(capsys):
    import argparse

    options = argparse.Namespace(models=["nothing"], threads=1, quick=True)
    assert training.main(options) == 2 and "no row 'nothing'" in capsys.readouterr().err
    assert torch.is_grad_enabled()
