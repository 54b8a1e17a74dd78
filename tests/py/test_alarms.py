"""An exception that a signal's handler raises reaches the program whenever it comes: during the first call, which imports, asks PyTorch, calls a
backend and reports, as later. What our own code asks Python may fail in silence, so no handler may run there. Each alarm has a process of its own,
because the first call of all is the longest."""

import os
import pickle
import signal
import sys
import time
import warnings

import pytest
import torch

import kintsugi

ALARMS = 12
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


class Alarm(Exception):
    pass


def loops(x, n):
    rows = []
    for i in range(n):
        rows.append(torch.sin(x) * i + 1)
    return torch.stack(rows).sum(0)


def maps(x, n):
    rows = list(map(lambda i: torch.split(x * i, 2)[0].sin(), range(n)))
    kintsugi.graph_break()
    rows += sorted([torch.nn.functional.gelu(x) * 2, x.cos()], key=lambda t: t.dim())
    return torch.cat(rows)


def branches(x, n):
    for i in range(n):
        x = x + i if i % 2 else torch.nn.functional.layer_norm(x, (8,)).cumsum(-1)  # whose sum is not rounding alone
        if x.sum() > 0:
            x = x * 2
    return x


WEIGHT = torch.nn.Linear(8, 8)


def trains(x, n):
    y = torch.nn.functional.gelu(WEIGHT(x))
    for i in range(n):
        y = y * i + x
    return torch.cat([grad.flatten() for grad in torch.autograd.grad(y.sum(), tuple(WEIGHT.parameters()))])


def backend(gm, inputs):
    return gm.forward


PROGRAMS = {"loops": (loops, {}), "maps": (maps, {}), "branches": (branches, {}), "trains": (trains, {}), "warm": (loops, {"options": {"warm": True}}),
            "custom": (branches, {"backend": backend})}


def run_with_alarm(name, seconds):
    """(times the handler ran, was its exception heard?, seconds that the calls took, what went wrong afterwards)."""
    fn, options = PROGRAMS[name]
    handled, heard, took = 0, False, 0.0

    def handle(number, frame):
        nonlocal handled
        handled += 1
        raise Alarm

    def unraisable(said):
        nonlocal heard
        heard = heard or isinstance(said.exc_value, Alarm)

    sys.unraisablehook = unraisable  # CPython drops what is raised in a finaliser or a weak reference's callback, and says so
    signal.signal(signal.SIGALRM, handle)
    compiled = kintsugi.compile(fn, **options)
    inputs = [(torch.randn(shape), 2 + i % 2) for i, shape in enumerate([(8,), (8,), (3, 8), (4, 8), (5, 8)])]
    start = time.perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        for args in inputs:
            compiled(*args)
        took = time.perf_counter() - start
        if seconds > 0:
            time.sleep(max(0, start + seconds + 1 - time.perf_counter()))  # in a loop, CPython 3.13 asks outside of what `try` covers
    except Alarm:
        heard = True
    wrong = [args for args in inputs for _ in range(2) if not torch.allclose(compiled(*args), fn(*args), atol=1e-5)]
    stats = kintsugi.stats(compiled)
    for_good = {why: count for why, count in stats["eager_calls"].items() if why != "timed for comparison with compiled calls"}
    if not stats["replays"] or for_good:
        wrong.append(for_good)
    return handled, heard, took, wrong


def in_a_process(name, seconds):
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            warnings.simplefilter("ignore")
            answer = run_with_alarm(name, seconds)
        except BaseException as error:
            answer = repr(error)
        os.write(begin, pickle.dumps(answer))
        os._exit(0)
    os.close(begin)
    with os.fdopen(end, "rb") as answers:
        answer = pickle.loads(answers.read())
    os.waitpid(child, 0)
    return answer


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_alarm_is_heard_whenever_it_comes(name):
    _, _, took, wrong = in_a_process(name, 0)
    assert not wrong
    took = min(took, 0.2)
    answers = [in_a_process(name, took * (k + 0.5) / ALARMS) for k in range(ALARMS)]
    assert [answer for answer in answers if answer[:2] != (1, True) or answer[3]] == []
