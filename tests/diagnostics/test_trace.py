"""TORCH_TRACE: what PyTorch's tlparse needs of each recording and of each compiled graph."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys

import diagnosed as programs
import pytest

FAILING = "import torch\n\n\n@torch.compile(fullgraph=True)\ndef f(x):\n    if x.sum() > 0:\n        x = x * 2\n    return x\n\n\nf(torch.ones(3))\n"


def _trace(tmp_path, text, **environment):
    (tmp_path / "script.py").write_text(text)
    code = ("from kintsugi._engine import engine\nimport kintsugi, runpy\nengine.set_option('trials', 0)\nkintsugi.config.step_aside = kintsugi.config.async_compile = False\n"
            "kintsugi.install()\nrunpy.run_path('script.py', run_name='__main__')")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "TORCH_TRACE": str(tmp_path / "trace"), "KINTSUGI_KERNELS": "1", **environment})
    log, = (tmp_path / "trace").iterdir()
    records = []
    for line in log.read_text().splitlines():
        if not line.startswith("\t"):
            records.append(json.loads(line[line.index("{"):]))
    return log, records, done


def _payloads(log, name):
    """What follows the records of that name: JSON."""
    found, lines = [], log.read_text().splitlines()
    for at, line in enumerate(lines):
        if f'{{"{name}": ' in line:
            rest = itertools.takewhile(lambda line: line.startswith("\t"), lines[at + 1:])
            found.append(json.loads("\n".join(line[1:] for line in rest)))
    return found


def _of(records, ids, name):
    frame, compile_id, attempt = ids
    return [record[name] for record in records if name in record and
            (record.get("frame_id"), record.get("frame_compile_id"), record.get("attempt", 0)) == (frame, compile_id, attempt)]


def test_each_graph_has_an_id_with_its_times(tmp_path):
    text = programs.ORIGIN.replace("torch.compile(decide)(*example_inputs())", "f = torch.compile(decide)\n    with torch.no_grad():\n        for _ in range(4):\n            f(*example_inputs())")
    log, records, done = _trace(tmp_path, text)
    assert done.returncode == 0, done.stderr
    for graph in (1,):  # the second one is a single call, which is not compiled
        metrics, = _of(records, (0, 0, graph), "compilation_metrics")
        assert metrics["co_name"] == f"decide, graph {graph}" and metrics["backend_compile_time_s"] > 0 and metrics["graph_op_count"] >= 1
        assert len(_of(records, (0, 0, graph), "aot_inference_graph")) == len(_of(records, (0, 0, graph), "inductor_output_code")) == 1
        assert _of(records, (0, 0, graph), "dynamo_start")[0]["stack"][-1]["line"] in (5, 6, 9)
    spans = _payloads(log, "chromium_event")
    assert [span["name"] for span in spans] == ["record decide", "compile graph 1 of decide"] and all(span["ph"] == "X" and span["ts"] > 0 and span["dur"] > 0 for span in spans)
    assert spans[1]["dur"] == pytest.approx(metrics["backend_compile_time_s"] * 1e6) and spans[0]["ts"] + spans[0]["dur"] <= spans[1]["ts"]
    _rendered(tmp_path, log, "-_0_0_1/aot_inference_graph", "Data-dependent branching")
    picture = tmp_path / "out" / "chromium_events.json"
    assert not picture.exists() or [span["name"] for span in json.loads(picture.read_text())] == [span["name"] for span in spans]


def test_the_code_of_each_part_is_written_once(tmp_path):
    text = """import torch


@torch.compile
def f(x):
    for k, change in enumerate((torch.tanh, torch.cos, torch.erf)):
        x = change(x.sin() + k) * 2
        print(len(x))
    return x


for _ in range(4):
    f(torch.ones(10))
"""
    _, records, done = _trace(tmp_path, text)
    assert done.returncode == 0, done.stderr
    codes = [(line["attempt"], line["has_payload"]) for line in records if "inductor_output_code" in line and line.get("attempt")]
    assert codes and len(codes) == len(set(codes))


def test_a_refusal_names_its_reason_and_line(tmp_path):
    log, records, done = _trace(tmp_path, FAILING)
    assert done.returncode == 1 and "Data-dependent branching" in done.stderr
    metrics, = _of(records, (0, 0, 0), "compilation_metrics")
    assert metrics["fail_type"] == "torch._dynamo.exc.Unsupported" and metrics["fail_user_frame_lineno"] == 6 and metrics["fail_reason"].startswith("Data-dependent branching at ")
    _rendered(tmp_path, log, "-_0_0_0/dynamo_graph_break_reason", "script.py:6")


ONCE = """import torch


@torch.library.custom_op("own::shout", mutates_args=())
def shout(x: torch.Tensor) -> torch.Tensor:
    print("shout")
    return x + 1


@shout.register_fake
def _(x):
    return torch.empty_like(x)


model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU())
torch.compile(model)(torch.ones(2, 4))
torch.compile(lambda x: shout(x.sin() + 1))(torch.ones(3))
"""


@pytest.mark.compiled_gradients
def test_graphs_that_ran_once_have_code_too(tmp_path):
    """Stock compiles in the first call. An operator of the program's own is not run once more for that."""
    log, records, done = _trace(tmp_path, ONCE)
    assert done.returncode == 0 and done.stdout == "shout\n", done
    for name in ("aot_joint_graph", "aot_forward_graph", "aot_backward_graph", "inductor_output_code"):
        assert len(_of(records, (0, 0, 1), name)) == 1, name
    assert not _of(records, (0, 0, 1), "aot_inference_graph")
    missing, = [record["artifact"] for record in _of_all(records, 1, 0, 1) if "artifact" in record]
    assert missing["name"] == "kintsugi_no_output_code"
    assert "is no operator of PyTorch's" in log.read_text()


def test_a_graph_that_reads_a_number_has_code_when_the_program_ends(tmp_path):
    text = "import torch\n\n\n@torch.compile\ndef f(x):\n    return torch.softmax(x * float(x.mean()), -1) * 2\n\n\nf(torch.ones(4, 7))\n"
    _, records, done = _trace(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert len(_of(records, (0, 0, 1), "inductor_output_code")) == 1 and not _of(records, (0, 0, 1), "artifact")


def test_code_for_varying_sizes_is_there_when_the_program_ends(tmp_path):
    text = "import torch\n\n\n@torch.compile\ndef f(x):\n    return (torch.softmax(x, -1) * 2).sum(0)\n\n\nfor n in (3, 4, 5, 6):\n    f(torch.ones(n, 7))\n"
    _, records, done = _trace(tmp_path, text, KINTSUGI_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    graphs = {(record["frame_id"], record["frame_compile_id"]) for record in records if "dynamo_output_graph" in record}
    codes = {(record["frame_id"], record["frame_compile_id"]) for record in records if "inductor_output_code" in record}
    assert graphs and graphs == codes


def _of_all(records, *ids):
    return [record for record in records if (record.get("frame_id"), record.get("frame_compile_id"), record.get("attempt", 0)) == ids]


def _rendered(tmp_path, log, file, text):
    """By tlparse, where that is installed: all records understood."""
    tlparse = shutil.which("tlparse")
    if tlparse is None:
        return
    done = subprocess.run([tlparse, str(log), "-o", str(tmp_path / "out"), "--overwrite", "--no-browser"], capture_output=True, text=True, check=True)
    stats = re.search(r"Stats \{(.*)\}", done.stdout + done.stderr)[1]
    assert re.fullmatch(r" ok: \d+ ", stats), stats
    assert any(str(path.relative_to(tmp_path / "out")).startswith(file) for path in (tmp_path / "out").rglob("*.txt"))
    assert text in (tmp_path / "out" / "failures_and_restarts.html").read_text()


def test_metrics_of_a_module_name_its_forward(tmp_path):
    """As the log's lines do, and PyTorch's metrics; the name had been the class's."""
    text = "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x.sin() * 2\n\n\ntorch.compile(Net())(torch.ones(3))\n"
    _, records, done = _trace(tmp_path, text)
    assert done.returncode == 0, done.stderr
    names = [record["compilation_metrics"]["co_name"] for record in records if "compilation_metrics" in record]
    assert names[0] == "forward"
