"""One truth: the number of graphs that a backend gets, explain().graph_count, what fullgraph=True accepts, and what stats() counts.

The programs are those of docs/fullgraph.md (tests/fullgraph), where stock PyTorch's answers stand beside ours.
"""
import json
import pathlib
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "fullgraph"))
kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)

import graph_count as count  # noqa: E402
from graph_programs import IN_PIECES, PROGRAMS  # noqa: E402

TABLE = json.loads((ROOT / "docs" / "fullgraph.json").read_text())


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    torch._dynamo.reset()
    yield


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_truth(name):
    row = count.one(name, "kintsugi")
    if "eager" in row:
        pytest.skip("eager cannot run it outside of a compiler")
    assert row["equal"] and "raised" not in row, row
    graphs, breaks = row["explain"]
    assert row["accepts"] == TABLE[name]["kintsugi"]["accepts"], row
    assert row["accepts"] == (breaks == 0), row
    assert row["stats"] == [graphs, breaks], row
    if name in IN_PIECES:
        return
    assert row["graphs"]["plain"] == graphs, row
    if row["accepts"]:
        assert graphs <= 1 and row["graphs"]["full"] == graphs, row
    else:
        assert row["graphs"]["full"] == 0 and row["line"], row


def test_differences_to_stock_are_listed():
    """Whoever changes what fullgraph accepts runs `make fullgraph`; the page says what differs."""
    page = (ROOT / "docs" / "fullgraph.md").read_text()
    differ = [name for name, row in TABLE.items() if row["stock"]["accepts"] != row["kintsugi"]["accepts"]]
    assert differ and all(f"`{name}`" in page for name in differ)
    assert set(TABLE) == set(PROGRAMS)


def test_numbers_change_without_recompiling():
    """One graph serves all numbers that flow through it."""
    def fn(x, n):
        scale = x.sum().item() * 2
        k = int(n)
        return x[:k] * scale + torch.full((k,), scale)
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm
    compiled = kintsugi.compile(fn, backend=backend, fullgraph=True)
    for k in (2, 3, 5, 4):
        x = torch.arange(6.0) + k
        assert torch.equal(compiled(x, torch.tensor(k)), fn(x, torch.tensor(k)))
    assert len(seen) == 1
    assert kintsugi.stats(compiled)["recordings"] == 1


def test_decision_is_refused_at_its_line():
    def fn(x):
        n = x.sum().item()
        y = x * n
        if n > 3:  # here
            return y + 1
        return y
    with pytest.raises(torch._dynamo.exc.Unsupported) as caught:
        kintsugi.compile(fn, fullgraph=True)(torch.ones(3))
    line = next(i for i, text in enumerate(pathlib.Path(__file__).read_text().splitlines(), 1) if text.endswith("n > 3:  # here"))
    assert f"line {line}" in str(caught.value)


def test_assertion_that_fails_raises_where_it_stands():
    """The graph makes the assertion; where it does not hold, the program's own AssertionError comes, and nothing behind it happened."""
    done = []

    def fn(x):
        y = x + 1
        assert (y > 0).all(), "not all"
        done.append(len(done))
        return y * 2
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm
    compiled = kintsugi.compile(fn, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 4.0))
    before = len(done)
    with pytest.raises(AssertionError, match="not all"):
        compiled(torch.full((3,), -5.0))
    assert len(done) == before
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 4.0))


def test_number_of_another_class():
    """int(x) of one call, a float in the next: what is decided by the class is decided again."""
    def fn(x):
        n = x.sum().item()
        return x * 2 + (1 if isinstance(n, int) else 0.5)
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm)
    for x in (torch.ones(3), torch.ones(3, dtype=torch.int64), torch.ones(3), torch.ones(3, dtype=torch.int64)):
        assert torch.equal(compiled(x), fn(x)) and compiled(x).dtype == fn(x).dtype


def test_division_by_a_number_that_is_zero():
    def fn(x):
        return x * (1.0 / x.sum().item()) + 1
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))
    with pytest.raises(ZeroDivisionError):
        compiled(torch.zeros(2))


def test_assertion_beside_a_write():
    """What was written cannot be taken back, so the graph runs step by step."""
    def fn(x, n):
        k = n.item()
        x = x * k
        try:
            assert k > 2
            x = x + 1
        except AssertionError:
            x = x - 1
        x.mul_(1.5)
        return x * 2 + k
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm)
    for k in (3, 4, 1, 5, 0):
        assert torch.equal(compiled(torch.ones(4), torch.tensor(k)), fn(torch.ones(4), torch.tensor(k)))


@pytest.mark.parametrize("lengths", [(2, 3, 2, 1), (1, 3)])
def test_lists_of_other_lengths(lengths):
    """A list as long as these sizes make it, whatever was recorded; 0 and 1 are sizes of their own to symbols."""
    def fn(x, n):
        for v in n.tolist():
            x = x + v
        return x * 2 + n.tolist()[0], x[x > 0].shape[0]
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm)
    for length in lengths:
        for first in (0, 1, 3):
            n = torch.arange(length) + first
            for x in (torch.ones(4), -torch.ones(5)):
                a, b = compiled(x, n), fn(x, n)
                assert torch.equal(a[0], b[0]) and a[1] == b[1]


@pytest.mark.parametrize("size", [lambda x: x[x > 0].shape[0], lambda x: x.nonzero().shape[0], lambda x: torch.unique(x > 0).numel()])
def test_sizes_that_data_decides_are_asked_again(size):
    """Recorded where all elements count: other data gives other sizes, and no graph may go on with the first."""
    def fn(x, n):
        a = size(x)
        b = sum(n.tolist())
        x = x + b
        return x * 2 + a, a
    compiled = kintsugi.compile(fn, backend=lambda gm, inputs: gm)
    for values in ([1.0, 2, 3, 4], [1.0, -2, 3, -4], [0.0, -1, 0, -2], [1.0, 2, 3, 4]):
        x, n = torch.tensor(values), torch.tensor([1, 2])
        a, b = compiled(x, n), fn(x, n)
        assert torch.equal(a[0], b[0]) and a[1] == b[1]


@pytest.mark.parametrize("captures", [False, True])
def test_a_decision_on_a_number_says_what_the_setting_is(captures):
    """With capture_scalar_outputs the text said that it was off."""
    import torch._dynamo

    def decides(x):
        s = x.sum().item()
        return x * 2 if s > 0 else x
    first = "Data-dependent branching" if captures else "Unsupported Tensor.item() call with capture_scalar_outputs=False"
    with torch._dynamo.config.patch(capture_scalar_outputs=captures):
        (reason,) = kintsugi.explain(decides)(torch.ones(2)).break_reasons
        assert reason.reason.startswith(first) and ("gb0170" if captures else "gb0124") in reason.reason
        with pytest.raises(kintsugi.Unsupported) as raised:
            kintsugi.compile(decides, fullgraph=True)(torch.ones(2))
        assert str(raised.value).startswith(first)
