"""Regions of no_grad and enable_grad in code that trains are part of the graph: one graph, gradients as in eager, also where a call in it raises or torch goes back twice."""
import pytest
import torch
from launches import kintsugi
from torch import nn

WEIGHT = torch.randn(6, 6, generator=torch.Generator().manual_seed(3)) * 0.5
OTHER = torch.randn(6, 6, generator=torch.Generator().manual_seed(4)) * 0.5


@torch.no_grad()
def target(h, p):
    return (h @ p["other"]).softmax(-1)


def after(x, p):
    h = (x @ p["w"]).tanh()
    with torch.no_grad():
        t = (x @ p["other"]).softmax(-1)
    return (h - t).square().mean()


def before(x, p):
    with torch.no_grad():
        scale = (x @ p["w"]).abs().amax()
    return (x @ p["w"] / scale).square().mean()


def last(x, p):
    h = (x @ p["w"]).tanh()
    loss = h.square().mean()
    with torch.no_grad():
        seen = h.abs().sum() * 2
    return loss, seen


def decorated(x, p):
    h = (x @ p["w"]).tanh()
    return (h - target(h, p)).square().mean()


def straight_through(x, p):
    h = x @ p["w"]
    with torch.no_grad():
        step = h.abs().amax() / 7
        rounded = (h / step).round() * step
    return (h + (rounded - h).detach()).square().mean()


def nested(x, p):
    h = (x @ p["w"]).sigmoid()
    with torch.no_grad():
        a = h * 2
        with torch.enable_grad():
            b = (h @ p["other"]).tanh()
            with torch.set_grad_enabled(False):
                c = b * 3
        d = a + b
    return (a * h + b + c).square().mean() + (d * 0.1).sum()


def asks(x, p):
    h = (x @ p["w"]).sigmoid()
    with torch.no_grad():
        y = h * (2 if torch.is_grad_enabled() else 3)
    z = y + h * (2 if torch.is_grad_enabled() else 3)
    return z.square().mean()


def writes_to_weights(x, p):
    with torch.no_grad():
        p["other"].mul_(0.9).add_(p["w"], alpha=0.1)
    return ((x @ p["w"]).tanh() - x @ p["other"].detach()).square().mean()


def writes_behind(x, p):
    loss = ((x @ p["w"]).tanh() - x @ p["other"].detach()).square().mean()
    with torch.no_grad():
        seen = loss * 2
        p["buffer"].lerp_(x.mean(), 0.1)
    return loss, seen


def views(x, p):
    h = x @ p["w"]
    with torch.no_grad():
        v = h.transpose(0, 1)
        w = p["w"].t()
    return (h.t() * v).mean() + (w @ p["w"]).mean()


PROGRAMS = [after, before, last, decorated, straight_through, nested, asks, writes_to_weights, writes_behind, views]


def parameters():
    return {"w": WEIGHT.clone().requires_grad_(), "other": OTHER.clone().requires_grad_(), "buffer": torch.zeros(())}


def step(run, p, x):
    out = run(x, p)
    results = out if isinstance(out, tuple) else (out,)
    for q in p.values():
        q.grad = None
    results[0].backward()
    mode = torch.is_grad_enabled()
    return ([r.detach().clone() for r in results], [(r.requires_grad, r.is_leaf) for r in results], mode,
            {k: (q.detach().clone(), None if q.grad is None else q.grad.clone()) for k, q in p.items()})


def steps(run, count=8):
    p, generator = parameters(), torch.Generator().manual_seed(0)
    return [step(run, p, torch.randn(5, 6, generator=generator)) for _ in range(count)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph_as_in_eager(program):
    compiled = kintsugi.compile(program)
    torch.testing.assert_close(steps(compiled), steps(program), rtol=1e-5, atol=1e-6)
    rows = kintsugi.stats(compiled)["kernels"]
    assert sum(row["launches"] for row in rows) >= 5
    assert len(rows) == 1, [row["ends"] for row in rows]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(program, mode):
    def run(function):
        p = {k: q.detach() for k, q in parameters().items()}
        with mode():
            return [function(torch.full((5, 6), float(i + 1)), p) for i in range(5)]

    torch.testing.assert_close(run(kintsugi.compile(program)), run(program))


def test_a_flag_that_changes():
    def program(x, p, on):
        h = (x @ p["w"]).tanh()
        with torch.set_grad_enabled(on):
            g = h @ p["other"]
        return (h + g).square().mean()

    def run(function):
        p, out = parameters(), []
        for on in (True, False, False, True, False, False, True, True, False):
            loss = function(torch.ones(5, 6), p, on)
            out.append((loss.detach(), *torch.autograd.grad(loss, (p["w"], p["other"]), allow_unused=True)))
        return out

    for mine, eager in zip(run(kintsugi.compile(program)), run(program)):
        for a, b in zip(mine, eager):
            assert (a is None) == (b is None)
            assert a is None or torch.allclose(a, b, atol=1e-6)


def test_gradients_of_gradients():
    def program(x, p):
        h = (x @ p["w"]).tanh()
        with torch.no_grad():
            t = (h @ p["w"]).sigmoid()
        return (h * t * h).sum()

    def twice(function):
        p, x = parameters(), torch.ones(5, 6).requires_grad_()
        (first,) = torch.autograd.grad(function(x, p), x, create_graph=True)
        return first.detach(), torch.autograd.grad(first.square().sum(), p["w"])[0]

    compiled = kintsugi.compile(program)
    for _ in range(5):
        torch.testing.assert_close(twice(compiled), twice(program), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("where", ["before", "inside", "behind"])
def test_an_error_leaves_the_mode_of_its_place(where):
    """The calls that were put off run when one of them raises: what handles the error finds gradients as in eager."""
    def program(x, p, index, seen):
        h = (x @ p["w"]).tanh()
        try:
            a = h[index] if where == "before" else h
            with torch.no_grad():
                t = h[index] if where == "inside" else h * 2
            b = h[index] if where == "behind" else h
            return (a.sum() + t.sum() * b.sum()) * 1.5
        except IndexError:
            seen.append(torch.is_grad_enabled())
            return h.sum()
        finally:
            seen.append(torch.is_grad_enabled())

    def run(function):
        p, out = parameters(), []
        for i in (0, 1, 2, 3, 4, 9, 1, 9, 2):
            seen = []
            loss = function(torch.ones(5, 6), p, torch.tensor([i]), seen)
            out.append((loss.detach(), torch.autograd.grad(loss, p["w"])[0], seen, torch.is_grad_enabled()))
        return out

    torch.testing.assert_close(run(kintsugi.compile(program)), run(program), rtol=1e-5, atol=1e-6)


def test_moving_targets():
    """A step of BYOL: an encoder, its moving average under no_grad, and its update."""
    def make():
        torch.manual_seed(0)
        online = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
        average = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
        average.load_state_dict(online.state_dict())
        return online, average

    def loss_of(online, average, x, y):
        p = nn.functional.normalize(online(x), dim=-1)
        with torch.no_grad():
            z = nn.functional.normalize(average(y), dim=-1)
            for a, o in zip(average.parameters(), online.parameters()):
                a.lerp_(o, 0.05)
        return (2 - 2 * (p * z).sum(-1)).mean()

    def train(function):
        online, average = make()
        optimizer = torch.optim.SGD(online.parameters(), lr=0.1)
        generator, losses = torch.Generator().manual_seed(1), []
        for _ in range(10):
            loss = function(online, average, torch.randn(4, 6, generator=generator), torch.randn(4, 6, generator=generator))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, [q.detach() for q in average.parameters()]

    compiled = kintsugi.compile(loss_of)
    torch.testing.assert_close(train(compiled), train(loss_of), rtol=1e-4, atol=1e-5)
    assert sum(row["launches"] for row in kintsugi.stats(compiled)["kernels"]) > 0


def test_views_made_without_gradients():
    """Such a view requires a gradient although no node has made it; what the program gets is eager's."""
    def program(x, p):
        h = (x @ p["w"]).tanh()
        with torch.no_grad():
            v, rows = h.transpose(0, 1), [h[0], h[1]]
        return (h.t() * v).mean(), v, rows

    def run(function):
        p = parameters()
        loss, v, rows = function(torch.ones(5, 6), p)
        loss.backward()
        return loss.detach(), p["w"].grad, [(t.requires_grad, t.is_leaf, t.grad_fn is None, t.detach()) for t in (v, *rows)]

    compiled = kintsugi.compile(program)
    for _ in range(6):
        torch.testing.assert_close(run(compiled), run(program), rtol=1e-5, atol=1e-6)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x.sin() * k

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None


def test_a_side_trace_has_gradients_as_they_are_where_it_begins():
    """Behind a call that ends an epoch (its number has become open) training and evaluation part: the steps of the one stand in front of the other's in the trace."""
    def fn(x, y, k):
        v = Scaled.apply(x, k) * y
        with torch.no_grad():
            seen = y.mean(-1, keepdim=True)
        return v, torch.cat([v, y], 0), seen

    compiled = kintsugi.compile(fn)
    for train, k in [(True, 1)] * 3 + [(False, 1)] * 3 + [(True, 2)] * 4 + [(False, 2)] * 4 + [(True, 3), (False, 3)] * 3:
        x, y = torch.randn(4, 6), torch.randn(4, 6).requires_grad_()
        with torch.set_grad_enabled(train):
            got, want = compiled(x, y, k), fn(x, y, k)
        assert [t.requires_grad for t in got] == [t.requires_grad for t in want]
        torch.testing.assert_close(got, want)
        if train:
            torch.testing.assert_close(torch.autograd.grad(got[0].sum() + got[1].sum(), y), torch.autograd.grad(want[0].sum() + want[1].sum(), y))
