"""Constructs of the language and its library that stand between torch calls: decorators made inside, trees, lazy maps."""
import functools
import typing

import torch
from torch.utils import _pytree as pytree

from kincorpus.case import T, case, glob

SCALE = 2.0


# -- decorators ----------------------------------------------------------------------------------------------------------


@case(mutate=glob(3, SCALE=3.0))
def no_grad_function_made_inside(x):
    @torch.no_grad()
    def scaled(t):
        return t * SCALE
    return scaled(x) + 1


@case(mutate=glob(3, SCALE=3.0))
def wrapper_made_inside(x):
    def twice(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            return fn(*args, **kwargs) * SCALE
        return inner

    @twice
    def plus(t, k=1):
        """Adds."""
        return t + k
    return plus(x, k=3), plus.__name__, plus.__doc__, plus.__wrapped__(x)


@case(mutate=glob(3, SCALE=3.0), replays=3)
def wrapper_handed_out(x):
    def plus(t):
        return t + SCALE
    plus.note = "n"
    inner = functools.wraps(plus)(lambda t: plus(t) * 2)
    return inner(x), inner.__name__, inner.note, inner.__dict__["note"]


# -- trees ----------------------------------------------------------------------------------------------------------------


@case(mutate=glob(3, SCALE=3.0))
def maps_a_tree(x):
    return pytree.tree_map(lambda t: t * SCALE, {"a": x, "b": [x, (x + 1,)]})


@case(mutate=glob(3, SCALE=3.0))
def maps_two_trees(x):
    return pytree.tree_map(lambda a, b: a + b * SCALE, [x, (x,)], [x, (x + 1,)])


@case(mutate=glob(3, SCALE=3.0))
def flattens_a_tree(x):
    leaves, spec = pytree.tree_flatten({"a": x, "b": [x, (x + 1,)]})
    return pytree.tree_unflatten([t * SCALE for t in leaves], spec), sum(pytree.tree_leaves([x, {"c": x}]))


@case(mutate=glob(3, SCALE=3.0))
def maps_tensors_of_a_tree(x):
    return pytree.tree_map_only(torch.Tensor, lambda t: t * SCALE, [x, 1, None, "s"])


@case(mutate=glob(3, SCALE=3.0))
def annotated_function_made_inside(x):
    def scaled(t: typing.Optional[torch.Tensor], k: typing.Callable[[int], float]) -> typing.List[int]:
        return t * SCALE
    return scaled(x, None)


# -- maps that have a name ------------------------------------------------------------------------------------------------


@case(mutate=glob(3, SCALE=3.0))
def uses_up_a_map_with_a_name(x):
    doubled = map(lambda t: t * SCALE, [x, x + 1])
    return list(doubled), list(doubled), next(doubled, None)


@case(args=lambda i, s: (T(i, 2 if i < 3 else 4, 3),), replays=2)
def uses_up_a_filter_with_a_name(x):
    kept = filter(None, [x.shape[0], 0, 3])
    a, b = kept
    return x * a + b, tuple(kept), [x * SCALE for _ in kept]


@case(mutate=glob(3, SCALE=3.0))
def hands_out_a_used_map(x, out=None):
    rows = map(torch.sin, [x, x + 1])
    total = sum(rows)
    return total * SCALE, rows


@case(args=lambda i, s: (T(i, 4, 3) - (5 if i == 4 else 0),), replays=2)
def leaves_behind_a_used_map(x):
    rows = map(lambda t: t * SCALE, [x, x + 1])
    a, b = rows
    if a.sum() > b.sum() - 100 and x.sum() > -20:
        return a
    return b, list(rows)
