"""Changes of lists and OrderedDicts that are older than the recording, whatever they hold, run no code of the program's: tensor calls around them are one graph."""
import collections

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi")
from counting_backend import Counting  # noqa: E402


class Outputs(list):
    pass


def v(i=0):
    return torch.arange(4.0) / 3 + i


def extend(c, y):
    c.extend([y, 3.0])
    c.extend((y + 1,))


def add_in_place(c, y):
    c += [y, y * 2]
    c += (5,)


def add_itself(c, y):
    c += c
    del c[4:]


def extend_by_itself(c, y):
    c.append(y)
    c.extend(c)
    del c[3:]


def least_recently_used(c, y):
    c["new"] = y
    c.move_to_end("a", last=False)
    c.move_to_end("a")
    while len(c) > 3:
        c.popitem(last=False)


def pop_and_update(c, y):
    c.pop("a", None)
    c.update({"a": y, "z": 1})
    c.update(k=y)


def update_by_pairs(c, y):
    c.update([("a", y), ("q", 2)])


CASES = [(list, [1.0, 2.0], fn) for fn in (extend, add_in_place, add_itself, extend_by_itself)] + [(Outputs, [1.0, 2.0], extend)] + [
    (collections.OrderedDict, dict(a=1, b=2, c=3), fn) for fn in (least_recently_used, pop_and_update)]


def flat(c):
    return [(k, c[k]) for k in c] if isinstance(c, dict) else list(c)


def same(a, b):
    a, b = torch.utils._pytree.tree_leaves(a), torch.utils._pytree.tree_leaves(b)
    return len(a) == len(b) and all(torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in zip(a, b))


def program_of(change):
    def program(c, x):
        y = x * 2
        change(c, y)
        return y.sin() + 1
    return program


@pytest.mark.parametrize("cls,content,change", CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_one_graph(cls, content, change):
    backend = Counting()
    program = program_of(change)
    compiled, ours, eager = kintsugi.compile(program, backend=backend, fullgraph=True), cls(content), cls(content)
    for i in range(4):
        assert same(compiled(ours, v(i)), program(eager, v(i))), i
        assert same(flat(ours), flat(eager)) and type(ours) is cls, i
    assert backend.runs >= 3 and all(len(inputs) == 1 for inputs in backend.inputs)
    assert kintsugi.explain(program)(cls(content), v()).graph_count == 1


@pytest.mark.parametrize("content,change", [(dict(a=1, b=2), update_by_pairs), (dict(b=1), least_recently_used)], ids=["pairs", "missing"])
def test_as_eager(content, change):
    program = program_of(change)
    compiled, ours, eager = kintsugi.compile(program, backend=Counting()), collections.OrderedDict(content), collections.OrderedDict(content)
    for i in range(4):
        found = []
        for fn, c in ((compiled, ours), (program, eager)):
            try:
                found.append(fn(c, v(i)))
            except KeyError as error:
                found.append(str(error))
        assert type(found[0]) is type(found[1]) and (found[0] == found[1] if isinstance(found[0], str) else torch.equal(*found)), i
        assert same(flat(ours), flat(eager)), i


def test_items_that_raise_while_they_are_taken():
    class Bad:
        def __iter__(self):
            yield 1
            raise ValueError("here")

    def program(c, x):
        y = x * 2
        try:
            c += Bad()
        except ValueError:
            y = y + 1
        return y
    compiled, ours, eager = kintsugi.compile(program, backend=Counting()), [], []
    for i in range(3):
        assert same(compiled(ours, v(i)), program(eager, v(i))) and ours == eager
