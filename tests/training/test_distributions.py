"""Training programs over torch.distributions: no graph ends at what their constructors ask of parameters."""
import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F
from launches import kintsugi
from torch import nn


def variational(model, x):
    mean, log_variance = model(x).chunk(2, -1)
    q = D.Normal(mean, torch.exp(0.5 * log_variance))
    z = q.rsample()
    return D.kl_divergence(q, D.Normal(0.0, 1.0)).sum(-1).mean() - D.Bernoulli(logits=F.pad(z, (0, 4))).log_prob(x.round()).sum(-1).mean()


def policy(model, x):
    d = D.Categorical(logits=model(x))
    action = d.sample()
    return -(d.log_prob(action) * x.sum(-1)).mean() - 0.01 * d.entropy().mean()


@pytest.mark.parametrize("objective", [variational, policy])
def test_one_graph(objective):
    losses = []
    for compile in (lambda f: f, lambda f: kintsugi.compile(f, fullgraph=True)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        loss_of = compile(lambda x, model=model: objective(model, x))
        losses.append([])
        for _ in range(8):
            loss = loss_of(torch.rand(6, 8))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.detach())
    torch.testing.assert_close(torch.stack(losses[0]), torch.stack(losses[1]), rtol=1e-4, atol=1e-5)


def test_who_asks_for_validation_gets_it():
    compiled = kintsugi.compile(lambda x: D.Normal(x, -x.exp(), validate_args=True).mean)
    for _ in range(3):
        with pytest.raises(ValueError, match="satisfy the constraint"):
            compiled(torch.ones(3))
