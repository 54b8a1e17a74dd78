"""`kintsugi bisect`: the pass behind a planted miscompile is named, and what it changed; texts of passes are run by PyTorch's own operators."""

import json
import linecache

import pytest
import torch
from launches import engine, kintsugi
from test_validate import PASSES
from test_validate_command import PROGRAM

from kintsugi import cli
from kintsugi.diagnose import bisect, interpret

F = torch.nn.functional


@pytest.fixture
def run(tmp_path, monkeypatch, capfd, kernels):
    monkeypatch.chdir(tmp_path)

    def run(size, fault, *arguments):
        (tmp_path / "script.py").write_text(PROGRAM.replace("{size}", str(size)))
        linecache.clearcache()
        assert not fault or engine._set_fault(fault)
        try:
            return cli.main(["bisect", "script.py", "--json", "found.json", *arguments]), capfd.readouterr().out, json.loads((tmp_path / "found.json").read_text())
        finally:
            engine._set_fault("")
    yield run
    kintsugi.uninstall()


@pytest.mark.parametrize("name", PASSES)
def test_the_pass_is_named(run, name):
    status, out, found = run(160 + PASSES.index(name), f"pass {name} wrong")
    graph, = found["graphs"]
    assert status == 1
    if name == "fuse":  # its result is loops: what is left behind the last program that is right
        assert not graph["passed"] and graph["right"][-1] == "own-outputs" and "what follows is wrong (fuse, memory, codegen), in fused_" in out
        assert any("= sub %" in loops for _, loops in graph["kernels"])
        return
    assert graph["passed"] == name and f"pass {name} is the first one whose result gives something else" in out
    changed = [line for line in graph["change"] if line.startswith("+ ")]
    assert name == "lower" or any("= add %" in line for line in changed), graph["change"]
    assert graph["right"] == [] if name == "lower" else graph["right"][0] == "lower"


def test_a_verifier_that_refuses(run):
    status, out, found = run(181, "pass fuse malformed")
    assert status == 1 and found["bugs"][0]["where"] == "fuse" and "pass fuse was stopped by a verifier" in out


def test_nothing_differs(run):
    status, out, found = run(182, None, "--all")
    graph, = found["graphs"]
    assert status == 0 and not found["differences"] and graph["right"][-1] == "own-outputs" and not graph["passed"] and "nothing differs" in out
    assert "what every pass leaves is right" in out and "wrong" not in out and "fused_" not in out


def attend(a, b, q):
    h = torch.tanh(a @ b)
    return h, F.scaled_dot_product_attention(q, q, q, is_causal=True), torch.sort(h, dim=0)[0], F.conv2d(q, torch.ones(4, 4, 3, 3), padding=1)


def rearrange(x, i, table, mask):
    e = F.embedding(i, table)
    y = torch.cumsum(e, 1) + F.pad(e, (0, 0, 1, 0))[:, :-1]
    z = y.masked_fill(mask, -1e9).softmax(-1)
    summed = torch.zeros_like(z).scatter_add(1, torch.zeros_like(z, dtype=torch.long), z)
    return (z.topk(3)[0], F.gelu(y), F.layer_norm(y, (16,)), summed, torch.where(y > 0, y.flip(1), y), F.one_hot(i, 12).float().mean(0), y.var(-1), z.argmax(-1),
            F.max_pool2d(x, 2), F.interpolate(x, scale_factor=2), (y > 0).all(1), y.prod(1), i // 3, i % 3, i << 1)


def _layers(kind, **options):
    layers = kind(6, 34, num_layers=2, bidirectional=True, **options).eval()
    return lambda x: layers(x * 2)[0].tanh() + 1, lambda: (torch.randn(4, 5, 6),)


CASES = {"lstm": _layers(torch.nn.LSTM), "gru": _layers(torch.nn.GRU, batch_first=True), "gru without biases": _layers(torch.nn.GRU, bias=False), "rnn": _layers(torch.nn.RNN),
         "relu": _layers(torch.nn.RNN, nonlinearity="relu"), "libraries": (attend, lambda: (torch.randn(160, 320), torch.randn(320, 80), torch.randn(2, 4, 64, 32))),
         "indices": (rearrange, lambda: (torch.randn(2, 3, 8, 8), torch.randint(0, 10, (4, 6)), torch.randn(10, 16), torch.rand(4, 6, 16) > 0.5))}


@pytest.mark.parametrize("name", CASES)
def test_what_passes_leave_computes_what_the_graph_computes(kernels, name):
    fn, inputs = CASES[name]
    compiled = kintsugi.compile(fn)
    with torch.no_grad():
        args = inputs()
        for _ in range(4):
            compiled(*args)
    findings = bisect.of_function(engine, kintsugi._api.engine_of(compiled))
    assert findings and all(one.right[-1] == "own-outputs" and not one.passed and not one.unknown for one in findings), findings


@pytest.mark.parametrize("line", ["%1 = frobnicate %0 : f32[2]", "%1 = const 0 : q8[2]", "what is this", '%1 = extern "library.recurrent" number=9 flags=0'])
def test_texts_that_are_not_known(line):
    graph = interpret.Graph("%1 = input 0 : f32[2]{1}@1+0\nreturn %1\n")
    with pytest.raises(interpret.Unknown):
        interpret.run_program(f"%0 = input 0 : f32[2]\n{line}\nreturn %0\n", graph.make_inputs(), graph)


@pytest.mark.parametrize("name", ["rewrite", "split", "own-outputs"])
def test_a_pass_behind_convolutions_and_a_buffer_that_is_written_to(kernels, name):
    """Library calls with what they absorb are run as well, and what is left in inputs counts."""
    weights = torch.randn(8, 3, 3, 3), torch.randn(8, 8, 3, 3)
    seen = torch.zeros(8)

    def layers(x):
        y = F.conv2d(x, weights[0], padding=1).relu()
        seen.add_(y.mean((0, 2, 3)))
        return (F.conv2d(y, weights[1], stride=2, padding=1) + 1).relu().clamp(max=4)

    def find():
        compiled = kintsugi.compile(layers, options={"validate": 1})
        with torch.no_grad():
            for _ in range(3):
                compiled(torch.randn(2, 3, 10, 10))
        found, = bisect.of_function(engine, compiled)
        return found

    found = find()
    assert not found.passed and not found.unknown and found.right[-1] == "own-outputs", found.verdict
    assert engine._set_fault(f"pass {name} wrong")
    try:
        assert find().passed == name
    finally:
        engine._set_fault("")


def test_a_pass_behind_recurrent_layers(kernels):
    """Steps of a layer run one by one, in what the passes left before and behind it."""
    fn, inputs = CASES["lstm"]
    assert engine._set_fault("pass simplify-rewritten wrong")
    try:
        compiled = kintsugi.compile(fn)
        with torch.no_grad():
            args = inputs()
            for _ in range(4):
                compiled(*args)
        found = [one.passed for one in bisect.of_function(engine, kintsugi._api.engine_of(compiled))]
    finally:
        engine._set_fault("")
    assert found == ["simplify-rewritten"]
