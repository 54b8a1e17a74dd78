"""`kintsugi report`: pages that stand alone, of programs that are run and of logs that are read."""

import html.parser
import json
import linecache
import types

import diagnosed as programs
import pytest

from kintsugi import cli
from kintsugi.report import kernels, page, timeline

STOCK = '''\
V1120 15:24:39.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [0/0] [__graph_breaks] Graph break in user code at /nowhere/m.py:10
V1120 15:24:39.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [0/0] [__graph_breaks] Graph Break Reason: Data-dependent branching
V1120 15:24:39.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [0/0] [__graph_breaks]   Explanation: Detected data-dependent <branching>
V1120 15:24:39.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [0/0] [__graph_breaks]
V1120 15:24:39.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [0/0] [__graph_breaks]  For more details about this graph break, please visit: https://example.org/gb/gb0170.html
V1120 15:24:40.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [1/0] [__graph_breaks] Graph break in user code at /nowhere/m.py:4
V1120 15:24:40.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [1/0] [__graph_breaks] Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):
V1120 15:24:40.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [1/0] [__graph_breaks]
V1120 15:24:40.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [1/0] [__graph_breaks] Failed to trace builtin operator
V1120 15:24:40.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [1/0] [__graph_breaks] User code traceback:
V1120 15:24:41.233000 11822 torch/_dynamo/guards.py:1] [0/1] [__recompiles] Recompiling function f in /nowhere/m.py:8
'''
TRACE = '''\
V1120 15:24:39.233000 1 a.py:1] {"str": ["m.py", 0]}
V1120 15:24:39.233000 1 a.py:1] {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, "frame_id": 0, "has_payload": "0"}
\tGraph break in user code at /nowhere/m.py:10
\tGraph Break Reason: Data-dependent branching
\t  Explanation: ...
V1120 15:24:39.233000 1 a.py:1] {"compilation_metrics": {"co_name": "f", "co_filename": "/nowhere/m.py", "co_firstlineno": 8, "graph_op_count": 3, "entire_frame_compile_time_s": 1.5, "fail_reason": "it failed\\nbecause", "fail_user_frame_lineno": 12}}
V1120 15:24:39.233000 1 a.py:1] {"broken json
'''


class _Page(html.parser.HTMLParser):
    """Tags that are open when they should not be, addresses, identifiers, and the text."""

    VOID = ("meta", "link", "rect", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.addresses, self.ids, self.text, self.wrong = [], [], [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.addresses += [found[name] for name in ("href", "src") if name in found]
        self.ids += [found["id"]] if "id" in found else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text += data


def _check(path):
    page = _Page(path.read_text())
    assert not page.wrong and not page.open
    assert len(page.ids) == len(set(page.ids)) and {a[1:] for a in page.addresses if a.startswith("#")} <= set(page.ids)
    assert all(a.startswith(("#", "https://", "data:,")) for a in page.addresses)  # nothing is loaded from elsewhere
    return page.text


@pytest.fixture
def report(tmp_path, monkeypatch, capfd, kintsugi_clean):
    monkeypatch.chdir(tmp_path)
    linecache.clearcache()

    def run(name, text, *arguments):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        target = name if path.parent == tmp_path else path.parent.name
        status = cli.main(["report", target, "-o", "out", *arguments])
        page = tmp_path / "out" / "index.html"
        return status, _check(page) if page.exists() else None, capfd.readouterr()
    return run


def test_a_script(report):
    status, text, out = report("script.py", programs.ORIGIN)
    assert status == 0 and out.out.endswith("kB)\n")
    for part in ("decide (script.py:4)", "Data-dependent branching", "Its data comes from script.py:6", "+    x = torch.where(gt, x * 2, x)", "measured",
                 "without breaks", "graph 1: ", "print('decided')"):
        assert part in text, part


def test_parts_of_a_measured_function(report, tmp_path):
    program = programs.ORIGIN.replace("torch.compile(decide)(*example_inputs())", "f = torch.compile(decide)\n    for _ in range(4):\n        f(*example_inputs())")
    _, text, _ = report("script.py", program)
    for part in ("Timeline of a call", "The same as a list", "The graph on both sides", "the graph before it ends with", "sum_1 > 0", "Guards: ", "What compiling took"):
        assert part in text, part
    found = json.loads((tmp_path / "out" / "found.json").read_text())["functions"][0]
    broken = next(cause for cause in found["causes"] if cause["kind"] == "break")
    assert found["guards"] and found["record_ms"][0] > 0 and broken["sides"][0][-1].startswith("return (")
    _, text, _ = report("script.py", program.replace("    if gt:\n        x = x * 2\n", "    x = torch.where(gt, x * 2, x)\n"), "--against", "out/found.json")
    assert "Against the earlier run" in text and "gone: decide: Data-dependent branching" in text and "1 → 0" in text
    assert "Against the earlier run" in report("script.py", program, "--against", "out")[1]
    status, _, out = report("script.py", program, "--against", "script.py")
    assert status == 2 and "script.py" in out.err


def test_what_a_recompile_took_is_told(report):
    _, text, _ = report("script.py", programs.RECOMPILES, "--no-measure")
    assert "recording and compiling anew took" in text and text.count("factor == 2") <= 1, text


def test_a_program_that_fails(report):
    """Under fullgraph=True: the page says why, and where."""
    status, text, out = report("script.py", "import torch\n\n\n@torch.compile(fullgraph=True)\ndef f(x):\n    if x.sum() > 0:\n        x = x * 2\n    return x\n\n\nf(torch.ones(3))\n")
    assert status == 1 and "The program ended with an exception" in text and "Unsupported: Data-dependent branching" in text and 'script.py", line 6, in f' in text
    assert "the script ended with Unsupported" in out.err
    status, text, _ = report("script.py", "raise ValueError('too early')\n")
    assert status == 1 and "ValueError: too early (at script.py:1)" in text and "Nothing was compiled" in text


def test_kinds_of_inputs_that_are_compiled_alike_share_a_row():
    row = {"recording": 1, "graph": 1, "part": 1, "parts": 1, "native_calls": 5, "kernels": 2, "library_calls": 1, "reason": "", "compile_ms": 1.0, "launch_us": 3.0, "steps_us": None}
    one = types.SimpleNamespace(name="f", kernels=[row, row | {"launch_us": 4.0}, row | {"launch_us": None}, row | {"native_calls": 6}])
    text = kernels._graphs(one)
    assert text.count("<tr>") == 3 and "3 us – 4 us" in text and "3 ms" in text


def test_a_graph_is_told_with_the_line_of_the_user(report, tmp_path):
    program = "import torch\nnorm = torch.nn.LayerNorm(4)\n\n\ndef f(x):\n    return norm(x)\n\n\ng = torch.compile(f)\nwith torch.no_grad():\n    for _ in range(3):\n        g(torch.ones(2, 4))\n"
    report("script.py", program)
    found = json.loads((tmp_path / "out" / "found.json").read_text())["functions"][0]
    assert found["sequence"] == [["graph", 6, "graph 1: 1 call"]]


def test_a_timeline_is_drawn_from_data():
    """It may hold anything, and a picture of thousands of segments takes few elements."""
    text = timeline.picture("t", "Timeline", [("call", [(i, 1, "graph", "</script><b>", "") for i in range(5000)])], 5000)
    assert text.count("<") < 48 and text.count("</script>") == 1
    data = json.loads(text.partition('json">')[2].partition("</script>")[0])
    assert len(data["rows"][0][1]) == 5000 and data["rows"][0][1][7] == [7, 1, "graph", "</script><b>", ""]


def _call(sequence, causes, anatomy=()):
    return timeline.of_call("f0", {"sequence": sequence, "verdict": {"compiled_us": 30.0}, "anatomy": list(anatomy), "shown": 1, "causes": causes})


def test_a_timeline_says_what_its_colours_mean_and_what_it_does_not_show():
    sequence = [("graph", 3, "graph 1: 2 calls"), ("break", 4, "a branch"), ("effect", 5, "print('x')"), ("graph", 6, "graph 2: 1 call")]
    causes = [{"title": "a branch", "kind": "break", "line": 4, "price_us": 6.0, "count": 2}, {"title": "`print` runs in every call", "kind": "effect", "line": 5, "price_us": 9.0, "count": 1}]
    kernel = {"recording": 1, "graph": 1, "us": 4.0, "parts": [{"name": "fused_sin", "us": 4.0, "extern": False, "backward": False}]}
    text = _call(sequence, causes, [kernel])
    rows = dict(json.loads(text.partition('json">')[2].partition("</script>")[0])["rows"])
    assert [(kind, length, link) for _, length, kind, _, link in rows["call"] if kind != "rest"] == [
        ("graph", 4, ""), ("break", 3, "f0c0"), ("effect", 9, "f0c1"), ("graph", 0, "")]
    assert "1 graph of 2 ran step by step" in text
    legend = text.partition('<ul class="legend">')[2].partition("</ul>")[0]
    assert all(name in legend for name in ("graph break", "side effect", "guards and replay", "kernel or pass", "a break or read among them")) and "read of data" not in legend
    assert "a break or read among them" not in _call([("graph", 3, "graph 1: 2 calls")], [], [kernel])


@pytest.mark.parametrize("without, told", [(20e-6, ", each by itself; without all graph breaks and reads of data it takes 19 us less"), (37.2e-6, "")])
def test_causes_that_only_pay_together_say_so(without, told):
    causes = [types.SimpleNamespace(kind=kind, price_us=price, share=0.1) for kind, price in (("break", 0.0), ("read", 1.8), ("effect", 5.0))]
    one = types.SimpleNamespace(causes=causes, verdict=types.SimpleNamespace(compiled=39e-6, without_breaks=without))
    assert page._together(one) == told


def test_recompiles_are_a_diff_of_values(report):
    _, text, _ = report("script.py", programs.RECOMPILES, "--no-measure")
    assert "wasnow" in text.replace(" ", "") and "factor" in text


def test_many_events_make_a_small_page(report, tmp_path):
    program = programs.LAYERS.replace("        if x.sum() > 1e9:\n            x = x * 2\n", "        for _ in range(20):\n            x = torch.sin(x)\n            if x.sum() > 1e9:\n                x = x * 2\n")
    status, text, _ = report("script.py", program, "--no-measure")
    page = tmp_path / "out" / "index.html"
    assert status == 0 and "20 times" not in text and page.stat().st_size < 600_000 and "240" in text


def test_what_is_in_the_source_is_no_markup(report):
    program = programs.ORIGIN.replace("    if gt:", "    if gt:  # <script>alert('&')</script>")
    _, text, _ = report("script.py", program, "--no-measure")
    assert "<script>alert('&')</script>" in text  # as text, not as a tag


def test_a_log_of_stock(report):
    status, text, _ = report("stock.log", STOCK)
    assert status == 0 and "2 graph breaks, 1 recompile, 0 failures" in text
    assert "Data-dependent branching" in text and "Failed to trace builtin operator" in text and "/nowhere/m.py:10" in text
    assert "f was compiled again" in text and "<branching>" in text


def test_a_failure_of_stock(report):
    status, text, _ = report("failed.log", "Traceback (most recent call last):\n  File \"m.py\", line 40, in <module>\ntorch._dynamo.exc.Unsupported: Data-dependent branching\n"
                             "  Explanation: because\n please visit: https://example.org/gb0170.html\n\nfrom user code:\n   File \"/nowhere/m.py\", line 32, in forward\n    if x > 1:\n\n"
                             "Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace\n")
    assert status == 0 and "0 graph breaks, 0 recompiles, 1 failure" in text
    assert "Unsupported: Data-dependent branching" in text and "/nowhere/m.py:32" in text and "because" in text


def test_a_trace_folder(report):
    status, text, _ = report("trace/dedicated_log_torch_trace_x.log", TRACE)
    assert status == 0 and "1 graph break, 0 recompiles, 1 failure; 1 compilation told of" in text
    assert "it failed" in text and "1.500" in text and "1 of them not understood" in text


def test_an_event_log_of_ours(report):
    events = [{"event": "break", "name": "f", "filename": "m.py", "line": 3, "why": "TENSOR_ITEM", "type": "Unsupported Tensor.item() call"},
              {"event": "record", "name": "f", "filename": "m.py", "line": 1, "ops": 4, "record_ns": 2e6, "reason": ""}]
    status, text, _ = report("events.jsonl", "".join(json.dumps(event) + "\n" for event in events))
    assert status == 0 and "KIN0005" in text and "1 graph break, 0 recompiles, 0 failures; 1 compilation told of" in text


@pytest.mark.parametrize("junk", [b"", bytes(range(256)) * 500, b"x" * 300_000, b'{"a": 1}\n[1]\n', TRACE[:90].encode(), b'{"artifact": 3}\n{"compilation_metrics": 7}\n'])
def test_what_is_no_log(report, junk):
    status, _, out = report("junk.log", junk)
    assert status == 2 and "nothing in them that a report could show" in out.err


def test_missing(report, tmp_path, capfd):
    assert cli.main(["report", "nothing.log"]) == 2
    (tmp_path / "empty").mkdir()
    assert cli.main(["report", "empty"]) == 2 and "no log in this folder" in capfd.readouterr().err


def test_a_break_in_a_library_is_told_at_the_line_of_the_user(tmp_path):
    from kintsugi.report import read

    head = "V1123 18:00:00.000000 7 torch/_dynamo/symbolic_convert.py:1] [0/0] [__graph_breaks] "
    lines = ["Graph break in user code at lib/site-packages/torch/_dynamo/external_utils.py:69", "Graph Break Reason: Attempted to wrap RNN, GRU, or LSTM",
             "  Explanation: not supported.", " For more details about this graph break, please visit: https://x/gb/gb0014.html", "", "User code traceback:",
             '  File "project/model.py", line 20, in <module>', "    m(x)", "    ~^^^", '  File "lib/site-packages/torch/nn/modules/module.py", line 1778, in _wrapped_call_impl',
             "    return self._call_impl(*args, **kwargs)", "", "Graph break in user code at project/model.py:30", "Graph Break Reason: other",
             " For more details about this graph break, please visit: https://x/gb/gb0170.html"]
    (tmp_path / "log.txt").write_text("".join(head + line + "\n" for line in lines))
    found = [(one.title, one.filename, one.line, one.page) for one in read.read(str(tmp_path / "log.txt")).findings]
    assert found == [("Attempted to wrap RNN, GRU, or LSTM", "project/model.py", 20, "https://x/gb/gb0014.html"), ("other", "project/model.py", 30, "https://x/gb/gb0170.html")]


def _read(tmp_path, text):
    from kintsugi.report import read

    (tmp_path / "log.txt").write_text(text)
    return [(one.kind, one.title, one.filename, one.line) for one in read.read(str(tmp_path / "log.txt")).findings]


@pytest.mark.parametrize("first, others", [("V1123 18:00:00.000000 7 torch/_dynamo/a.py:1] [0/0] [__graph_breaks] ",) * 2, ("DEBUG:torch._dynamo.symbolic_convert.__graph_breaks:", ""),
                                           ("[rank0]:INFO:torch._dynamo:", ""), ("18:00 symbolic_convert.py:5124 | ", "")])
def test_formats_of_lines(tmp_path, first, others):
    """PyTorch's own, TORCH_LOGS_FORMAT=short, and one of the user's. A break told again, without a traceback, is at the user's line as well."""
    library = "lib/site-packages/torch/utils/x.py:69"
    page = " For more details about this graph break, please visit: https://x/gb/gb0014.html"
    records = [[f"Graph break in user code at {library}", "Graph Break Reason: generator", page, "", "User code traceback:", '  File "project/model.py", line 20, in f', "    m(x)"],
               [f"Graph break (user stack suppressed due to duplicate graph break) in user code at {library}", "Graph Break Reason: generator", page],
               ["Recompiling function f in project/model.py:4", "    triggered by the following guard failure(s):", "    - 4/0: k == 1"]]
    text = "".join((others if i else first) + line + "\n" for record in records for i, line in enumerate(record))
    assert _read(tmp_path, text) == [("break", "generator", "project/model.py", 20), ("recompile", "f was compiled again: 4/0: k == 1", "project/model.py", 4)]


def test_a_folder_that_tlparse_has_written(report, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "raw.jsonl").write_text('{"string_table": []}\n{"compilation_metrics": {"co_name": "f"}, "frame_id": 0}\n')
    status, text, _ = report("out/raw.log", TRACE)
    assert cli.main(["report", "out", "-o", "again"]) == status == 0
    assert "1 graph break, 0 recompiles, 1 failure; 1 compilation told of" in (tmp_path / "again" / "index.html").read_text()


def test_a_log_says_which_guards_failed(tmp_path):
    head = "V1125 10:21:05.702000 11913 torch/_dynamo/guards.py:5396] [2/1] [__recompiles] "
    lines = ["Recompiling function pool in /nowhere/m.py:4", "    triggered by the following guard failure(s):", "    - 4/0: scale == 1.0                     # y = x * scale  # m.py:9",
             "    - User stack trace:", "    -   File \"m.py\", line 9, in pool", "Recompiling function pool in /nowhere/m.py:4", "    triggered by the following guard failure(s):",
             "    - 4/1: tensor 'x' size mismatch at index 1. expected 8, actual 16"]
    assert _read(tmp_path, "".join(head + line + "\n" for line in lines)) == [
        ("recompile", "pool was compiled again 2 times", "/nowhere/m.py", 4)]
    from kintsugi.report import read

    found = read.read(str(tmp_path / "log.txt"))
    assert found.findings[0].changes == [("4/0: scale == 1.0", "m.py:9", "y = x * scale"), ("4/1: tensor 'x' size mismatch at index 1. expected 8, actual 16", "", "")]
    text = page.of_log("log", found)
    assert "0 graph breaks, 2 recompiles, 0 failures" in text and text.index("4/0: scale == 1.0") < text.index("4/1: tensor")


GRAPH = """TRACED GRAPH
 ===== __compiled_fn_1_28a17b6a =====
 /lib/torch/fx/_lazy_graph_module.py class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[3]cpu"):
        l_x_ = L_x_

        # File: m.py:5 in f, code: return x.sin() * 2
        sin: "f32[3]cpu" = l_x_.sin();  l_x_ = None
        mul: "f32[3]cpu" = sin * 2;  sin = None
        return (mul,)
"""


def test_a_log_in_which_nothing_is_wrong(report):
    """It has no breaks, and that is what is told; graphs are shown as far as it has them."""
    head = "V1127 22:44:40.211000 8537 torch/_dynamo/output_graph.py:2835] [0/0] [__graph_code] "
    status, text, _ = report("stock.log", "".join(head + line + "\n" for line in GRAPH.splitlines()) * 2)
    assert status == 0 and "0 graph breaks, 0 recompiles, 0 failures; 0 compilations told of, 1 graph" in text
    assert "__compiled_fn_1_28a17b6a: 2 calls" in text and "sin * 2;  sin = None" in text
    status, text, _ = report("guards.log", "V1127 22:44:57.153000 8537 torch/_dynamo/guards.py:4786] [0/0] [__guards] GUARDS:\n")
    assert status == 0 and "0 graph breaks, 0 recompiles, 0 failures" in text and "TORCH_LOGS=graph_breaks,recompiles" in text


def test_a_trace_is_told_as_far_as_it_goes(report):
    head = "V1125 10:21:05.702000 1 a.py:1] "
    lines = ['{"dynamo_output_graph": {"sizes": {}}, "frame_id": 3, "frame_compile_id": 1, "has_payload": "0"}', *("\t" + line for line in GRAPH.splitlines()[2:]),
             '{"compilation_metrics": {"co_name": "pool", "co_filename": "/nowhere/m.py", "co_firstlineno": 4, "guard_count": 17, "entire_frame_compile_time_s": 2.5, '
             '"backend_compile_time_s": 1.25, "restart_reasons": ["a branch", "b"]}, "frame_id": 3, "frame_compile_id": 1}']
    status, text, _ = report("trace/a.log", "".join((line if line.startswith("\t") else head + line) + "\n" for line in lines))
    assert status == 0 and "3/1 pool: 2 calls" in text
    for told in ("17", "2.500", "1.250", "begun again: a branch, and 1 more"):
        assert told in text


IN_A_LOOP = """Graph break in user code at {file}:8
Graph Break Reason: Failed to handle graph break gracefully. Skipping the function and falling back to eager. Graph break encountered:

Data-dependent branching
  Explanation: ...
 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html

*** While handling this graph break, another graph break occurred: ***

graph break in loop
  Developer debug context: frame skipped: walk ({file} line 5)
"""
WALK = "import torch\n\n\n@torch.compile\ndef walk(x):\n    for _ in range(3):\n        x = x.sin()\n        if x.sum() > 0:\n            x = x * 2\n    return x\n"


def test_a_function_left_eager_because_of_a_break_in_a_loop(report, tmp_path):
    """It is told; and the break has a fix that fits its line."""
    (tmp_path / "walk.py").write_text(WALK)
    head = "V1127 22:43:15.831000 7351 torch/_dynamo/symbolic_convert.py:5124] [0/0] [__graph_breaks] "
    status, text, _ = report("stock.log", "".join(head + line + "\n" for line in IN_A_LOOP.format(file=tmp_path / "walk.py").splitlines()))
    assert status == 0 and "1 graph break, 0 recompiles, 0 failures, 1 function left eager" in text and "walk runs eagerly: PyTorch cannot go on" in text
    assert "x = torch.where(x.sum() > 0, x * 2, x)" in text and "kintsugi breaks GB0170" in text


def test_a_break_that_ends_no_graph_here_says_so(report):
    from kintsugi import _pytorch_ids

    name = next(iter(_pytorch_ids.groups()[0].ids))
    _, text, _ = report("stock.log", STOCK.replace("gb0170", name.lower()))
    assert "In Kintsugi this ends no graph: " in text


@pytest.mark.parametrize("line", [
    '{"event": "break", "filename": 5, "line": "x", "type": [1]}', '{"event": "recompile", "failures": 4}', '{"event": "record", "record_ns": "a"}', '{"a":' * 9000,
    '{"compilation_metrics": {"co_filename": 3, "co_firstlineno": "x", "fail_reason": [1]}}', '{"compilation_metrics": {"graph_op_count": {}, "restart_reasons": 7}}',
    '{"artifact": {"name": []}, "has_payload": 1, "frame_id": []}', '{"dynamo_output_graph": [], "has_payload": 1, "frame_id": [1]}\n\tx',
    '{"artifact": {"name": "recompile_reasons"}, "has_payload": 1, "frame_id": [1]}\n\tx'])
def test_fields_that_are_not_what_they_should_be(report, line):
    status, text, out = report("events.jsonl", line + "\n" + STOCK)
    assert status == 0 and "Failed to trace builtin operator" in text and "Traceback" not in out.err


def test_a_function_that_stays_eager_is_no_failure(tmp_path):
    """Dynamo informs of it with the exception that it caught, more than once."""
    head = "I1125 10:20:16.101000 6866 torch/_dynamo/convert_frame.py:2413] [1/0_1] "
    lines = ["WON'T CONVERT walk /nowhere/m.py line 414 ", "due to: ", "Traceback (most recent call last):", "  File \"torch/_dynamo/convert_frame.py\", line 2319, in __call__",
             "torch._dynamo.exc.Unsupported: Attempt to trace generator", "  Explanation: ...", "Traceback (most recent call last):", "torch._dynamo.exc.Unsupported: Attempt to trace generator"]
    assert _read(tmp_path, "".join(head + line + "\n" for line in lines)) == [("skip", "walk runs eagerly: Attempt to trace generator", "/nowhere/m.py", 414)]


def test_a_trace_names_what_was_compiled_again(tmp_path):
    """The function of a recompile, by its id; the traceback in the reason of a graph break is no failure."""
    head = "V1125 10:21:05.702000 1 a.py:1] "
    lines = ['{"artifact": {"name": "recompile_reasons", "encoding": "json"}, "frame_id": 3, "frame_compile_id": 1, "has_payload": "0"}', '\t[', '\t"3/0: n == 1",', '\t"3/1: n == 2"', '\t]',
             '{"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, "frame_id": 3, "has_payload": "0"}', "\tGraph break in user code at /nowhere/m.py:10",
             "\tGraph Break Reason: Data-dependent branching", "\tUser code traceback:", "\ttorch._dynamo.exc.Unsupported: Data-dependent branching",
             '{"compilation_metrics": {"co_name": "pool", "co_filename": "/nowhere/m.py", "co_firstlineno": 4}, "frame_id": 3, "frame_compile_id": 1}']
    assert _read(tmp_path, "".join((line if line.startswith("\t") else head + line) + "\n" for line in lines)) == [
        ("break", "Data-dependent branching", "/nowhere/m.py", 10), ("recompile", "pool was compiled again: 3/0: n == 1", "/nowhere/m.py", 4)]


def test_code_in_sentences_and_long_cells():
    from kintsugi.report import text

    assert text.prose("write `a < b` & `c`") == "write <code>a &lt; b</code> &amp; <code>c</code>"
    assert "<td class=\"w\">" in text.table("t", [("why", False)], [["a reason that takes more than forty characters"]])


def test_limits_of_the_machine_are_those_of_an_idle_one(monkeypatch):
    """Where threads wait for each other because others have the processors, one thread says what the machine can do."""
    import time

    import torch

    from kintsugi.diagnose import anatomy

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(anatomy, "_best", lambda call: 1.0 if torch.get_num_threads() > 1 else 1e-3)
    try:
        found = anatomy.limits.__wrapped__()  # what was measured before is kept
    finally:
        torch.set_num_threads(threads)
    assert found["gb_per_s"] == pytest.approx(2 * 4 * (1 << 23) / 1e-3 / 1e9) and torch.get_num_threads() == threads
    monkeypatch.undo()
    assert anatomy._best(lambda: time.sleep(0.001), seconds=0.0) < 1.0


READS = '''\
import torch


@torch.compile
def standard(x):
    mean, deviation = float(x.mean()), float(x.std())
    return (x - mean) / (deviation + 1e-6)


for _ in range(3):
    standard(torch.ones(64, 64))
'''


def test_reads_of_data_are_drawn_with_their_prices(report):
    import kintsugi

    with kintsugi.config.patch(kernels=True):
        status, text, _ = report("script.py", READS)
    assert status == 0 and "float() waits for the data of a tensor" in text and "without reads" in text
    data = json.JSONDecoder().raw_decode(text[text.index('{"total"'):])[0]
    drawn = [segment for segment in data["rows"][0][1] if segment[2] == "read"]
    assert len(drawn) == 2 and all(length > 0 and "waits for the data" in told and link for _, length, _, told, link in drawn)


BOTH_WAYS = """import torch


@torch.compile
def f(x):
    print("a", end="")
    if x.sum() > 0:
        x = x * 2
    for _ in range(2):
        print("c", end="")
    return x + 1


for i in range(8):
    f(torch.ones(3) * (-1) ** i)
"""


def test_side_effects_are_those_of_one_call(report):
    """What stands behind a decision is in the recording once for each side."""
    _, text, _ = report("script.py", BOTH_WAYS, "--no-measure")
    assert "3 side effects in a call" in text and "script.py:10, 2 times" in text


def test_parts_that_no_call_has_reached_share_a_row():
    def row(part, **more):
        return {"recording": 1, "graph": 2, "part": part, "parts": 9, "native_calls": 0, "kernels": 0, "library_calls": 0, "reason": "no replayed call has reached it so far",
                "launch_us": None, "steps_us": None, "compile_ms": None, **more}

    one = types.SimpleNamespace(name="f", kernels=[row(1, native_calls=4, kernels=2, reason=""), *(row(part) for part in range(2, 9)), row(9, reason="a single call")])
    text = kernels._graphs(one)
    assert text.count("no replayed call has reached it so far") == 1 and "1.2: 7 parts" in text
    assert "1.2.1" in text and "1.2.9" in text and "1.2.3" not in text
