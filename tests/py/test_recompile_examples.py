"""The examples of docs/recompiles: each recompiles, what is told names the value and the line, and the remedy works."""

import pathlib
import sys

import pytest
import torch

import kintsugi
from kintsugi import _kintsugi as engine

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import recompiles  # noqa: E402

EXAMPLES = recompiles.load()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.__name__)
def test_told_and_mended(example):
    engine.reset()
    row = recompiles.under_kintsugi(example)
    assert row["recompiles"] > 0 and row["better"] == 0
    assert any(example.told in line for line in row["told"]), row
    assert all(" -> " in line and not line.endswith("-> ") for line in row["told"]), row
    if getattr(example, "line", True):
        assert set(row["lines"]) == {recompiles.marked_line(example)}
    assert row["hints"] and "keep it the same from call to call" not in row["hints"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.__name__)
def test_as_eager(example):
    compiled = kintsugi.compile(recompiles.part(example, "fn"))
    around = getattr(example, "around", None)
    ours, theirs = recompiles.run(compiled, example.calls, around)[0], recompiles.run(recompiles.part(example, "fn"), example.calls, around)[0]
    torch.testing.assert_close(ours, theirs)
    assert sum(variant["cause"] is not None for variant in kintsugi.stats(compiled)["variants"]) == kintsugi.stats(compiled)["recordings"] - 1


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.__name__)
def test_an_error_where_that_is_asked_for(example):
    import torch._dynamo

    kintsugi.install()
    try:
        compiled, around = torch.compile(recompiles.part(example, "fn")), getattr(example, "around", None)
        with torch._dynamo.config.patch(error_on_recompile=True), pytest.raises(torch._dynamo.exc.RecompileError, match="guard failure"):
            recompiles.run(compiled, example.calls, around)
        with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="fail_on_recompile"):
            recompiles.run(compiled, example.calls, around)
    finally:
        kintsugi.uninstall()
