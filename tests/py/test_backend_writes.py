"""Custom backends are handed graphs that write to tensors of the program: one graph where what stands between its calls sees no memory, and eager's results,
side effects and state wherever the graphs are divided."""

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi")

COUNT = torch.ones(3)


class Running(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(3))
        self.calls, self.seen = 0, False


class InPlace(Running):
    def forward(self, x):
        self.mean += 1
        return self.mean + x


class InPlaceWithCounter(Running):
    def forward(self, x):
        self.mean.mul_(0.9).add_(x, alpha=0.1)
        self.calls += 1
        return (x - self.mean) * self.mean


class Replaced(Running):
    def forward(self, x):
        self.mean = self.mean * 0.9 + x * 0.1
        self.calls = self.calls + 1
        return x * self.mean


class Twice(Running):
    def forward(self, x):
        self.mean += 1
        y = self.mean + x
        self.mean += 2
        return y * self.mean


class LooksBetween(Running):
    def forward(self, x):
        self.mean += 1
        self.seen = bool(self.mean.sum() > 8)
        self.mean += x
        return self.mean * 2 if self.seen else self.mean


def add_to_global(x):
    global COUNT
    y = COUNT + 1
    COUNT += 10
    return y + COUNT


class Counting:
    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        return gm.forward


@pytest.mark.parametrize("kind, graphs", [(InPlace, 1), (InPlaceWithCounter, 1), (Replaced, 2), (Twice, 2), (LooksBetween, 4)])
def test_modules_that_write_to_their_buffers(kind, graphs):
    """`graphs`: of a recording, and of the branch that goes on where a value of its first call was another one."""
    eager, model, counting = kind(), kind(), Counting()
    compiled = kintsugi.compile(model, backend=counting)
    for i in range(4):
        x = torch.full((3,), float(i))
        assert torch.equal(compiled(x), eager(x))
        assert torch.equal(model.mean, eager.mean)
        assert (model.calls, model.seen) == (eager.calls, eager.seen)
    assert counting.graphs > 0
    assert max(variant["subgraphs"] for variant in kintsugi.stats(compiled)["variants"]) <= graphs


def test_a_global_that_is_written_to():
    global COUNT
    counting = Counting()
    compiled = kintsugi.compile(add_to_global, backend=counting)
    wanted, COUNT = [], torch.ones(3)
    for _ in range(3):
        wanted.append(add_to_global(torch.ones(3)))
    end, COUNT = COUNT, torch.ones(3)
    same = COUNT
    for want in wanted:
        assert torch.equal(compiled(torch.ones(3)), want)
    assert COUNT is same and torch.equal(COUNT, end)
    assert counting.graphs == 1


def test_a_list_that_layers_are_appended_to():
    layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4)])

    def forward(x, found):
        for i, layer in enumerate(layers):
            found.append(layer(x if i == 0 else found[-1]))
        return torch.cat(found, dim=1), found

    counting = Counting()
    compiled = kintsugi.compile(forward, backend=counting, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            x, ours, theirs = torch.randn(2, 4), [torch.ones(2, 4)], [torch.ones(2, 4)]
            got, want = compiled(x, ours), forward(x, theirs)
            assert got[1] is ours and torch.equal(got[0], want[0]) and len(ours) == len(theirs) == 4
    assert [variant["graphs"] for variant in kintsugi.stats(compiled)["variants"]] == [1]
    assert 0 < counting.graphs <= 3  # what was appended is read back from the list, behind the graph that made it


def decayed(read):
    """A moving average under no_grad, behind calls that want gradients; `read`: what the function does with it."""
    torch.manual_seed(0)
    layer, mean, count = torch.nn.Linear(6, 6), torch.zeros(6), torch.zeros(())

    def fn(x):
        y = layer(x)
        with torch.no_grad():
            mean.mul_(0.9).add_(y, alpha=0.1)
        y = read(y, mean)
        with torch.no_grad():
            count.add_(1)
        return y * count
    return fn, lambda: [mean, count]


def updated_leaf(read):
    weight = torch.ones(6, requires_grad=True)

    def fn(x):
        with torch.no_grad():
            weight.sub_(x, alpha=0.1)
        return read(weight, x).sum()
    return fn, lambda: [weight]


def updated_leaf_behind(read):
    weight = torch.ones(6, requires_grad=True)

    def fn(x):
        y = weight * x
        with torch.no_grad():
            weight.sub_(y, alpha=0.1)
        return read(weight, x).sum()
    return fn, lambda: [weight]


@pytest.mark.parametrize("read, graphs", [(torch.sub, 1), (lambda y, mean: y - mean if mean.sum() > -9 else y, 2)])
@pytest.mark.parametrize("program", [decayed, updated_leaf, updated_leaf_behind])
def test_writes_without_gradients_stand_inside_of_a_graph(program, read, graphs):
    """A graph that switches gradients runs where it does so first; nothing there leaves before what is written behind it."""
    counting = Counting()
    (eager, wanted), (fn, state) = program(read), program(read)
    compiled = kintsugi.compile(fn, backend=counting)
    for i in range(4):
        x = torch.full((6,), float(i))
        got, want = compiled(x), eager(x)
        assert torch.equal(got, want) and got.requires_grad == want.requires_grad
        assert all(map(torch.equal, state(), wanted()))
    assert counting.graphs == graphs
