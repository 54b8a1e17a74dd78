"""Calls that are slower when they are replayed run eagerly, and recording ends though each call takes a new way."""
import gc
import time

import pytest
import torch

import kintsugi

SLOWER = "compiled calls were measured to be slower; they are tried again later"


@pytest.fixture
def paced():
    with kintsugi.config.patch(step_aside=True):
        yield


class Slow:
    """A call that takes long where replays (or where eager calls) come through it."""

    def __init__(self, in_replays):
        self.in_replays, self.compiled, self.seen = in_replays, None, 0

    @torch.compiler.disable
    def wait(self):
        if self.compiled is None:
            return
        replays = kintsugi.stats(self.compiled)["replays"]
        if (replays > self.seen) == self.in_replays:
            end = time.thread_time() + 0.002 # not asleep: it is the thread's time that counts
            while time.thread_time() < end:
                pass
        self.seen = replays


def run(slow, calls, **options):
    def f(x):
        slow.wait()
        return x + 1, torch.compiler.is_compiling()

    compiled = slow.compiled = kintsugi.compile(f, backend="eager", **options)
    for i in range(calls):
        y, flag = compiled(torch.full((3,), float(i)))
        assert torch.equal(y, torch.full((3,), i + 1.0)) and flag
    return kintsugi.stats(compiled)


def test_what_is_slower_rests(paced):
    stats = run(Slow(in_replays=True), 200)
    assert stats["eager_calls"][SLOWER] > 100 and stats["replays"] < 80
    assert stats["variants"][0]["backed_off"] and stats["variants"][0]["ratio"] > 2
    texts = [e["reason"] for e in kintsugi._kintsugi.events() if e["event"] == "fallback" and e["name"] == stats["name"]]
    assert sum(SLOWER in text for text in texts) == 1


def test_what_is_faster_is_replayed(paced):
    stats = run(Slow(in_replays=False), 200)
    assert SLOWER not in stats["eager_calls"] and not stats["variants"][0]["backed_off"]
    assert stats["replays"] > 170 and stats["variants"][0]["ratio"] < 0.5


def numbers_of_elements(x):
    total = 0.0
    for i in range(100):
        total += x[i % 3].item()
    return x + total


def a_dict_that_changes(x):
    found = {}
    for i in range(100):
        found[i] = i
    for i in range(0, 100, 2):
        del found[i]
    return x + len(found)


def exceptions_in_a_loop(x):
    caught = 0
    for i in range(60):
        try:
            raise ValueError(i)
        except ValueError:
            caught += 1
    return x * caught


@pytest.mark.parametrize("f", [numbers_of_elements, a_dict_that_changes, exceptions_in_a_loop])
def test_long_ways_of_steps_are_compared_with_eager(paced, f):
    compiled = kintsugi.compile(f)
    x = torch.arange(3.0)
    for _ in range(200):
        assert torch.equal(compiled(x), f(x))
    stats = kintsugi.stats(compiled)
    assert stats["breaks"] == 0 and stats["variants"][0]["exits"] == 0
    assert stats["variants"][0]["ratio"] > 0 and stats["eager_calls"]["timed for comparison with compiled calls"] >= 4
    assert stats["variants"][0]["ratio"] > 1.03 or not stats["variants"][0]["backed_off"]


def test_steps_that_compiled_code_covers_are_not_compared(paced):
    def f(x):
        for i in range(200):
            x = x * 0.5 + i
        return x

    with kintsugi.config.patch(kernels=True):
        compiled = kintsugi.compile(f)
        x = torch.ones(3)
        for _ in range(100):
            assert torch.allclose(compiled(x), f(x))
        stats = kintsugi.stats(compiled)
    assert stats["variants"][0]["steps"] > 400 and stats["compiled_calls"] > 90
    assert stats["eager_calls"] == {} and stats["variants"][0]["ratio"] is None


def test_not_with_fullgraph_or_when_switched_off(paced):
    def f(x):
        return x + 1

    for options, aside in (({"fullgraph": True}, True), ({"backend": lambda graph, inputs: graph}, True), ({}, False)):
        with kintsugi.config.patch(step_aside=aside):
            compiled = kintsugi.compile(f, **options)
            for _ in range(100):
                compiled(torch.ones(2))
            assert kintsugi.stats(compiled)["eager_calls"] == {}, options


def test_exceptions_come_out_of_timed_calls(paced):
    def f(x, bad):
        if bad:
            raise ValueError("bad")
        return x + 1

    compiled = kintsugi.compile(f, backend="eager")
    for i in range(150):
        if i % 3 == 0:
            with pytest.raises(ValueError, match="bad"):
                compiled(torch.ones(2), True)
        assert torch.equal(compiled(torch.ones(2), False), torch.full((2,), 2.0))
    assert not torch.compiler.is_compiling()


def test_recording_ends():
    def f(bits):
        total = torch.zeros(())
        for i in range(len(bits)):
            total = total + 1 if bits[i] > 0 else total * 2
        return total

    compiled = kintsugi.compile(f, backend="eager")
    for i in range(300):
        bits = torch.tensor([(i * 2654435761 >> k) % 2 for k in range(12)])
        assert torch.equal(compiled(bits), f(bits))
    stats = kintsugi.stats(compiled)
    assert stats["branches"] < 30, "a new way in nearly every call, and none of them is worth recording"
    assert stats["bail_outs"] > 150


WAITS = "earlier recordings were not used again, so this one waits"


def rest(seconds):
    time.sleep(seconds)


def test_waiting_uses_up_no_budget(paced):
    """Budgets are paid in the thread's processor time: a program that sleeps while it is recorded, or a busy machine, leaves them as they are."""
    def f(x, mode):
        rest(0.4 if mode == "a" else 0)
        return x + len(mode)

    compiled = kintsugi.compile(f, backend="eager")
    for mode in "aabb":
        assert torch.equal(compiled(torch.ones(3), mode), torch.full((3,), 2.0))
    assert kintsugi.stats(compiled)["recordings"] == 2


def test_collections_use_up_no_budget(paced):
    """A collection of all objects that happens to begin in a recording takes as long as the program has objects."""
    names = ("one", "two", "three", "four", "five", "six")

    def f(x, mode):
        for number, name in enumerate(names):
            if name == mode:
                y = x * number
        gc.collect()
        return y

    def burn(phase, info):
        end = time.thread_time() + 0.2
        while phase == "stop" and time.thread_time() < end:
            pass

    compiled = kintsugi.compile(f, backend="eager")
    gc.callbacks.append(burn)
    try:
        for mode in names:
            for _ in range(2):
                assert torch.equal(compiled(torch.ones(3), mode), f(torch.ones(3), mode))
    finally:
        gc.callbacks.remove(burn)
    assert kintsugi.stats(compiled)["recordings"] + kintsugi.stats(compiled)["branches"] == len(names)


def test_waiting_uses_up_no_budget_of_side_traces():
    def f(x):
        for k in range(3):
            if x[k] > 0:
                rest(0.16)
                x = x + 1
        return x

    compiled = kintsugi.compile(f, backend="eager")
    for k in (3, 2, 1, 0):
        x = torch.tensor([-9.0, -9.0, -9.0])
        x[k:] = 1
        assert torch.equal(compiled(x), f(x))
    assert kintsugi.stats(compiled)["branches"] == 3


def test_recordings_wait_where_none_is_used_again(paced):
    def f(named):
        total = torch.zeros(2)
        for name, value in named.items():
            total = total + value * len(name)
        return total

    compiled = kintsugi.compile(f, backend="eager")
    for i in range(40):
        named = {f"{'x' * (k % 5)}{i}.{k}": torch.full((2,), float(k)) for k in range(i, 2 * i + 1)}
        assert torch.equal(compiled(named), f(named))
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] < 7 and stats["eager_calls"][WAITS] > 30


def test_recordings_that_are_used_do_not_wait(paced):
    def f(x, way):
        return {"add": x + 1, "mul": x * 2, "neg": -x, "abs": x.abs(), "exp": x.exp(), "sin": x.sin()}[way] + len(way)

    compiled = kintsugi.compile(f, backend="eager", dynamic=False)
    ways = ["add", "mul", "neg", "abs", "exp", "sin"]
    for turn in range(3):
        for way in ways:
            assert torch.equal(compiled(torch.ones(2), way), f(torch.ones(2), way))
    stats = kintsugi.stats(compiled)
    assert stats["replays"] + stats["recordings"] + stats["eager_calls"].get(WAITS, 0) == 18
    assert stats["eager_calls"].get(WAITS, 0) <= 3


def test_branches_that_are_never_used_are_few(paced):
    def g(x):
        for k in range(16):
            x = x + 1 if x[k] > 0 else x * 2
        return x

    compiled = kintsugi.compile(g, backend="eager")
    for i in range(60):
        x = torch.randn(16, generator=torch.Generator().manual_seed(i))
        assert torch.equal(compiled(x), g(x))
    assert kintsugi.stats(compiled)["branches"] <= 5


def test_branches_that_are_used_are_recorded(paced):
    def f(x):
        for k in range(4):
            if x.sum() > k:
                return x + k
        return x

    compiled = kintsugi.compile(f, backend="eager")
    for i in range(20):
        x = torch.full((1,), float(i % 5 - 1))
        assert torch.equal(compiled(x), f(x))
    stats = kintsugi.stats(compiled)
    assert stats["branches"] >= 1 and stats["variants"][0]["hits"] + sum(stats["eager_calls"].values()) >= 12
