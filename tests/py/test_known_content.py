"""Small tensors of a module that are numbers in disguise (a stride in a buffer): decisions on what is computed from them end no graph.

What they hold is a guard, so every program here is called again after it has changed.
"""

import pytest
import torch
from torch import nn

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


class Strided(nn.Module):
    def __init__(self):
        super().__init__()
        self.stride = nn.Buffer(torch.tensor(2))
        self.kernel = nn.Buffer(torch.tensor(4))

    def frames(self, x):
        return torch.ceil((x.shape[-1] - self.kernel) / self.stride).to(torch.int64)


class Branch(Strided):
    def forward(self, x):
        x = x + 1 if self.frames(x) > 2 else x * 2
        return x.sin()


class Item(Strided):
    def forward(self, x):
        return x[..., : self.kernel.item()] * int(self.stride)


class Chosen(Strided):
    def forward(self, x):
        return x.sin() if x.shape[-1] <= max(self.kernel, self.frames(x)) else x.cos()


class Table(Strided):
    def __init__(self):
        super().__init__()
        self.kernel = nn.Buffer(torch.tensor([4]))

    def forward(self, x):
        return x.sin() if self.kernel == 4 else x.cos()


def compare(module, compiled, x, times=2):
    for _ in range(times):
        assert torch.equal(compiled(x), module(x))


@pytest.mark.parametrize("cls", [Branch, Item, Chosen, Table])
def test_one_graph(cls):
    module, x = cls(), torch.rand(3, 9)
    counted = kintsugi.explain(module)(x)
    assert (counted.graph_count, counted.graph_break_count) == (1, 0), str(counted)


@pytest.mark.parametrize("cls", [Branch, Item, Chosen, Table])
def test_content_that_changes(cls):
    module, x = cls(), torch.rand(3, 9)
    compiled = kintsugi.compile(module)
    compare(module, compiled, x)
    for kernel in (8, 4, 9, 1, 4):
        module.kernel.fill_(kernel)
        compare(module, compiled, x)
    module.kernel = nn.Buffer(torch.full_like(module.kernel, 7))  # another tensor
    compare(module, compiled, x)
    module.kernel.data = torch.full_like(module.kernel, 5)
    compare(module, compiled, x)
    module.kernel = nn.Buffer(torch.full_like(module.kernel, 4, dtype=torch.float64) if cls is not Item else torch.tensor(3))
    compare(module, compiled, x)
    for n in range(2, 12):
        compare(module, compiled, torch.rand(2, n))


def test_misses_once():
    module, x = Branch(), torch.rand(3, 9)
    compiled = kintsugi.compile(module)
    for i in range(12):  # a counter: after the second value it is data like other data
        module.kernel.fill_(i)
        compare(module, compiled, x, 1)
    assert len(kintsugi.stats(compiled)["variants"]) <= 3


class Counter(nn.Module):
    def __init__(self, write):
        super().__init__()
        self.count = nn.Buffer(torch.tensor(0.0))
        self.write = write

    def forward(self, x):
        before = self.count < 2
        self.write(self.count)
        x = x + 1 if before else x * 2
        return x.sin() if self.count < 3 else x.cos()


def add_in_place(count):
    count.add_(1)


def add_operator(count):
    count += 1


def add_to_view(count):
    count.view(1)[0] = count + 1


def add_by_out(count):
    torch.add(count, 1, out=count)


def add_in_list(count):
    torch._foreach_add_([count], 1)


def add_through_numpy(count):
    count.numpy()[...] += 1


def add_by_data(count):
    count.data.add_(1)


def norm_of(count):
    """Not said to be in place: the mean of ones moves the count."""
    nn.functional.batch_norm(torch.ones(2, 1), count.view(1), torch.ones(1), training=True, momentum=0.6)


@pytest.mark.parametrize("write", [add_in_place, add_operator, add_to_view, add_by_out, add_in_list, add_through_numpy, add_by_data, norm_of])
def test_content_that_the_call_changes(write):
    eager, module, x = Counter(write), Counter(write), torch.rand(4)
    compiled = kintsugi.compile(module)
    for _ in range(8):
        assert torch.equal(compiled(x), eager(x))
        assert torch.equal(module.count, eager.count)


def test_argument_that_shares_memory():
    module = Branch()

    def run(x, y):
        y.add_(1)
        return module(x)

    compiled, x = kintsugi.compile(run), torch.rand(3, 9)
    for y in (torch.tensor(0), torch.tensor(0), module.kernel, module.kernel):
        before = module.kernel.clone()
        expected = run(x, y)
        module.kernel.copy_(before)
        assert torch.equal(compiled(x, y), expected)


def test_arguments_are_data():
    """What arguments hold differs from call to call: no guard asks for it."""
    def run(x, n):
        return x + 1 if n > 2 else x * 2

    compiled, x = kintsugi.compile(run), torch.rand(3)
    for n in range(6):
        assert torch.equal(compiled(x, torch.tensor(n)), run(x, torch.tensor(n)))
    assert kintsugi.stats(compiled)["guard_misses"] == 0


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Buffer(torch.zeros(1))

    def forward(self, x, mean):
        nn.functional.batch_norm(torch.ones(2, 1), mean, torch.ones(1), training=True, momentum=0.6)
        return x.sin() if self.mean < 0.5 else x.cos()


def test_argument_that_is_written_to_unsaid():
    """In a later call only, the argument is the tensor that decides."""
    eager, module, x = Normed(), Normed(), torch.rand(3)
    compiled = kintsugi.compile(module)
    for _ in range(3):
        assert torch.equal(compiled(x, torch.zeros(1)), eager(x, torch.zeros(1)))
    assert torch.equal(compiled(x, module.mean), eager(x, eager.mean))


# -- numbers that torch.rand draws lie in [0, 1) ---------------------------------------------------------------------------------------------


class Dropped(nn.Module):
    """As BART's layers: each is left out with a probability that mostly is 0."""

    def __init__(self):
        super().__init__()
        self.layerdrop = 0.0

    def forward(self, x):
        for _ in range(3):
            share = torch.rand([])
            if share < self.layerdrop:
                continue
            x = x.sin() + 1
        return x


def test_no_layer_is_dropped_and_no_graph_divided():
    module, x = Dropped(), torch.rand(3, 9)
    counted = kintsugi.explain(module)(x)
    assert (counted.graph_count, counted.graph_break_count) == (1, 0), str(counted)


@pytest.mark.parametrize("layerdrops", [(0.0, 0.5, 0.0, 1.0), (1, 0, 0.7, -1), (0.3, 0.3, 0.0, 2.5)])
def test_another_probability(layerdrops):
    module, x = Dropped(), torch.rand(3, 9)
    compiled = kintsugi.compile(module)
    for module.layerdrop in layerdrops:
        for seed in range(6):
            torch.manual_seed(seed)
            wanted, state = module(x), torch.get_rng_state()
            torch.manual_seed(seed)
            assert torch.equal(compiled(x), wanted)
            assert torch.equal(torch.get_rng_state(), state)


SHARES = {
    "<": lambda x, p: x + 1 if torch.rand([]) < p else x * 2,
    "<=": lambda x, p: x + 1 if torch.rand([]) <= p else x * 2,
    ">": lambda x, p: x + 1 if torch.rand(1) > p else x * 2,
    ">=": lambda x, p: x + 1 if torch.rand(1) >= p else x * 2,
    "==": lambda x, p: x + 1 if torch.rand([]) == p else x * 2,
    "not": lambda x, p: x + 1 if not torch.rand([]) < p else x * 2,
    "written to": lambda x, p: x + 1 if torch.rand([]).sub_(0.5) < p else x * 2,
    "other numbers": lambda x, p: x + 1 if torch.randn([]) < p else x * 2,
    "computed": lambda x, p: x + 1 if torch.rand([]) - 0.5 < p else x * 2,
}


def written_later(x, p):
    share = torch.rand([])
    view = share.view(1)
    view -= 0.5
    return x + 1 if share < p else x * 2


@pytest.mark.parametrize("p", [0.0, 1.0, 0, 1, -0.25, 0.5, float("nan"), 1.5])
@pytest.mark.parametrize("fn", [*SHARES.values(), written_later], ids=[*SHARES, "written to through a view"])
def test_what_is_asked_of_it(fn, p):
    compiled, x = kintsugi.compile(fn), torch.rand(4)
    for seed in range(8):
        torch.manual_seed(seed)
        wanted = fn(x, p)
        torch.manual_seed(seed)
        assert torch.equal(compiled(x, p), wanted)


def test_more_than_one_number_has_no_truth():
    def fn(x):
        return x + 1 if torch.rand(3) < 0.0 else x * 2

    compiled = kintsugi.compile(fn)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="ambiguous"):
            compiled(torch.rand(4))


def test_a_function_that_stands_in_for_rand(monkeypatch):
    def fn(x):
        return x + 1 if torch.rand([]) < 0.0 else x * 2

    compiled, x = kintsugi.compile(fn), torch.rand(4)
    assert torch.equal(compiled(x), x * 2)
    monkeypatch.setattr(torch, "rand", lambda size: torch.full(size, -1.0))
    assert torch.equal(compiled(x), x + 1)
