"""`kintsugi bench`: one model measured for real, and the reports of known numbers."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from kintsugi import cli
from kintsugi.bench import models, report


def times(median):
    return {"median": median, "low": median * 0.9, "high": median * 1.2, "n": 10}


def first(added, peak=2e9):
    return {"added": added, "setup": added / 4, "calls": [added, added], "eager": added / 2, "peak_bytes": peak, "eager_peak_bytes": 1e9}


RESULTS = {"machine": {"cpu": "a processor", "threads": 2, "torch": "2", "python": "3", "stock_headers": 10.0}, "models": {
    "one": {"times": {"eager": times(0.010), "kintsugi": times(0.005), "stock": times(0.008)}, "alone": True,
            "difference": {"kintsugi": 1e-6}, "kernels": 3,
            "first": {"kintsugi cold": first(0.1), "stock cold": first(5.0), "kintsugi warm": first(1.0), "stock warm": first(4.0)}},
    "two": {"times": {"eager": times(0.010), "kintsugi": times(0.0025), "stock": times(0.002), "copy": times(0.002)},
            "bytes": 1e6, "kernels": 0, "difference": {"kintsugi": 1e-3}, "errors": {"stock first": "no compiler"}},
    "three": {"error": "it failed"}}}


def test_ratios():
    r = report.ratios(RESULTS["models"]["one"])
    assert r["over_eager"] == pytest.approx(2) and r["over_stock"] == pytest.approx(1.6)
    assert r["over_best"] == pytest.approx(1.6) and r["first_cold"] == r["first_headers"] == pytest.approx(50)
    assert report.ratios(RESULTS["models"]["one"], 10.0)["first_cold"] == pytest.approx(150)
    two = report.ratios(RESULTS["models"]["two"])
    assert two["over_best"] == pytest.approx(0.8) and two["copy"] == pytest.approx(0.8) and two["first_cold"] is None


def test_misses():
    one, two, three = RESULTS["models"].values()
    assert report.misses(one) == ["warm", "noise"]
    assert report.misses(two) == ["stock", "copy", "digits", "kernels", "noise"]
    assert report.misses(three) == []
    assert report.misses(one | {"first": {"kintsugi cold": first(1.1)}}) == ["six", "noise"]
    assert report.misses(one | {"first": {"kintsugi cold": first(1.4)}}) == ["first", "six", "noise"]
    assert report.alone(one["first"], "kintsugi cold") == pytest.approx(0.075) and report.alone({}, "kintsugi cold") is None
    assert "eager" in report.misses(one | {"times": {"eager": times(1.0), "kintsugi": times(1.1)}})
    assert "digits" in report.misses(one | {"difference": {"kintsugi": float("nan")}})
    assert set(report.misses(one) + report.misses(two)) <= set(report.TARGETS)


def test_table():
    lines = report.table(RESULTS).splitlines()
    assert set(lines.pop(1)) == {"─"}  # below the head
    assert [line.split()[0] for line in lines[:5]] == ["model", "one", "two", "three", "geomean"]
    assert "2.00x" in lines[1] and "150x" in lines[4] and "it failed" in lines[3]
    assert "2.83x" in lines[4]  # of 2 and 4
    assert "two: stock first: no compiler" in lines and any("kintsugi 0.4" in line for line in lines)


def test_page(tmp_path):
    report.write_docs(RESULTS, tmp_path)
    text = (tmp_path / "bench.md").read_text()
    assert "a processor, 2 threads" in text and "* three: it failed" in text and "+15.0" in text
    assert f"* {report.TARGETS['warm']}: missed by **1** of 1 rows (one)" in text
    assert f"* {report.TARGETS['eager']}: reached by all 2 rows" in text
    assert f"* {report.TARGETS['copy']}: not measured" in report.page({**RESULTS, "models": {"one": RESULTS["models"]["one"]}})
    assert all((tmp_path / f"bench-{kind}.svg").exists() and f"bench-{kind}.svg" in text for kind in report.PICTURES)


@pytest.mark.parametrize("kind", report.PICTURES)
def test_pictures_are_well_formed(kind):
    root = ElementTree.fromstring(report.picture(RESULTS, kind))
    texts = [node.text for node in root.iter() if node.text and node.text.strip()]
    wanted = {"speed": "4.00x", "first": "0.10 s", "memory": "2.00x"}[kind]
    assert "one" in texts and wanted in texts and "three" not in texts
    ElementTree.fromstring(report.picture({"machine": {}, "models": {}}, kind))


def test_unknown_model(capsys):
    assert cli.main(["bench", "no-such-model"]) == 2
    assert "no-such-model" in capsys.readouterr().err
    with pytest.raises(KeyError, match="resnet18"):
        models.find(["nothing"])


def test_patterns():
    assert [entry.name for entry in models.find(["bert-*", "mlp", "bert-4"])] == ["bert-4", "bert-12", "bert-4-b8", "bert-12-b8", "mlp"]
    assert models.find([]) == [entry for entry in models.ENTRIES if not entry.more] and len(models.find(["*"])) == len(models.ENTRIES)
    assert len({entry.name for entry in models.ENTRIES}) == len(models.ENTRIES)


def test_every_model_has_a_row_with_batch_8():
    names = {entry.name for entry in models.ENTRIES}
    without = {"physics", "foo3", "two-ops"}  # programs on numbers that are no batch
    assert {name for name in names if not name.endswith("-b8")} - without == {name[:-3] for name in names if name.endswith("-b8")}
    assert [entry.name for entry in models.ENTRIES if entry.more] == ["whisper-tiny-b8"]  # minutes, for eager and stock


def test_a_model_is_measured(tmp_path, capsys):
    path = tmp_path / "out.json"
    command = ["bench", "mlp", "--no-stock", "--seconds", "0.1", "--threads", "1", "--json", str(path)]
    assert cli.main(command) == 0
    row = json.loads(path.read_text())["models"]["mlp"]
    assert "error" not in row and not row["errors"], row
    assert row["times"]["eager"]["median"] > 0 and row["times"]["kintsugi"]["median"] > 0
    assert row["difference"]["kintsugi"] < 1e-4
    assert row["stats"]["replays"] > 8 and row["first"]["kintsugi cold"]["added"] >= 0
    assert row["first"]["kintsugi warm"]["peak_bytes"] > 0 and row["alone"]
    assert "mlp" in capsys.readouterr().out
    before = row["times"]
    assert cli.main([*command, "--resume", "--docs", str(tmp_path)]) == 0
    assert json.loads(path.read_text())["models"]["mlp"]["times"] == before and "mlp" in (tmp_path / "bench.md").read_text()


def test_profile(capsys, monkeypatch):
    monkeypatch.setenv("KINTSUGI_KERNELS", "1")
    assert cli.main(["bench", "mlp", "--profile", "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mlp: ") and " ms a call, 1 launches of " in lines[0]
    assert any(" kernel " in line or " call " in line for line in lines[1:])
    assert sum(float(line.split()[0]) for line in lines[1:]) > 0


def test_what_fails_is_part_of_the_row(tmp_path):
    path = tmp_path / "out.json"
    assert cli.main(["bench", "--rows", "mlp,two-ops", "--no-stock", "--timeout", "0.1", "--minutes", "0.000001", "--json",
                     str(path)]) == 0
    rows = json.loads(path.read_text())["models"]
    assert "took more than" in rows["mlp"]["error"] or "not measured" in rows["mlp"]["error"]
    assert rows["two-ops"]["error"] == "not measured, the time was over"


def test_page_shows_the_run_with_mkls_best_code(tmp_path):
    faster = {"one": RESULTS["models"]["one"] | {"times": {"eager": times(0.006), "kintsugi": times(0.005), "stock": times(0.0055)}}}
    (tmp_path / "second.json").write_text(json.dumps(RESULTS | {"models": faster}))
    report.write_docs(RESULTS, tmp_path, tmp_path / "second.json")
    text = (tmp_path / "bench.md").read_text()
    assert "| one | 2.00x | 1.20x | 1.60x | 1.10x |" in text
    report.write_docs(RESULTS, tmp_path, tmp_path / "missing.json")
    assert "MKL's best" not in (tmp_path / "bench.md").read_text()


def test_mkl_library_answers_what_intels_processors_do(tmp_path):
    import ctypes

    from kintsugi import bench

    assert ctypes.CDLL(bench._mkl_library(str(tmp_path))).mkl_serv_intel_cpu_true() == 1
