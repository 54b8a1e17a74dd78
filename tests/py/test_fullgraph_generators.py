"""A compiled generator runs eagerly, and says so: it is no function without breaks. export of a compiled module."""
import pytest
import torch
from torch import nn

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


def steps(x):
    yield x + 1
    yield x * 2


def test_generator_function_is_a_break():
    compiled = kintsugi.compile(steps)
    assert [y.sum() for y in compiled(torch.ones(3))] == [6.0, 6.0]
    assert kintsugi.stats(compiled)["breaks"] == 1
    out = kintsugi.explain(steps)(torch.ones(3))
    assert (out.graph_count, out.graph_break_count) == (0, 1)
    reason, = out.break_reasons
    assert reason.entry["why"] == "GENERATOR" and reason.user_stack[-1].name == "steps"
    assert "Graph Break Count: 1" in str(out) and "Attempt to trace generator" in str(out)


def test_coroutine_function_is_a_break():
    async def fn(x):
        return x + 1
    compiled = kintsugi.compile(fn)
    coroutine = compiled(torch.ones(3))
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert kintsugi.stats(compiled)["breaks"] == 1


@pytest.mark.parametrize("installed", [False, True])
def test_export_of_a_compiled_module_gives_the_same_graph_each_time(installed):
    """The first call records, the second replays; export must see the module itself both times."""
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    if installed:
        kintsugi.install()
    try:
        compiled = kintsugi.compile(module)
        x = torch.randn(3, 4)
        codes = []
        for _ in range(3):
            codes.append(torch.export.export(compiled, (x,)).graph_module.code)
            compiled(x)
        assert len(set(codes)) == 1 and "linear" in codes[0]
    finally:
        if installed:
            kintsugi.uninstall()


@pytest.mark.parametrize("leaves", [
    lambda x: torch.utils._pytree.tree_flatten_with_path({"a": [x, x + 1], "b": (x,)})[0],
    lambda x: [(torch.utils._pytree.keystr(path), leaf * 2) for path, leaf in torch.utils._pytree.tree_leaves_with_path({"a": [x], "b": (x, {"c": x - 1})})]])
def test_leaves_with_their_paths(leaves):
    """The generator asks whether there is a handler for a node, which is a named tuple."""
    compiled, x = kintsugi.compile(leaves, fullgraph=True), torch.randn(3)
    for _ in range(3):
        assert str(compiled(x)) == str(leaves(x))


def lazily(x):
    return (y.sin() for y in [x, x + 1])


def mapped(x):
    return {"items": map(lambda y: y.sin(), [x, x + 1])}


def half_used(x):
    it = steps(x)
    return next(it), it


@pytest.mark.parametrize("fn, code", [(lazily, "lazily.<locals>.<genexpr>"), (mapped, "mapped.<locals>.<lambda>"), (half_used, "steps")])
def test_what_a_call_hands_out_is_listed(fn, code):
    """It computes eagerly behind the end of the call: no graph break, but not silent either."""
    out = kintsugi.explain(fn)(torch.ones(3))
    assert out.graph_break_count == 0 and [row["function"] for row in out.handed_out] == [code]
    assert f"  {code}  # {__file__}:" in str(out)
    compiled = kintsugi.compile(fn, fullgraph=True)
    for _ in range(2):
        compiled(torch.ones(3))
    assert kintsugi.stats(compiled)["handed_out"] == 1


def test_nothing_is_handed_out_by_what_the_call_uses_up():
    def fn(x):
        return sum(steps(x)), list(map(torch.sin, [x])), [y * 2 for y in lazily(x)]
    out = kintsugi.explain(fn)(torch.ones(3))
    assert (out.graph_count, out.graph_break_count, out.handed_out) == (1, 0, [])
    assert "asks for items" not in str(out)
