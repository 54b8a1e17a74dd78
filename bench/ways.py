"""More programs whose way depends on their data, as users write them; bench/branches.py runs them.

Games and simulations, decoding with an end token, searches in trees, text, sizes and names that differ in each call.
"""
import heapq
import math

import torch
import torch.nn.functional as F
from torch import nn

PROGRAMS = {}


def program(make):
    """Notes a function of (x, ...) together with what makes its arguments from the number of a call."""
    def note(fn):
        PROGRAMS[fn.__name__] = (fn, make)
        return fn
    return note


def rand(seed, *shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def randn(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def numbers(seed, n, high):
    return torch.randint(0, high, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


# -- networks that decide how much they do -------------------------------------------------------------------------

_cell, _halt = nn.GRUCell(16, 16), nn.Linear(16, 1)


@program(lambda i: (randn(i, 4, 16), randn(i + 1, 4, 16)))
def adaptive_time(x, h):
    """Adaptive computation time: every row goes on until its halting probability is used up."""
    total, out = torch.zeros(4), torch.zeros(4, 16)
    for step in range(12):
        h = _cell(x, h)
        p = torch.sigmoid(3 * _halt(h)).squeeze(1)
        going = total < 0.95
        p = torch.where(going, torch.minimum(p, 1 - total), torch.zeros(4))
        out = out + p[:, None] * h
        total = total + p
        if not bool((total < 0.95).any()):
            break
    return out, step


class Node:
    def __init__(self, seed, depth):
        self.word = seed % 30
        n = 0 if depth == 0 else (seed * 2654435761 >> 9) % 4
        self.children = [Node(seed * 3 + k + 1, depth - 1) for k in range(n)]


_words, _sum_gates, _forget = nn.Embedding(30, 16), nn.Linear(32, 48), nn.Linear(32, 16)


@program(lambda i: (Node(i + 1, 3),))
def tree_lstm(node):
    x = _words.weight[node.word]
    states = [tree_lstm(child) for child in node.children]
    h = torch.stack([s[0] for s in states]).sum(0) if states else torch.zeros(16)
    i, o, u = _sum_gates(torch.cat([x, h])).chunk(3)
    c = torch.sigmoid(i) * torch.tanh(u)
    for child_h, child_c in states:
        c = c + torch.sigmoid(_forget(torch.cat([x, child_h]))) * child_c
    return torch.sigmoid(o) * torch.tanh(c), c


# -- decoding ------------------------------------------------------------------------------------------------------

_embed, _step, _head = nn.Embedding(40, 24), nn.GRUCell(24, 24), nn.Linear(24, 40)


@program(lambda i: (randn(i, 1, 24), rand(i + 1, 30)))
def nucleus_sampling(h, luck):
    token, out = 1, []
    for k in range(30):
        h = _step(_embed(torch.tensor([token])), h)
        p = (4 * _head(h)[0]).softmax(-1)
        p, ids = p.sort(descending=True)
        keep = int((p.cumsum(0) < 0.9).sum()) + 1
        p = p[:keep] / p[:keep].sum()
        token = int(ids[min(keep - 1, int((p.cumsum(0) < luck[k]).sum()))])
        if token == 0:
            break
        out.append(token)
    return out


# -- games ---------------------------------------------------------------------------------------------------------

_policy, _value = nn.Linear(4, 2), nn.Linear(4, 1)


@program(lambda i: (randn(i, 6, 4) * 0.5,))
def rollout(states):
    """Six carts at a time; those that fall are out."""
    alive, returns = list(range(6)), [0.0] * 6
    for _ in range(12):
        if not alive:
            break
        actions = _policy(states[alive]).argmax(1)
        push = (actions.float() * 2 - 1) * 0.4
        moved = states[alive] + 0.1 * torch.stack([states[alive][:, 1], push, states[alive][:, 3], -push], 1)
        states = states.index_copy(0, torch.tensor(alive), moved)
        done = (moved[:, 0].abs() > 0.6) | (moved[:, 2].abs() > 0.9)
        for row, end in zip(list(alive), done.tolist()):
            returns[row] += 1.0
            if end:
                alive.remove(row)
    return torch.tensor(returns) + _value(states).squeeze(1)


@program(lambda i: (randn(i, 6, 2), rand(i + 1, 40), numbers(i, 40, 6), numbers(i + 1, 40, 6)))
def annealing(cities, luck, left, right):
    order, heat = list(range(6)), 1.0

    def length(order):
        path = cities[order]
        return (path - path.roll(1, 0)).norm(dim=1).sum()

    best = length(order)
    for k in range(40):
        i, j = left[k], right[k]
        if i == j:
            continue
        order[i], order[j] = order[j], order[i]
        new = length(order)
        if new < best or luck[k] < torch.exp((best - new) / heat):
            best = new
        else:
            order[i], order[j] = order[j], order[i]
        heat *= 0.9
    return best, order


@program(lambda i: (rand(i, 3) + 0.2, rand(i + 1, 60) * 3 + 0.1))
def event_queue(rates, waits):
    """Three servers, customers who come and go."""
    events, busy, waiting, served, n = [(0.0, 0, -1)], [False] * 3, 0, torch.zeros(3), 0
    while events and n < 50:
        now, _, who = heapq.heappop(events)
        if who < 0:
            waiting += 1
            if n < 40:
                heapq.heappush(events, (now + float(waits[n]) / 4, n + 1, -1))
        else:
            busy[who] = False
            served[who] += 1
        while waiting and not all(busy):
            free = busy.index(False)
            busy[free], waiting = True, waiting - 1
            heapq.heappush(events, (now + float(waits[n] / rates[free]), n + 1, free))
        n += 1
    return served, waiting


# -- searches and tables ---------------------------------------------------------------------------------------------

def _split(points, depth=0):
    if len(points) <= 2:
        return points
    axis = depth % points.shape[1]
    points = points[points[:, axis].argsort()]
    mid = len(points) // 2
    return axis, float(points[mid, axis]), _split(points[:mid], depth + 1), _split(points[mid:], depth + 1)


_tree = _split(randn(99, 64, 2))


@program(lambda i: (_tree, randn(i, 2)))
def nearest(tree, x, best=None):
    if torch.is_tensor(tree):
        least = (tree - x).square().sum(1).min()
        return least if best is None else torch.minimum(best, least)
    axis, at, low, high = tree
    near, far = (low, high) if x[axis] < at else (high, low)
    best = nearest(near, x, best)
    return nearest(far, x, best) if (x[axis] - at) ** 2 < best else best


@program(lambda i: (randn(i, 3 + i % 9, 5), randn(i + 1, 5, 5)))
def viterbi(scores, moves):
    best, back = scores[0], []
    for row in scores[1:]:
        high, arg = (best[:, None] + moves).max(0)
        best = high + row
        back.append(arg)
    last = int(best.argmax())
    path = [last]
    for arg in reversed(back):
        last = arg[last].item()
        path.append(last)
    return best.max(), path[::-1]


@program(lambda i: (numbers(i, 8, 6), (rand(i, 8) * 10).tolist(), 12 + i % 5))
def knapsack(weights, values, room):
    best = torch.zeros(room + 1)
    for w, v in zip(weights, values):
        if w == 0:
            best = best + v
            continue
        moved = F.pad(best[:-w], (w, 0), value=-math.inf) + v
        best = torch.maximum(best, moved)
    return best.max()


# -- text, sizes, names ----------------------------------------------------------------------------------------------

_table = {w: k for k, w in enumerate("a b c d e f ab bc cd de ef fa abc bcd cde".split())}
_pieces = nn.Embedding(len(_table), 16)


@program(lambda i: ("".join("abcdef"[k] for k in numbers(i, 5 + i % 20, 6)),))
def tokenizer(text):
    ids, at = [], 0
    while at < len(text):
        for n in (3, 2, 1):
            piece = text[at:at + n]
            if piece in _table:
                ids.append(_table[piece])
                break
        at += len(piece)
    return _pieces(torch.tensor(ids)).mean(0)


_mlp = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


@program(lambda i: (randn(i, i * 37 % 101, 16),))
def any_size(x):
    if x.shape[0] == 0:
        return x.new_zeros(0, 4)
    y = _mlp(x)
    top = y.max(1)
    return y[top.values > 0.1].softmax(-1)


@program(lambda i: ({f"column{k}": randn(i + k, 8) for k in numbers(i, 1 + i % 6, 50)},))
def columns(features):
    out, seen = {}, torch.zeros(8)
    for name, value in sorted(features.items()):
        value = (value - value.mean()) / (value.std() + 1e-5)
        out[name + ".normal"] = value
        seen = seen + value
    out["sum"] = seen
    return [out[k] for k in sorted(out)]


@program(lambda i: (f"user-{i}", rand(i, 8), {}))
def by_name(key, x, cache):
    if key not in cache:
        cache[key] = torch.tanh(x * len(key))
    return cache[key] + x


@program(lambda i: ([("+-*m"[k], randn(i + j, 4)) for j, k in enumerate(numbers(i, 3 + i % 12, 4))],))
def stack_machine(program):
    stack = [torch.ones(4)]
    for op, value in program:
        if op == "m" and len(stack) > 1:
            stack.append(torch.maximum(stack.pop(), stack.pop()))
        elif op == "+":
            stack.append(stack[-1] + value)
        elif op == "-":
            stack[-1] = stack[-1] - value
        else:
            stack[-1] = stack[-1] * value.sigmoid()
    return torch.stack(stack).sum(0)


# -- long loops ------------------------------------------------------------------------------------------------------

@program(lambda i: (randn(i, 2) * 2, 0.004))
def long_solver(y, h):
    """A thousand steps and more, each with a number that Python looks at."""
    t, bound = 0.0, 0.0
    while t < 3.0:
        slope = torch.stack([y[1], 3 * (1 - y[0] * y[0]) * y[1] - y[0]])
        y = y + h * slope
        bound = max(bound, slope.abs().max().item())
        t += h
    return y, bound
