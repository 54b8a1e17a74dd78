"""What a program may do around compiled functions: threads, signals, deep recursion, tools, copies, the end of the process."""

import copy
import ctypes
import functools
import gc
import io
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import weakref

import pytest
import torch
from torch import nn

import kintsugi
from kintsugi._engine import engine

pytestmark = pytest.mark.usefixtures("no_failure_of_our_own")


X = torch.linspace(-1, 2, 4)


# ---- threads ----


def branching(x, k, flag):
    y = x.sin() + k
    if flag:
        y = y.cos()
    for i in range(k):
        y = y + i
    if y.sum() > 0:
        y = y * 2
    return y


@pytest.fixture
def busy_threads():
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(old)


def run_threads(work, count):
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # handed to the test
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def call_often(compiled, number, calls=200):
    generator = torch.Generator().manual_seed(number)
    for i in range(calls):
        x = torch.randn(3 + i % 3, generator=generator)
        assert compiled(x, i % 4, bool(i & 1)).equal(branching(x, i % 4, bool(i & 1)))


def test_threads_record_and_replay_at_the_same_time(busy_threads):
    compiled = kintsugi.compile(branching)
    with kintsugi.config.patch(step_aside=False):  # calls take long here, whichever way they run
        run_threads(lambda number: call_often(compiled, number), 5)
        stats = kintsugi.stats(compiled)
        assert stats["calls"] == 1000 and stats["replays"] > 0
        run_threads(lambda number: call_often(compiled, number), 5)  # how many of the first were replayed depends on how long the threads wait for each other
    assert kintsugi.stats(compiled)["replays"] - stats["replays"] > 900


def test_reset_while_threads_run(busy_threads):
    compiled = kintsugi.compile(branching)

    def work(number):
        if number == 0:
            for _ in range(100):
                kintsugi.reset()
                time.sleep(0.0005)
        else:
            call_often(compiled, number)

    run_threads(work, 4)


class Garbage:
    """Wherever a collection finds it, everything recorded is dropped, and other threads may run."""

    def __init__(self):
        self.me = self

    def __del__(self):
        kintsugi.reset()
        time.sleep(0)


def test_collections_reset_while_threads_run(busy_threads):
    shared = [kintsugi.compile(branching) for _ in range(2)]

    def work(number):
        for i in range(12):
            Garbage()
            call_often(shared[(number + i) % 2], number, 4)
            call_often(kintsugi.compile(branching), number, 2)   # one that dies

    old = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20)
    try:
        run_threads(work, 4)
    finally:
        gc.set_threshold(*old)
        gc.unfreeze()


# ---- recursion ----


def depth_reached(call):
    seen = [0]
    try:
        call(0, seen)
    except RecursionError:
        pass
    return seen[0]


def recursion_through_compiled(compile):
    def even(n, seen):
        seen[0] = n
        return odd(n + 1, seen)

    def odd(n, seen):
        seen[0] = n
        return even(n + 1, seen)

    even = compile(even)
    return even


def recursion_into_itself(compile):
    def down(n, seen):
        seen[0] = n
        return down(n + 1, seen)

    down = compile(down)
    return down


def recursion_below_compiled(compile):
    def inner(n, seen):
        seen[0] = n
        return inner(n + 1, seen)

    def outer(n, seen):
        y = X.sin()
        inner(n, seen)
        return y

    return compile(outer)


def recursion_above_compiled(compile):
    def leaf(n):
        return n + 1

    def middle(n):
        return leaf(n)

    compiled = compile(lambda n: middle(n) + 1)

    def down(n, seen):
        seen[0] = n
        compiled(n)
        return down(n + 1, seen)

    return down


@pytest.mark.parametrize("make", [recursion_through_compiled, recursion_into_itself, recursion_below_compiled,
                                  recursion_above_compiled])
def test_recursion_error_comes_where_eager_has_it(make):
    expected = depth_reached(make(lambda fn: fn))
    compiled = make(kintsugi.compile)
    for _ in range(4):
        assert depth_reached(compiled) == expected


# ---- signals and asynchronous exceptions ----


class Stop(Exception):
    pass


@pytest.fixture
def alarm():
    """alarm(seconds) makes Stop arrive."""

    def stop(number, frame):
        raise Stop

    old = signal.signal(signal.SIGALRM, stop)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


def with_breaks(x, n):
    for i in range(n):
        x = x.sin()
        kintsugi.graph_break()
        x = x + i
    return x


def without_end(x):
    while True:
        x = x.sin()
        kintsugi.graph_break()


def test_signal_in_a_loop_of_calls(alarm):
    compiled = kintsugi.compile(lambda x: (x.sin() + 1).cos())
    for _ in range(10):
        with pytest.raises(Stop):
            alarm(0.01)
            while True:
                compiled(X)
    assert compiled(X).equal((X.sin() + 1).cos())
    assert kintsugi.stats(compiled)["replays"] > 100


def test_signal_inside_a_compiled_loop(alarm):
    compiled = kintsugi.compile(with_breaks)
    compiled(X, 50)
    for _ in range(10):
        with pytest.raises(Stop):
            alarm(0.003)
            while True:
                compiled(X, 50)
    assert compiled(X, 50).equal(with_breaks(X, 50))


def test_signal_ends_a_call_without_end(alarm):
    compiled = kintsugi.compile(without_end)
    for _ in range(3):
        with pytest.raises(Stop):
            alarm(0.03)
            compiled(X)


@pytest.fixture
def interrupts():
    """SIGINT as in a terminal; a process started in the background ignores it."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


def test_keyboard_interrupt_is_raised_where_eager_has_it(interrupts):
    def fn(x):
        y = x.sin()
        signal.raise_signal(signal.SIGINT)
        return y + 1

    def lines(call):
        with pytest.raises(KeyboardInterrupt) as caught:
            call(X)
        frames = traceback.extract_tb(caught.value.__traceback__)
        return [(frame.name, frame.lineno) for frame in frames if frame.name == "fn"]

    compiled = kintsugi.compile(fn)
    expected = lines(fn)
    for _ in range(4):
        assert lines(compiled) == expected


def test_keyboard_interrupt_can_be_caught(interrupts):
    def fn(x):
        y = x.sin()
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            y = y + 1
        return y

    compiled = kintsugi.compile(fn)
    for _ in range(4):
        assert compiled(X).equal(fn(X))


@pytest.mark.parametrize("fn", [without_end, None])
def test_asynchronous_exception(fn):
    compiled = kintsugi.compile(fn or (lambda x: x.sin() + 1))
    stopped = threading.Event()

    def work():
        try:
            while True:
                compiled(X)
        except Stop:
            stopped.set()

    for _ in range(2):
        stopped.clear()
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        time.sleep(0.05)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop))
        thread.join(10)
        assert stopped.is_set()


# ---- tools ----


def helper(y):
    z = y + 1
    return z


def traced(x):
    y = x.sin()
    y = helper(y)
    return y.cos()


WATCHED = {"traced", "helper", "switch_in_callee", "switch_here", "switch_on_and_off", "start"}


def make_tool(log):
    def tool(frame, event, arg):
        code = frame.f_code
        if code.co_name in WATCHED and code.co_filename == __file__:
            called = getattr(arg, "__name__", "") if event.startswith("c_") else ""
            log.append((code.co_name, event, frame.f_lineno - code.co_firstlineno, called))
        return tool

    return tool


TOOLS = [sys.settrace, sys.setprofile]


@pytest.mark.parametrize("install", TOOLS)
@pytest.mark.parametrize("calls_before", [0, 1, 3])
def test_tool_active_before(install, calls_before):
    def events(fn):
        log = []
        install(make_tool(log))
        try:
            fn(X)
        finally:
            install(None)
        return log

    compiled = kintsugi.compile(traced)
    for _ in range(calls_before):
        compiled(X)
    assert events(compiled) == events(traced)
    assert compiled(X).equal(traced(X))
    assert kintsugi.stats(compiled)["recordings"] == 1


LOG = []


def start(install):
    install(make_tool(LOG))


def switch_in_callee(x, install):
    y = x.sin()
    start(install)
    y = helper(y)
    return y.cos()


def switch_here(x, install):
    y = x.sin()
    if install is sys.settrace:
        sys.settrace(make_tool(LOG))
    else:
        sys.setprofile(make_tool(LOG))
    y = helper(y)
    return helper(y)


def switch_on_and_off(x, install):
    y = x.sin()
    tool = make_tool(LOG)
    sys._getframe().f_trace = tool
    install(tool)
    y = helper(y)
    install(None)
    return helper(y)


@pytest.mark.parametrize("install", TOOLS)
@pytest.mark.parametrize("fn", [switch_in_callee, switch_here, switch_on_and_off])
def test_tool_switched_on_inside(install, fn):
    def events(call):
        LOG.clear()
        try:
            call(X, install)
        finally:
            install(None)
        return list(LOG)

    expected = events(fn)
    assert expected
    compiled = kintsugi.compile(fn)
    for _ in range(4):
        assert events(compiled) == expected


def test_programs_see_their_own_tool_only():
    def fn(x):
        return x + 1, sys.gettrace(), sys.getprofile()

    compiled = kintsugi.compile(fn)
    for _ in range(3):
        assert compiled(X)[1:] == (None, None)
    tool = make_tool([])
    sys.settrace(tool)
    try:
        seen = compiled(X)[1]
    finally:
        sys.settrace(None)
    assert seen is tool


# ---- modules ----


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.extra = 5

    def forward(self, x):
        return self.linear(x) * self.scale + self.extra


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def test_module_state(net):
    compiled = kintsugi.compile(net)
    compiled(X)
    assert list(compiled.state_dict()) == ["_orig_mod.scale", "_orig_mod.linear.weight", "_orig_mod.linear.bias"]
    assert [name for name, _ in compiled.named_parameters()] == ["_orig_mod.linear.weight", "_orig_mod.linear.bias"]
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters(), strict=True))
    compiled.load_state_dict({name: value + 1 for name, value in compiled.state_dict().items()})
    assert compiled(X).equal(net(X)) and net.scale.equal(torch.full((4,), 2.0))
    assert compiled.get_submodule("linear") is net.linear


def test_module_modes(net):
    compiled = kintsugi.compile(net)
    compiled(X)
    assert compiled.eval() is compiled and net.training is False and compiled.training is False
    assert compiled.train() is compiled and net.training is True
    assert compiled.double() is compiled and net.linear.weight.dtype is torch.float64
    assert compiled(X.double()).equal(net(X.double()))
    compiled.to(torch.float32)
    compiled(X).sum().backward()
    assert net.linear.weight.grad is not None
    compiled.zero_grad()
    assert net.linear.weight.grad is None
    compiled.requires_grad_(False)
    assert not compiled(X).requires_grad


def test_module_attributes(net):
    compiled = kintsugi.compile(net)
    compiled(X)
    compiled.extra = 6
    assert net.extra == 6 and compiled(X).equal(net(X))
    compiled.new = 7
    assert net.new == 7
    del compiled.new
    assert not hasattr(net, "new")


def test_hooks(net):
    compiled = kintsugi.compile(net)
    compiled(X)
    seen = []
    for module in (net, compiled):
        handle = module.register_forward_hook(lambda owner, args, result: seen.append(owner))
        for _ in range(3):
            assert compiled(X).equal(net.linear(X) * net.scale + net.extra)
        assert seen == [module] * 3
        handle.remove()
        seen.clear()
        compiled(X)
        assert seen == []


def reload(compiled):
    buffer = io.BytesIO()
    torch.save(compiled, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c)), reload])
@pytest.mark.parametrize("in_place", [False, True])
def test_copies_of_modules(net, duplicate, in_place):
    if in_place:
        kintsugi.install()
        try:
            net.compile()
        finally:
            kintsugi.uninstall()
        compiled = net
    else:
        compiled = kintsugi.compile(net)
    compiled(X)
    other = duplicate(compiled)
    with torch.no_grad():
        next(iter(other.parameters())).add_(1)
    for _ in range(3):
        assert not other(X).equal(compiled(X))
    with torch.no_grad():
        next(iter(compiled.parameters())).add_(1)
    assert other(X).equal(compiled(X))


def test_shallow_copy_shares_the_parameters(net):
    compiled = kintsugi.compile(net)
    other = copy.copy(compiled)
    assert other(X).equal(compiled(X))
    assert next(iter(other.parameters())) is next(iter(net.parameters()))


def test_module_compile(net):
    expected = net(X)
    kintsugi.install()
    try:
        net.compile(dynamic=False)
        for _ in range(3):
            assert net(X).equal(expected)
        assert kintsugi.stats(net)["replays"] == 2
    finally:
        kintsugi.uninstall()


# ---- what is given to compile ----


class Adder:
    def __call__(self, x):
        return x + 1

    def double(self, x):
        return x * 2


@pytest.mark.parametrize("callable_", [Adder(), Adder().double, functools.partial(torch.add, other=1),
                                       functools.partial(lambda a, b: a + b, 1), torch.sin, X.mul])
def test_callables(callable_):
    compiled = kintsugi.compile(callable_)
    for _ in range(3):
        assert compiled(X).equal(callable_(X))


def test_classes():
    assert type(kintsugi.compile(Adder)()) is Adder


def test_generators_and_coroutines():
    import asyncio

    def numbers(x):
        yield x + 1
        yield x + 2

    async def later(x):
        return x + 1

    async def later_numbers(x):
        yield x

    async def collect():
        return [item async for item in kintsugi.compile(later_numbers)(X)]

    assert [y.tolist() for y in kintsugi.compile(numbers)(X)] == [y.tolist() for y in numbers(X)]
    assert asyncio.run(kintsugi.compile(later)(X)).equal(X + 1)
    assert len(asyncio.run(collect())) == 1


def test_code_that_changes():
    def one(x):
        return x + 1

    def two(x):
        return x + 2

    compiled = kintsugi.compile(one)
    codes = [one.__code__, two.__code__]
    for i in range(6):
        one.__code__ = codes[i % 2]
        assert compiled(X).equal(X + 1 + i % 2)
    assert kintsugi.stats(compiled)["replays"] == 4


def test_nested():
    inner = kintsugi.compile(lambda x: x.sin() + 1)

    def outer(x):
        return inner(x) * 2 + inner(x + 1)

    class Shown:
        def __repr__(self):
            return str(float(inner(X).sum()))

    def shows(x, thing):
        return x + 1, repr(thing)

    def makes(x):
        made = kintsugi.compile(lambda y: y * 3)
        return made(x) + made(x)

    for fn, args in ((outer, (X,)), (shows, (X, Shown())), (makes, (X,))):
        compiled = kintsugi.compile(fn)
        for _ in range(4):
            result, expected = compiled(*args), fn(*args)
            assert str(result) == str(expected)
        assert kintsugi.stats(compiled)["replays"] == 3


def test_dropped_while_it_runs():
    holder = []

    def fn(x):
        y = x.sin()
        if len(holder) == 2:
            holder.clear()
            gc.collect()
        return y + 1

    holder.append(kintsugi.compile(fn))
    assert holder[0](X).equal(X.sin() + 1)
    assert holder[0](X).equal(X.sin() + 1)
    holder.append(None)
    assert holder[0](X).equal(X.sin() + 1)


def test_reset_inside_the_call():
    def fn(x):
        y = x.sin()
        kintsugi.reset()
        return y + 1

    compiled = kintsugi.compile(fn)
    for _ in range(5):
        assert compiled(X).equal(X.sin() + 1)


def test_recompile_limit():
    def fn(x, **names):
        return x.sin(), sorted(names)

    calls = [dict.fromkeys(names) for names in ("a", "b", "c", "d", "ab", "ac")]  # each is a kind of call of its own
    kintsugi.config.recompile_limit = 3
    try:
        compiled = kintsugi.compile(fn)
        for names in calls:
            compiled(X, **names)
        before = kintsugi.stats(compiled)
        assert len(before["variants"]) == 3
        for names in calls:
            assert str(compiled(X, **names)) == str(fn(X, **names))
    finally:
        kintsugi.config.recompile_limit = 8
    after = kintsugi.stats(compiled)
    assert after["replays"] == before["replays"] + 3
    assert after["eager_calls"] == {"the recompile limit is reached": 6}
    assert len([event for event in engine.events() if event["event"] == "limit"]) == 1


# ---- leaks ----


def grown(call, calls):
    """Objects and blocks per call that stay."""
    gc.collect()
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    for _ in range(calls):
        call()
    gc.collect()
    return (len(gc.get_objects()) - objects) / calls, (sys.getallocatedblocks() - blocks) / calls


def assert_no_leak(call, calls):
    """Tables and free lists that still grow to their final size are no leak: what leaks does so in each round."""
    rounds = []
    for _ in range(12):
        rounds.append(grown(call, calls // 4))
        objects, blocks = rounds[-1]
        if len(rounds) >= 4 and objects < 0.3 and blocks < 0.5:
            return
    raise AssertionError(f"objects and blocks per call that stayed, by rounds: {rounds}")


def swallow(error, call, *args):
    try:
        call(*args)
    except error:
        return
    raise AssertionError("nothing was raised")


def test_no_leak_over_many_hits():
    def fn(x, k=2):
        y = x.sin()
        for i in range(k):
            y = y + i
        return {"a": y, "b": [y, k]}

    compiled = kintsugi.compile(fn)
    assert_no_leak(lambda: compiled(X), 100000)
    assert grown(lambda: compiled(X), 50000)[1] < 0.001


def test_no_leak_when_exceptions_get_out():
    def missing(x, table):
        y = x.sin()
        return y + table["nope"]

    def on_data(x):
        y = x.sin()
        kintsugi.graph_break()
        if y.sum() < 1e9:
            raise ValueError("message", y)
        return y

    def of_torch(x, y):
        return (x + 1) @ y

    lookups, data, mismatch = map(kintsugi.compile, (missing, on_data, of_torch))
    mismatch(X, torch.ones(4, 4))
    assert_no_leak(lambda: swallow(KeyError, lookups, X, {}), 5000)
    assert_no_leak(lambda: swallow(ValueError, data, X), 3000)
    assert_no_leak(lambda: swallow(RuntimeError, mismatch, X, X[:3]), 3000)


def test_no_leak_through_exits_and_branches():
    def fn(x):
        y = x.sin()
        y = y + 1 if y.sum() > 0 else y - 1
        print(end="")
        return [y]

    compiled = kintsugi.compile(fn)
    signs = [1]

    def call():
        signs[0] = -signs[0]
        compiled(X * signs[0])

    assert_no_leak(call, 3000)
    engine.force_exit(1)
    assert_no_leak(call, 2000)


def forget_events():
    """Kept events (their number has a limit) are no leak."""
    kintsugi.events()
    from kintsugi import _logs

    _logs._kept.clear()


def test_no_leak_of_compiled_functions():
    def make_one():
        scope = {}
        exec("def fn(x): return x + 1", scope)
        compiled = kintsugi.compile(scope["fn"])
        compiled(X)
        compiled(X)
        forget_events()

    assert_no_leak(make_one, 600)


def test_no_leak_of_modules_and_recompilations():
    compiled = kintsugi.compile(branching)

    def call():
        module = kintsugi.compile(nn.Linear(4, 4))
        module(X)
        module(X)
        kintsugi.reset()
        for k in range(3):
            compiled(torch.ones(k + 1), k, True)
        forget_events()

    assert_no_leak(call, 200)


def test_everything_dies_on_time():
    def use_module():
        module = nn.Linear(4, 4)
        compiled = kintsugi.compile(module)
        compiled(X)
        compiled(X)
        return [weakref.ref(thing) for thing in (module, module.weight, compiled)]

    def use_argument(keep):
        module = nn.Linear(4, 4)
        compiled = kintsugi.compile(lambda module, x: module(x))
        compiled(module, X)
        compiled(module, X)
        keep.append(compiled)
        return [weakref.ref(module), weakref.ref(module.weight)]

    def use_tensors(keep):
        compiled = kintsugi.compile(lambda a: (a + 1).sin())
        a = X.clone()
        compiled(a)
        result = compiled(a)
        keep.append(compiled)
        return [weakref.ref(a), weakref.ref(result)]

    keep = []
    for refs in (use_module(), use_argument(keep), use_tensors(keep)):
        assert [ref() for ref in refs] == [None] * len(refs)


# ---- the end of the process ----


def run_script(text):
    """Runs a program of its own; it ends well and says nothing on stderr."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


COMMON = """
import os, sys, threading, torch, kintsugi
x = torch.ones(3)
@kintsugi.compile
def fn(x):
    y = x.sin()
    kintsugi.graph_break()
    return y + 1
fn(x); fn(x)
module = kintsugi.compile(torch.nn.Linear(3, 3))
module(x); module(x)
"""

ENDINGS = {
    "live entries": "",
    "exit": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "cycle": "fn.me = fn; module.me = module; box = [fn]; box.append(box); del box",
    "atexit": "import atexit; atexit.register(lambda: fn(x)); atexit.register(lambda: print(fn(x).equal(x.sin() + 1)))",
    "finaliser": """
class Late:
    def __del__(self):
        fn(x)
        fn(torch.ones(4))
keep = Late()
keep.me = keep
""",
    "in modules": "sys.modules['kept'] = fn; torch.kept = fn; kintsugi.kept = module",
    "daemon": """
@kintsugi.compile
def plain(n): # without tensors: PyTorch itself aborts when the process ends while a thread is inside of it
    return [n] * n
def work():
    while True:
        plain(3)
threading.Thread(target=work, daemon=True).start()
import time; time.sleep(0.1)
""",
    "exit inside a call": """
@kintsugi.compile
def last(x):
    y = x + 1
    if stop: sys.exit(0)
    return y
stop = False; last(x); last(x); stop = True; last(x)
""",
    "fork": """
child = os.fork()
if child == 0:
    assert fn(x).equal(x.sin() + 1)
    assert kintsugi.compile(lambda x: x * 2)(x).equal(x * 2)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_process_ends_quietly(ending):
    run_script(COMMON + ENDINGS[ending])


# ---- fullgraph ----


def test_fullgraph_error_is_the_stock_one_too():
    import torch._dynamo.exc

    log = []

    def fn(x):
        log.append("before")
        kintsugi.graph_break()
        return x + 1

    compiled = kintsugi.compile(fn, fullgraph=True)
    for count in (1, 2, 3):
        with pytest.raises(torch._dynamo.exc.Unsupported):
            compiled(X)
        assert log == ["before"] * count  # each call is recorded again, up to the break at least
    assert kintsugi.stats(compiled)["replays"] == 0
