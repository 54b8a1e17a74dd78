"""Environment variables that are not set: answered from a fact, as long as the library's own code would answer."""
import os

import torch

import kintsugi


def ask(x):
    return x + 1, os.environ.get("KINTSUGI_TEST_UNSET", "default")


def steps(compiled):
    entries = kintsugi._api.engine_of(compiled).entries()
    return [step["kind"] for step in kintsugi._kintsugi.dump(entries[0])["steps"]]


def test_nothing_raises():
    compiled = kintsugi.compile(ask, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2))[1] == "default"
    assert "raise" not in steps(compiled) and "subscr" not in steps(compiled)
    assert kintsugi.stats(compiled)["recordings"] == 1


def test_set_and_deleted(monkeypatch):
    compiled = kintsugi.compile(ask, backend="eager")
    assert [compiled(torch.ones(2))[1] for _ in range(2)] == ["default"] * 2
    monkeypatch.setenv("KINTSUGI_TEST_UNSET", "set")
    assert [compiled(torch.ones(2))[1] for _ in range(3)] == ["set"] * 3
    monkeypatch.delenv("KINTSUGI_TEST_UNSET")
    assert [compiled(torch.ones(2))[1] for _ in range(3)] == ["default"] * 3


def test_other_encoder(monkeypatch):
    compiled = kintsugi.compile(ask, backend="eager")
    assert [compiled(torch.ones(2))[1] for _ in range(2)] == ["default"] * 2
    monkeypatch.setenv("KINTSUGI_TEST_ELSEWHERE", "found")
    monkeypatch.setattr(os.environ, "encodekey", lambda key: b"KINTSUGI_TEST_ELSEWHERE")
    assert [compiled(torch.ones(2))[1] for _ in range(3)] == ["found"] * 3
    fresh = kintsugi.compile(ask, backend="eager")
    assert [fresh(torch.ones(2))[1] for _ in range(3)] == ["found"] * 3


def test_other_lookup(monkeypatch):
    compiled = kintsugi.compile(ask, backend="eager")
    assert [compiled(torch.ones(2))[1] for _ in range(2)] == ["default"] * 2
    monkeypatch.setattr(type(os.environ), "__getitem__", lambda self, key: "other")
    assert [compiled(torch.ones(2))[1] for _ in range(3)] == ["other"] * 3
    monkeypatch.undo()
    assert [compiled(torch.ones(2))[1] for _ in range(3)] == ["default"] * 3


def test_other_code(monkeypatch):
    compiled = kintsugi.compile(ask, backend="eager")
    assert [compiled(torch.ones(2))[1] for _ in range(2)] == ["default"] * 2
    get = type(os.environ).get
    monkeypatch.setattr(get, "__code__", (lambda self, key, default=None: "new code").__code__)
    assert [compiled(torch.ones(2))[1] for _ in range(3)] == ["new code"] * 3
    monkeypatch.setattr(get, "__defaults__", ("unused",))
    assert compiled(torch.ones(2))[1] == "new code"
