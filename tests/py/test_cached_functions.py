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


@pytest.mark.parametrize("make", [functools.lru_cache, functools.cache, functools.lru_cache(maxsize=2)], ids=["lru_cache", "cache", "maxsize"])
def test_an_answer_that_is_there_divides_no_graph(make):
    """While the cache has the answer, no code runs between the calls of tensors; when it has lost it, the program goes on as in eager."""
    calls, weights = [], {"w": torch.ones(4)}

    @make
    def at_least(version, *, strict=False):
        calls.append(weights["w"].sum().item())
        return version < "3" and not strict

    def f(x):
        y = (x * 2).relu() * weights["w"]
        if at_least("2.0", strict=False):
            y = y + 1
        return y.sum() * (3 if at_least("4") else 5)

    def run(function):
        at_least.cache_clear()
        calls.clear()
        out = []
        for i in range(12):
            if i == 5 and function is not f:
                assert {row["parts"] for row in kintsugi.stats(function)["kernels"]} == {1}
            if i in (5, 8):
                at_least.cache_clear()
                weights["w"] = torch.full((4,), float(i))
            out.append((function(torch.full((4,), float(i - 2))).item(), *at_least.cache_info(), list(calls)))
        weights["w"] = torch.ones(4)
        return out

    with kintsugi.config.patch(kernels=True):
        compiled = kintsugi.compile(f)
        assert run(compiled) == run(f)


def test_an_answer_that_is_a_tensor():
    @functools.cache
    def positions(n):
        return torch.arange(n, dtype=torch.float32)

    def f(x):
        return (x.relu() + positions(4)).cos() * positions(4)

    with kintsugi.config.patch(kernels=True):
        compiled = kintsugi.compile(f)
        for i in range(8):
            if i == 5:
                assert {row["parts"] for row in kintsugi.stats(compiled)["kernels"]} == {1}
                positions.cache_clear()
            torch.testing.assert_close(compiled(torch.full((3, 4), float(i))), f(torch.full((3, 4), float(i))))


def test_arguments_that_compare_equal():
    @functools.lru_cache(typed=True)
    def kind(value):
        return type(value).__name__

    @functools.lru_cache
    def first_seen(value):
        return type(value).__name__

    def f(x, v):
        return x + len(kind(v)) * 10 + len(first_seen(v)) + len(kind(1)) + len(first_seen(True))

    for run in f, kintsugi.compile(f):
        kind.cache_clear()
        first_seen.cache_clear()
        seen = [(run(torch.zeros(1), v).item(), kind.cache_info(), first_seen.cache_info()) for v in (1, 1, 1.0, True, 1, "1", 1.0, True)]
        if run is f:
            expected = seen
    assert seen == expected
