"""What C functions make of generators: enumerate and zip over them, one step at a time; objects whose __iter__ is a generator."""
import torch
from torch import nn

from kincorpus.case import T, case, do, glob

SCALE = 2.0
LOG = []


def rows(x, n=3):
    for k in range(n):
        yield x * (k + 1)


def numbers():
    yield from (1, 2, 3)


def noisy(x):
    LOG.append("begin")
    yield x
    LOG.append("end")


def nets(s):
    torch.manual_seed(1)
    s.a, s.b = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))


def with_nets(i, s):
    return T(i, 2, 3), s.a, s.b


@case(mutate=glob(3, SCALE=3.0))
def enumerates_a_generator(x):
    out = [(i, r * SCALE) for i, r in enumerate(rows(x))]
    for i, r in enumerate(rows(x), 5):
        out.append(r - i)
    return out


@case(mutate=glob(3, SCALE=3.0))
def zips_generators(x):
    out = []
    for a, b, k in zip(rows(x), [x, x * SCALE], numbers()):
        out.append(a + b * k)
    for k, a in zip("abcdef", rows(x)):
        out.append((k, a))
    return out


@case(mutate=glob(3, SCALE=3.0))
def leaves_a_zip_early(x):
    gen = rows(x, 5)
    both = enumerate(gen)
    for i, r in both:
        if i == 1:
            break
    rest = next(gen)
    more = [i for i, _ in both]
    return r * SCALE, rest, more, [a for a in gen]


@case(mutate=glob(3, SCALE=3.0))
def zip_loses_an_item(x):
    gen = rows(x, 4)
    out = [a * k * SCALE for a, k in zip(gen, [1, 2])]
    return out, [a for a in gen]


@case(mutate=glob(3, SCALE=3.0), replays=3)
def zip_over_effects(x):
    del LOG[:]
    return [a * (i + SCALE) for i, a in enumerate(noisy(x))], list(LOG)


@case(args=lambda i, s: (T(i, 4, 3), 2 + i % 3), calls=9, replays=4)
def length_of_a_generator_changes(x, n):
    return [a * i for i, a in enumerate(rows(x, n))]


@case(args=lambda i, s: (T(i, 4, 3).abs() * (1 if i % 2 else -1),), calls=8, replays=5)
def leaves_a_zip_by_data(x):
    total = 0
    for i, (a, k) in enumerate(zip(rows(x), numbers())):
        if a.sum() > 0 and i == 1:
            break
        total = total + a * k
    return total, i


@case(setup=nets, args=with_nets, mutate=do(3, lambda s: (s.a.append(nn.Linear(2, 2)), s.b.append(nn.Linear(2, 2)))))
def averages_parameters(x, a, b):
    with torch.no_grad():
        for p, q in zip(a.parameters(), b.parameters()):
            q.mul_(0.5).add_(p, alpha=0.5)
    for i, (name, p) in enumerate(a.named_parameters()):
        x = x + p.sum() * i * len(name)
    for i, layer in enumerate(a.children()):
        x = layer(x) + i
    return x


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.weights = nn.ParameterList([torch.ones(3) * k for k in range(3)])
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])


def parts(s):
    s.net = Parts()


@case(setup=parts, args=lambda i, s: (T(i, 2, 3), s.net), mutate=do(3, lambda s: s.net.weights.append(torch.ones(3))), again=1)
def walks_a_parameter_list(x, net):
    for i, w in enumerate(net.weights):
        x = x + w * i
    for w, layer in zip(net.weights, net.layers):
        x = layer(x) * w
    return x


class Pair:
    def __init__(self, x):
        self.x = x

    def __iter__(self):
        yield self.x
        yield self.x * SCALE


@case(mutate=glob(3, SCALE=3.0))
def unpacks_an_object(x):
    a, b = Pair(x)
    first, *rest = Pair(x)
    return a + b, first, rest, list(Pair(x)), tuple(Pair(x)), sum(Pair(x)), [*Pair(x)]


@case(mutate=do(3, lambda s: setattr(Pair, "__iter__", lambda self: iter([self.x, 1, 2]))), raises=(3, 4, 5), replays=2)
def object_gives_another_number(x):
    a, b = Pair(x)
    return a * b


def made_of_numbers(n):
    for k in range(n):
        yield torch.tensor([k, k + 1.0])


@case(mutate=glob(3, SCALE=3.0))
def tensors_made_of_numbers_in_a_generator(x):
    rows_of_two = [row * SCALE for row in made_of_numbers(3)]
    stacked = [torch.stack([x, x + k]).sum() for k in range(2)]
    return rows_of_two, stacked, sum(torch.cat((row, x.flatten())).sum() for row in made_of_numbers(2))
