"""A generator that ends when it is asked raises StopIteration where the program handles it."""
import pytest
import torch

import kintsugi


def sums(x):
    total = x
    while True:
        got = yield total
        if got is None:
            return
        total = total + got


def sent(x, stop):
    it, out = sums(x), []
    next(it)
    for i in range(4):
        try:
            out.append(it.send(None if i == stop else x * i))
        except StopIteration:
            out.append("end")
            break
    return out


def asked(x, stop):
    it = sums(x)
    out = [next(it), it.send(x)]
    try:
        next(it)
    except StopIteration as error:
        out.append(error.args)
    try:
        it.send(None)
    except StopIteration as error:
        out.append((error.value, stop))
    return out


def of_a_method(x, stop):
    it = sums(x)
    send = it.send
    y = send(None)
    try:
        send(None)
    except StopIteration:
        y = y + stop
    else:
        y = y - 1
    return y, next(it, "over")


@pytest.mark.parametrize("program", [sent, asked, of_a_method])
def test_it_is_caught_as_in_eager(program):
    compiled = kintsugi.compile(program)
    for call, stop in enumerate((2, 2, 1, 3, 0, 9, 2)):
        x = torch.arange(3.) + call
        assert str(compiled(x, stop)) == str(program(x, stop)), call


def test_send_ends_no_graph():
    compiled = kintsugi.compile(sent, fullgraph=True)
    for _ in range(3):
        assert str(compiled(torch.ones(2), 2)) == str(sent(torch.ones(2), 2))
