"""Methods in C that were kept before they are called: `append = out.append` in front of a loop."""

import collections
import math

import pytest
import torch

import kintsugi


def appends(x, n):
    out, found = [], {"a": x}
    add, get = out.append, found.get
    for i in range(n):
        x = x * 2
        add(x)
        if i > 2:
            add(get("a"))
            add(get("b", i))
    return out


def data_decides(x, n):
    out, seen, last, counts = [], set(), collections.deque(maxlen=2), collections.defaultdict(list)
    add, see, push, at = out.append, seen.add, last.appendleft, counts.setdefault
    for i in range(n):
        if x.sum() > 4:
            add(x + 100)
            see("large")
        else:
            x = x + 2
            see(i)
        push(x.cos())
        at(i % 2, []).append(x)
    return out, sorted(map(str, seen)), last, counts, x


def of_the_program(x, n):
    x = x.sin()
    for i in range(n):
        KEPT(x + i)
    return x, len(HELD)


HELD = []
KEPT = HELD.append


@pytest.mark.parametrize("fn", [appends, data_decides, of_the_program], ids=lambda fn: fn.__name__)
def test_calls_like_the_method(fn):
    compiled = kintsugi.compile(fn, fullgraph=fn is not data_decides)
    for i, n in enumerate([2, 3, 2, 5, 1, 4, 6]):
        results = []
        for f in (fn, compiled):
            HELD.clear()
            results.append((str(f(torch.ones(2) * (i % 3), n)), str(HELD)))
        assert results[0] == results[1]


def test_another_method_or_object_is_noticed():
    held, other = [1.0], collections.deque([2.0])
    compiled = kintsugi.compile(lambda x, call: (x + 1, call(3.0)))
    x = torch.zeros(2)
    for call, expected in ((held.append, None), (held.append, None), (held.remove, None), (held.count, 1), (other.append, None), (other.count, 1), (other.appendleft, None), (held.append, None),
                           ([].append, None), ("3".join, TypeError), (math.sqrt, math.sqrt(3)), (held.append, None)):
        if expected is TypeError:
            with pytest.raises(TypeError, match="can only join an iterable"):
                compiled(x, call)
        else:
            assert str(compiled(x, call)) == str((x + 1, expected))
    assert held == [1.0, 3.0, 3.0, 3.0] and list(other) == [3.0, 2.0, 3.0]
