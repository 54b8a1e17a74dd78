"""torch.profiler shows one row for each replay, named as PyTorch names its compiled regions."""
import re
import subprocess
import sys

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import kintsugi

ROW = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)$")


def rows_of(work):
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        work()
    return {e.key: e.count for e in prof.key_averages() if ROW.match(e.key)}, {e.key: e.count for e in prof.key_averages()}


def frame_of(key):
    return ROW.match(key).group(1)


def test_each_replay_has_a_row():
    f = kintsugi.compile(lambda x: torch.sin(x) * 2)
    g = kintsugi.compile(lambda x: torch.cos(x) + x.dim())
    x, y = torch.ones(3), torch.ones(4, 1)
    for _ in range(2):
        f(x), g(x), g(y)
    rows, all_rows = rows_of(lambda: (f(x), f(x), g(x), g(y)))
    assert sorted(rows.values()) == [1, 1, 2]
    twice = [key for key, count in rows.items() if count == 2]
    others = [key for key, count in rows.items() if count == 1]
    assert frame_of(others[0]) == frame_of(others[1]) != frame_of(twice[0])
    assert sorted(ROW.match(key).group(2) for key in others) == ["0", "1"]
    assert all_rows["aten::sin"] == 2 and all_rows["aten::cos"] == 2


def test_recordings_have_none():
    f = kintsugi.compile(lambda x: x + 1)
    rows, _ = rows_of(lambda: f(torch.ones(2)))
    assert rows == {}
    rows, _ = rows_of(lambda: f(torch.ones(2)))
    assert list(rows.values()) == [1]


def test_row_ends_with_an_exception():
    table = {}

    def f(x, k):
        y = x * 2
        return y + table[k]

    g = kintsugi.compile(f)
    table["a"] = 1
    for _ in range(3):
        g(torch.ones(2), "a")

    def work():
        with pytest.raises(KeyError, match="b"):
            g(torch.ones(2), "b")
        assert g(torch.ones(2), "a").tolist() == [3, 3]

    rows, _ = rows_of(work)
    assert list(rows.values()) in ([1], [2])


def decide(x):
    x = torch.sin(x) * 2
    if x.sum() > 0:
        x = x + 1
    return torch.cos(x) - x


def test_the_rest_of_a_call_has_a_row():
    f = kintsugi.compile(decide)
    for _ in range(2):
        f(torch.ones(3))
    _, rows = rows_of(lambda: f(-torch.ones(3)))
    assert sum(count for key, count in rows.items() if key.startswith("Rest of the call")) == 1


def test_eager_calls_say_why():
    f = kintsugi.compile(decide)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as prof:  # it uses the interpreter's own tracing
        f(torch.ones(3))
    found = [e.key for e in prof.key_averages() if "Torch-Compiled" in e.key]
    assert len(found) == 1 and found[0].endswith("(eager: a tracing or profiling tool is active)")


def test_the_first_call_of_a_process_may_be_traced():
    """Events wait for a pending call there, and modules are imported while signals are held: on CPython 3.11 the two made an endless loop."""
    program = ("import torch, kintsugi\nfrom torch.profiler import profile\nf = kintsugi.compile(lambda x: x + 1)\n"
               "with profile(with_stack=True):\n    print(f(torch.ones(3)).tolist())\nprint(f(torch.ones(2)).tolist())\n")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert ran.stdout.split("\n")[:2] == ["[2.0, 2.0, 2.0]", "[2.0, 2.0]"], ran.stdout + ran.stderr
