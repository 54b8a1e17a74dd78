"""What programs around tensors use of Python's library: walks over modules, itertools, sorting, delegation, patterns."""
import copy
import functools
import itertools

import torch
import torch.utils.checkpoint
from torch import nn

from kincorpus.case import T, case, do

ORDER = {"b": 2.0, "a": 3.0}
KEEP = [1, 0, 1]


def small():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))).eval()


def model(s):
    s.net = small()


def with_net(i, s):
    return T(i, 2, 3), s.net


def tie(s):
    s.net[2][0].weight = s.net[0].weight


def grow(s):
    s.net.append(nn.Linear(3, 3))


# -- walks over modules --------------------------------------------------------------------------------------------------


@case(setup=model, args=with_net, mutate=do(3, tie), again=1)
def walks_parameters(x, net):
    total = x
    for p in net.parameters():
        total = total + p.sum()
    return total


@case(setup=model, args=with_net, mutate=do(3, grow), again=1)
def walks_named_parameters(x, net):
    return {name: p * 2 + x.sum() for name, p in net.named_parameters() if "bias" in name}


@case(setup=model, args=with_net, mutate=do(3, tie), again=1)
def counts_parameters(x, net):
    return x * sum(p.numel() for p in net.parameters())


@case(setup=model, args=with_net, mutate=do(3, lambda s: s.net[2][1].register_buffer("more", torch.ones(3))), again=1)
def walks_buffers(x, net):
    return [x + b.sum() for b in net.buffers()]


@case(setup=model, args=with_net, mutate=do(3, grow), again=1)
def walks_modules(x, net):
    kinds = []
    for name, module in net.named_modules():
        if isinstance(module, nn.Linear):
            x = module(x)
            kinds.append(name)
    return x, kinds


@case(setup=model, args=with_net, mutate=do(3, lambda s: setattr(s.net[0], "bias", None)), again=1)
def walks_children(x, net):
    for child in net.children():
        x = child(x)
    return x, [name for name, _ in net.named_children()]


@case(setup=model, args=with_net)
def leaves_a_walk_early(x, net):
    for p in net.parameters():
        if p.dim() == 1:
            break
    return x + p, next(net.parameters()).dtype


@case(setup=model, args=with_net, replays=0)
def decides_within_a_walk(x, net):
    for p in net.parameters():
        if (p.sum() + x.sum()) > 0:
            x = x + p.sum()
    return x


@case(setup=model, args=with_net)
def calls_with_other_parameters(x, net):
    return torch.func.functional_call(net, {k: v * 2 for k, v in net.named_parameters()}, (x,))


# -- sets that generators keep -------------------------------------------------------------------------------------------


def once_each(items):
    seen = set()
    for item in items:
        if item not in seen:
            seen.add(item)
            yield item


@case(args=lambda i, s: (T(i, 3), T(i + 9, 3)))
def each_tensor_once(x, y):
    return sum(once_each([x, y, x, y, x]))


@case(args=lambda i, s: (lambda t: (t, T(7, 3) if i < 3 else t))(T(i, 3)), again=1)
def tensors_become_one(x, y):
    total = torch.zeros(3)
    for t in once_each([x, y]):
        total = total + t
    return total


def skips(items):
    seen = set()
    for item in items:
        if item in seen or item is None:
            continue
        seen.add(item)
        if item.dim() > 1:
            yield item


@case(args=lambda i, s: (T(i, 3), T(i, 2, 2)))
def several_added_before_one_comes(x, y):
    return [t * 2 for t in skips([x, None, x + 1, y, x, y])]


# -- delegation ------------------------------------------------------------------------------------------------------------


def leaves(tree):
    if isinstance(tree, (list, tuple)):
        for item in tree:
            yield from leaves(item)
    else:
        yield tree


@case(args=lambda i, s: ([T(i, 3), (T(i + 1, 3), [T(i + 2, 3)])] if i < 3 else [T(i, 3), T(1, 3)],), again=1)
def delegates(tree):
    return [t * 2 for t in leaves(tree)]


def counted(items):
    n = 0
    for item in items:
        n += 1
        yield item
    return n


def tells_the_count(items):
    n = yield from counted(items)
    yield items[0] * n
    yield from (items[0] + 1, items[0] + 2)


@case()
def delegation_gives_a_value(x):
    return list(tells_the_count([x, x * 2, x * 3]))


@case()
def stops_within_delegation(x):
    for i, t in enumerate(tells_the_count([x, x * 2, x * 3])):
        if i == 1:
            return t
    return x


# -- itertools ---------------------------------------------------------------------------------------------------------


@case()
def chains(x):
    total = x
    for t in itertools.chain([x, x + 1], (x * 2,), {"k": x}.values()):
        total = total * t
    return total, list(itertools.chain([1], [x]))


@case(mutate=do(3, lambda s: KEEP.append(1)), again=1)
def compresses(x):
    return list(itertools.compress([x, x + 1, x + 2, x + 3], KEEP))


@case()
def products(x):
    return ([a * b for a, b in itertools.product([x, x + 1], (2, 3))], list(itertools.product(range(2), repeat=2)),
            list(itertools.product([], [x])), len(list(itertools.product())))


@case()
def choices(x):
    rows = [x, x * 2, x + 2]
    return ([a - b for a, b in itertools.combinations(rows, 2)], [a - b for a, b in itertools.permutations(rows, 2)],
            [b - a for a, b in itertools.pairwise(rows)], list(itertools.combinations(rows, 4)), list(itertools.combinations(rows, 0)))


@case()
def parts(x):
    rows = [x, x + 1, x + 2, x + 3]
    return (list(itertools.islice(rows, 2)), list(itertools.islice(rows, 1, None, 2)), sum(itertools.islice(rows, 1, 3)),
            [a if b is None else a + b for a, b in itertools.zip_longest(rows, [x])],
            list(itertools.zip_longest([x], [1, 2], fillvalue=0)), list(itertools.repeat(x, 2)))


@case()
def half_used(x):
    rows = itertools.chain([x, x + 1], [x + 2])
    first = next(rows)
    return first, rows, list(itertools.product([1], [x])) is None


@case(replays=0)
def a_list_grows_while_it_is_chained(x):
    rows = [x, x + 1]
    out = []
    for t in itertools.chain(rows, [x]):
        if len(rows) < 4:
            rows.append(t * 2)
        out.append(t)
    return out


# -- sorting, patterns, copies ----------------------------------------------------------------------------------------------


@case(mutate=do(3, lambda s: ORDER.update(c=5.0)), again=1)
def sorts_names(x):
    return [x * ORDER[k] for k in sorted(ORDER)], sorted({"z": x, "y": x})


@case(mutate=do(3, lambda s: KEEP.append(-4)), again=1)
def sorts_numbers(x):
    return x * sorted(KEEP)[0], sorted(KEEP)


@case()
def sorts_what_cannot_be_compared(x):
    try:
        return sorted([1, "a"])
    except TypeError as e:
        return x, str(e)


@case()
def matches_a_fresh_mapping(x):
    match {"kind": "scale", "by": 2.0, "rows": [x, 1]}:
        case {"kind": "shift"}:
            return x
        case {"kind": "scale", "by": by, "rows": [t, *_], **rest}:
            return t * by, rest
    return None


copy.copy(torch.zeros(1))  # the first one sets Tensor.__slotnames__


@case()
def copies(x):
    rows = copy.copy([x, 1])
    rows.append(x + 1)
    table = copy.copy({"a": x})
    table["b"] = 2
    return rows, table, copy.copy(x), copy.copy((x, 1)), copy.copy(3)


@case(setup=model, args=with_net)
def checkpoints(x, net):
    return torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False) * 2


# -- one function, many modules of a class -------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, i):
        super().__init__()
        self.i = i
        self.linear = nn.Linear(3, 3)
        self.scale = 1.0 / (i + 1)
        self.name = f"block{i}"
        self.bent = i % 2 == 0

    def forward(self, x, cache):
        cache[self.i] = x
        x = self.linear(x) * self.scale
        return torch.relu(x) if self.bent else x


def blocks(s):
    torch.manual_seed(7)
    s.blocks = [Block(i) for i in range(12)]


@case(setup=blocks, args=lambda i, s: (s.blocks[i % 12], T(i, 2, 3), {}), calls=36, replays=20)
def serves_many_modules(block, x, cache):
    return block(x, cache) + 1, sorted(cache)


@case(setup=blocks, args=lambda i, s: (s.blocks[i % 12].linear, T(i, 2, 3)), calls=24, replays=23)
def serves_many_weights(linear, x):
    return linear(x), linear.weight.shape[0]


@case()
def rows_through_map(x):
    """A tensor is taken apart when the map object is made, not when it is used up."""
    y = x.clone()
    first = map(lambda row: row * 2, y)
    y = y.zero_() + 1
    a, b, *rest = first
    return a + b, rest, list(map(lambda row, n: row * n, x, [1, 2, 3])), sum(map(torch.sin, x))


@case(args=lambda i, s: (T(i, 2 + (i == 4), 3),), raises=(4,), again=2)
def rows_that_do_not_fit(x):
    a, b = map(lambda row: row + 1, x)
    return a * b


@case()
def keywords_of_partial_in_map(x):
    a, b = map(functools.partial(torch.cat, dim=-1), ((x, x + 1), (x * 2, x)))
    return a, b, list(map(functools.partial(torch.sum, dim=-1, keepdim=True), x))


@case()
def out_of_partial_in_map(x):
    """A call that writes to a tensor given by name."""
    y = torch.zeros(3)
    return [t.clone() for t in map(functools.partial(torch.mul, other=2, out=y), x)], y
