"""torch.compiler.is_compiling(): who asks decides (docs/design/is-compiling.md)."""

import sys
import types
import warnings

import pytest
import torch

import kintsugi
from kintsugi._engine import engine



@pytest.fixture
def paced():
    """Calls are compared with eager ones, whatever the tests' own settings are."""
    with kintsugi.config.patch(step_aside=True):
        yield


OPTIMIZERS = ("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")


def train(name, wrap, steps=6, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)
    step = wrap(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).pow(2).sum().backward()
        step()
    return [p.detach().clone() for p in model.parameters()], step


def differences(got, expected):
    """[(number of the tensor, its elements that differ, by how much)]"""
    return [(i, torch.nonzero(a != b).tolist(), (a - b)[a != b].tolist()) for i, (a, b) in enumerate(zip(got, expected)) if not torch.equal(a, b)]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("fullgraph", [False, True])
def test_optimizers_give_eagers_parameters(name, fullgraph):
    expected, _ = train(name, lambda optimizer: optimizer.step)

    def wrap(optimizer):
        @kintsugi.compile(fullgraph=fullgraph, backend="eager")
        def step():
            optimizer.step()

        return step

    got, step = train(name, wrap)
    again, _ = train(name, lambda optimizer: optimizer.step)  # if it differs from the first time, the machine's arithmetic has changed meanwhile
    assert not differences(got, expected) or not differences(got, again), (differences(got, expected), differences(again, expected))
    stats = kintsugi.stats(step)
    assert stats["breaks"] == 0 and stats["replays"] >= 4 and stats["variants"][0]["graphs"] == 1


@pytest.mark.parametrize("name", ("Adam", "RAdam"))
def test_step_itself_under_fullgraph(name):
    expected, _ = train(name, lambda optimizer: optimizer.step)
    got, _ = train(name, lambda optimizer: kintsugi.compile(optimizer.step, fullgraph=True, backend="eager"))
    assert differences(got, expected) == []


def test_step_after_the_compiler_package_was_imported():
    """It marks some functions of optimizers to stay out of compiled code."""
    import torch._dynamo.eval_frame

    torch._dynamo.eval_frame.TorchPatcher.patch()
    test_optimizers_give_eagers_parameters("Adam", True)


def asks(x):
    return x + (1 if torch.compiler.is_compiling() else 2)


def asks_otherwise(x):
    import torch._dynamo

    return x + (1 if torch._dynamo.is_compiling() else 2)


@pytest.mark.parametrize("fn", [asks, asks_otherwise])
def test_a_program_is_told_the_truth(fn):
    c, x = kintsugi.compile(fn), torch.zeros(2)
    for _ in range(60):
        assert torch.equal(c(x), torch.ones(2))
    assert not torch.compiler.is_compiling() and torch.equal(fn(x), torch.full((2,), 2.0))


def make_library(source):
    """A module whose code lies where packages are installed."""
    module = types.ModuleType("some_library")
    code = compile(source, "/somewhere/site-packages/some_library.py", "exec")
    exec(code, module.__dict__)
    sys.modules["some_library"] = module
    return module


SCAN = """
import torch

def is_some_compiling():
    return torch.compiler.is_compiling()

def scan(x, steps):
    if is_some_compiling():
        out = [x]
        for _ in range(steps):
            for _ in range(40):
                out[-1] = out[-1] + 0
            out.append(out[-1] + x)
        return out[-1]
    return x * (steps + 1)
"""


def test_a_library_is_told_otherwise_where_that_is_slower(paced):
    library = make_library(SCAN)
    c, x = kintsugi.compile(lambda x: library.scan(x, 6)), torch.ones(4)
    assert torch.equal(c(x), x * 7)
    assert [(row["who"], row["answer"], row["function"]) for row in engine.dump(c.entries()[0])["asked"]] == [("library", True, "scan")]
    for _ in range(200):
        assert torch.equal(c(x), x * 7)
    rows = engine.dump(c.entries()[0])["asked"]
    assert rows and all((row["who"], row["answer"]) == ("library", False) for row in rows)
    assert any("is_compiling() False" in e["reason"] for e in kintsugi.events() if e["event"] == "fallback")


def test_eager_calls_in_between_are_as_without_compiling(paced):
    library = make_library(SCAN + """
seen = []

def work(x):
    if not is_some_compiling():
        seen.append(1)
    return x.sin()
""")
    c, x = kintsugi.compile(lambda x: library.work(x)), torch.ones(4)
    for _ in range(120):
        c(x)
    stats = kintsugi.stats(c)
    assert stats["eager_calls"] and len(library.seen) >= sum(stats["eager_calls"].values())


def test_code_that_is_not_looked_into_is_not_compiled():
    seen = []

    @torch.compiler.disable
    def apart(x):
        seen.append(torch.compiler.is_compiling())
        return x

    c = kintsugi.compile(lambda x: apart(x + 1) * 2)
    for _ in range(4):
        c(torch.ones(2))
    assert seen == [False] * 4


def test_explain_says_who_asked():
    library = make_library(SCAN)
    text = str(kintsugi.explain(lambda x: library.scan(asks(x), 1))(torch.ones(2)))
    assert "is_compiling() was asked:" in text
    assert "in asks: answered True (the program itself asks)" in text and "in scan: answered True" in text
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    assert "answered False (told True, an optimizer" in str(kintsugi.explain(optimizer.step)())


def test_a_break_behind_an_exit_raises_under_fullgraph():
    def f(x, log):
        log.append(1)
        if len(log) > 3:
            kintsugi.graph_break()
        return x + 1

    c, log = kintsugi.compile(f, fullgraph=True), []
    with pytest.raises(kintsugi.Unsupported):
        for _ in range(5):
            c(torch.ones(2), log)


def test_is_dynamo_compiling():
    """The program is told True in every call that is compiled, False outside."""
    def fn(x):
        return (x + 1 if torch.compiler.is_dynamo_compiling() else x), torch.compiler.is_dynamo_compiling()

    compiled = kintsugi.compile(fn, fullgraph=True)
    for _ in range(3):
        out, told = compiled(torch.ones(2))
        assert told and out[0] == 2
    assert fn(torch.ones(2))[1] is False and torch.compiler.is_dynamo_compiling() is False


FAILS = """
import torch

state = type("State", (), {})()
state.inside, state.depth = False, 0
log, calls = [], []

def is_some_compiling():
    return torch.compiler.is_compiling()

def guarded(x, fail):
    \"\"\"Notes in an older object that it runs, and takes that back.\"\"\"
    state.inside, before = True, state.depth
    state.depth = 3
    try:
        with torch.no_grad():
            return fail(x)
    finally:
        state.inside, state.depth = False, before

def raises(x):
    if is_some_compiling():
        raise NotImplementedError("not while compiling")
    return x.sin() + 1

def shapes(x):
    y = torch.nn.functional.dropout(x.cos(), 0.5, training=True)
    return y.view(-1) if not is_some_compiling() else y.view(7, 7)

def handed_on(x):
    return guarded(x, raises) + guarded(x, shapes).sum()

def writes(x):
    x.add_(1)
    return raises(x)

def keeps(x):
    calls.append(len(calls))
    return raises(x)

def forgets(x):
    state.depth += 1
    return raises(x)

def cleans_up(x):
    try:
        return raises(x)
    finally:
        log.append(1)

def fills(x):
    y = x.clone()
    y[0] = x.sum()
    return raises(y)

def fills_a_view(x):
    x[0] = 3
    return raises(x)

source, norm = iter(range(9)), torch.nn.BatchNorm1d(3)

def advances(x):
    next(source)
    return raises(x)

def counts(x):
    return raises(norm(torch.ones(2, 3)) + x)

def always(x):
    is_some_compiling()
    return x.view(7, 7)

def waiting():
    try:
        yield 1
    finally:
        log.append(2)

def leaves_open(x):
    g = waiting()
    next(g)
    return raises(x)
"""


@pytest.mark.parametrize("name", ["raises", "shapes", "handed_on", "fills"])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_library_that_fails_where_it_is_told_is_not_told(name, fullgraph):
    library = make_library(FAILS)
    work = getattr(library, name)
    c = kintsugi.compile(lambda x: work(x) * 2, fullgraph=fullgraph)
    for i in range(6):
        x = torch.randn(3, 3, generator=torch.Generator().manual_seed(i))
        torch.manual_seed(i)
        expected = work(x) * 2
        torch.manual_seed(i)
        torch.testing.assert_close(c(x), expected)
        assert torch.equal(torch.rand(2), (torch.manual_seed(i), work(x), torch.rand(2))[2])
        assert (library.state.inside, library.state.depth) == (False, 0)
    assert kintsugi.stats(c)["recordings"] == 2 and kintsugi.stats(c)["replays"] >= 4
    told = [e["reason"] for e in kintsugi.events() if e["event"] == "fallback" and "was told of compiling raised" in e["reason"]]
    assert told and "is_compiling() False" in told[-1]
    assert all(not row["answer"] for row in engine.dump(c.entries()[0])["asked"])


@pytest.mark.parametrize("name", ["writes", "keeps", "forgets", "cleans_up", "leaves_open", "fills_a_view", "advances", "counts"])
def test_a_call_that_has_changed_something_is_not_made_again(name):
    library = make_library(FAILS)
    c, x = kintsugi.compile(lambda x: getattr(library, name)(x)), torch.zeros(3)
    with pytest.raises(NotImplementedError):
        c(x)
    assert kintsugi.stats(c)["recordings"] == 1
    changed = {"writes": x[0].item() == 1, "keeps": library.calls == [0], "forgets": library.state.depth == 1, "cleans_up": library.log == [1],
               "leaves_open": library.log == [2], "fills_a_view": x[0].item() == 3, "advances": next(library.source) == 1,
               "counts": library.norm.num_batches_tracked.item() == 1}  # once
    assert changed[name]


def test_a_call_that_has_warned_in_python_code_of_torch_is_not_made_again():
    """Masked tensors warn of operators that they do not have, and then these raise."""
    def program(x, masked):
        torch.vmap(lambda t: t * 2)(x)  # asks whether something is compiling
        return torch.mm(masked, x)

    x = torch.ones(3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        masked = torch.masked.masked_tensor(x, x > 0)
    for function in (program, kintsugi.compile(program)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(TypeError):
                function(x, masked)
        assert len(caught) == 1


def test_a_call_that_fails_without_being_told_as_well_raises_that():
    library = make_library(FAILS)
    c, x = kintsugi.compile(lambda x: library.always(x)), torch.zeros(3)
    with pytest.raises(RuntimeError, match="invalid for input of size 3"):
        c(x)
    assert c(torch.zeros(49)).shape == (7, 7)
    assert c(x=torch.zeros(49)).shape == (7, 7)
    assert any(row["answer"] for entry in c.entries() for row in engine.dump(entry)["asked"])  # libraries are told again


DETOUR = """
import torch

@torch.library.custom_op("kintsugi_tests::%(name)s", mutates_args=())
def written_elsewhere(x: torch.Tensor) -> torch.Tensor:
    calls.append(1)
    return x * 3

@written_elsewhere.register_fake
def _(x):
    return torch.empty_like(x)

calls = []

def can_use_the_fast_one():
    "Of %(name)s: code that is equal counts as the same."
    return not torch.compiler.is_compiling()

def triple(x):
    if can_use_the_fast_one():
        %(fast)s
        return x * 3
    return torch.ops.kintsugi_tests.%(name)s(x)
"""


def call_with_detour(name, fast, times, **options):
    """The library, and what is compiled that uses it."""
    library = make_library(DETOUR % {"name": name, "fast": fast})
    compiled = kintsugi.compile(lambda x: torch.relu(library.triple(x + 1)) - 1, **options)
    x = torch.randn(4)
    for _ in range(times):
        assert torch.equal(compiled(x), torch.relu((x + 1) * 3) - 1)
    return library, compiled


def test_a_detour_over_an_operator_written_elsewhere_is_not_taken():
    """That runs as Python and divides what is compiled; what the library does otherwise does not."""
    library, compiled = call_with_detour("plain_detour", "pass", 5)
    assert len(library.calls) == 1
    entries = kintsugi._api.engine_of(compiled).entries()
    assert [(a["function"], a["who"], a["answer"]) for v in entries for a in engine.dump(v)["asked"]] == [("can_use_the_fast_one", "library", False)]
    said = [e["reason"] for e in kintsugi.events() if e["event"] == "fallback"]
    assert any("is_compiling() False" in text for text in said)


def test_a_detour_is_taken_again_where_the_graph_would_break():
    library, compiled = call_with_detour("shorter_detour", "if x.sum() > 1000: return x * 4", 8)
    assert len(library.calls) > 4 and kintsugi.stats(compiled)["breaks"] == 0


@pytest.mark.parametrize("options", [{"fullgraph": True}, {"backend": lambda graph, example: graph.forward}], ids=["fullgraph", "backend"])
@pytest.mark.parametrize("first", [False, True])
def test_detours_stay_where_one_graph_is_asked_for(options, first):
    """Also if the library was told otherwise before, in a recording that may have more graphs."""
    library, _ = call_with_detour("asked_" + "_".join(options) + str(first), "pass", 3 if first else 0)
    compiled = kintsugi.compile(lambda x: library.triple(x), **options)
    before, x = len(library.calls), torch.randn(4)
    for _ in range(4):
        assert torch.equal(compiled(x), x * 3)
    assert len(library.calls) >= before + 4
