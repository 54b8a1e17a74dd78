"""Several results, some made from others: who looks at one after the call (hooks, retain_grad, autograd.grad) sees what eager shows."""
import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi, runs, versions
from torch import nn


class Model(nn.Module):
    """A loss from scores from features; the features are a result too, and the loss comes past the scores' mean as well."""

    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x, target):
        features = F.gelu(self.into(x))
        scores = self.out(features)
        return F.cross_entropy(scores, target) + 0.1 * features.mean(), scores, features


def parameters_of(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def retained(model, loss, scores, features):
    scores.retain_grad()
    features.retain_grad()
    (loss + scores.square().mean()).backward()
    return [scores.grad, features.grad, *parameters_of(model)]


def hooked_and_gone(model, loss, scores, features):
    seen = []
    features.register_hook(lambda g: (seen.append(g.clone()), g * 3)[1])
    del scores, features
    loss.backward()
    return seen + parameters_of(model)


def asked_for(model, loss, scores, features):
    a = torch.autograd.grad(loss, [scores, features], retain_graph=True)
    b = torch.autograd.grad(loss, [features, *model.parameters()])
    return [*a, *b]


def differentiated_again(model, loss, scores, features):
    g, = torch.autograd.grad(loss, features, create_graph=True)
    (g.norm(dim=1) - 1).square().mean().backward()
    return [g.detach(), *parameters_of(model)]


def given_up(model, loss, scores, features):
    def raises(g):
        raise KeyError("no")
    handle = features.register_hook(raises)
    with pytest.raises(KeyError):
        loss.backward(retain_graph=True)
    handle.remove()
    model.zero_grad()
    loss.backward()
    return parameters_of(model)


def nobody(model, loss, scores, features):
    loss.backward()
    return [scores.grad_fn is not None, *parameters_of(model)]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("look", [retained, hooked_and_gone, asked_for, differentiated_again, given_up, nobody])
def test_results_made_from_others(look):
    found = []
    for way in (lambda f: f, kintsugi.compile):
        torch.manual_seed(0)
        model = Model()
        fn = way(lambda x, t, m=model: m(x, t))
        found.append([])
        for _ in range(5):
            model.zero_grad()
            found[-1] += look(model, *fn(torch.randn(5, 6), torch.randint(0, 4, (5,))))
    assert runs(fn) > 1, versions(fn)
    for eager, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-6)


def test_where_somebody_always_looks_the_steps_run():
    model = Model()
    fn = kintsugi.compile(lambda x, t: model(x, t))
    for _ in range(24):
        retained(model, *fn(torch.randn(5, 6), torch.randint(0, 4, (5,))))
    settled = runs(fn)
    for _ in range(4):
        retained(model, *fn(torch.randn(5, 6), torch.randint(0, 4, (5,))))
    assert runs(fn) == settled


def rounded(x, y):
    return x.round() * 2, y * 2 + x.detach()


def mixed(x, y):
    return x.sign() + y.floor(), x * y


@pytest.mark.parametrize("body", [rounded, mixed])
@pytest.mark.parametrize("picked", [(0,), (1,), (0, 1)])
def test_gradients_that_are_always_zero_are_there(body, picked):
    """An input that a result was computed from gets a gradient, also where it is zero whatever comes back; one that it was not gets None."""
    compiled = kintsugi.compile(body, options={"warm": True})

    def gradients(fn):
        inputs = [torch.arange(5.0).requires_grad_(), torch.arange(5.0).requires_grad_()]
        results = fn(*inputs)
        sum(results[i].sum() for i in picked).backward()
        return [x.grad for x in inputs]

    want = gradients(body)
    for _ in range(3):
        got = gradients(compiled)
        assert [g is None for g in got] == [g is None for g in want]
        torch.testing.assert_close([g for g in got if g is not None], [g for g in want if g is not None])
    assert versions(compiled)[0]["compiled"]


@pytest.mark.parametrize("hooked", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_weights_that_a_hook_computes_in_each_step(hooked):
    """The hook stores a result with gradients as an attribute; the one that it replaces is weakly known to the node of another result."""
    def steps(compile):
        torch.manual_seed(0)
        model = nn.Sequential(hooked(nn.Linear(6, 6)), nn.Tanh())
        optimizer, loss = torch.optim.SGD(model.parameters(), 0.1), compile(lambda x: model(x).square().mean())
        for _ in range(8):
            optimizer.zero_grad()
            loss(torch.randn(4, 6)).backward()
            optimizer.step()
        return loss, list(model.state_dict().values())

    compiled, got = steps(lambda fn: kintsugi.compile(fn, fullgraph=True))
    torch.testing.assert_close(got, steps(lambda fn: fn)[1])
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] == 1 and not any(v["breaks"] for v in stats["variants"])
