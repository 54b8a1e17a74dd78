"""What is said of kernels in PyTorch's logs and of guards by explain(), and what kernels need of the machine: no compiler, no linker, no writable folder."""

import os
import subprocess
import sys

import torch

import kintsugi

PROGRAM = """
import os
import resource
import torch
import kintsugi

if "FILE_LIMIT" in os.environ:  # as on a full disk: what is written fails
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["FILE_LIMIT"]),) * 2)

torch.set_grad_enabled(False)

def fn(x, w):
    y = torch.softmax(x @ w, -1).cumsum(1).sort(1)[0]
    return y.t().contiguous().sum(0) * 2, y.mean()

compiled = kintsugi.compile(fn)
x, w = torch.randn(64, 64), torch.randn(64, 64)
for _ in range(3):
    for a, b in zip(compiled(x, w), fn(x, w)):
        torch.testing.assert_close(a, b)
events = kintsugi.events()
print([e["text"] for e in events if e["event"] == "fusion"])
assert "not fused with what it reads: a scan or a scatter has a kernel of its own" in str(kintsugi.explain(compiled)(x, w))
print("kernels", sum(e["kernels"] for e in events if e["event"] == "lower"))
print("cache", [e["reason"] for e in events if e["event"] == "cache"])
"""


def run(**env):
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False,
                          env=os.environ | {"KINTSUGI_KERNELS": "1"} | env)
    assert done.returncode == 0, done.stderr
    return done


def test_refused_fusions_have_reasons():
    done = run(TORCH_LOGS="fusion")
    for text in (done.stdout, done.stderr):
        assert "cumsum: not fused with what it reads: a scan or a scatter has a kernel of its own" in text
        assert "reduce_sum: not fused with what reads the same: reduces over other dimensions" in text
    assert "[__fusion] fn, graph 1: not fused:" in done.stderr
    assert "__fusion" not in run().stderr


def test_code_of_kernels():
    text = run(TORCH_LOGS="output_code", TORCHDYNAMO_VERBOSE="0").stderr
    assert "Output code of fn, graph 1:" in text and "extern" in text and "aten.sort.default" in text
    assert "phase 0: acc0 = reduce_max(%1)" in text and "fused_cumsum:" in text
    assert "define " not in text
    text = run(TORCH_LOGS="output_code", TORCHDYNAMO_VERBOSE="1").stderr
    assert "fused_cumsum:" in text and "define " in text and "fadd" in text


def test_no_tools_are_needed(tmp_path):
    """Neither compilers nor anything else is looked for: nothing is on PATH, no compiler is named, the cache is elsewhere."""
    empty = tmp_path / "empty"
    empty.mkdir()
    home = {"HOME": str(tmp_path), "KINTSUGI_CACHE_DIR": str(tmp_path / "kernels"), "PATH": str(empty), "CC": "", "CXX": ""}
    done = run(**home)
    assert int(done.stdout.split("kernels ")[1].split()[0]) >= 4 and "cache []" in done.stdout


def test_cache_folder_that_cannot_be_used(tmp_path):
    """A file where the folder should be, a folder inside a file, a device that is full: an event, and all goes on."""
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", "/dev/full/kernels", "/proc/1/kernels"):
        done = run(KINTSUGI_CACHE_DIR=str(folder))
        assert int(done.stdout.split("kernels ")[1].split()[0]) >= 4
        assert "cache []" not in done.stdout, folder
    assert (tmp_path / "file").read_text() == "in the way"


def test_disk_that_is_full(tmp_path):
    done = run(KINTSUGI_CACHE_DIR=str(tmp_path / "kernels"), FILE_LIMIT="100")
    assert int(done.stdout.split("kernels ")[1].split()[0]) >= 4 and "cache []" not in done.stdout
    done = run(KINTSUGI_CACHE_DIR=str(tmp_path / "kernels"))  # what is left there harms nobody
    assert "cache []" in done.stdout


def test_printed_guards_tell_the_user_s_own_from_those_of_libraries():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())

    def with_scale(x, scale):
        return model(x) * scale if scale > 1 else model(x)

    said = kintsugi.explain(with_scale)(torch.randn(2, 3), 3)
    text = str(said).partition("Out Guards: ")[2].partition("Frames:")[0]
    lines = text.splitlines()
    assert lines[0] == str(len(said.out_guards))
    assert any("return model(x) * scale if scale > 1" in line for line in lines)
    assert any("L['scale']" in line for line in lines)
    libraries = [line for line in lines if "needed by library code" in line]
    assert len(libraries) == 1 and not any("_forward_hooks" in line for line in lines if line.startswith("    "))
    shown = sum(line.startswith("    ") for line in lines)
    assert shown + int(libraries[0].split("torch ")[1].split()[0]) == len(said.out_guards)
