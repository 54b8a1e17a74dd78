"""Calls that leave a recording on the way, and whose rest is recorded as a branch, are told like recompiles: which value, before and now, the line, and what to do."""

import logging

import pytest
import torch

import kintsugi


def scaled(k):
    return lambda t: t * k


class Data:
    def fn(x):
        if x.sum() > 0:  # here
            return x * 2
        return x - 1

    calls = [(torch.ones(3),), (torch.ones(3),), (-torch.ones(3),)]
    changes, hint = [("x.sum() > 0", "True", "False")], "torch.where"


class SizeOfData:
    def fn(x):
        y = x[x > 0]
        if y.shape[0] == 3:  # here
            return y * 2
        return y

    calls = [(torch.tensor([1.0, 2.0, 3.0, -1.0]),), (torch.tensor([1.0, 2.0, 3.0, -1.0]),), (torch.tensor([1.0, 1.0, -1.0, -1.0]),)]
    changes, hint = [("y.shape[0] == 3", "True", "False")], "each outcome needs a recording of its own"


class MarkedSize:
    def fn(x):
        if x.shape[0] == 4:  # here
            return x * 2
        return x

    def marked(n):
        x = torch.ones(n)
        torch._dynamo.mark_dynamic(x, 0)
        return x

    calls = [(marked(4),), (marked(4),), (marked(5),)]
    changes, hint = [("x.shape[0] == 4", "True", "False")], "each outcome needs a recording of its own"


class NumberBehindABreak:
    def fn(x, o):
        torch._dynamo.graph_break()
        if o["n"] == 3:  # here
            return x + 1
        return x * 2

    calls = [(torch.ones(3), {"n": 3}), (torch.ones(3), {"n": 3}), (torch.ones(3), {"n": 4}), (torch.ones(3), {"n": 5})]
    changes, hint = [("o['n']", "3", "4"), ("o['n']", "4", "5")], "torch.tensor(o['n'])"


class ClosureMadeInEachCall:
    def fn(x, k):
        f = lambda t: t * k  # noqa: E731  # here
        torch._dynamo.graph_break()
        return f(x)

    calls = [(torch.ones(3), 1.0), (torch.ones(3), 1.0), (torch.ones(3), 2.0)]
    changes, hint = [("k", "1.0", "2.0")], "torch.tensor(k)"


class ClosureFromOutside:
    def fn(x, box):
        box["f"] = box["g"]
        torch._dynamo.graph_break()
        return box["f"](x)  # here

    calls = [(torch.ones(3), {"g": scaled(1.0)}), (torch.ones(3), {"g": scaled(2.0)}), (torch.ones(3), {"g": scaled(3.0)})]
    changes = [("box['f'].__closure__[0].cell_contents", "1.0", "2.0"), ("box['f'].__closure__[0].cell_contents", "2.0", "3.0")]
    hint = "the variables that box['f'] captures differ"


class Text:
    def fn(x, names):
        torch._dynamo.graph_break()
        if len(names[0]) > 3:  # here
            return x
        return x * 2

    calls = [(torch.ones(3), ["abcd"]), (torch.ones(3), ["abcd"]), (torch.ones(3), ["a"])]
    changes, hint = [("names[0]", "'abcd'", "'a'")], "each string needs a recording"


class Rounds:
    def fn(x, numbers):
        for n in numbers:  # here
            x = x + n
        return x

    calls = [(torch.ones(3), iter([1.0] * n)) for n in (2, 2, 3)]
    changes, hint = [("the loop here", "at its end", "going on")], "each number of rounds"


class Function:
    def fn(x, fs):
        for f in fs:
            x = f(x)  # here
            torch._dynamo.graph_break()
        return x

    calls = [(torch.ones(3), [torch.sin, torch.cos]), (torch.ones(3), [torch.sin, torch.cos]), (torch.ones(3), [torch.sin, torch.sin])]
    changes, hint = [("<unnamed value>", "is cos", "sin")], "is a different object"


EXAMPLES = [Data, SizeOfData, MarkedSize, NumberBehindABreak, ClosureMadeInEachCall, ClosureFromOutside, Text, Rounds, Function]


def line_of(example):
    import inspect

    lines, first = inspect.getsourcelines(example.__dict__["fn"])
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# here")) if any("# here" in line for line in lines) else None


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    yield
    kintsugi.reset()


def compile_and_call(example):
    compiled = kintsugi.compile(example.__dict__["fn"])
    for args in example.calls:
        compiled(*args)
    return compiled


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.__name__)
def test_each_branch_has_its_reason(example):
    calls = [tuple(list(a) if hasattr(a, "__next__") else a for a in args) for args in example.calls]
    example.calls = [tuple(iter(a) if isinstance(a, list) and example is Rounds else a for a in args) for args in calls]
    compiled = compile_and_call(example)
    assert compiled.stats()["recordings"] == 1 and kintsugi.stats(compiled)["branches"] == len(example.changes)
    cause, = kintsugi.recompiles(compiled)
    assert cause.kind == "branch" and cause.changes == example.changes and cause.count == len(example.changes)
    assert cause.title.startswith(f"a branch was recorded {'once' if cause.count == 1 else f'{cause.count} times'}: ") and cause.title.endswith(" changed")
    assert (cause.filename, cause.line) == (__file__, line_of(example))
    assert any(example.hint in hint for hint in cause.hints) and "keep it the same" not in cause.hints
    assert "<value" not in str(cause.hints + cause.notes)


def test_a_line_of_a_library_is_told_at_the_line_of_the_user():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x):
            torch._dynamo.graph_break()
            return self.drop(x)  # here

    net = Net().eval()
    compiled = kintsugi.compile(net)
    compiled(torch.ones(3))
    compiled(torch.ones(3))
    net.drop.train()
    compiled(torch.ones(3))
    cause = kintsugi.recompiles(compiled)[-1]
    assert cause.filename == __file__ and cause.changes[0][1:] == ("False", "True") and "training" in cause.changes[0][0]


def test_presence_and_functions_are_told_of_recompiles():
    def ask(x, o):
        return o.g(x) if hasattr(o, "g") else x

    class Box:
        pass

    compiled, box = kintsugi.compile(ask), Box()
    compiled(torch.ones(3), box)
    box.g = lambda t: t.sin()
    compiled(torch.ones(3), box)
    box.g = lambda t: t.cos()
    compiled(torch.ones(3), box)
    cause, = kintsugi.recompiles(compiled)
    assert cause.changes[0] == ("o.g", "absent", "there") and "o.g is there in some calls only" in cause.hints[0]
    what, was, now = cause.changes[1]
    assert what == "o.g" and "<lambda> (test_branch_reasons.py:" in was and "<lambda> (test_branch_reasons.py:" in now and was != now
    assert "o.g is a different object: create it once" in cause.hints[1]


def test_the_log_of_recompiles_tells_branches():
    records = []

    class Keep(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())

    handler = Keep()
    torch._logging.set_logs(recompiles=True)
    logging.getLogger("torch._dynamo.guards.__recompiles").addHandler(handler)
    try:
        compile_and_call(NumberBehindABreak)
        kintsugi.events()
    finally:
        logging.getLogger("torch._dynamo.guards.__recompiles").removeHandler(handler)
        torch._logging.set_logs()
    told = [text for text in records if text.startswith("A branch of function ")]
    assert len(told) == 2 and "o['n'] was 3, now 4 (at " in told[0] and f":{line_of(NumberBehindABreak)} in fn)" in told[0] and "What to do about it: " in told[0]


def test_exits_name_their_line():
    compile_and_call(Data)
    exit_, = [event for event in kintsugi.events() if event["event"] == "exit"][-1:]
    assert exit_["line"] == line_of(Data) and exit_["cause"] == "the value here == True (now False)" and exit_["why"]


def test_all_reasons_can_be_printed():
    """print(kintsugi.recompiles(fn)), which the logs name, had been a list of dataclasses in one line."""
    compiled = kintsugi.compile(lambda x, n: x * n, backend="eager")
    assert str(kintsugi.recompiles(compiled)) == "no recompiles"
    for n in (1, 2):
        compiled(torch.ones(3), n)
    causes = kintsugi.recompiles(compiled)
    assert len(causes) == 1
    text = str(causes)
    assert text.startswith("1. recompiled once: n changed\n") and "n == 1, now 2" in text and "hint: " in text
