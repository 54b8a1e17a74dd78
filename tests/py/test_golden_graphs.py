"""The text of captured graphs and of graph breaks, against files under tests/golden/graphs.

`KIN_BLESS=1 pytest tests/py/test_golden_graphs.py` writes the files anew; read the difference before committing it.
"""

import os
import pathlib
import re

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi")
pytest.importorskip("kintsugi._kintsugi")

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "graphs"


def sin_add(x, y):
    a = torch.sin(x)
    return (a + y).sum()


def tutorial_bar(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def inlined_callee(x):
    return tutorial_inner(x) * 2


def tutorial_inner(x):
    y = x.relu()
    return y


def baked_number(x, n):
    return x + n


def structured_arguments(x, y):
    both = torch.cat([x, y], dim=0)
    return both[1:, None], torch.nn.functional.pad(both, (1, 0)), -both


def in_place(x):
    y = x.clone()
    y += 1
    y.mul_(2)
    return y


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)

    def forward(self, x):
        return torch.nn.functional.relu(self.lin(x))


CASES = {
    "sin_add": (sin_add, (3,), (3,)),
    "tutorial_bar": (tutorial_bar, (10,), (10,)),
    "inlined_callee": (inlined_callee, (3,)),
    "structured_arguments": (structured_arguments, (2, 3), (2, 3)),
    "in_place": (in_place, (3,)),
    "module": (Net, (3, 3)),
}


def describe(name):
    fn, *sizes = CASES[name]
    torch.manual_seed(0)
    target = fn() if isinstance(fn, type) else fn
    output = kintsugi.explain(target)(*(torch.ones(size) for size in sizes))
    parts = [f"--- graph {number} ---\n{text}" for number, text in enumerate(output.graph_texts, 1)]
    parts += [f"--- break ---\n{reason}\n" for reason in output.break_reasons]
    text = "".join(parts)
    # Paths and line numbers of this file and of torch are not what is tested here.
    text = re.sub(r"\S*/(\w+\.py):\d+", r"\1", text)
    return text


@pytest.mark.parametrize("name", CASES)
def test_graph_text(name):
    path = GOLDEN / f"{name}.txt"
    text = describe(name)
    if os.environ.get("KIN_BLESS"):
        path.write_text(text)
    assert path.exists(), f"{path} is missing: run with KIN_BLESS=1"
    assert text == path.read_text(), f"the text of {name} changed; KIN_BLESS=1 accepts it"


@pytest.mark.parametrize("name", [n for n in CASES if n != "tutorial_bar"])
def test_graph_runs_as_fx(name):
    """The fx form of the graph computes what eager computes."""
    fn, *sizes = CASES[name]
    target = fn() if isinstance(fn, type) else fn
    args = [torch.randn(size) for size in sizes]
    output = kintsugi.explain(target)(*args)
    assert output.graph_count == 1
    source, gm = output._graphs[0], output.graphs[0]
    parameters = dict(target.named_parameters()) if isinstance(fn, type) else {}
    names = iter(args)
    values = []
    for entry in source["inputs"]:
        match = re.search(r"_modules\['(\w+)'\]\._parameters\['(\w+)'\]", entry["path"])
        values.append(parameters[".".join(match.groups())] if match else next(names))
    expected = target(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    results = gm(*values)
    assert len(results) >= len(expected)
    for want in expected:
        assert any(got.shape == want.shape and torch.equal(got, want) for got in results)
