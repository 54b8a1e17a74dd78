"""Every shape rule against eager on random arguments: what eager refuses no rule answers, what it answers is the same.

KIN_SHAPE_COUNT: calls for each operator (default 40); KIN_SHAPE_SEED: the first seed.
"""

import os
import warnings

import pytest
import torch
from arguments import ARGUMENTS, Maker
from rows import ROWS
from shapes import results_of, rule_answers
from torch.utils._pytree import tree_flatten, tree_unflatten

COUNT = int(os.environ.get("KIN_SHAPE_COUNT", "40"))
SEED = int(os.environ.get("KIN_SHAPE_SEED", "0"))
# Operators whose rules decline most random arguments, and rightly so.
RARE = {"_unsafe_view.default"}


def overload(name):
    packet, which = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), which)


def compare(op, args, kwargs):
    """The rule's verdict; asserts that it is not wrong."""
    leaves, spec = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i] for i in places]

    def call(*given):
        filled = list(leaves)
        for i, t in zip(places, given):
            filled[i] = t
        a, k = tree_unflatten(filled, spec)
        return op(*a, **k)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _, said = results_of(call, tensors)
    except Exception as error:  # what eager refuses, or warns about
        if "ZeroDivisionError" in str(error):  # a matter of data
            return "refused"
        assert not rule_answers(op, args, kwargs), f"the rule answers, eager says: {str(error)[:200]}"
        return "refused"
    assert len(said) == 1 and not said[0][1].startswith("differs"), said
    return said[0][1]


def describe(value):
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]}{list(value.shape)}{list(value.stride())}+{value.storage_offset()}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(describe, value))}]"
    return repr(value)


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_rule(name):
    op, answered, accepted = overload(name), 0, 0
    for seed in range(SEED, SEED + COUNT):
        torch.manual_seed(seed)
        args, kwargs = ARGUMENTS[name](Maker(f"{name} {seed}"))
        try:
            said = compare(op, args, kwargs)
        except AssertionError as error:
            raise AssertionError(f"{name}{describe(args)} {kwargs} (seed {seed}): {error}") from None
        accepted += said != "refused"
        answered += said.startswith("ok")
    assert answered * 5 >= accepted or name in RARE, f"the rule answered {answered} of {accepted}"


def test_every_rule_is_compared():
    # what is captured whole eager makes of other operators: tests/kernels/test_recurrent.py
    rules = {row.name for row in ROWS if row.shape != "NONE" and "WHOLE" not in row.traits}
    assert rules <= set(ARGUMENTS), sorted(rules - set(ARGUMENTS))
