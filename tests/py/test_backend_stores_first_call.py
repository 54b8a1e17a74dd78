"""What a custom backend gives is used in the very call that it was called in, also where that call adds to lists, replaces their items, adds keys and attributes, or
writes to lists of tensors: all is put back, and the call made once more. Where something cannot be put back, everything is as the one call has left it."""
import pytest
import torch

kintsugi = pytest.importorskip("kintsugi")
from counting_backend import Counting  # noqa: E402


def v(i=0):
    return torch.arange(4.0) / 3 + i


class State:
    def __init__(self):
        self.items, self.table, self.tensors = [0.5, None], {"a": 1}, [torch.zeros(4), torch.ones(4)]

    def leaves(self):
        return [self.items, list(self.table.items()), self.tensors, sorted(set(vars(self)) - {"items", "table", "tensors"}), getattr(self, "last", None)]


def adds(s, x):
    y = x * 2
    s.items.append(y)
    s.items.append(7)
    return y.sin()


def replaces(s, x):
    y = x * 2
    s.items[0] = y
    s.items[-1] = y.sum()
    return y.sin()


def adds_keys(s, x):
    y = x * 2
    s.table["b"], s.table["c"] = y, 3
    s.table["a"] = y + 1
    return y.sin()


def adds_attribute(s, x):
    s.last = x * 2
    return s.last.sin()


def adds_and_replaces(s, x):
    s.items.append(x + 1)
    s.items[len(s.items) - 1] = x * 2
    return s.items[-1].sin()


def writes_to_lists(s, x):
    torch._foreach_mul_(s.tensors, 0.5)
    torch._foreach_add_(s.tensors, [x, x + 1], alpha=2)
    return s.tensors[0] + s.tensors[1]


def writes_to_lists_made_here(s, x):
    a, b = s.tensors
    torch._foreach_add_([a, b], 1.5)
    return x + a * b


def lists_of_results(s, x):
    a, b = torch._foreach_mul([x, x + 1], 2.0)
    return a + b


PROGRAMS = [adds, replaces, adds_keys, adds_attribute, adds_and_replaces, writes_to_lists, writes_to_lists_made_here, lists_of_results]


def same(a, b):
    a, b = torch.utils._pytree.tree_leaves(a), torch.utils._pytree.tree_leaves(b)
    return len(a) == len(b) and all(torch.equal(x, y) if isinstance(x, torch.Tensor) else type(x) is type(y) and x == y for x, y in zip(a, b))


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_used_in_each_call(fn):
    backend = Counting()
    compiled, ours, eager = kintsugi.compile(fn, backend=backend), State(), State()
    held = ours.items, ours.table, ours.tensors[0]
    for i in range(5):
        assert same(compiled(ours, v(i)), fn(eager, v(i))), i
        assert same(ours.leaves(), eager.leaves()), i
        assert backend.runs == i + 1
    assert held[0] is ours.items and held[1] is ours.table and held[2] is ours.tensors[0]


@pytest.mark.parametrize("fn", [adds, adds_keys, adds_attribute], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("where", ["before", "behind"])
def test_what_cannot_be_put_back_happens_once(fn, where):
    seen = []

    def program(s, x):
        if where == "before":
            seen.append(s.items.pop())
        y = fn(s, x)
        if where == "behind":
            seen.append(s.items.pop(0))
        return y + 1
    ours, eager, compiled = State(), State(), kintsugi.compile(program, backend=Counting())
    for i in range(2):
        assert same(compiled(ours, v(i)), program(eager, v(i)))
        assert same(ours.leaves(), eager.leaves())
    assert len(seen) == 4


def test_list_that_the_program_shortens_behind_what_it_adds():
    def fn(s, x):
        s.items.append(x)
        del s.items[:2]
        return x * 2
    ours, eager, compiled = State(), State(), kintsugi.compile(fn, backend=Counting())
    for i in range(3):
        assert same(compiled(ours, v(i)), fn(eager, v(i))) and same(ours.leaves(), eager.leaves())


def test_two_names_of_one_list():
    def fn(a, b, x):
        a.append(x * 2)
        b.append(x * 3)
        return a[-1] + b[0]
    compiled, ours, eager = kintsugi.compile(fn, backend=Counting()), [], []
    for i in range(4):
        assert same(compiled(ours, ours, v(i)), fn(eager, eager, v(i))) and same(ours, eager)
