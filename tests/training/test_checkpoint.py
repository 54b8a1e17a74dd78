"""Checkpointed regions in compiled code: their nodes save inputs only, and make the rest again."""
import functools

import pytest
import torch
import torch.nn.functional as F
from kintsugi import _checkpoint
from launches import kintsugi
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
        self.wide, self.narrow, self.drop, self.norm = nn.Linear(8, 64), nn.Linear(64, 8), nn.Dropout(0.3), norm(8)
        self.calls = 0

    def forward(self, x, scale=1.0):
        return x + scale * self.drop(self.narrow(F.gelu(self.wide(self.norm(x)))))


class Counting(Block):
    def forward(self, x):
        self.calls += 1
        return super().forward(x)


@pytest.fixture(autouse=True)
def forget():
    _checkpoint.forget()


def saved_by_nodes(loss):
    """Elements that the nodes of a result keep, but for parameters."""
    kept, todo, seen = {}, [loss.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        kept.update((t.data_ptr(), t.numel()) for t in getattr(node, "saved_tensors", ()) if not isinstance(t, nn.Parameter))
        todo += [n for n, _ in node.next_functions]
    return sum(kept.values())


def compare(blocks, fn, steps=8, rows=lambda i: 4):
    """Both ways give the same losses, gradients, buffers and random numbers; new list of what nodes have saved, by step."""
    compiled, kept, state = kintsugi.compile(fn), [], {k: v.clone() for k, v in blocks.state_dict().items()}
    seen = []
    for f in (fn, compiled):
        blocks.load_state_dict(state)
        torch.manual_seed(3)
        seen.append([])
        for i in range(steps):
            blocks.zero_grad()
            x = torch.randn(rows(i), 8, requires_grad=True)
            loss = f(x)
            kept.append(saved_by_nodes(loss))
            loss.backward()
            seen[-1].append([loss.detach(), x.grad, *(p.grad for p in blocks.parameters()), *(v.clone() for v in blocks.buffers()), torch.get_rng_state()])
    for a, b in zip(*seen):
        for u, v in zip(a, b):
            torch.testing.assert_close(u, v, rtol=1e-4, atol=1e-5)
    return kept[steps:]


def ways():
    def closure(b):
        return lambda x: b(x)
    return {"module": lambda b: b, "method": lambda b: b.forward, "call": lambda b: b.__call__, "partial": lambda b: functools.partial(b.__call__, scale=0.5),
            "closure": closure}


@pytest.mark.compiled_gradients
@pytest.mark.parametrize("way", ways())
def test_regions_save_their_inputs_only(way):
    blocks = nn.ModuleList([Block() for _ in range(3)])

    def fn(x):
        for b in blocks:
            x = checkpoint(ways()[way](b), x, use_reentrant=False)
        return x.square().mean()
    kept = compare(blocks, fn)
    assert kept[-1] <= 5 * 4 * 8   # a region's own values are 4 * 64 each
    region, = (r for r in _checkpoint._regions.values() if r.ready)
    assert region.compiled.stats()["recordings"] <= 3


def test_keyword_arguments_and_other_sizes():
    blocks = nn.ModuleList([Block() for _ in range(2)])

    def fn(x):
        for b in blocks:
            x = checkpoint(b, x, use_reentrant=False, scale=0.5)
        return x.square().mean()
    kept = compare(blocks, fn, 12, lambda i: 4 + i % 3)
    assert kept[-1] <= 4 * 6 * 8


@pytest.mark.compiled_gradients
def test_with_reentry_the_function_is_compiled():
    blocks = nn.ModuleList([Block() for _ in range(2)])

    def fn(x):
        for b in blocks:
            x = checkpoint(b, x, use_reentrant=True)
        return x.square().mean()
    compare(blocks, fn)
    region, = _checkpoint._regions.values()
    assert region.compiled.stats()["compiled_calls"] > 0


@pytest.mark.parametrize("block", [functools.partial(Block, nn.BatchNorm1d), Counting], ids=["buffers", "attributes"])
def test_what_is_done_twice_is_left_to_torch(block):
    blocks = nn.ModuleList([block() for _ in range(2)])

    def fn(x):
        for b in blocks:
            x = checkpoint(b, x, use_reentrant=False)
        return x.square().mean()
    compare(blocks, fn)
    assert not any(r.ready for r in _checkpoint._regions.values())
    assert {b.calls for b in blocks} == {32 if block is Counting else 0}


def settled(fn):
    compiled = kintsugi.compile(fn)
    for _ in range(6):
        compiled(torch.randn(4, 8, requires_grad=True)).backward()
    assert all(r.ready for r in _checkpoint._regions.values()) and _checkpoint._regions
    return compiled


@pytest.mark.compiled_gradients
def test_twice_after_a_write_and_differentiated_again():
    block = Block().eval()

    def fn(x):
        return checkpoint(block, x * 1, use_reentrant=False).square().mean()
    for f in (fn, settled(fn)):
        x = torch.randn(4, 8, requires_grad=True)
        loss = f(x)
        loss.backward(retain_graph=True)
        first = x.grad.clone()
        loss.backward()
        torch.testing.assert_close(x.grad, 2 * first)
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    x, grads = torch.randn(4, 8, requires_grad=True), []
    for f in (fn, kintsugi.compile(fn)):
        g, = torch.autograd.grad(f(x), x, create_graph=True)
        grads.append(torch.autograd.grad(g.square().sum(), x)[0])
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-6)


def test_an_input_is_written_to():
    block = Block().eval()

    def fn(x):
        h = x * 2
        return h, checkpoint(block, h, use_reentrant=False).square().mean()
    compiled = kintsugi.compile(fn)
    for _ in range(6):
        compiled(torch.randn(4, 8, requires_grad=True))[1].backward()
    for f in (fn, compiled):
        h, loss = f(torch.randn(4, 8, requires_grad=True))
        with torch.no_grad():
            h.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.compiled_gradients
def test_who_looks_at_what_is_saved_sees_torchs_checkpoint():
    block = Block()

    def fn(x):
        return checkpoint(block, x, use_reentrant=False).square().mean()
    compiled, counts = settled(fn), []
    for f in (fn, compiled):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (sizes.append(t.numel()), t)[1], lambda t: t):
            f(torch.randn(4, 8, requires_grad=True)).backward()
        counts.append(sizes)
    assert counts[0] == counts[1]


class Noting(Block):
    def __init__(self):
        super().__init__()
        self.notes = None

    def forward(self, x):
        if self.notes is not None:
            self.notes.append(len(x))
        return super().forward(x)


def test_what_a_region_does_for_the_first_time_is_done_again_on_the_way_back():
    seen = []
    for compiled in (False, True):
        torch.manual_seed(0)
        block = Noting()
        seen.append([])

        def fn(x, b=block):
            return checkpoint(b, x, use_reentrant=False).sum()
        fn = kintsugi.compile(fn) if compiled else fn
        for i in range(14):
            block.notes = [] if i in (9, 12) else None
            fn(torch.randn(4, 8, requires_grad=True)).backward()
            seen[-1].append(block.notes)
    assert seen[1] == seen[0] and seen[0][9] == [4, 4]


@pytest.mark.compiled_gradients
def test_reset_forgets_regions():
    fn = kintsugi.compile(lambda x, b=Block(): checkpoint(b, x, use_reentrant=False).sum())
    for _ in range(2):
        fn(torch.randn(4, 8, requires_grad=True)).backward()
    assert _checkpoint._regions
    kintsugi.reset()
    assert not _checkpoint._regions


def test_variables_around_that_change_are_those_of_the_way_back():
    """A lambda in a loop: torch's checkpoint calls it again when the loop is over, with the last block. Gradients are those, as in eager."""
    torch.manual_seed(0)
    blocks = nn.ModuleList([Block() for _ in range(3)])

    def loss(x):
        for block in blocks:
            x = checkpoint(lambda x: block(x), x, use_reentrant=False)  # noqa: B023
        return x.square().sum()

    def train(function):
        found = []
        torch.manual_seed(1)
        for _ in range(5):
            x = torch.randn(4, 8, requires_grad=True)
            blocks.zero_grad()
            function(x).backward()
            found += [x.grad, *(p.grad for p in blocks.parameters())]
        return found

    for ours, eager in zip(train(kintsugi.compile(loss)), train(loss), strict=True):
        assert (ours is None) == (eager is None)
        if ours is not None:
            torch.testing.assert_close(ours, eager)


def as_of_the_way_back(kind, blocks, x):
    """Functions that find something else when torch's checkpoint calls them once more."""
    scale, h, block = 2.0, x * 2, blocks[0]
    blocks.factor = torch.tensor(2.0)
    if kind == "tensor":
        y = checkpoint(lambda z: block(z) * h, x, use_reentrant=False)
        h = h * 3
    elif kind == "argument":
        x = y = checkpoint(lambda z: torch.sin(block(z) * x), x, use_reentrant=False)
    elif kind == "module":
        y = checkpoint(lambda z: torch.sin(block(z)), x, use_reentrant=False)
        block = blocks[1]
    elif kind == "number":
        y = checkpoint(lambda z: torch.sin(block(z)) * scale, x, use_reentrant=False)
        scale = 3.0
    elif kind == "attribute":
        y = checkpoint(lambda z: torch.sin(block(z)) * blocks.factor, x, use_reentrant=False)
        blocks.factor = torch.tensor(5.0)
    return (y + h).sum()


@pytest.mark.parametrize("kind", ["tensor", "argument", "module", "number", "attribute"])
def test_what_is_bound_anew_after_the_call(kind):
    torch.manual_seed(0)
    blocks = nn.ModuleList([Block() for _ in range(2)])
    compare(blocks, lambda x: as_of_the_way_back(kind, blocks, x), steps=10)
    assert all(r.ready == (kind != "number") for r in _checkpoint._regions.values())


class Scaled(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.wide, self.scale = nn.Linear(8, 8), first

    def forward(self, x):
        return x + torch.tanh(self.wide(x)) * self.scale


@pytest.mark.parametrize("first", [1.0, 1])
def test_numbers_that_are_other_ones_by_the_way_back(first):
    """Eager's nodes keep them in themselves; only tensors are made again."""
    torch.manual_seed(0)
    blocks = nn.ModuleList([Scaled(first) for _ in range(3)])

    def loss(x):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.square().mean()

    def train(function):
        found = []
        torch.manual_seed(1)
        for block in blocks:
            block.scale = first
        for i in range(14):
            x = torch.randn(4, 8, requires_grad=True)
            blocks.zero_grad()
            value = function(x)
            for block in blocks:
                block.scale = first + i % 5 * (first / 8 if isinstance(first, float) else 1)
            value.backward()
            found += [x.grad, *(p.grad for p in blocks.parameters())]
        return found
    for ours, eager in zip(train(kintsugi.compile(loss)), train(loss), strict=True):
        torch.testing.assert_close(ours, eager)
    assert all(r.ready for r in _checkpoint._regions.values())


def test_several_nodes_of_a_region_are_made_again_by_one_call():
    torch.manual_seed(0)
    blocks = nn.ModuleList([Block() for _ in range(2)])

    def pair(x):
        y = blocks[0](x)
        return y.detach().requires_grad_().exp().sum() + blocks[1](y)

    def fn(x):
        return checkpoint(pair, x, use_reentrant=False).square().mean()
    compare(blocks, fn)


def test_what_the_function_raises_when_it_is_called_again():
    block = Block().eval()

    def fn(x):
        h = x * 2
        y = checkpoint(lambda z: block(z) * h, x, use_reentrant=False)
        h = None  # noqa: F841
        return y.sum()
    for f in (fn, kintsugi.compile(fn)):
        for _ in range(6):
            with pytest.raises(TypeError, match="NoneType"):
                f(torch.randn(4, 8, requires_grad=True)).backward()


class Attends(nn.Module):
    """Its graph has calls that are deferred, so that code is chosen before all inputs exist."""

    def __init__(self):
        super().__init__()
        self.norm, self.all, self.back, self.heads = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8), 2

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.all(self.norm(x)).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return x + self.back(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d))


def test_a_region_with_deferred_calls_is_launched():
    blocks = nn.ModuleList(Attends() for _ in range(3))

    def fn(x):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.square().mean()

    compiled, x = kintsugi.compile(fn), torch.randn(2, 4, 8)
    for _ in range(6):
        loss = compiled(x)
        loss.backward()
    gradients = [p.grad / 6 for p in blocks.parameters()]
    assert [region.ready for region in _checkpoint._regions.values()] == [True]
    blocks.zero_grad()
    fn(x).backward()
    for one, p in zip(gradients, blocks.parameters(), strict=True):
        torch.testing.assert_close(one, p.grad)


def test_hooks_of_saved_tensors_see_what_eager_saves_where_code_was_chosen_before():
    block, x, seen = Attends(), torch.randn(2, 4, 8), []
    compiled = kintsugi.compile(block)
    for _ in range(4):
        loss = compiled(x).sum()
        loss.backward()
    for fn in (block, compiled):
        shapes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, shapes=shapes: (shapes.append(tuple(t.shape)), t)[1], lambda t: t):
            fn(x)
        seen.append(shapes)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("which", [lambda i: i % 3, lambda i: (0, 1)[i > 5], lambda i: (1, 0, 0, 1, 2)[i % 5]], ids=["in turns", "later", "mixed"])
def test_functions_of_one_code_of_which_some_write_to_buffers(which):
    """A region in evaluation mode, or another module of the class, can be done again by a launch; one that writes to statistics is done twice by torch."""
    blocks = nn.ModuleList([Block(nn.BatchNorm1d) for _ in range(3)])
    blocks[0].norm.eval()
    blocks[2].norm.eval()

    def fn(x, calls=[]):   # noqa: B006
        calls.append(0)
        return checkpoint(blocks[which((len(calls) - 1) % 14)], x, use_reentrant=False).square().sum()
    compare(blocks, fn, 14)


def test_a_region_that_trains_again_after_an_evaluation():
    blocks = nn.ModuleList([Block(nn.BatchNorm1d)])
    calls = []

    def fn(x):
        blocks[0].norm.train(calls.count(0) % 4 != 3)
        return checkpoint(blocks[0], x, use_reentrant=False).square().sum()

    def counted(x):
        loss = fn(x)
        calls.append(0)
        if len(calls) == 13:
            calls.clear()
        return loss
    compare(blocks, counted, 13)


def test_a_region_that_goes_another_way_than_when_it_was_prepared():
    """Which layer the function calls is found inside of it: the recording is left in its middle, for one that writes to statistics."""
    layers = nn.ModuleList([nn.BatchNorm1d(8), nn.LayerNorm(8), nn.BatchNorm1d(8, affine=False)])

    def region(k):
        return lambda x: F.dropout(layers[k](x).tanh(), 0.2) * 2
    regions, calls = [region(k) for k in range(3)], []

    def fn(x):
        i = len(calls) % 18
        calls.append(0)
        for layer in layers:
            layer.train(i % 5 != 4)
        return checkpoint(regions[(1, 1, 1, 1, 1, 1, 0, 2, 1, 0)[i % 10]], x, use_reentrant=False).square().sum()
    compare(layers, fn, 18)
