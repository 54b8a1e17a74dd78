"""Containers whose contents a recording does not follow: unpacked and summed through a copy, whose length is checked at each call."""

import collections

import pytest
import torch

import kintsugi


def list_of_a_range(x, n):
    items = [*range(n)]
    first, *rest = items
    items.append(7)
    return x * first + len(rest) + sum(rest)


def rest_changes_later(x, n):
    first, *rest, last = [*range(n)]
    rest.append(x)
    return rest[-1] * last


def list_of_a_set(x, n):
    first, second = [*{1, 2}]
    return x * first * second


def keys_of_a_dict(x, n):
    table = {1: x, 2: x * 2}
    table[n] = 3
    first, *rest = table
    return table[first] + len(rest)


def numbers_of_a_set(x, n):
    first, *rest = {n, 5}
    return x * (first + sum(rest))


def bounded_deque(x, n):
    last = collections.deque(maxlen=3)
    for number in range(n):
        last.append(x * number)
    return sum(last)


def deque_of_numbers(x, n):
    return x * sum(collections.deque(range(n)))


def deque_of_lists(x, n):
    return x * len(sum(collections.deque([[1]] * n), []))


@pytest.mark.parametrize("function", [list_of_a_range, rest_changes_later, list_of_a_set, keys_of_a_dict, numbers_of_a_set, bounded_deque, deque_of_numbers,
                                      deque_of_lists], ids=lambda f: f.__name__)
def test_one_graph_and_eagers_result_for_every_length(function):
    compiled = kintsugi.compile(function, backend="eager")
    for n in (3, 3, 4, 4, 5, 3, 2, 2, 3, 0, 0, 1):
        x = torch.randn(2)
        results = []
        for call in (function, compiled):
            try:
                results.append(call(x, n))
            except Exception as error:
                results.append(repr(error))
        eager, ours = results
        assert torch.equal(eager, ours) if isinstance(eager, torch.Tensor) and isinstance(ours, torch.Tensor) else eager == ours, n
    assert kintsugi.explain(function)(torch.randn(2), 3).graph_break_count == 0
