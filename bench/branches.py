"""Programs whose way depends on their data: each call has other data, many take a way that no call took before.

What is measured is whether compiling such programs ever costs more than not compiling them. Eager, steps (`backend="eager"`)
and kernels get the same arguments and take turns call by call. Columns: microseconds of an eager call (median); eager time over ours,
summed over the second half of the calls; the same over the first 20 calls and over all, first recordings included; recordings and
branches; exits, misses; kilobytes that entries hold; calls that ran eagerly. The programs are those of this file and of ways.py.

    python bench/branches.py [--calls 400] [--engines steps,kernels] [name ...]
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F
import ways
from torch import nn

import kintsugi

PROGRAMS = dict(ways.PROGRAMS)


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


# -- solvers ------------------------------------------------------------------------------------------------------

@program(lambda i: (rand(i, 16) * 10 ** (i % 5) + 0.1,))
def newton(a):
    x = a.clone()
    while True:
        step = (x * x - a) / (2 * x)
        x = x - step
        if step.abs().max() < 1e-4 * x.abs().max():
            return x


@program(lambda i: (rand(i, 1)[0] * 8 + 0.5,))
def bisection(c):
    low, high = torch.tensor(0.0), torch.tensor(4.0)
    for _ in range(24):
        mid = (low + high) / 2
        if mid * mid * mid - mid > c:
            high = mid
        else:
            low = mid
    return (low + high) / 2


@program(lambda i: (lambda m: (m @ m.T + (0.1 + i % 3) * torch.eye(12), rand(i + 1, 12)))(randn(i, 12, 12)))
def conjugate_gradients(a, b):
    x = torch.zeros_like(b)
    r = b.clone()
    p = r
    rs = torch.dot(r, r)
    for _ in range(30):
        ap = a @ p
        alpha = rs / torch.dot(p, ap)
        x = x + alpha * p
        r = r - alpha * ap
        new = torch.dot(r, r)
        if new.sqrt() < 1e-3:
            break
        p = r + (new / rs) * p
        rs = new
    return x


def _slope(y):
    return torch.stack([y[1], 3 * (1 - y[0] * y[0]) * y[1] - y[0]])


@program(lambda i: (randn(i, 2), 2.0))
def runge_kutta(y, end):
    t, h = 0.0, 0.1
    taken = 0
    while t < end:
        h = min(h, end - t)
        k1 = _slope(y)
        k2 = _slope(y + h * k1 / 2)
        k3 = _slope(y + h * (0.75 * k2))
        new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
        k4 = _slope(new)
        err = (h * (-5 / 72 * k1 + k2 / 12 + k3 / 9 - k4 / 8)).abs().max().item()
        if err < 1e-3:
            t, y = t + h, new
        taken += 1
        h = 0.9 * h * min(5.0, max(0.2, (1e-3 / (err + 1e-12)) ** (1 / 3)))
    return y, taken


@program(lambda i: (randn(i, 60, 2) + 3 * (rand(i + 1, 60, 1) > 0.5), 4))
def k_means(points, k):
    centers = points[:k].clone()
    for _ in range(50):
        owner = torch.cdist(points, centers).argmin(1)
        new = torch.stack([points[owner == j].mean(0) if (owner == j).any() else centers[j] for j in range(k)])
        if torch.allclose(new, centers, atol=1e-4):
            break
        centers = new
    return centers, owner


@program(lambda i: (rand(i, 8, 8), 1e-4))
def sinkhorn(m, tol):
    m = m + 0.01
    while True:
        m = m / m.sum(1, keepdim=True)
        m = m / m.sum(0, keepdim=True)
        if (m.sum(1) - 1).abs().max().item() < tol:
            return m


# -- decoding -----------------------------------------------------------------------------------------------------

_embed, _cell, _head = nn.Embedding(20, 24), nn.GRUCell(24, 24), nn.Linear(24, 20)


@program(lambda i: (randn(i, 1, 24),))
def greedy_decoding(h):
    token = torch.zeros(1, dtype=torch.long)
    out = []
    for _ in range(20):
        h = _cell(_embed(token), h)
        token = (_head(h) + 3 * torch.tanh(7 * h[:, :20])).argmax(-1)
        if token.item() == 3:
            break
        out.append(token)
    return torch.cat(out) if out else token


@program(lambda i: (randn(i, 1, 24), 3))
def beam_search(h, width):
    beams = [(0.0, [0], h)]
    for _ in range(6):
        found = []
        for score, tokens, state in beams:
            if tokens[-1] == 3:
                found.append((score, tokens, state))
                continue
            state = _cell(_embed(torch.tensor(tokens[-1:])), state)
            values, ids = (_head(state) + 2 * torch.sin(9 * state[:, :20])).log_softmax(-1)[0].topk(width)
            for v, t in zip(values.tolist(), ids.tolist()):
                found.append((score + v, tokens + [t], state))
        found.sort(key=lambda b: -b[0])
        beams = found[:width]
    return beams[0][0], torch.tensor(beams[0][1])


@program(lambda i: (randn(i, 100), 5))
def rejection_sampling(noise, n):
    kept = []
    for i in range(0, 98, 2):
        x, u = noise[i], torch.sigmoid(noise[i + 1])
        if u < torch.exp(-x * x / 2):
            kept.append(x)
        if len(kept) == n:
            break
    return torch.stack(kept) if kept else noise[:0]


# -- routing ------------------------------------------------------------------------------------------------------

_router, _experts = nn.Linear(16, 6), nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(6))


@program(lambda i: (randn(i, 1 + i % 7, 16),))
def experts(x):
    weights, chosen = _router(x).softmax(-1).topk(2)
    out = torch.zeros_like(x)
    for e, expert in enumerate(_experts):
        rows, slot = torch.where(chosen == e)
        if rows.numel() == 0:
            continue
        out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot, None])
    return out


@program(lambda i: ([randn(i * 10 + j, 1 + (i * 7 + j * 3) % 9, 16) for j in range(1 + i % 5)],))
def dynamic_batching(requests):
    longest = max(r.shape[0] for r in requests)
    batch = torch.stack([F.pad(r, (0, 0, 0, longest - r.shape[0])) for r in requests])
    out = _experts[0](batch)
    return [out[i, :r.shape[0]] for i, r in enumerate(requests)]


_left, _right = nn.Linear(16, 16), nn.Linear(16, 16)


def _tree(seed, depth):
    if depth == 0 or (seed * 2654435761 >> 7) % 5 == 0:
        return randn(seed, 16)
    return (_tree(seed * 2 + 1, depth - 1), _tree(seed * 2 + 2, depth - 1))


@program(lambda i: (_tree(i + 1, 4),))
def tree_recursion(node):
    if isinstance(node, tuple):
        return torch.tanh(_left(tree_recursion(node[0])) + _right(tree_recursion(node[1])))
    return torch.tanh(node)


def _boxes(seed, n):
    corner = rand(seed, n, 2) * 4
    return torch.cat([corner, corner + 1 + rand(seed + 1, n, 2)], 1)


@program(lambda i: (_boxes(i, 20), rand(i + 2, 20)))
def suppression(boxes, scores):
    order = scores.argsort(descending=True)
    kept = []
    while order.numel() > 0:
        best = order[0]
        kept.append(best)
        rest = order[1:]
        if rest.numel() == 0:
            break
        a, b = boxes[best], boxes[rest]
        inner = (torch.minimum(a[2:], b[:, 2:]) - torch.maximum(a[:2], b[:, :2])).clamp(min=0).prod(1)
        union = (a[2:] - a[:2]).prod() + (b[:, 2:] - b[:, :2]).prod(1) - inner
        order = rest[inner / union < 0.3]
    return torch.stack(kept)


@program(lambda i: (torch.randint(0, 3, (7,), generator=torch.Generator().manual_seed(i)),
                    torch.randint(0, 3, (6,), generator=torch.Generator().manual_seed(i + 1))))
def edit_distance(a, b):
    n, m = len(a), len(b)
    d = torch.zeros(n + 1, m + 1)
    d[:, 0], d[0, :] = torch.arange(n + 1.0), torch.arange(m + 1.0)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            if a[i - 1] == b[j - 1]:
                d[i, j] = d[i - 1, j - 1]
            else:
                d[i, j] = 1 + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])
    return d[n, m]


class _Walk:
    def __init__(self, state):
        self.state, self.steps = state, 0

    def step(self, action):
        self.state = self.state + (0.3 if action == 1 else -0.3) * torch.tanh(self.state.flip(0)) + 0.05
        self.steps += 1
        norm = float(self.state.norm())
        return self.state, -norm, norm > 4 or self.steps >= 25


_policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))


@program(lambda i: (randn(i, 4) * 2,))
def environment(state):
    env, total, done = _Walk(state), 0.0, False
    while not done:
        action = int(_policy(state).argmax())
        state, reward, done = env.step(action)
        total += reward
    return state, total


@program(lambda i: (randn(i, 32), 6))
def early_exit(x, layers):
    h = x
    for k in range(layers):
        h = torch.relu(_layers[k](h))
        p = h.softmax(0)
        if p.max() > 0.036 + 0.0004 * k:
            return h, k
    return h, layers


_layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))


@program(lambda i: (randn(i, 12),))
def quick_sort(x):
    if len(x) <= 1:
        return x
    pivot = x[0]
    rest = x[1:]
    return torch.cat([quick_sort(rest[rest < pivot]), pivot[None], quick_sort(rest[rest >= pivot])])


@program(lambda i: (randn(i, 24),))
def running_items(x):
    total, high = 0.0, 0.0
    for i in range(len(x)):
        v = x[i].item()
        if v > 0:
            total += v
        else:
            high = max(high, -v)
    return torch.tensor([total, high])


@program(lambda i: (randn(i, 3, 3) * (1 + i % 4),))
def power_series(a):
    term, total, k = torch.eye(3), torch.eye(3), 1
    while term.abs().max() > 1e-6 and k < 60:
        term = term @ a / k
        total = total + term
        k += 1
    return total


# -- measuring ----------------------------------------------------------------------------------------------------

def flatten(value):
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in flatten(v)]
    return [value]


def agree(a, b, exact):
    for x, y in zip(flatten(a), flatten(b), strict=True):
        if not torch.is_tensor(x):
            x, y = torch.tensor(x), torch.tensor(y)
        if x.shape != y.shape or not (torch.equal(x, y) if exact else torch.allclose(x.double(), y.double(), rtol=1e-3, atol=1e-4)):
            return False
    return True


def clock(call, args):
    """Processor time: the machine may be busy with other things."""
    start = time.thread_time_ns()
    value = call(*args)
    return time.thread_time_ns() - start, value


def run(name, calls, engines):
    fn, make = PROGRAMS[name]
    compiled = {e: kintsugi.compile(fn, backend="eager" if e == "steps" else "kintsugi") for e in engines}
    times = {"eager": [], **{e: [] for e in engines}}
    off = {e: 0 for e in engines}
    turns = [("eager", fn), *compiled.items()]
    for i in range(calls):
        values = {}
        for key, call in turns[i % len(turns):] + turns[:i % len(turns)]:
            ns, values[key] = clock(call, make(i))
            times[key].append(ns)
        for e in engines:
            off[e] += not agree(values["eager"], values[e], e == "steps")
    return times, {e: kintsugi.stats(c) for e, c in compiled.items()}, off


def ratio(times, engine, first, end=None):
    """Each of our calls counts for four times its eager call at most from the second half on: the machine is not to decide."""
    eager, ours = times["eager"][first:end], times[engine][first:end]
    if first:
        ours = [min(o, 4 * e) for e, o in zip(eager, ours)]
        eager = [min(e, 4 * o) for e, o in zip(eager, ours)]
    return sum(eager) / sum(ours)


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--calls", type=int, default=400)
    parse.add_argument("--engines", default="steps,kernels")
    parse.add_argument("names", nargs="*")
    options = parse.parse_args()
    engines = options.engines.split(",")
    torch.set_num_threads(1)
    with torch.no_grad():
        for name in options.names or PROGRAMS:
            times, stats, off = run(name, options.calls, engines)
            line = f"{name:20s} {statistics.median(times['eager']) / 1e3:8.0f} us"
            for e in engines:
                s = stats[e]
                line += (f" | {e} {ratio(times, e, options.calls // 2):5.2f} 20 {ratio(times, e, 0, 20):5.2f} all {ratio(times, e, 0):5.2f} rec {s['recordings']}+{s['branches']}"
                         f" exits {s['bail_outs']} miss {s['guard_misses']} {sum(v['bytes'] for v in s['variants']) >> 10} KB"
                         f" {s['eager_calls'] or ''}{' WRONG ' + str(off[e]) if off[e] else ''}")
            print(line, flush=True)


if __name__ == "__main__":
    main()
