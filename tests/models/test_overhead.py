"""The benchmark's arithmetic, and one small run of it without any engine."""
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import overhead  # noqa: E402
import timing  # noqa: E402


def test_spread():
    assert timing.spread([]) is None
    assert timing.spread([4.0, 1.0, 2.0, 3.0, 5.0]) == {"median": 3.0, "q1": 2.0, "q3": 4.0, "min": 1.0, "n": 5}
    assert timing.spread([7.0])["q3"] == 7.0


def test_geomean_leaves_out_what_has_no_ratio():
    assert timing.geomean([2.0, 8.0]) == pytest.approx(4.0)
    assert timing.geomean([2.0, None, 0.0, -1.0, 8.0]) == pytest.approx(4.0)
    assert timing.geomean([]) is None


def test_interleave_takes_turns_in_rotating_order():
    order = []
    calls = {name: (lambda n: lambda: order.append(n))(name) for name in "abc"}
    samples = timing.interleave(calls, turns=3, warm=0)
    assert "".join(order) == "abcbcacab"
    assert all(len(values) == 3 for values in samples.values())
    assert timing.differences({"a": [5, 7], "b": [1, 2]}, "a", "b") == [4, 5]
    assert timing.differences(samples, "a", "missing") == []


def test_bytes_in_use_sees_an_allocation():
    before = timing.bytes_in_use()
    kept = bytearray(8 << 20)
    assert timing.bytes_in_use() - before >= 8 << 20
    del kept


def test_means_leave_out_models_that_do_not_replay():
    def row(steady, kintsugi):
        one = lambda v: {"median": v}  # noqa: E731
        return {"steady": {"kintsugi": steady, "stock": True},
                "added": {"kintsugi": one(kintsugi), "stock": one(100.0)},
                "call": {"eager": one(10.0), "kintsugi": one(5.0), "stock": one(20.0)}, "guards": {}}
    means = overhead.means([row(True, 10.0), row(False, 1e-9)])
    assert means["models"] == 1
    assert means["first call added, stock / kintsugi"] == pytest.approx(10.0)
    assert means["hit / eager, stock"] == pytest.approx(2.0)
    assert means["guards alone, stock / kintsugi"] is None


def test_runs_without_engines(tmp_path, capsys):
    import torch
    threads, grad = torch.get_num_threads(), torch.is_grad_enabled()
    try:
        path = tmp_path / "out.json"
        assert overhead.main(["mlp", "--quick", "--without", "stock", "--without", "kintsugi", "--json", str(path), "--docs",
                              str(tmp_path / "page.md")]) == 0
        assert "| mlp | " in (tmp_path / "page.md").read_text()
        (tmp_path / "page.md").unlink()
        assert overhead.main(["--report", str(path), "--docs", str(tmp_path / "page.md")]) == 0
        assert "| mlp | " in (tmp_path / "page.md").read_text()
    finally:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(grad)
    row, = json.loads(path.read_text())["rows"]
    assert row["model"] == "mlp" and row["call"]["eager"]["median"] > 0
    assert "mlp" in capsys.readouterr().out
