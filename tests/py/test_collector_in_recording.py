"""Code that the garbage collector calls while a call is recorded (finalisers, callbacks of weak references) is no part of the program: it runs whenever
a collection is due, in replays as well. What it changes is seen, as eager sees it."""
import gc
import weakref

import pytest
import torch

import kintsugi

SEEN = []
STATE = {"n": 1}


class Node:
    pass


class Config:
    scale = 2.0


class Finalised(Node):
    def __del__(self):
        self.then()


def makes_garbage(then, finaliser):
    """An object in a circle, whose end calls `then` and leaves another one."""
    def end():
        if gc.isenabled():
            then()
            makes_garbage(then, finaliser)

    node = Finalised() if finaliser else Node()
    node.me, node.then = node, end
    if not finaliser:
        SEEN.append(weakref.ref(node, lambda ref: end()))


@pytest.fixture(autouse=True)
def collecting():
    old = gc.get_threshold()
    gc.collect()
    SEEN.clear()
    Config.scale = 2.0
    yield
    gc.set_threshold(*old)
    gc.enable()


def stream(xs):
    for x in xs:
        pair = [x * Config.scale]
        pair.append(pair)  # garbage of its own: allocations, on which collections begin
        yield pair[0]


def in_region(x):
    total = x
    for i, y in enumerate(stream([x, x + 1, x + 2])):
        total = total + y * i
    return total


def in_sort(x):
    parts = [x * 3, x * 2, x]
    return sorted([3, 1, 2], key=lambda i: [[i], [i]])[0] * sum(parts)


def in_line(x):
    made = [[x * Config.scale], [x + 1]]
    more = {"a": [made], "b": [made]}
    return more["a"][0][0][0] + more["b"][0][1][0]


def runs(program, then, finaliser, fullgraph=True, threshold=2):
    """(results, how often `then` ran) of a recording during which garbage is collected, and of two replays."""
    compiled = kintsugi.compile(program, fullgraph=fullgraph)
    ran = []
    results = []
    for _ in range(3):
        gc.disable()
        makes_garbage(lambda: (ran.append(1), then()), finaliser)
        gc.enable()
        gc.set_threshold(threshold, 1000, 1000)  # collections begin at almost every allocation
        results.append(compiled(torch.arange(3.)))
        gc.set_threshold(700, 10, 10)
        gc.disable()
        gc.collect()
    return results, len(ran), compiled


@pytest.mark.parametrize("threshold", [1, 2, 9, 19])
@pytest.mark.parametrize("finaliser", [False, True], ids=["weakref", "finaliser"])
@pytest.mark.parametrize("program", [in_region, in_sort, in_line])
def test_it_is_no_part_of_the_program(program, finaliser, threshold):
    results, ran, compiled = runs(program, lambda: [str(i) for i in range(3)], finaliser, threshold=threshold)
    expected = program(torch.arange(3.))
    assert ran > 0 and all(torch.equal(result, expected) for result in results)
    assert kintsugi.stats(compiled)["replays"] == 2, "the recording did not fit"


@pytest.mark.parametrize("finaliser", [False, True], ids=["weakref", "finaliser"])
@pytest.mark.parametrize("program", [in_region, in_line])
def test_what_it_changes_is_seen(program, finaliser):
    """Which of the program's reads come after the change depends on when a collection is due; each result is one that eager could give, later ones use the new value."""
    def change():
        Config.scale = 5.0

    results, ran, compiled = runs(program, change, finaliser, fullgraph=False)
    new = program(torch.arange(3.))
    assert ran > 0 and torch.equal(results[-1], new)
    Config.scale = 2.0
    assert torch.equal(compiled(torch.arange(3.)), program(torch.arange(3.)))
    Config.scale = 5.0
    assert torch.equal(compiled(torch.arange(3.)), new)


def test_torch_calls_of_it_are_not_the_programs():
    results, ran, compiled = runs(in_region, lambda: torch.ones(2).add_(1), False)
    assert ran > 0 and all(torch.equal(result, in_region(torch.arange(3.))) for result in results)
    assert kintsugi.stats(compiled)["replays"] == 2


def test_a_death_that_the_program_causes_is_part_of_it():
    """Without the collector: the callback runs where the last reference goes, in each call."""
    log = []

    def program(x):
        node = Node()
        ref = weakref.ref(node, lambda ref: log.append(len(log)))
        y = x + 1
        del node
        return y * len(log), ref() is None

    compiled = kintsugi.compile(program)
    for n in range(1, 5):
        y, gone = compiled(torch.ones(2))
        assert gone and len(log) == n and torch.equal(y, torch.full((2,), 2.) * n)
