"""Where sizes vary, code for all of them is compiled in the background (docs/design/sizes.md): calls go on by steps, no similar size asks for
code meanwhile, and what was made serves whatever size comes next."""

import os

import pytest
import torch
from launches import engine, kintsugi, runs, versions

pytestmark = pytest.mark.usefixtures("kernels")

BEHIND = "kernels are still being compiled in the background"


@pytest.fixture(autouse=True)
def behind(kernels, tmp_path):
    folder = kintsugi.config.cache_dir
    kintsugi.config.cache_dir = str(tmp_path)
    with kintsugi.config.patch(step_aside=True, async_sizes=True):
        engine.set_option("trials", 7)
        yield
    engine._set_fault("")
    kintsugi.config.cache_dir = folder


def program_of(number):
    """One that nobody has code for yet."""
    def program(x):
        return (x * (1.5 + number)).softmax(-1) + x.exp().mean(0, keepdim=True), x.sum(-1) - number
    return program


def last_event():
    """Its number: only the newest events are kept."""
    return max((e["seq"] for e in kintsugi.events()), default=-1)


def lowered(since):
    return [e for e in kintsugi.events() if e["event"] == "lower" and e["seq"] > since]


def call(compiled, fn, size):
    x = torch.rand(size, 70)
    for a, b in zip(compiled(x), fn(x), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


def test_the_next_size_finds_what_was_made_meanwhile():
    fn, since = program_of(1), last_event()
    compiled = kintsugi.compile(fn, dynamic=True)
    for size in (12, 17, 33):
        call(compiled, fn, size)
    said = [v["reason"] for v in versions(compiled) if not v["compiled"]]
    assert said == [BEHIND] and runs(compiled) == 0
    kintsugi.wait_for_kernels()
    for size in (40, 41, 90, 17, 33):
        call(compiled, fn, size)
    assert runs(compiled) > 0
    assert [e["compiled"] > 0 for e in lowered(since)].count(True) == 1  # counted where it is used first


def test_what_runs_once_is_made_with_the_rest():
    """Weights are packed, and batch norm folded into them, by a program of its own: its kernels are not a second thing to wait for."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, bias=False), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3)).eval()
    compiled = kintsugi.compile(model, dynamic=True)
    with torch.no_grad():
        for size in (20, 24, 36):
            compiled(torch.rand(2, 3, size, size))
        kintsugi.wait_for_kernels()
        for size in (40, 44, 52):
            x = torch.rand(2, 3, size, size)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert [v["reason"] for v in versions(compiled) if not v["compiled"]] == [BEHIND] and runs(compiled) == 3


def test_sizes_that_have_code_do_not_wait_for_others():
    """A dimension of one takes other code. Sizes that it is not needed for run meanwhile, and it counts as no size that was compiled for in vain."""
    fn = program_of(50)
    compiled = kintsugi.compile(fn, dynamic=True)
    for size in (12, 17, 33):
        call(compiled, fn, size)
    kintsugi.wait_for_kernels()
    call(compiled, fn, 1)
    waiting = [v["reason"] for v in versions(compiled) if not v["compiled"]]   # fewer where other processes keep this one from looking in time
    assert waiting == [BEHIND] * len(waiting) and len(waiting) <= 2 and runs(compiled) == 0
    for size in (40, 41, 42):
        call(compiled, fn, size)
    assert runs(compiled) > 0
    kintsugi.wait_for_kernels()
    before = runs(compiled)
    call(compiled, fn, 1)
    call(compiled, fn, 1)
    assert runs(compiled) > before


def test_the_size_it_was_begun_for_comes_again():
    fn = program_of(2)
    compiled = kintsugi.compile(fn, dynamic=True)
    for size in (12, 17, 33):
        call(compiled, fn, size)
    kintsugi.wait_for_kernels()
    for _ in range(3):
        call(compiled, fn, 33)
        call(compiled, fn, 17)
        call(compiled, fn, 12)
    assert runs(compiled) > 0 and BEHIND not in [v["reason"] for v in versions(compiled)]


@pytest.mark.parametrize("how", ("option", "setting", "clock", "warm"))
def test_who_wants_can_have_it_at_once(how):
    fn = program_of(3 + len(how))
    options = {"option": {"async": False}, "warm": {"warm": True}}.get(how)
    off = {"setting": {"async_sizes": False}, "clock": {"step_aside": False}}.get(how, {})
    with kintsugi.config.patch(**off):
        compiled = kintsugi.compile(fn, dynamic=True, options=options)
        for size in (12, 17, 33, 34):
            call(compiled, fn, size)
        assert versions(compiled) and all(v["compiled"] for v in versions(compiled))


def test_a_compiler_that_fails_there():
    fn = program_of(20)
    compiled = kintsugi.compile(fn, dynamic=True)
    engine._set_fault("llvm")
    for size in range(12, 40):
        call(compiled, fn, size)
        kintsugi.wait_for_kernels()
    engine._set_fault("")
    assert not any(v["compiled"] for v in versions(compiled))
    assert len(versions(compiled)) < 10  # it is not tried for each size


def test_a_child_goes_on_by_itself():
    fn = program_of(21)
    compiled = kintsugi.compile(fn, dynamic=True)
    for size in (12, 17, 33):
        call(compiled, fn, size)
    child = os.fork()
    if child == 0:
        try:
            for size in range(40, 60):
                call(compiled, fn, size)
            kintsugi.wait_for_kernels()
            call(compiled, fn, 61)
        finally:
            os._exit(0 if runs(compiled) > 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_many_functions_at_once_and_none_kept():
    for number in range(12):
        fn = program_of(30 + number)
        compiled = kintsugi.compile(fn, dynamic=True)
        for size in (12, 17, 33):
            call(compiled, fn, size)
        del compiled
    kintsugi.wait_for_kernels()


def test_calls_that_wait_are_not_compared_with_eager():
    """They run step by step, which says nothing about the code that is on its way; whole calls that run eagerly for a comparison would be lost."""
    cell = torch.nn.GRUCell(16, 16)

    def loop(x):
        h, out = torch.zeros(4, 16), []
        for t in range(x.shape[1]):
            h = cell(x[:, t], h)
            out.append(torch.expm1(h.tanh()).cos() * 1.2843)  # nobody else's code
        return torch.stack(out, 1)

    compiled, waited = kintsugi.compile(loop), 0
    with torch.no_grad():
        for length in (25, 14, 30, 46, 8, 9, 39, 11, 28, 42, 55, 37, 18, 7, *range(56, 76)):
            x = torch.rand(4, length, 16)
            torch.testing.assert_close(compiled(x), loop(x), rtol=2e-5, atol=2e-5)
            stats = kintsugi.stats(compiled)
            if waited and stats["last_call"] == "compiled":
                break  # it has come; from here on calls count
            waited += any(v["reason"] == BEHIND for v in versions(compiled))
            assert stats["eager_calls"] == {}
    assert waited
