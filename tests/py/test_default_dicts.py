"""Grouping in a defaultdict whose keys differ from call to call."""

import collections

import pytest
import torch

import kintsugi


def lists(x, names):
    groups = collections.defaultdict(list)
    for i, name in enumerate(names):
        groups[name].append(x[i])
    return {name: torch.stack(found).mean() for name, found in groups.items()}


def dicts(x, names):
    groups = collections.defaultdict(dict)
    for i, name in enumerate(names):
        groups[name][i] = x[i] * 2
        if len(groups[name]) > 1:
            x = x + 1
    return x, groups


def numbers(x, names):
    counts = collections.defaultdict(int)
    for name in names:
        x = x * 2
        counts[name] += 1
    return x, counts


def sets(x, names):
    seen = collections.defaultdict(set)
    for i, name in enumerate(names):
        x = x.sin()
        seen[name].add(i)
    return x, {name: sorted(found) for name, found in seen.items()}, seen.default_factory


@pytest.mark.parametrize("fn", [lists, dicts, numbers, sets], ids=lambda fn: fn.__name__)
def test_keys_that_differ_end_no_graph(fn):
    compiled = kintsugi.compile(fn, fullgraph=True)
    for i, names in enumerate(["aab", "abc", "bbb", "aaab", "c", "abc", "ddcd"]):
        x = torch.arange(4.0) + i
        assert str(compiled(x, list(names))) == str(fn(x, list(names)))
    assert kintsugi.stats(compiled)["breaks"] == 0


def adds(x, names, groups):
    for i, name in enumerate(names):
        x = x * 2
        groups[name].append(x[i])
    return x * len(groups)


def test_a_dict_of_the_program_and_another_factory():
    compiled, groups, expected = kintsugi.compile(adds), collections.defaultdict(list), collections.defaultdict(list)
    for names in ("aab", "abc", "bcd", "eee"):
        x = torch.arange(4.0)
        assert torch.equal(compiled(x, list(names), groups), adds(x, list(names), expected)) and str(groups) == str(expected)
    groups.default_factory = None
    with pytest.raises(KeyError, match="z"):
        compiled(torch.ones(4), ["z"], groups)
    groups.default_factory = lambda: collections.deque(["first"])
    compiled(torch.ones(4), ["y"], groups)
    assert str(groups["y"]) == "deque(['first', tensor(2.)])"
    groups.default_factory = set
    with pytest.raises(AttributeError, match="'set' object has no attribute 'append'"):
        compiled(torch.ones(4), ["w"], groups)
    assert groups["w"] == set()
