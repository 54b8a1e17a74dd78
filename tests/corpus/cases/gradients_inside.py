"""Gradients switched on and off by callbacks and generators: where such a call is left, they are as they were at its beginning."""
import functools

import torch

from kincorpus.case import T, case, glob

SCALE, ON = 2.0, True
WEIGHT = torch.ones(3, requires_grad=True)


def without(v):
    with torch.no_grad():
        return v * WEIGHT * SCALE


def with_gradients(v):
    with torch.enable_grad():
        return v * WEIGHT * SCALE


@torch.no_grad()
def decorated(v):
    return v * WEIGHT


def as_told(v, on):
    with torch.set_grad_enabled(on):
        return v * WEIGHT


def facts(values):
    return [(v.requires_grad, v.detach()) for v in values]


@case(mutate=glob(3, SCALE=3.0))
def callbacks_without_gradients(x):
    y = x * WEIGHT
    return facts(map(without, [x, y])), facts(list(map(decorated, [x, y]))), facts(map(torch.no_grad()(lambda v: v * WEIGHT), [x])), (x * WEIGHT).requires_grad


@case(mutate=glob(3, SCALE=3.0))
def callbacks_with_gradients(x):
    with torch.no_grad():
        found = list(map(with_gradients, [x, x + 1])), x * WEIGHT, sum(map(with_gradients, [x, x]))
    return facts(found[0]), found[1].requires_grad, facts(found[2:]), torch.is_grad_enabled()


@case(mutate=glob(3, ON=False), replays=4)
def callbacks_as_told(x):
    return (facts(map(functools.partial(as_told, on=ON), [x, x])), facts([functools.reduce(lambda a, b: as_told(a, ON) + b, [x, x, x])]),
            [k for k, _ in sorted([(2, x), (1, x)], key=lambda pair: as_told(pair[1], ON).requires_grad * pair[0])])


@case(args=lambda i, s: (T(i, 4, 3) + (9 if i % 2 else 0),), replays=2)
def data_decides_without_gradients(x):
    def work(v):
        with torch.no_grad():
            y = v * WEIGHT
            if y.sum() > 40:
                y = y * 3
        return y * WEIGHT
    return facts(map(work, [x, x + 1])), (x * WEIGHT).requires_grad


@case(args=lambda i, s: (T(i, 4, 3), T(i, 3 if i < 3 else 5, 2)), raises=(3, 4, 5), replays=2)
def raises_without_gradients(x, y):
    def work(pair):
        with torch.no_grad():
            return pair[0] @ pair[1]
    return list(map(work, [(x, y)])), torch.is_grad_enabled()


@case(mutate=glob(3, SCALE=3.0))
def generators_without_gradients(x):
    def values():
        with torch.no_grad():
            yield x * WEIGHT * SCALE
            yield x * WEIGHT + 1
    seen = []
    for v in values():
        seen.append((v.requires_grad, torch.is_grad_enabled(), (x * WEIGHT).requires_grad))
    return seen, facts(list(values())), facts([x * WEIGHT])


@case(mutate=glob(3, SCALE=3.0))
def switches_and_leaves_it_so(x):
    def off(v):
        torch._C._set_grad_enabled(False)
        return v * WEIGHT * SCALE
    found = facts(map(off, [x, x])), torch.is_grad_enabled(), (x * WEIGHT).requires_grad
    torch._C._set_grad_enabled(True)
    return found
