"""Which way a call takes: replay, recording, or the original function; and what is counted and logged about it."""

import asyncio
import gc
import inspect
import subprocess
import sys
import threading

import pytest

from kintsugi import _kintsugi
from kintsugi._kintsugi import Compiled


@pytest.fixture(autouse=True)
def fresh():
    options = _kintsugi.options()
    _kintsugi.events()
    yield
    for name, value in options.items():
        _kintsugi.set_option(name, value)
    _kintsugi.force_exit(None)


def events(kind):
    return [event for event in _kintsugi.events() if event["event"] == kind]


def pair(x, y=1):
    return (x, y)


def test_first_call_records_and_later_calls_replay():
    compiled = Compiled(pair)
    assert [compiled(1), compiled(1), compiled(1)] == [(1, 1)] * 3
    stats = compiled.stats()
    assert (stats["calls"], stats["recordings"], stats["replays"], stats["eager_calls"]) == (3, 1, 2, {})
    (entry,) = stats["variants"]
    assert entry["hits"] == 2
    assert entry["reason"] == ""
    assert entry["bytes"] > 0
    (event,) = events("record")
    assert event["name"] == "pair"
    assert event["line"] == pair.__code__.co_firstlineno
    assert event["entry"] == entry["number"]


def test_each_call_shape_has_its_own_entry():
    compiled = Compiled(pair)
    for _ in range(2):
        assert compiled(1) == (1, 1)
        assert compiled(1, 2) == (1, 2)
        assert compiled(1, y=3) == (1, 3)
        assert compiled(y=4, x=5) == (5, 4)
    assert compiled.stats()["recordings"] == 4
    assert compiled.stats()["replays"] == 4


def test_replaced_code_finds_no_entry():
    def f(x):
        return (x, "old")

    def g(x):
        return (x, "new")

    compiled = Compiled(f)
    assert compiled(1) == compiled(1) == (1, "old")
    old = f.__code__
    f.__code__ = g.__code__
    assert compiled(1) == compiled(1) == (1, "new")
    f.__code__ = old
    assert compiled(1) == (1, "old")
    assert compiled.stats()["recordings"] == 2


def test_changed_defaults_are_seen():
    def f(x, y=1, *, z=2):
        return (x, y, z)

    compiled = Compiled(f)
    assert compiled(0) == compiled(0) == (0, 1, 2)
    f.__defaults__ = (5,)
    assert compiled(0) == (0, 5, 2)
    f.__kwdefaults__ = {"z": 6}
    assert compiled(0) == (0, 5, 6)
    f.__defaults__ = None
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        compiled(0)
    f.__defaults__ = (7,)
    del f.__kwdefaults__["z"]
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'z'"):
        compiled(0)


def test_methods_and_callable_objects():
    class Adder:
        def __init__(self, n):
            self.n = n

        def add(self, x):
            return self.n + x

        def __call__(self, x):
            return self.n - x

    adder = Adder(5)
    for compiled, want in ((Compiled(adder.add), 7), (Compiled(adder), 3)):
        assert [compiled(2) for _ in range(3)] == [want] * 3
        assert compiled.stats()["recordings"] == 1
        assert compiled.stats()["replays"] == 2
    compiled = Compiled(adder)
    assert compiled(2) == 3
    Adder.__call__ = lambda self, x: "patched"
    assert compiled(2) == compiled(2) == "patched"


@pytest.mark.parametrize("fn, args, reason", [
    (len, ([1, 2],), "not a Python function"),
    (int, ("5",), "not a Python function"),
    ([].append, (1,), "not a Python function"),
    (lambda: (yield 1), (), "a generator function"),
])
def test_calls_that_stay_eager(fn, args, reason):
    compiled = Compiled(fn)
    results = [compiled(*args) for _ in range(2)]
    assert [type(result) for result in results] == [type(fn(*args))] * 2
    assert compiled.stats()["eager_calls"] == {reason: 2}
    assert [event["reason"] for event in events("fallback")] == [reason]


def test_coroutine_function():
    async def f(x):
        return x + 1

    compiled = Compiled(f)
    assert asyncio.run(compiled(1)) == 2
    assert compiled.stats()["eager_calls"] == {"a coroutine function": 1}


def test_disabled():
    compiled = Compiled(pair, disable=True)
    assert compiled(1) == (1, 1)
    assert compiled.stats()["eager_calls"] == {"compilation is disabled": 1}
    compiled = Compiled(pair)
    _kintsugi.set_option("disable", True)
    assert compiled(1) == (1, 1)
    _kintsugi.set_option("disable", False)
    assert compiled(1) == (1, 1)
    assert compiled.stats()["eager_calls"] == {"compilation is disabled": 1}
    assert compiled.stats()["recordings"] == 1


@pytest.mark.parametrize("install, remove", [
    (lambda: sys.settrace(lambda *args: None), lambda: sys.settrace(None)),
    (lambda: sys.setprofile(lambda *args: None), lambda: sys.setprofile(None)),
])
def test_tools_see_an_eager_call(install, remove):
    compiled = Compiled(pair)
    compiled(1)
    install()
    try:
        result = compiled(1)
    finally:
        remove()
    assert result == (1, 1)
    assert compiled.stats()["eager_calls"] == {"a tracing or profiling tool is active": 1}
    assert compiled(1) == (1, 1)
    assert compiled.stats()["replays"] == 1


def test_trace_function_sees_the_lines_of_the_function():
    compiled = Compiled(pair)
    compiled(1)
    seen = []

    def trace(frame, event, arg):
        seen.append((frame.f_code.co_name, event))
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        compiled(1)
    finally:
        sys.settrace(old)
    assert ("pair", "call") in seen
    assert ("pair", "line") in seen


def test_compiled_inside_compiled():
    inner = Compiled(pair)

    def outer(x):
        return inner(x)

    compiled = Compiled(outer)
    assert [compiled(1) for _ in range(3)] == [(1, 1)] * 3
    assert inner.stats()["eager_calls"] == {"called while another call was being recorded": 1}


def test_user_exceptions_pass_through():
    def f(x):
        raise KeyError(x)

    compiled = Compiled(f)
    for _ in range(3):
        with pytest.raises(KeyError, match="5") as caught:
            compiled(5)
        assert caught.value.__context__ is None
        assert caught.traceback[-1].name == "f"


def test_recompile_limit_keeps_the_good_entries():
    def f(x, **names):
        return x, sorted(names)

    compiled = Compiled(f)
    _kintsugi.set_option("recompile_limit", 2)
    kinds = [{"a": 1}, {"b": 1}, {"c": 1}]
    for names in kinds:
        compiled(1, **names)
    for names in kinds * 2:
        assert compiled(1, **names) == f(1, **names)
    stats = compiled.stats()
    assert len(stats["variants"]) == 2
    assert stats["eager_calls"] == {"the recompile limit is reached": 3}
    (limit,) = events("limit")
    assert limit["limit"] == 2
    assert limit["last"]


def test_a_recompile_says_why():
    def f(x):
        return (x, "number") if x > 0 else (x, "other")

    compiled = Compiled(f)
    compiled(1)
    compiled(1.5)
    (event,) = events("recompile")
    assert "x" in event["failures"]
    assert compiled.stats()["variants"][0]["cause"] == event["failures"]
    assert compiled.stats()["guard_misses"] == 1


def test_reset_in_the_middle_of_a_call():
    def f(x, action):
        action()
        return (x, action)

    compiled = Compiled(f)
    actions = [lambda: None, compiled.reset, _kintsugi.reset]
    for action in actions:
        for _ in range(3):
            assert compiled(1, action) == (1, action)
    gc.collect()


def test_module_reset_drops_everything():
    compiled = Compiled(pair)
    compiled(1)
    _kintsugi.reset()
    assert compiled.stats()["calls"] == 0
    assert compiled.entries() == []
    assert compiled(1) == (1, 1)
    assert compiled.stats()["recordings"] == 1


def recursion_depths(wrap):
    """How deep three runs into a RecursionError get, calling through C each time."""
    seen = []

    def f(n, stop):
        seen[:] = [n]
        if n is stop:
            return 0
        return max(map(call, [[n]], [stop]))

    call = wrap(f)
    depths = []
    for _ in range(3):
        with pytest.raises(RecursionError):
            call([], None)
        depth, n = 0, seen.pop()
        while n:
            depth, n = depth + 1, n[0]
        depths.append(depth)
    return depths


def test_recursion_error_comes_where_eager_has_it():
    assert recursion_depths(Compiled) == recursion_depths(lambda f: f)


def test_recursion_in_bytecode_is_as_deep_as_in_eager():
    """Of CPython 3.12 on calls through C have a limit of their own, and eager's function calls itself without one."""
    def f(n, x):
        return x if n == 0 else call(n - 1, x) + 1

    call = Compiled(f)
    left = sys.getrecursionlimit() - len(inspect.stack(0)) - 30
    assert left > 800
    assert [call(left, 0.5) for _ in range(3)] == [left + 0.5] * 3
    with pytest.raises(RecursionError):
        call(10 * left, 0.5)
    assert call(left, 0.5) == left + 0.5


DEEP = """
import sys, threading, kintsugi
from kintsugi._kintsugi import Compiled
sys.setrecursionlimit(400_000)

def f(n, x):
    return x if n == 0 else call(n - 1, x) + 1

call = Compiled(f)

def run():
    for _ in range(2):
        try:
            print(call(300_000, 0.5))
        except RecursionError as error:
            print("RecursionError", error)
        print(call(100, 0.5))

run()
threading.stack_size(1 << 20)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def test_a_stack_that_is_used_up_raises():
    """Calls of compiled functions use the stack of C, and a limit above what it holds is no reason for a crash."""
    child = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stderr[-300:]
    lines = child.stdout.splitlines()
    assert lines[1::2] == ["100.5"] * 4 and all(line.startswith("RecursionError") for line in lines[::2]), child.stdout


def test_forced_exits_give_the_same_result_and_are_counted():
    def f(x, items):
        items.append(x)
        total = sum(items)
        return (total, [x, total], {"x": x})

    compiled = Compiled(f)
    assert compiled(1, [2]) == f(1, [2])
    assert compiled(1, [2]) == f(1, [2])
    left = 0
    for k in range(8):
        _kintsugi.force_exit(k)
        before = compiled.stats()["bail_outs"]
        items = [2]
        assert compiled(1, items) == f(1, [2])
        assert items == [2, 1]
        left += compiled.stats()["bail_outs"] - before
    assert left >= 1
    _kintsugi.force_exit(None)
    before = compiled.stats()["bail_outs"]
    assert compiled(1, [2]) == f(1, [2])
    assert compiled.stats()["bail_outs"] == before
    assert compiled.stats()["branches"] == 0


def test_a_branch_on_tensor_data_is_decided_at_each_call():
    torch = pytest.importorskip("torch")

    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    compiled = Compiled(f)
    up, down = torch.ones(3), -torch.ones(3)
    for x in (up, up, down, down, up, down):
        assert torch.equal(compiled(x), f(x))
    stats = compiled.stats()
    assert stats["recordings"] == 1
    assert stats["bail_outs"] >= 1
    assert stats["breaks"] >= 1


def test_fullgraph_raises_at_every_call():
    torch = pytest.importorskip("torch")

    class Refused(Exception):
        pass

    def f(x):
        return x + 1 if x.sum() > 0 else x - 1

    _kintsugi.set_option("error_class", Refused)
    compiled = Compiled(f, fullgraph=True)
    for _ in range(5):
        with pytest.raises(Refused):
            compiled(torch.ones(3))
    whole = Compiled(lambda x: x.sin() + 1, fullgraph=True)
    for _ in range(3):
        assert torch.equal(whole(torch.ones(3)), torch.ones(3).sin() + 1)
    assert whole.stats()["replays"] == 2


def test_threads_share_one_compiled_function():
    compiled = Compiled(lambda x, *rest, **more: (x, rest, more))
    failures = []

    def work(number):
        for i in range(300):
            got = compiled(i, number, key=number)
            if got != (i, (number,), {"key": number}):
                failures.append(got)

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert failures == []
    assert compiled.stats()["calls"] == 1200


def test_no_leak_over_many_calls():
    compiled = Compiled(lambda x, y=2, *rest, **more: (x, y))
    token = object()

    def run(count):
        for _ in range(count):
            compiled(token)
            compiled(token, 1, 2, z=token)

    run(100)
    gc.collect()
    before = sys.getallocatedblocks(), sys.getrefcount(token), sys.getrefcount(compiled.fn)
    run(50_000)
    gc.collect()
    after = sys.getallocatedblocks(), sys.getrefcount(token), sys.getrefcount(compiled.fn)
    assert after[1:] == before[1:]
    assert after[0] - before[0] < 50
    assert compiled.stats()["replays"] > 99_000


def test_options():
    assert _kintsugi.options()["recompile_limit"] == 8
    _kintsugi.set_option("recompile_limit", 3)
    _kintsugi.set_option("strict_breaks", 1)
    _kintsugi.set_option("error_class", ValueError)
    options = _kintsugi.options()
    assert (options["recompile_limit"], options["strict_breaks"], options["error_class"]) == (3, True, ValueError)
    with pytest.raises(KeyError):
        _kintsugi.set_option("nothing", 1)
    with pytest.raises(ValueError):
        _kintsugi.set_option("recompile_limit", -1)
    with pytest.raises(TypeError):
        _kintsugi.set_option("error_class", 5)


def test_events_are_drained_and_written(tmp_path):
    path = tmp_path / "events.jsonl"
    _kintsugi.log_file(path)
    try:
        Compiled(pair)(1)
    finally:
        _kintsugi.log_file(None)
    assert [event["event"] for event in _kintsugi.events()] == ["record"]
    assert _kintsugi.events() == []
    assert '"record"' in path.read_text()
    with pytest.raises(OSError):
        _kintsugi.log_file(tmp_path / "missing" / "x")


def test_time_guards():
    compiled = Compiled(pair)
    with pytest.raises(ValueError):
        _kintsugi.time_guards(compiled, (1,))
    compiled(1)
    assert 0 < _kintsugi.time_guards(compiled, (1,), 100) < 1e6
    with pytest.raises(ValueError):
        _kintsugi.time_guards(compiled, (1, 2), 100)


def test_nothing_is_recording_now():
    assert _kintsugi.is_recording() is False
