"""Plans are copied for sizes for which what a program asks of numbers has answers that were met (docs/design/sizes.md): plans for multiples of 3 say nothing of others
where a program looks at the remainder, and nothing of longer ones where it looks which of two is greater. Sizes of one remainder come first here, then all."""
import math
import random

import pytest
import torch
import torch.nn.functional as F

import kintsugi

WIDTH = 8


def pads_by_the_remainder(y, k):
    return F.pad(y, (0, 0, 0, y.shape[1] % k)).sin()


def pads_to_a_multiple(y, k):
    n = y.shape[1]
    y = F.pad(y, (0, 0, 0, -n % k))
    return y.view(y.shape[0], -1, k, WIDTH).sum(2).sin(), y[:, :n].exp()


def slices_by_the_remainder(y, k):
    n = y.shape[1]
    return y[:, n % k:].exp() + n, torch.cat([y, y[:, :n % k] * 2], 1).tanh()


def divides(y, k):
    whole, rest = divmod(y.shape[1], k)
    return y[:, :whole + 1].cos() + rest, y[:, :math.ceil(y.shape[1] / k)] * 2, y[:, : int(y.shape[1] * 0.5) + 1].exp()


def counts(y, k):
    return torch.arange(y.shape[1] % k + 1).float().sum() + y.sin()


def is_long_or_short(y, k):
    n = y.shape[1]
    return y[:, : max(n - k, 1)].exp(), y[:, : min(n, k)] * 2


def branches(y, k):
    if y.shape[1] % k == 0:
        return y.sin()
    return y.cos() if y.shape[1] > 3 * k else y.exp()


def repeats(y, k):
    for i in range(y.shape[1] % k):
        y = y * 1.1 + i
    return y


def chooses_from_a_table(y, k):
    return y * (1, 2, 3, 4, 5)[y.shape[1] % k % 5]


def asks_what_was_made(y, k):
    z = F.max_pool1d(y.transpose(1, 2), 2, 2) if y.shape[1] > 1 else y.transpose(1, 2)
    return F.pad(z, (0, z.shape[2] % k)).sin() + z.shape[2]


def clamps_every_kth(y, k):
    n = y.shape[1]
    at = torch.arange(0, n, k) + 1
    return y[:, at.clamp(max=n - 1)].sin(), y[:, at % n].cos()


def pools_up(y, k):
    y = y.transpose(1, 2)
    return F.avg_pool1d(y, 2, k, 0, ceil_mode=True) * 2, F.max_pool1d(y, 3, k, 1, ceil_mode=True).exp()


PROGRAMS = [pads_by_the_remainder, pads_to_a_multiple, slices_by_the_remainder, divides, counts, is_long_or_short, branches, repeats, chooses_from_a_table,
            asks_what_was_made, clamps_every_kth, pools_up]


class Model(torch.nn.Module):
    def __init__(self, program, k):
        super().__init__()
        self.program, self.k, self.linear = program, k, torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.program(self.linear(x), self.k)


@pytest.mark.parametrize("first", ["multiples", "others"])
@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_sizes_with_other_answers(kernels, program, k, first):
    torch.manual_seed(0)
    draw = random.Random(program.__name__)
    model = Model(program, k).eval()
    compiled = kintsugi.compile(model)
    met = [k * i + (first == "others") for i in range(1, 13)]
    rest = list(range(2, 13 * k))
    draw.shuffle(met)
    draw.shuffle(rest)
    since = max((e["seq"] for e in kintsugi.events()), default=-1)
    with torch.no_grad():
        for n in met + met + rest[:40]:
            x = torch.randn(draw.choice([2, 3, 4]), n, WIDTH)
            expected, given = model(x), compiled(x)
            torch.testing.assert_close(given, expected, rtol=1e-3, atol=1e-4, msg=lambda text, n=n: f"{n}: {text}")
    events = [e for e in kintsugi.events() if e["seq"] > since]
    assert any(e["event"] == "lower" and e["capture_ns"] == 0 for e in events) and not any(e["event"] == "bug" for e in events)


def test_sizes_that_an_operator_refuses(kernels):
    """Nothing of the view as two rows is left in the code, as all rows are put behind each other again; but it wants an even number."""

    def f(x):
        return x.view(2, -1).repeat(1, 2).sum(0).sin() + 1

    compiled = kintsugi.compile(f)
    sizes = [2 * n for n in range(1, 20)]
    random.Random(0).shuffle(sizes)
    for n in sizes + sizes:
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), f(x))
    for n in (7, 3, 21):
        with pytest.raises(RuntimeError, match="is invalid for input of size"):
            compiled(torch.randn(n))


def test_what_operators_divide_one_size_by_another(kernels):
    """What each row of view(b, -1) gets is no polynomial, but a few plans for one row, and one for as many rows as there are elements, fit a sum."""

    def f(x, b):
        return x.view(b, -1, WIDTH).tanh()

    compiled = kintsugi.compile(f, dynamic=True)
    since = max((e["seq"] for e in kintsugi.events()), default=-1)
    met = [(35, 1), (40, 1), (2, 2), (7, 1), (34, 1), (24, 1), (4, 4), (11, 1)]
    for n, b in met + met + [(16, 2), (38, 2), (30, 5), (12, 2), (33, 3), (36, 4), (20, 2), (15, 3), (28, 2), (10, 1), (6, 2)]:
        x = torch.randn(n, WIDTH)
        torch.testing.assert_close(compiled(x, b), f(x, b), rtol=1e-3, atol=1e-4, msg=lambda text, b=b, n=n: f"{n}, {b}: {text}")
    with pytest.raises(RuntimeError, match="is invalid for input of size"):
        compiled(torch.randn(25, WIDTH), 2)
    assert not any(e["event"] == "bug" for e in kintsugi.events() if e["seq"] > since)


def cuts(x, k):
    return (x * 1.5)[:, ::x.shape[1].bit_length()] * 2


def cuts_by_a_quotient(x, k):
    return (x * 1.5)[:, ::x.shape[1] // 4 + 1].exp()


def cuts_by_a_number(x, k):
    return (x * 1.5)[:, ::k].exp(), torch.arange(0, x.shape[1], k) * 2, x.sin().unfold(1, k, k).sum(-1), F.avg_pool1d(x.transpose(1, 2), k).tanh()


@pytest.mark.parametrize("dynamic", [None, True], ids=["alone", "dynamic"])
@pytest.mark.parametrize("program", [cuts, cuts_by_a_quotient, cuts_by_a_number], ids=lambda p: p.__name__)
def test_what_divides_changes_with_sizes(kernels, program, dynamic):
    """Of x[:, ::step] a length divided by a step is left, which is no rule of the length alone: few plans with other steps look like one."""
    since = max((e["seq"] for e in kintsugi.events()), default=-1)
    for seed in range(3):
        draw = random.Random(seed)
        compiled = kintsugi.compile(program, dynamic=dynamic, name=f"{program.__name__} {seed}")
        sizes = list(range(7, 44))
        draw.shuffle(sizes)
        for n in sizes:
            x, k = torch.randn(draw.choice([1, 2, 5]), n, WIDTH), draw.choice([2, 2, 2, 3, 5])
            torch.testing.assert_close(compiled(x, k), program(x, k), rtol=1e-3, atol=1e-4, msg=lambda text, n=n, k=k: f"{n}, {k}: {text}")
    assert not any(e["event"] == "bug" for e in kintsugi.events() if e["seq"] > since)


PLACES = {
    "from the end": lambda x, k: (x * 2)[:, -k:].exp(),
    "rolled": lambda x, k: x.roll(-k, 1).exp(),
    "diagonal": lambda x, k: x[0].diagonal(k) * 2,
    "every second": lambda x, k: x.flatten(0, 1)[k::2] * 2,
    "between": lambda x, k: x[:, k // 2: k].exp(),
    "around": lambda x, k: x[:, max(k - 3, 0): k + 3].sum(1),
    "stacked": lambda x, k: torch.stack([x, x], 1).flatten(1, 2)[:, k:] * 2,
    "strided": lambda x, k: (x * 1).as_strided((2, WIDTH), (WIDTH, 1), k).exp(),
}


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("program", PLACES, ids=lambda name: name.replace(" ", "_"))
def test_places_beside_sizes(kernels, program, kind):
    """Operators count places from the end, cut them off or wrap them: a number of the program's own lies inside of a dim in the first calls, and anywhere later."""
    f = PLACES[program]
    draw = random.Random(f"{program} {kind}")
    compiled = kintsugi.compile(f, dynamic=kind % 2 == 0)
    since = max((e["seq"] for e in kintsugi.events()), default=-1)
    for call in range(60):
        n = draw.randint(2, 30)
        k = draw.randint(-4, 34) if call > 30 else (draw.randint(1, 9), draw.randint(1, n), draw.randint(0, n) // 2, n - draw.randint(0, 2))[kind]
        x = torch.randn(draw.choice([1, 2, 5]), n, WIDTH)
        try:
            expected = f(x, k)
        except RuntimeError as refused:
            with pytest.raises(type(refused)):
                compiled(x, k)
            continue
        torch.testing.assert_close(compiled(x, k), expected, rtol=1e-3, atol=1e-4, msg=lambda text, n=n, k=k: f"{n}, {k}: {text}")
    assert not any(e["event"] == "bug" for e in kintsugi.events() if e["seq"] > since)


VIEWS = {
    "transposed": lambda x: x.t().reshape(-1, WIDTH),
    "rows of a wider one": lambda x: x.flatten(),
    "turned over": lambda x: x.reshape(x.shape[1], x.shape[0]),
    "in two": lambda x: x.reshape(2, -1),
    "one dim": lambda x: x.unflatten(0, (2, -1)).flatten(1),
    "copied": lambda x: x.contiguous(),
    "expanded": lambda x: x.expand(3, -1, -1).reshape(3, -1),
    "windows": lambda x: x.unfold(1, 4, 4).flatten(1),
}


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("program", VIEWS, ids=lambda name: name.replace(" ", "_"))
def test_views_where_sizes_are_equal(kernels, program, kind):
    """A reshape copies where rows do not follow one another in memory, and is a view for the one size for which they do."""
    def f(x):
        y = VIEWS[program](x)
        return y, y.sin()

    draw = random.Random(f"{program} {kind}")
    compiled = kintsugi.compile(f, dynamic=True if kind == 1 else None)
    since = max((e["seq"] for e in kintsugi.events()), default=-1)
    for call in range(60):
        n, k = 2 * draw.randint(1, 10), 4 * draw.randint(1, 5)
        apart = draw.choice([1, 2, 3, 8]) if call < 30 else draw.choice([0, 0, 1, 2])
        x = torch.randn(n, WIDTH if program == "transposed" else k + apart)
        if program != "transposed":
            x = x[:, :k]
        got, expected = compiled(x), f(x)
        torch.testing.assert_close(got, expected)
        for ours, theirs in zip(got, expected):
            assert ours.stride() == theirs.stride() or 1 in ours.shape
        assert (got[0].data_ptr() == x.data_ptr()) == (expected[0].data_ptr() == x.data_ptr()), (n, k, apart)
    assert not any(e["event"] == "bug" for e in kintsugi.events() if e["seq"] > since)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("budget", [24, 360])
def test_batches_filled_up_to_a_number_of_elements(kernels, budget, dynamic):
    """All plans have as many elements, until one comes that is not full."""

    def call(x):
        y = x.relu()
        return y, torch.where(y > 0, y, y).tanh(), y.sum()

    full = [(b, budget // b) for b in range(2, budget // 2) if budget % b == 0]
    before = max((e["seq"] for e in kintsugi.events()), default=-1)
    compiled = kintsugi.compile(call, dynamic=dynamic)
    with torch.no_grad():
        for b, n in [*full, *full[::-1], (3, 5), (5, 3), (4, 5), *((2 + i % 5, 3 + 7 * i % 11) for i in range(20))]:
            x = torch.randn(b, n, 8)
            for found, expected in zip(compiled(x), call(x), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
            kintsugi.wait_for_kernels()
    assert not [e["message"] for e in kintsugi.events() if e["seq"] > before and e["event"] == "bug"]


def pools(x, y):
    return F.max_pool1d(x[None, None], 2, 2)[0, 0], F.max_pool1d(y[None, None], 3, 3)[0, 0]


def windows(x, y):
    return x.unfold(0, 2, 2).sum(1), y.unfold(0, 3, 3).sum(1)


def strides(x, y):
    return F.conv1d(x[None, None], torch.ones(1, 1, 2), stride=2)[0, 0], F.conv1d(y[None, None], torch.ones(1, 1, 3), stride=3)[0, 0]


@pytest.mark.parametrize("line", [lambda p: p, lambda p: p + 1, lambda p: 14 - p], ids=["same", "more", "sum"])
@pytest.mark.parametrize("parts", [pools, windows, strides], ids=lambda f: f.__name__)
def test_parts_of_two_lengths_on_a_line(kernels, parts, line):
    """What is left of the one length follows from what is left of the other in the first calls, and does not in later ones."""

    def f(x, y):
        p, q = parts(x, y)
        return torch.cat([p.sin(), q.exp()]), q * 2

    compiled = kintsugi.compile(f)
    draw = random.Random(1)
    sizes = [(2 * p + draw.randrange(2), 3 * line(p) + draw.randrange(3)) for p in (draw.randrange(2, 11) for _ in range(18))]
    sizes += [(draw.randint(4, 21), draw.randint(6, 33)) for _ in range(16)]
    since = max((e["seq"] for e in kintsugi.events()), default=-1)
    for a, b in sizes:
        x, y = torch.randn(a), torch.randn(b)
        for got, expected in zip(compiled(x, y), f(x, y), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4, msg=lambda text, a=a, b=b: f"{a}, {b}: {text}")
    assert not any(e["event"] == "bug" for e in kintsugi.events() if e["seq"] > since)
