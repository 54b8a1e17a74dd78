"""functools.partial of a partial object that is made in the same call: keywords of both are joined, the outer one's win."""

import functools

import pytest
import torch

import kintsugi


def combine(a, b=2, *more, scale=1, shift=0, **names):
    return (a * b + sum(more)) * scale + shift, sorted(names), list(names)


def keywords(x, k):
    p = functools.partial(torch.add, x, alpha=2)
    q = functools.partial(p, other=x)
    return q(), q(alpha=k), p(x)


def overridden(x, k):
    p = functools.partial(combine, x, scale=2, z=1, y=2)
    q = functools.partial(p, k, shift=3, scale=4, w=5)
    r = functools.partial(q, y=6)
    return p(), q(), q(1, scale=5), r(2, v=7), r.func is combine, len(r.args), list(r.keywords)


def mapped(x, k):
    p = functools.partial(combine, shift=k)
    q = functools.partial(p, x)
    return list(map(q, [1, 2])), list(map(functools.partial(q, 3), [4]))


def nothing_more(x, k):
    p = functools.partial(combine, scale=3)
    return functools.partial(p)(x), functools.partial(functools.partial(torch.sin))(x)


@pytest.mark.parametrize("program", [keywords, overridden, mapped, nothing_more])
def test_parts_are_joined(program):
    compiled = kintsugi.compile(program, fullgraph=program is not mapped)
    for call, k in enumerate((2, 2, 3, 3, 2.5, 2)):
        x = torch.arange(3.) + call
        assert str(compiled(x, k)) == str(program(x, k)), call
    assert kintsugi.stats(compiled)["breaks"] == 0 or program is mapped
