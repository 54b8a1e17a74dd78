"""Kernels on disk and in the background: where they come from, what is said when they cannot be had, and that results are
right in every case."""

import itertools
import json
import os
import stat
import subprocess
import sys
import tarfile
import time

import pytest
import torch

from launches import engine, kintsugi, versions
from kintsugi import cache, cli

sizes = itertools.count(1003)  # kernels stay in memory: each test wants ones of its own
started = -1  # the event before the test


@pytest.fixture(autouse=True)
def folder(tmp_path):
    global started
    kintsugi.reset()
    started = now()
    engine.set_option("trials", 0)
    with kintsugi.config.patch(kernels=True, cache_dir=str(tmp_path / "kernels")):
        yield tmp_path / "kernels"
    engine._set_fault("")
    engine.set_option("trials", 7)
    kintsugi.reset()


def program(x):
    y = torch.exp(x) * x.shape[0]  # another kernel for each size: the length alone makes none
    return y / (y + 1.0)


def run(size, calls=3, **kwargs):
    """A compiled function called on tensors of that size; its versions."""
    compiled = kintsugi.compile(program, **kwargs)
    for i in range(calls):
        x = torch.linspace(-3, 3, size) + i
        torch.testing.assert_close(compiled(x), program(x))
    return versions(compiled)


def change(before, *names):
    after = engine.kernel_totals()
    return [after[name] - before[name] for name in names]


def now():
    return max((e["seq"] for e in kintsugi.events()), default=-1)


def events(kind):
    return [e for e in kintsugi.events() if e["event"] == kind and e["seq"] > started]


def test_kernels_are_written_and_the_event_says_that_they_were_missed(folder):
    before, size = engine.kernel_totals(), next(sizes)
    assert [v["compiled"] for v in run(size)] == [True]
    assert change(before, "compiled", "from_disk") == [1, 0]
    assert events("lower")[0]["cache"] == "1 not in the cache"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kernel, = folder.glob("*/*.kernel")
    text = kernel.with_suffix(".txt").read_text()
    assert text.startswith(engine.kernel_totals()["target"]) and "= exp %" in text
    assert stat.S_IMODE(kernel.stat().st_mode) == 0o600
    kintsugi.reset()
    run(size)
    assert change(before, "compiled", "from_memory") == [1, 1]
    assert "not in the cache" in cache.stats()["missed"] and cache.stats()["folder"] == str(folder)


def test_code_for_one_length_serves_others():
    def rows(x):
        return torch.softmax(x * 3, -1) + torch.nn.functional.layer_norm(x.sin(), (320,))

    before = engine.kernel_totals()
    for n in (40, 64, 57, 1000, 2, 17):
        compiled = kintsugi.compile(rows, dynamic=False)
        for _ in range(3):
            x = torch.randn(n, 320)
            torch.testing.assert_close(compiled(x), rows(x))
        if n == 40:
            first = change(before, "compiled")
    assert first[0] >= 1 and change(before, "compiled") == first


def test_a_folder_that_cannot_be_used_is_an_event(tmp_path):
    (tmp_path / "file").write_text("")
    for path, reason in ((tmp_path / "file" / "below", "Not a directory"), (tmp_path / "open", "others may write to it")):
        if path.name == "open":
            path.mkdir()
            path.chmod(0o777)
        with kintsugi.config.patch(cache_dir=path):
            assert [v["compiled"] for v in run(next(sizes))] == [True]
        said = [e for e in events("cache") if e["path"] == str(path)]
        assert said and reason in said[0]["reason"]
    assert not list((tmp_path / "open").iterdir())


def test_no_cache(tmp_path):
    with kintsugi.config.patch(cache_dir=None):
        assert [v["compiled"] for v in run(next(sizes))] == [True]
        with pytest.raises(cache.CacheError, match="cache_dir is None"):
            cache.info()
    assert not (tmp_path / "kernels").exists()


@pytest.mark.parametrize("fault, reason", [("llvm", "LLVM: failed for a test"), ("memory", "out of memory"),
                                           ("fatal", "LLVM: failed fatally for a test")])
def test_compilation_fails(fault, reason):
    assert engine._set_fault(fault)
    version, = run(next(sizes))
    assert not version["compiled"] and reason in version["reason"]
    assert any(reason in e["reason"] for e in events("fallback"))


def test_llvm_without_memory(tmp_path):
    program = """
import kintsugi, torch
from kintsugi import _kintsugi as engine
torch.set_grad_enabled(False)
engine.set_option("trials", 0)
assert engine._set_fault("llvm memory")
reasons = []
for fault in ("llvm memory", ""):
    assert engine._set_fault(fault)
    compiled = kintsugi.compile(lambda x: (x + 1) * 2)
    x = torch.arange(3.0)
    assert all(torch.equal(compiled(x), (x + 1) * 2) for i in range(3))
    reasons += [e["reason"] for e in kintsugi.events() if e["event"] == "fallback"][-1:]
assert len(reasons) == 2 and all("no memory" in r for r in reasons), reasons
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                          env=os.environ | {"KINTSUGI_KERNELS": "1", "KINTSUGI_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr


def test_info_export_clear_import(folder, tmp_path, capsys):
    for _ in range(3):
        run(next(sizes))
    info = cache.info()
    assert info["kernels"] == 3 and info["bytes"] > 3000 and info["folder"] == str(folder)
    assert info["processors"] == {engine.kernel_totals()["target"].split("\n")[0]: 3}
    files = {path.relative_to(folder): path.read_bytes() for path in folder.glob("*/*")}
    archive = str(tmp_path / "archive")
    assert cli.main(["cache", "export", archive]) == 0
    assert cli.main(["cache", "clear"]) == 0
    assert not list(folder.iterdir())
    assert cli.main(["cache", "import", archive]) == 0
    assert {path.relative_to(folder): path.read_bytes() for path in folder.glob("*/*")} == files
    assert cli.main(["cache", "info"]) == 0
    said = capsys.readouterr().out
    assert "3 kernels written" in said and "3 kernels removed" in said and "3 kernels added" in said
    assert "kernels               3\n" in said.replace("\r", "") and "compiled for" in said


@pytest.mark.parametrize("name", ["../escaped.kernel", "/tmp.kernel", "a/b.kernel", "0" * 32 + "/" + "0" * 16 + ".kernel"])
def test_archives_of_something_else(folder, tmp_path, name):
    (tmp_path / "x").write_text("something else")
    with tarfile.open(tmp_path / "archive", "w") as archive:
        archive.add(tmp_path / "x", arcname=name)
    with pytest.raises(cache.CacheError, match="is not a kernel"):
        cache.import_from(tmp_path / "archive")
    with pytest.raises(cache.CacheError):
        cache.import_from(tmp_path / "x")
    assert not list(folder.glob("*/*"))
    assert cli.main(["cache", "import", str(tmp_path / "nowhere")]) == 1


CHILD = """
import json, os, sys, torch, kintsugi
from kintsugi import _kintsugi as engine
kintsugi.config.kernels = True
compiled = kintsugi.compile(lambda x: torch.exp(x) * 2.0 + torch.softmax(x, -1))
x = torch.linspace(-3, 3, 77 * 5).reshape(5, 77)
for i in range(3):
    torch.testing.assert_close(compiled(x), torch.exp(x) * 2.0 + torch.softmax(x, -1))
engine_events = kintsugi.events()
print(json.dumps([engine.kernel_totals(), [e for e in engine_events if e["event"] in ("cache", "fallback")]]))
"""


def start(folder, code=CHILD, **more):
    environment = {"KINTSUGI_CACHE_DIR": str(folder), "PATH": "", "HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def finish(child):
    out, err = child.communicate(timeout=100)
    assert child.returncode == 0, out + err
    return json.loads(out.splitlines()[-1])


def test_processes_share_kernels_without_any_compiler_at_hand(folder):
    for totals, said in map(finish, [start(folder), start(folder)]):
        assert totals["kernels"] > 0 and not said
    totals, said = finish(start(folder))
    assert totals["compiled"] == 0 and totals["from_disk"] > 0 and totals["missed"] == "" and not said
    assert totals["llvm_ns"] == totals["codegen_ns"] == 0
    kernels = list(folder.glob("*/*.kernel"))
    for path in kernels:
        path.write_bytes(path.read_bytes()[:-100])
    totals, said = finish(start(folder))
    assert totals["compiled"] == len(kernels) and "damaged in the cache" in totals["missed"]
    assert "damaged" in said[0]["reason"] and len(list(folder.glob("*/*.kernel"))) == len(kernels)


def test_compilation_in_the_background():
    compiled = kintsugi.compile(program, options={"async": True})
    x = torch.linspace(-3, 3, next(sizes))
    before, seen = engine.kernel_totals(), set()
    for _ in range(500):
        torch.testing.assert_close(compiled(x), program(x))
        seen |= {(v["compiled"], v["reason"]) for v in versions(compiled)}
        if (True, "") in seen:
            break
        time.sleep(0.01)
    assert seen == {(False, "kernels are still being compiled in the background"), (True, "")}
    assert change(before, "compiled")[0] >= 1
    torch.testing.assert_close(compiled(x - 1), program(x - 1))


def test_compilation_in_the_background_fails():
    engine._set_fault("llvm")
    compiled = kintsugi.compile(program, options={"async": True})
    x = torch.linspace(-3, 3, next(sizes))
    for _ in range(500):
        torch.testing.assert_close(compiled(x), program(x))
        said = events("fallback")
        if said:
            break
        time.sleep(0.01)
    assert "LLVM: failed for a test" in said[0]["reason"]
    assert [v["compiled"] for v in versions(compiled)] == [False]


BUSY = """
import os, sys, time, torch, kintsugi
def make(n):
    return kintsugi.compile(lambda x: torch.exp(x) * 2.0 + torch.softmax(x, -1) + n, options={"kernels": True, "async": True})
x = torch.linspace(-3, 3, 77 * 5).reshape(5, 77)
many = [make(float(n)) for n in range(40)]
for f in many:
    f(x), f(x)
if os.fork() == 0:  # nobody compiles there; calls go on all the same
    from kintsugi import _kintsugi as engine
    fresh = make(1000.0)
    done, end = [], time.monotonic() + 60
    while time.monotonic() < end and not (done and all(done)):
        fresh(x), many[-1](x)
        time.sleep(0.005)
        done = [v["compiled"] for f in (fresh, many[-1]) for r in f.entries() for u in engine.kernels(r) for v in u["versions"]]
    os._exit(0 if done and all(done) else 3)
status = os.waitstatus_to_exitcode(os.wait()[1])
for n in range(40):
    make(2000.0 + n)(x)
    f = make(3000.0 + n)
    f(x), f(x)
print(status)
"""


def test_the_end_and_a_fork_while_kernels_are_compiled(folder):
    assert finish(start(folder, BUSY)) == 0


def test_options():
    assert [v["compiled"] for v in run(next(sizes), options={"kernels": True, "freezing": False})] == [True]
    assert run(next(sizes), options={"kernels": False}) == []
    with kintsugi.config.patch(kernels=False):
        assert [v["compiled"] for v in run(next(sizes), options={"kernels": True})] == [True]
        assert run(next(sizes)) == []
    with pytest.raises(RuntimeError, match="Unexpected optimization option speed, known options are async, cuda_graphs, fast_math, freezing, kernels, threads"):
        kintsugi.compile(program, options={"speed": True})
    with pytest.raises(TypeError, match="expected True or False"):
        kintsugi.compile(program, options={"async": "yes"})
    kintsugi.compile(program, options={"max_autotune": True})  # a script that was written for stock
    kintsugi.compile(program, backend=lambda gm, inputs: gm, options={"speed": True})
