"""Iterators that no instruction makes: map(zip, rows, others), map(reversed, rows), starmap(zip, pairs) ... One graph, also where the program is left anywhere."""
import itertools

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)

PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def zipped(x):
    return [a * b for row in map(zip, [[x, x + 1], (x * 2,)], [[x, x], [x + 3]]) for a, b in row]


@program
def counted(x):
    return [t * i for row in map(enumerate, [[x, x + 1], [x * 2]]) for i, t in row]


@program
def backwards(x):
    return [list(row) for row in map(reversed, [[x, x + 1], (x * 2, x * 3)])]


@program
def kept(x):
    rows = list(map(iter, [[x, x + 1], [x * 2, x * 3]]))
    return [next(row) for row in rows], [list(row) for row in rows]


@program
def keys(x):
    return {k: x * 2 for row in map(iter, [{"a": x}, {"b": x}]) for k in row}


@program
def rows_of_pairs(x):
    return [a + b for row in itertools.starmap(zip, [([x], [x * 2]), ([x * 3], [x])]) for a, b in row]


@program
def grown_before_it_is_made(x):
    rows, out = [[x], [x + 1]], []
    for row in map(reversed, rows):
        rows[1].append(x * 2)
        out += row
    return out


@program
def zipped_while_a_row_grows(x):
    rows, out = [[x], [x + 1]], []
    for row in map(zip, rows, rows):
        rows[1].append(x * 2)
        out += [a * b for a, b in row]
    return out


GROWS = {"grown_before_it_is_made", "zipped_while_a_row_grows"}  # the graph may end there


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name):
    kintsugi.reset()
    fn, x, made = PROGRAMS[name], torch.linspace(-1, 1, 4), []
    compiled = kintsugi.compile(fn, fullgraph=name not in GROWS, backend=lambda gm, inputs: made.append(gm) or gm)
    try:
        for k in (None, None, None, *range(30)):
            kintsugi._kintsugi.force_exit(k)
            assert str(compiled(x)) == str(fn(x)), k
    finally:
        kintsugi._kintsugi.force_exit(None)
    assert len(made) == 1 or name in GROWS
