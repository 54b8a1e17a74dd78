"""functools.lru_cache in compiled code: the cache counts each call once, whether it has the answer or not."""
import functools

import pytest
import torch

import kintsugi


def program():
    calls = []

    @functools.lru_cache(maxsize=2)
    def table_size(n):
        calls.append(n)
        return n * n

    def scaled(x, n):
        return x * table_size(n)

    return scaled, table_size, calls


def counted(run, table_size, calls, arguments):
    table_size(2)
    out = []
    for n in arguments:
        result = run(torch.ones(3), n)
        out.append((result[0].item(), *table_size.cache_info(), list(calls)))
    return out


@pytest.mark.parametrize("arguments", [(2, 2, 3, 3, 4, 3, 2), (3, 3, 2, 2, 3), (2, 3, 4, 5, 6, 2, 2, 2)])
def test_calls_are_counted_once(arguments):
    expected = counted(*program(), arguments)
    scaled, table_size, calls = program()
    assert counted(kintsugi.compile(scaled), table_size, calls, arguments) == expected


def test_an_answer_that_raises():
    @functools.lru_cache
    def checked(n):
        if n > 2:
            raise ValueError(n)
        return n

    def f(x, n):
        try:
            return x + checked(n)
        except ValueError:
            return x - 1

    compiled, seen = kintsugi.compile(f), []
    for run in f, compiled:
        checked.cache_clear()
        seen.append([(run(torch.zeros(2), n)[0].item(), *checked.cache_info()) for n in (1, 1, 2, 3, 3, 1, 2, 4, 1)])
    assert seen[0] == seen[1]
