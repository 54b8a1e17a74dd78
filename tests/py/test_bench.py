"""`kintsugi bench`: one model measured for real, and the reports of known numbers."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from kintsugi import cli
from kintsugi.bench import models, report


def times(median):
    return {"median": median, "low": median * 0.9, "high": median * 1.2, "n": 10}


RESULTS = {"machine": {}, "models": {
    "one": {"times": {"eager": times(0.010), "kintsugi": times(0.005), "stock": times(0.008)},
            "difference": {"kintsugi": 1e-6},
            "first": {"kintsugi cold": {"added": 0.1}, "stock cold": {"added": 5.0}}},
    "two": {"times": {"eager": times(0.010), "kintsugi": times(0.0025), "stock": times(0.020)},
            "difference": {"kintsugi": 0.0}},
    "three": {"error": "it failed"}}}


def test_ratios():
    r = report.ratios(RESULTS["models"]["one"])
    assert r["over_eager"] == pytest.approx(2) and r["over_stock"] == pytest.approx(1.6)
    assert r["over_best"] == pytest.approx(1.6) and r["first_cold"] == pytest.approx(50)
    assert report.ratios(RESULTS["models"]["two"])["over_best"] == pytest.approx(4)


def test_table():
    lines = report.table(RESULTS).splitlines()
    assert [line.split()[0] for line in lines] == ["model", "one", "two", "three", "geomean"]
    assert "2.00x" in lines[1] and "50x" in lines[4] and "it failed" in lines[3]
    assert "2.83x" in lines[4]  # of 2 and 4


def test_picture_is_well_formed():
    root = ElementTree.fromstring(report.svg(RESULTS))
    texts = [node.text for node in root.iter() if node.text and node.text.strip()]
    assert "one" in texts and "4.00x" in texts and "three" not in texts


def test_unknown_model(capsys):
    assert cli.main(["bench", "no-such-model"]) == 2
    assert "no-such-model" in capsys.readouterr().err
    with pytest.raises(KeyError, match="resnet18"):
        models.find(["nothing"])


def test_a_model_is_measured(tmp_path, capsys):
    path = tmp_path / "out.json"
    assert cli.main(["bench", "mlp", "--no-stock", "--seconds", "0.1", "--threads", "1", "--json", str(path)]) == 0
    row = json.loads(path.read_text())["models"]["mlp"]
    assert "error" not in row, row
    assert row["times"]["eager"]["median"] > 0 and row["times"]["kintsugi"]["median"] > 0
    assert row["difference"]["kintsugi"] < 1e-4
    assert row["stats"]["replays"] > 8 and row["first"]["kintsugi cold"]["added"] >= 0
    assert "mlp" in capsys.readouterr().out
