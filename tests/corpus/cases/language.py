"""Constructs of the language and its library that stand between torch calls: decorators made inside, trees, lazy maps."""
import collections
import copy
import dataclasses
import functools
import itertools
import operator
import typing

import torch
from torch.utils import _pytree as pytree

from kincorpus.case import T, case, glob

SCALE = 2.0
aten = torch.ops.aten


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


# -- OrderedDict, defaultdict ---------------------------------------------------------------------------------------------


@case(mutate=glob(3, SCALE=3.0))
def fills_an_ordered_dict(x):
    table = collections.OrderedDict([("a", x), ("b", x * SCALE)])
    table["c"] = table["a"] + 1
    table.update(b=x, d=SCALE)
    table.update({"e": x * 2})
    total = sum(table.values()) + len(table)
    return total, list(table), table.pop("a"), table.pop("zz", None), table.get("b"), table, table.copy(), dict(table)


@case(mutate=glob(3, SCALE=3.0), replays=3)
def moves_in_an_ordered_dict(x):
    table = collections.OrderedDict(a=x, b=x * SCALE, c=1)
    table.move_to_end("a")
    first = list(table), table.popitem(last=False)
    table.move_to_end("c", last=False)
    return first, list(table.items()), table.popitem(), table


@case(mutate=glob(3, SCALE=3.0))
def hands_over_an_ordered_dict(x):
    def scaled(a, b=1, **more):
        return a * b * SCALE, more
    return scaled(**collections.OrderedDict(b=2, a=x, z=3)), collections.OrderedDict(a=1) == collections.OrderedDict(a=1)


@case(mutate=glob(3, SCALE=3.0))
def groups_in_a_defaultdict(x):
    groups, counts = collections.defaultdict(list), collections.defaultdict(int, a=4)
    for key, value in (("a", x), ("b", x * SCALE), ("a", x + 1)):
        groups[key].append(value)
        counts[key] += 1
    return {k: torch.stack(v) for k, v in groups.items()}, counts, groups, "zz" in groups, groups.get("zz"), counts["zz"], len(counts)


@case(mutate=glob(3, SCALE=3.0))
def defaultdicts_of_all_kinds(x):
    deep = collections.defaultdict(dict)
    deep["a"]["b"] = x * SCALE
    made = collections.defaultdict(lambda: SCALE, k=x)
    names = collections.defaultdict(set)
    names["n"].add("v")
    return deep, made["k"] * 2, names


@case(raises=(0, 1, 2, 3, 4, 5), inert=True, replays=0)
def defaultdict_without_a_factory(x):
    made = collections.defaultdict(None, k=x)
    return made["k"] + made["zz"]


@case(mutate=glob(3, SCALE=3.0), replays=3)
def branch_finds_the_dicts(x):
    table, groups = collections.OrderedDict(a=x), collections.defaultdict(list)
    groups["g"].append(x)
    table["b"], table["s"] = groups["g"], SCALE
    if (x.sum() * SCALE) > 1e6:
        return table
    groups["h"].append(1)
    return table, groups


@case(mutate=glob(3, SCALE=3.0))
def chain_map(x):
    chain = collections.ChainMap({"a": x}, {"b": 2, "a": 3})
    chain["z"] = x * SCALE
    return len(chain), chain["a"], chain["b"], chain.maps[0]["z"], chain.get("q", 1)


@case(mutate=glob(3, SCALE=3.0))
def updates_a_dict(x):
    table = {"a": 1}
    table.update({"b": x}, c=x * SCALE)
    table.update([("d", 4), ("a", 5)])
    table.update()
    return table["a"] * table["c"], table, list(table)


# -- operators by name ------------------------------------------------------------------------------------------------------


@case(mutate=glob(3, SCALE=3.0))
def aten_operators(x):
    y, mean, _ = aten.native_layer_norm(x, [3], None, None, 1e-5)
    return aten.sin(x) * SCALE + aten.mul.Tensor(x, y), mean, aten.max.dim(x, 0), aten.zeros([2, 3]), aten.nonzero.default(x > 0)


@case(mutate=glob(3, SCALE=3.0))
def aten_operators_in_place(x):
    y, out = x + 1, torch.empty(4, 3)
    aten.add_.Tensor(y, SCALE)
    aten.mul_(y, 2)
    aten.sin.out(y, out=out)
    return y, out


@case(mutate=glob(3, SCALE=3.0), replays=3)
def aten_operators_that_give_numbers(x):
    return x * aten.item(x.sum()) * SCALE, aten.sym_size.int(x, 0), aten.equal(x, x)


@case(args=lambda i, s: (T(i, 4, 3, grad=True),), after=lambda i, s, r: r.sum().backward(), mutate=glob(3, SCALE=3.0))
def aten_operators_with_gradients(x):
    return aten.mul.Tensor(aten.tanh.default(x), SCALE)


@case(mutate=glob(3, SCALE=3.0), raises=(3, 4, 5), replays=2)
def aten_operator_that_raises(x):
    return aten.mm.default(x if SCALE > 2 else x.t(), x)


# -- starred operands ---------------------------------------------------------------------------------------------------------


class Pair:
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


class Sized(Pair):
    def __len__(self):
        return len(self.items)


class Generated(Pair):
    def __iter__(self):
        yield from self.items


class Scaler:
    def scaled(self, a, b=1, **more):
        return a * b * SCALE, more


SCALER = Scaler()


def halves(x):
    yield x * SCALE
    yield x / 2


def greater(a, b):
    if a.sum() > 3:
        return a * SCALE
    return b


def refuses(a, b):
    raise ValueError(SCALE)


@case(mutate=glob(3, SCALE=3.0))
def stars_an_object(x):
    return SCALER.scaled(*Pair(x, 3)), SCALER.scaled(*Sized(x, 2), k=1), SCALER.scaled(*Generated(x))


@case(mutate=glob(3, SCALE=3.0))
def stars_a_generator(x):
    return SCALER.scaled(*(t + 1 for t in (x, 2))), torch.add(*halves(x)), torch.maximum(*map(lambda t: t * SCALE, [x, x + 1]))


@case(mutate=glob(3, SCALE=3.0))
def stars_what_has_a_name(x):
    halved, mapped = halves(x), map(lambda t: t * SCALE, [x, 2])
    return SCALER.scaled(*halved), list(halved), SCALER.scaled(*mapped), next(mapped, None)


@case(mutate=glob(3, SCALE=3.0))
def stars_in_displays(x):
    rows = [*halves(x), 1, *map(lambda t: t + 1, [x]), *Sized(x)]
    return rows, (*halves(x), *Pair(1, x)), torch.cat([*halves(x)]), {*map(len, ["a", "bb"])}, [*filter(None, [1, 0, SCALE])]


@case(args=lambda i, s: (torch.ones(2, 3) * (i % 2 * 3),), calls=8, replays=4, mutate=glob(5, SCALE=3.0))
def leaves_a_starred_call(x):
    return greater(*(t + 1 for t in (x, x))), greater(*map(lambda t: t - 1, (x, x * 2))), greater(*Pair(x, x))


@case(mutate=glob(3, SCALE=3.0))
def starred_call_that_raises(x):
    try:
        return refuses(*(t + 1 for t in (x, x)))
    except ValueError as e:
        return x * e.args[0]


@case(raises=(0, 1, 2, 3, 4, 5), inert=True, replays=0)
def starred_call_with_too_many(x):
    return greater(*(x for _ in range(3)))


# -- starmap, accumulate ------------------------------------------------------------------------------------------------------


@case(mutate=glob(3, SCALE=3.0))
def star_maps(x):
    pairs = [(x, 1)]
    later = itertools.starmap(lambda a, b: a * b * SCALE, pairs)
    pairs.append((x, 3))
    return list(later), list(itertools.starmap(torch.mul, [(x, SCALE), (x, 2)])), dict(itertools.starmap(lambda k, v: (k, v * 2), {"a": x}.items()))


@case(mutate=glob(3, SCALE=3.0))
def accumulates(x):
    return (list(itertools.accumulate([x, x * 2, x * SCALE])), list(itertools.accumulate([x, x * 2], lambda a, b: a * b * SCALE, initial=x)),
            tuple(itertools.accumulate([1, 2, SCALE], operator.mul)), list(itertools.accumulate([x, x + 1], torch.maximum)))


@case(mutate=glob(3, SCALE=3.0), replays=3)
def accumulates_what_changes_meanwhile(x):
    y = x.clone()
    sums = itertools.accumulate([y, x])
    y.add_(1)
    out = [y * 1 for y in itertools.accumulate([x, y])]
    return list(sums), out, SCALE


# -- copies -------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Options:
    name: str
    scale: float = 1.0
    sizes: list = dataclasses.field(default_factory=list)


@case(mutate=glob(3, SCALE=3.0))
def copies_what_cannot_change(x):
    return x * copy.deepcopy(SCALE), copy.deepcopy("s"), copy.deepcopy(None), copy.deepcopy(x.shape[0])


@case(mutate=glob(3, SCALE=3.0), replays=3)
def options_as_a_dict(x):
    table = dataclasses.asdict(Options("n", SCALE, [1, 2]))
    return x * table["scale"] + len(table["sizes"]), table, dataclasses.astuple(Options("m", SCALE))
