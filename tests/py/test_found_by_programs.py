"""What random programs (tests/diff) have found, reduced."""

import pytest
import torch

from kintsugi._kintsugi import Compiled

TABLE = {}
KEY, VALUE = "a", 2
ITEMS = []


def walk(n):
    for v in range(n):
        yield v * 2


def grows_after_epoch():
    ITEMS[:] = ITEMS[-5:]
    TABLE[next(iter(TABLE), "none")] = {**{"a": 3, "c": 4}, KEY: VALUE}.get(KEY, len(KEY))


def run_tables(call):
    TABLE.clear()
    TABLE.update(a=3, b=4)
    ITEMS[:] = [1, 2, 3]
    seen = []
    for i in range(7):
        if i == 4:
            TABLE["a"] = TABLE.pop("a")
        call()
        seen.append((list(TABLE.items()), list(ITEMS)))
    return seen


def test_branch_sees_changes_of_what_the_prefix_made():
    """A branch reads a dict display of the steps before it by path; a later part of the display changed it."""
    compiled = Compiled(grows_after_epoch)
    assert run_tables(compiled) == run_tables(grows_after_epoch)
    assert compiled.stats()["recordings"] == 1 and compiled.stats()["replays"] == 6


def nested(x, n):
    return x + sum(walk(sum(q for q in ITEMS if q > n) % 4))


@pytest.mark.parametrize("n", [0, 2])
def test_refused_region_does_not_look_at_dead_operands(n):
    x = torch.ones(2)
    compiled = Compiled(nested)
    for items in ([1, 2, 3], [1, 2, 3], [4, 2, 3], [4, 2, 3], [4, 1, 3]):
        ITEMS[:] = items
        assert torch.equal(compiled(x, n), nested(x, n))


@pytest.mark.parametrize("others", [(torch.nn.functional.gelu, torch.tanh), (torch.nn.functional.silu, torch.ops.aten.relu)])
def test_a_function_that_an_attribute_held_in_turn_ends_no_graph(others):
    """Behind a Python function that was replaced, a C function was called as one that is not known."""
    class Model(torch.nn.Module):
        def forward(self, x):
            return self.act(x * 2) + 1

    model, x = Model(), torch.randn(4)
    compiled = Compiled(model)
    for model.act in (torch.nn.functional.relu, *others):
        for _ in range(3):
            assert torch.equal(compiled(x), model(x))
    assert compiled.stats()["breaks"] == 0
