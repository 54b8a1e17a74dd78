"""C functions of Python's library that programs hand tensors and containers of them: iteration, sorting, operators, collections."""
import itertools

import torch

from kincorpus.case import T, case, do, glob

SCALE = 2.0
LETTERS = "ab"


# -- what C functions iterate over ---------------------------------------------------------------------------------------


@case(mutate=glob(3, SCALE=3.0))
def rows_by_enumerate_and_zip(x):
    out = [row * i * SCALE for i, row in enumerate(x)]
    for a, b in zip(x, x.t()):
        out.append(a[0] - b[0])
    return out


@case(mutate=glob(3, SCALE=3.0))
def rows_as_containers(x):
    rows = list(x)
    rows.extend(x * SCALE)
    return rows, tuple(x), torch.stack([*x]), rows[0] is rows[0], [a - b for a, b in itertools.pairwise(x)]


@case(args=lambda i, s: (T(i, 3, 2, grad=True),), after=lambda i, s, r: r.sum().backward(), mutate=glob(3, SCALE=3.0))
def rows_with_gradients(x):
    total = 0
    for i, row in enumerate(x):
        total = total + row * i
    return total * SCALE + sum(x)


@case(args=lambda i, s: (T(i, 2 + i % 4, 3),), calls=8, replays=2)   # each number is another branch
def number_of_rows_changes(x):
    return [row * i for i, row in enumerate(x)], len(list(x))


@case(args=lambda i, s: (torch.tensor(1.0) if i == 4 else T(i, 2, 3),), raises=(4,), replays=3)
def rows_of_a_number(x):
    return list(enumerate(x))


@case(mutate=glob(3, LETTERS="cd"))
def dicts_of_pairs(x):
    table = dict(zip(LETTERS, [x, x * 2]))
    more = dict(table, c=1, a=x + 1)
    return table, more, dict([("k", x)], k=2), dict.fromkeys(LETTERS, 0), list(reversed(table)), list(LETTERS)


@case(mutate=glob(3, SCALE=3.0))
def copies_a_dict_that_changes(x):
    table = {"a": x, "b": 1}
    copy = dict(table)
    table["b"] = SCALE
    return copy, table


@case(mutate=glob(3, SCALE=3.0))
def sums_from_a_start(x):
    return sum([x, x * SCALE], start=x), sum((t for t in [x, x]), x), sum(x, start=torch.zeros(3)), sum([1, 2], start=SCALE)


@case(mutate=glob(3, SCALE=3.0))
def chains_from_an_iterable(x):
    return torch.stack(list(itertools.chain.from_iterable([[x, x * 2], (x * SCALE,)])))


def give_extra():
    Plain.extra = 5.0


class Plain:
    kind = "plain"


@case(mutate=do(3, lambda s: give_extra()))
def asks_a_class(x):
    return x * getattr(Plain, "extra", SCALE), hasattr(Plain, "extra"), hasattr(Plain, "nothing"), getattr(Plain, "kind", None)
