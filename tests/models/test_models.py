"""A small part of the model list for `make test`, and the proof that the runner sees wrong results."""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "bench")]

import run_models  # noqa: E402

EVAL = ["mlp", "lstm_cell_loop", "cnn", "breaks", "vit", "bert", "gpt2"]
TRAIN = ["mlp", "cnn", "gpt2"]
ONE_GRAPH = {"mlp", "lstm_cell_loop", "cnn", "vit", "bert", "gpt2"}   # whole and replayed whole, in eval mode


# Classes of models that once broke or differed: chunks with assertions, placeholders for images, distributions that validate, gather by mask.
FAMILIES = ["longformer", "llava", "time_series_transformer", "detr", "wav2vec2", "layoutlm"]


def verdict(name, mode, engine, fork=True):
    if needs := run_models.missing(name):
        pytest.skip(f"{name} is made with {needs}, which is not installed")
    row, = run_models.run_list([name], engine, (mode,), fork=fork)
    return row


@pytest.mark.parametrize("mode, name", [("eval", n) for n in EVAL] + [("train", n) for n in TRAIN])
def test_model_is_right(mode, name):
    pytest.importorskip("kintsugi._kintsugi", reason="the extension is not built", exc_type=ImportError)
    row = verdict(name, mode, "kintsugi")
    assert row["verdict"] in ("ok", "not replayed"), row["detail"]
    if mode == "eval" and name in ONE_GRAPH:
        assert (row["graphs"], row["breaks"], row["whole"]) == (1, 0, row["replays"]), row["reasons"]


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", FAMILIES)
def test_family_is_right(mode, name):
    pytest.importorskip("kintsugi._kintsugi", reason="the extension is not built", exc_type=ImportError)
    row = verdict(name, mode, "kintsugi")
    assert row["verdict"] in ("ok", "not replayed"), row["detail"]
    families = run_models.families
    expected = name in families.BREAKS or (mode == "train" and name in families.BREAKS_IN_TRAINING)
    assert (row["breaks"] > 0) == expected, row["reasons"]


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", sorted(run_models.architectures.ROWS))
def test_architecture_is_right(mode, name):
    pytest.importorskip("kintsugi._kintsugi", reason="the extension is not built", exc_type=ImportError)
    row = verdict(name, mode, "kintsugi", fork=False)
    assert row["verdict"] in ("ok", "not replayed"), row["detail"]
    assert (row["breaks"] > 0) == (name in run_models.architectures.BREAKS), row["reasons"]


def test_families_cover_many_tasks():
    assert len(run_models.families.FAMILIES) >= 60
    assert len({task for task, *_ in run_models.families.FAMILIES.values()}) >= 8
    assert {*run_models.families.BREAKS, *run_models.families.BREAKS_IN_TRAINING} <= set(run_models.families.FAMILIES)


@pytest.mark.parametrize("mode, name", [("eval", "mlp"), ("eval", "breaks"), ("train", "mlp"), ("train", "cnn")])
def test_eager_equals_itself(mode, name):
    row = verdict(name, mode, "eager", fork=False)
    assert row["verdict"] == "ok", row["detail"]
    assert row["tensors"] >= 3


@pytest.mark.parametrize("engine, mode, name, at", [
    ("stale", "eval", "mlp", "call 1"), ("stale", "eval", "lstm_cell_loop", "call 1"),
    ("ulp", "eval", "mlp", "call 1"), ("ulp", "train", "mlp", "step 1"),
    ("skip_state", "train", "cnn", "step 1")])
def test_wrong_engine_is_seen(engine, mode, name, at):
    row = verdict(name, mode, engine, fork=False)
    assert row["verdict"] == "wrong"
    assert row["detail"].startswith(at)
    assert run_models.exit_status([row]) == 1


def test_stale_training_is_seen():
    """A stale loss has no graph any more: backward raises, and that is a bad row, not a crash of the runner."""
    row = verdict("mlp", "train", "stale", fork=False)
    assert row["verdict"] in ("wrong", "raised")
    assert run_models.exit_status([row]) == 1


def test_crash_and_hang_cost_one_row(monkeypatch):
    import os
    import signal
    import time
    monkeypatch.setattr(run_models, "check", lambda *a: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(5))
    assert verdict("mlp", "eval", "eager")["verdict"] == "crashed"
    monkeypatch.setattr(run_models, "check", lambda *a: time.sleep(60))
    row = run_models.run_forked(run_models.models.find(["mlp"])[0], "eager", False, None, 0.2)
    assert row["verdict"] == "hung"
