"""A size that is marked with torch._dynamo.mark_dynamic and tested exactly nonetheless is told: an event, explain() and the logs name it, the user's line, the reason and the
remedy. Where the size stays open, nothing is told."""

import logging

import pytest
import torch

import kintsugi

WEIGHT = torch.randn(4, 3)


def compares(x):
    if x.shape[0] == 4:
        return x * 2
    return x + 1


def compares_what_is_computed(x):
    n = 2 * x.shape[0] + 1
    return x * 2 if 9 == n else x + 1


def compares_shapes(x):
    return x * 2 if x.shape == (4, 3) else x + 1


def compares_a_result(x):
    y = torch.cat([x, x.sin()], 1)
    return y * 2 if y.shape[0] == 4 else y


def asserts(x):
    assert x.shape[0] == 4
    return x + 1


def loops(x):
    for i in range(x.shape[0]):
        x = x + i
    return x


def loops_while(x):
    i = 0
    while i < x.shape[0]:
        x, i = x + i, i + 1
    return x


def is_taken_apart(x):
    a, b, c, d = x
    return a + b * c - d


def is_unbound(x):
    a, b, c, d = x.unbind(0)
    return a + b * c - d


FIXED = [compares, compares_what_is_computed, compares_shapes, compares_a_result, asserts, loops, loops_while, is_taken_apart, is_unbound]


def asks_for_more(x):
    return x * 2 if x.shape[0] > 3 else x + 1


def excludes_one(x):
    return x * 2 if x.shape[0] != 5 else x + 1


def is_made_flat(x):
    return x.view(x.shape[0] * 3).sin()


def is_viewed(x):
    return x.view(2, -1) * 2


def is_halved(x):
    return x[: x.shape[0] // 2] * 2


def is_split(x):
    a, b = x.chunk(2)
    return torch.cat([b, a])


def fills(x):
    return torch.zeros(x.shape[0]) + x.sum(1)


def meets_a_weight(x):
    return x @ WEIGHT.t()


OPEN = [asks_for_more, excludes_one, is_made_flat, is_viewed, is_halved, is_split, fills, meets_a_weight]


def marked(n=4, mark=torch._dynamo.mark_dynamic):
    x = torch.randn(n, 3)
    mark(x, 0)
    return x


def told(fn):
    return [e for e in kintsugi.events() if e["event"] == "exact_size" and e["name"] == fn.__qualname__]


@pytest.fixture(autouse=True)
def fresh():
    before = len(kintsugi.events())
    yield
    assert len(kintsugi.events()) >= before
    kintsugi.reset()


def call_with_sizes(fn, compiled, sizes=(4, 4, 8, 6, 4)):
    for n in sizes:
        x = marked(n)
        try:
            expected = fn(x.clone())
        except (AssertionError, ValueError) as error:
            with pytest.raises(type(error)):
                compiled(x)
            continue
        assert torch.allclose(expected, compiled(x))


@pytest.mark.parametrize("fn", FIXED, ids=lambda fn: fn.__name__)
def test_a_marked_size_that_is_tested_exactly_is_told_once(fn):
    before = len(told(fn))
    compiled = kintsugi.compile(fn)
    call_with_sizes(fn, compiled)
    assert compiled.stats()["recordings"] == 1
    events = told(fn)[before:]
    assert [(e["source"], e["size"]) for e in events] == [("x.shape[0]", 4)]
    code = fn.__code__
    assert events[0]["filename"] == code.co_filename and events[0]["line"] in {line for _, _, line in code.co_lines() if line != code.co_firstlineno} and events[0]["function"] == fn.__name__
    assert events[0]["text"].startswith("x.shape[0] is marked with mark_dynamic, but it is tested exactly: it must be 4, because ")
    assert "To leave the size open, " in events[0]["text"] and "maybe_mark_dynamic" in events[0]["text"]


@pytest.mark.parametrize("fn", OPEN, ids=lambda fn: fn.__name__)
def test_nothing_is_told_where_the_size_stays_open(fn):
    compiled = kintsugi.compile(fn)
    call_with_sizes(fn, compiled)
    assert compiled.stats()["recordings"] == 1 and not told(fn)


def test_sizes_that_are_perhaps_dynamic_or_not_marked_are_not_told():
    def decides(x):
        return x * 2 if x.shape[0] == 4 else x + 1

    compiled = kintsugi.compile(decides)
    compiled(marked(mark=torch._dynamo.maybe_mark_dynamic))
    compiled(torch.randn(7, 2, 2))
    kintsugi.compile(decides, dynamic=True)(torch.randn(4, 3))
    assert not told(decides)


def test_each_of_two_sizes_is_told():
    def decides(x):
        if x.shape[0] == 4 and x.shape[1] * 3 == 9:
            return x * 2
        return x + 1

    x = torch.randn(4, 3)
    torch._dynamo.mark_dynamic(x, [0, 1])
    kintsugi.compile(decides)(x)
    assert [(e["source"], e["size"]) for e in told(decides)] == [("x.shape[0]", 4), ("x.shape[1]", 3)]


def test_a_branch_may_fix_the_size():
    def decides(x):
        if x.shape[0] < 6:
            return x + 1
        if x.shape[0] == 8:
            return x * 2
        return x

    compiled = kintsugi.compile(decides)
    compiled(marked(4))
    assert not told(decides)
    compiled(marked(8))
    compiled(marked(8))
    assert [e["size"] for e in told(decides)] == [8]


def test_sizes_of_what_a_module_gets():
    class Net(torch.nn.Module):
        def forward(self, x):
            if x.shape[0] == 4:
                return x * 2
            return x

    kintsugi.compile(Net())(marked())
    assert [e["source"] for e in kintsugi.events() if e["event"] == "exact_size"][-1] == "x.shape[0]"


def test_dynamic_false_is_told():
    def plain(x):
        return x.sin().view(x.shape[0], -1)

    compiled = kintsugi.compile(plain, dynamic=False)
    compiled(marked(4))
    compiled(marked(8))
    assert [(e["size"], "because the function is compiled with dynamic=False" in e["text"]) for e in told(plain)] == [(4, True), (8, True)]


def is_viewed_as_four(x):
    return x.view(4, -1) * 2


def is_added_to_a_weight(x):
    return x + WEIGHT


def is_expanded(x):
    return x.unsqueeze(0).expand(2, 4, 3) * 2


def is_only_computed(x):
    return x.sin() @ WEIGHT.t()


@pytest.mark.parametrize("fn", [is_viewed_as_four, is_added_to_a_weight, is_expanded, is_only_computed], ids=lambda fn: fn.__name__)
def test_what_a_graph_for_a_custom_backend_fixes_is_told_once(fn):
    compiled_for = []

    def backend(gm, inputs):
        compiled_for.append(inputs)
        return gm.forward

    compiled = kintsugi.compile(fn, backend=backend)
    for n in (4, 4, 8):
        try:
            expected = fn(marked(n))
        except RuntimeError:
            with pytest.raises(RuntimeError):
                compiled(marked(n))
            continue
        assert compiled(marked(n)).shape == expected.shape
    fixed = fn is not is_only_computed
    assert (len(compiled_for) > 1) == fixed
    assert [(e["source"], e["size"], e["filename"], e["line"]) for e in told(fn)] == [("x.shape[0]", 4, __file__, fn.__code__.co_firstlineno + 1)] * fixed
    assert all("graph 1 is compiled for 4 only, because " in e["text"] and "maybe_mark_dynamic" in e["text"] for e in told(fn))


def test_explain_tells():
    explained = kintsugi.explain(compares)(marked())
    assert [(row["source"], row["size"], row["line"]) for row in explained.exact_sizes] == [("x.shape[0]", 4, compares.__code__.co_firstlineno + 1)]
    for text in (str(explained), explained.summary()):
        assert "Sizes that are marked as dynamic and tested exactly:" in text
        assert f":{compares.__code__.co_firstlineno + 1} in compares: x.shape[0] is marked with mark_dynamic, but it is tested exactly" in text
    assert "marked as dynamic" not in str(kintsugi.explain(asks_for_more)(marked()))


@pytest.mark.parametrize("setting, logger", [("recompiles", "torch._dynamo.guards"), ("dynamic", "torch.fx.experimental.symbolic_shapes")])
def test_logs_tell(setting, logger):
    records = []

    class Keep(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())

    handler = Keep()
    torch._logging.set_logs(**{setting: True if setting == "recompiles" else logging.INFO})
    name = logger if setting == "dynamic" else f"{logger}.__{setting}"
    logging.getLogger(name).addHandler(handler)
    try:
        kintsugi.compile(compares)(marked())
        kintsugi.events()
    finally:
        logging.getLogger(name).removeHandler(handler)
        torch._logging.set_logs()
    assert any("in compares: x.shape[0] is marked with mark_dynamic" in text for text in records)
