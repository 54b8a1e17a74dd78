"""An object whose death runs Python code (a finaliser, the finally of a generator that is dropped) dies where it does in eager: no call of a graph that
waits for later ones keeps it."""

import pytest
import torch

import kintsugi

LOG = []


class Mortal:
    def __del__(self):
        LOG.append("dead")


@torch.compiler.disable
def mortal():
    return Mortal()


def numbers(n):
    try:
        yield from range(n)
    finally:
        LOG.append("closed")


def deleted(x):
    o = Mortal()
    y = x + 1
    del o
    LOG.append("after")
    return y * 2


def replaced(x):
    o = mortal()
    y = x + 1
    o = None
    LOG.append("after")
    return y * 2, o


def returned(x):
    def inner():
        o = mortal()   # noqa: F841
        y = x + 1
        return y.sin()
    y = inner()
    LOG.append("after")
    return y * 2


def of_a_loop(x):
    for o in iter([mortal()]):   # noqa: B007
        y = x + 1
        break
    o = 1
    LOG.append("after")
    return y * o


def replaced_item(x):
    d = {"o": mortal()}
    y = x + 1
    d["o"] = 1
    LOG.append("after")
    return y * 2


def several(x):
    for i in range(3):
        o = mortal()   # noqa: F841
        x = x + i
        LOG.append(i)
    return x * 2


def left_loop(x):
    for v in numbers(3):
        x = x * v
        if v > 0:
            break
    LOG.append("after")
    return x * 2


def caught(x):
    try:
        o = mortal()   # noqa: F841
        x = x + 1
        raise KeyError
    except KeyError:
        x = x * 3
    o = 2
    LOG.append("after")
    return x * o


def variable_of_a_closure(x):
    o = mortal()

    def again():
        nonlocal o
        o = [mortal(), 1]
        return x + 1
    y = again()
    LOG.append("between")
    o = 0
    LOG.append("after")
    return y * 2, o


def popped(x):
    d = {1: mortal(), 2: mortal(), 3: 4}
    y = x + 1
    d.pop(1)
    LOG.append("between")
    d.popitem()
    d.popitem()
    LOG.append("after")
    return y * 2, len(d)


def run(call):
    LOG.clear()
    result = call(torch.ones(2))
    return str(result), list(LOG)


@pytest.mark.parametrize("program", [deleted, replaced, returned, of_a_loop, replaced_item, several, left_loop, caught, variable_of_a_closure, popped])
@pytest.mark.parametrize("options", [{}, {"backend": "eager"}, {"options": {"warm": True}}])
def test_objects_die_in_order(program, options):
    expected = run(program)
    compiled = kintsugi.compile(program, **options)
    for _ in range(5):
        assert run(compiled) == expected
