"""Plans with gradients for further sizes are copies of those made before (docs/design/sizes.md). With KINTSUGI_VERIFY=1, as tests run, each is compared with what
the passes make of the same sizes; a difference is an event `bug`."""
import pytest
import torch
import torch.nn.functional as F
from launches import kintsugi, versions
from torch import nn


class Layers(nn.Module):
    """Sizes in views, losses and the arguments of captured calls."""

    def __init__(self):
        super().__init__()
        self.into, self.out, self.drop = nn.Linear(16, 24), nn.Linear(24, 5), nn.Dropout(0.2)

    def forward(self, x):
        h = self.drop(F.gelu(self.into(x)))
        h = torch.cat((h, h.flip(0)[:3])).reshape(-1, 4, 6).transpose(1, 2).reshape(len(x) + 3, 24)
        scores = self.out(h)
        return F.cross_entropy(scores, scores.detach().argmax(1)) + scores[1:].mean(), scores


def plain(model, fn, x):
    loss, _ = fn(x)
    loss.backward()
    return [x.grad, *(p.grad for p in model.parameters())]


def again(model, fn, x):
    """Torch goes over the captured calls once more."""
    loss, _ = fn(x)
    g, = torch.autograd.grad(loss, x, create_graph=True)
    (g.norm() - 1).square().backward()
    return [g.detach(), *(p.grad for p in model.parameters())]


def looked_at(model, fn, x):
    loss, scores = fn(x)
    scores.retain_grad()
    loss.backward()
    return [scores.grad, x.grad, *(p.grad for p in model.parameters())]


def with_tangents(model, fn, x):
    _, scores = fn(x)
    scores.backward(torch.rand(5, len(scores)).t())
    return [x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("way", [plain, again, looked_at, with_tangents])
def test_copied_plans_with_gradients(way):
    torch.manual_seed(0)
    model = Layers()
    compiled = kintsugi.compile(lambda x: model(x), name=f"copied {way.__name__}", dynamic=True)
    since = len(kintsugi.events())
    with kintsugi.config.patch(async_sizes=False):
        for k in range(40):
            use = way if k % 3 == 2 else plain   # what always goes back by torch's way runs step by step
            x, found = torch.rand(9 + k * 37 % 60, 16), []
            for fn in (compiled, model):
                torch.manual_seed(k)
                model.zero_grad()
                found.append([None if t is None else t.clone() for t in use(model, fn, x.clone().requires_grad_())])
            for ours, eager in zip(*found, strict=True):
                torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    assert [e["message"] for e in kintsugi.events()[since:] if e["event"] == "bug"] == []
    assert sum(v["copied"] and v["runs"] > 0 for v in versions(compiled)) > 15
