"""Ways back from several results of one graph, one after another: where results share nothing that is saved, a graph of its own is made for each."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kintsugi

CUT = "gradients are taken from both one after another"


def _models():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 8)), nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 1))


def _gan(makes, judges):
    """The generator's images are judged detached, gone back from, and judged again."""
    ways = [torch.optim.Adam(m.parameters(), 1e-2) for m in (makes, judges)]

    def step(x, real):
        judges.zero_grad()
        (judges(real).square().mean()).backward()
        made = makes(x)
        wrong = (judges(made.detach()) - 1).square().mean()
        wrong.backward()
        ways[1].step()
        makes.zero_grad()
        right = judges(made).square().mean()
        right.backward()
        ways[0].step()
        return wrong.detach() + right.detach()

    return step


def _mixed(first, second):
    """Two results whose operators alternate: there is no place for a cut."""

    def step(x, real):
        for m in (first, second):
            m.zero_grad()
        a, b = first[0](x), second[0](real)
        a, b = first[3](a.relu()), second[3](b.tanh())
        a, b = a.square().mean(), b.square().mean()
        a.backward()
        b.backward()
        return a.detach() + b.detach()

    return step


def _run(step, steps=12):
    torch.manual_seed(2)
    return [step(torch.randn(5, 6), torch.randn(5, 8)) for _ in range(steps)], torch.get_rng_state()


@pytest.mark.parametrize("make", [_gan, _mixed])
def test_results_that_are_gone_back_from_one_after_another(make):
    eager = _models()
    ours = copy.deepcopy(eager)
    compiled = kintsugi.compile(make(*ours))
    begin = kintsugi.events()[-1]["seq"] if kintsugi.events() else -1
    (a, state), (b, ours_state) = _run(make(*eager)), _run(compiled)
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    assert torch.equal(state, ours_state)
    for x, y in zip(eager, ours, strict=True):
        for p, q in zip(x.parameters(), y.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5)
    cuts = [e for e in kintsugi.events() if e["seq"] > begin and e["event"] == "part" and CUT in e["reason"]]
    assert bool(cuts) == (make is _gan)
    if cuts:
        assert all(row["compiled"] for row in kintsugi.stats(compiled)["kernels"])


def test_images_that_are_detached_behind_what_the_other_loss_begins_with_are_cut():
    """The step of a GAN as it is written most often: real images first, then the made ones, detached in the middle of the discriminator's part."""
    torch.manual_seed(0)
    make, judge = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh()), nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def both(noise, real):
        made = make(noise)
        return F.softplus(-judge(real)).mean() + F.softplus(judge(made.detach())).mean(), made

    compiled = kintsugi.compile(both)
    for _ in range(12):
        noise, real, seen = torch.randn(6, 4), torch.randn(6, 8), []
        for f in (both, compiled):
            loss, made = f(noise, real)
            loss.backward()
            F.softplus(-judge(made)).mean().backward()
            seen.append([p.grad.clone() for m in (make, judge) for p in m.parameters()])
            make.zero_grad()
            judge.zero_grad()
        for one, other in zip(*seen, strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
    assert [part["compiled"] for part in kintsugi.stats(compiled)["kernels"]] == [True, True]
