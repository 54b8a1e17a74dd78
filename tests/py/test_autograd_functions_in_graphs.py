"""A custom backend gets the call of an autograd.Function as a node of its graph where forward and backward only compute; and functions that write to what they
are handed are never called twice for one call of the program."""
import pytest
import torch

kintsugi = pytest.importorskip("kintsugi")
from counting_backend import Counting  # noqa: E402

SCALE, LOG = 2.0, []


def v(n=6):
    return torch.arange(float(n)) / 3 - 0.7


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * x.cos()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by=3):
        ctx.by, ctx.global_by = by, SCALE
        return x * by * SCALE

    @staticmethod
    def backward(ctx, g):
        return g * ctx.by * ctx.global_by, None


class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = x > 0
        ctx.mark_non_differentiable(mask)
        ctx.save_for_backward(mask)
        return x * mask, mask

    @staticmethod
    def backward(ctx, g, _):
        mask, = ctx.saved_tensors
        return g * mask


class Product(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -g


class Told(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        LOG.append("forward")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Counted(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        Counted.calls += 1
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x += 1
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


PROGRAMS = {
    "sine": lambda w, x: Sine.apply(w * x) * 2,
    "scaled": lambda w, x: Scaled.apply(w * x, 3).sin(),
    "masked": lambda w, x: Masked.apply(w * x)[0] + Masked.apply(x)[1],
    "product": lambda w, x: Product.apply(w * 2, x) + 1,
    "reversed": lambda w, x: Reversed.apply(w * x) * x,
    "two": lambda w, x: Sine.apply(Sine.apply(w + x)) * w,
}
WITH_EFFECTS = {
    "told": lambda w, x: Told.apply(w * x) * 2,
    "counted": lambda w, x: Counted.apply(w * x) * 2,
    "dirty": lambda w, x: Dirty.apply(w * x) * 2,
}


def run(fn):
    global SCALE
    LOG.clear()
    Counted.calls = 0
    w, found = v().requires_grad_(), []
    for i, SCALE in enumerate((2.0, 2.0, 5.0)):
        w.grad = None
        y = fn(w, v() + i)
        y.sum().backward()
        found.append((y.detach(), w.grad))
    return found, list(LOG), Counted.calls


def compare(fn, backend):
    (want, *effects), (got, *ours) = run(fn), run(kintsugi.compile(fn, backend=backend))
    assert effects == ours
    for a, b in zip(want, got):
        for x, y in zip(a, b):
            torch.testing.assert_close(x, y)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_call_is_a_node_of_the_graph(name):
    backend = Counting()
    compare(PROGRAMS[name], backend)
    assert name == "scaled" or len(backend.inputs) == 1 and backend.runs == 3  # a global that changes is no constant: another recording
    kintsugi.reset()
    backend = Counting()
    kintsugi.compile(PROGRAMS[name], backend=backend, fullgraph=True)(v(), v())
    assert len(backend.inputs) == 1


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_are_those_of_eager(name, backend):
    compare(PROGRAMS[name], backend)


@pytest.mark.parametrize("name", WITH_EFFECTS)
def test_effects_happen_once(name):
    compare(WITH_EFFECTS[name], Counting())


def add_in_place(a):
    a += 1
    return a * 2


def add_to_alias(a):
    b = a.view(-1)
    b += 1
    return a * 2


def add_to_own(a):
    total = 0.0
    for i in range(3):
        total += a * i
    b = a * 2
    b += total
    return b


@pytest.mark.parametrize("function, runs", [(add_in_place, 2), (add_to_alias, 2), (add_to_own, 3)])
def test_what_an_operator_calls_writes_once(function, runs):
    def fn(x):
        return torch.vmap(function)(x) + 1
    backend, ours, theirs = Counting(), v(), v()
    compiled = kintsugi.compile(fn, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(ours), fn(theirs)) and torch.equal(ours, theirs)
    assert backend.runs == runs
