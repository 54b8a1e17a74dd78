"""Parts of a graph whose results need different inputs: torch's engine goes on where no gradient came, and nobody may notice."""
import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi
from torch import nn


class Mixture(nn.Module):
    """one_hot stands between two parts; of the second one's results, the share depends on other inputs than the output."""

    def __init__(self):
        super().__init__()
        self.enter, self.gate, self.leave = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 8)

    def forward(self, x, hook=None):
        h = self.enter(x).tanh()
        if hook is not None:
            h.register_hook(hook)
        share = self.gate(h).softmax(-1)
        mask = F.one_hot(share.argmax(-1), 4).float()
        out = self.leave(h * (1 + mask.sum(-1, keepdim=True))).tanh()
        return out.square().mean(), (share.mean(0) * mask.mean(0)).sum() * 4


def gradients(model):
    given = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return given


def both(loss, aux):
    (loss + 0.1 * aux).backward()


def first_alone(loss, aux):
    loss.backward()


def second_alone(loss, aux):
    aux.backward()


def one_after_another(loss, aux):
    loss.backward(retain_graph=True)
    aux.backward()


def second_first(loss, aux):
    aux.backward(retain_graph=True)
    loss.backward()


def too_late(loss, aux):
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        aux.backward()


@pytest.mark.parametrize("back", [both, first_alone, second_alone, one_after_another, second_first, too_late])
@pytest.mark.parametrize("hooked", [False, True])
def test_results_that_need_different_inputs(back, hooked):
    torch.manual_seed(0)
    model, calls = Mixture(), []
    compiled = kintsugi.compile(model)
    hook = (lambda grad: calls.append(grad is None)) if hooked else None
    for i in range(6):
        x, seen = torch.randn(5, 8), []
        for fn in (model, compiled):
            calls.clear()
            back(*fn(x, hook))
            seen.append((gradients(model), list(calls)))
        assert seen[0][1] == seen[1][1]
        if back is too_late:  # what has accumulated until it raises may differ (docs/training.md)
            continue
        for one, other in zip(seen[0][0], seen[1][0], strict=True):
            assert (one is None) == (other is None)
            assert one is None or torch.allclose(one, other, rtol=1e-4, atol=1e-6)


def test_results_are_gone_back_from_one_by_one_without_keeping_the_graph():
    """The two have no operator in common that saves something, so eager frees nothing that the second needs."""
    torch.manual_seed(0)
    one, other = nn.Linear(8, 4), nn.Linear(8, 4)

    def fn(x):
        a, b = one(x), other(x)
        mask = F.one_hot(torch.arange(5) % 4, 4).float()
        return (a * mask).sum(), (b * mask).sum()

    compiled, both = kintsugi.compile(fn), nn.ModuleList([one, other])
    for _ in range(6):
        x, seen = torch.randn(5, 8), []
        for f in (fn, compiled):
            for loss in f(x):
                loss.backward()
            seen.append(gradients(both))
        for a, b in zip(*seen, strict=True):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_the_part_is_launched():
    model, x = Mixture(), torch.randn(5, 8)

    def fn(x):
        loss, aux = model(x)
        return loss + 0.1 * aux + F.one_hot(torch.arange(5), 5).sum() * loss

    compiled = kintsugi.compile(fn)
    for _ in range(8):
        compiled(x).backward()
    assert min(part["launches"] for part in kintsugi.stats(compiled)["kernels"] if part["native_calls"] > 4) >= 5
