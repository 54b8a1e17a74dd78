"""Several losses of one graph, which need different parameters and are gone back from in different ways."""
import torch
import torch.nn.functional as F
from torch import nn

from .common import grads, mlp, program, state


@program
def actor_critic(wrap):
    """One trunk; the two losses are gone back from one after the other, each head has an optimizer."""
    trunk, actor, critic = mlp(8, 16, 16), nn.Linear(16, 4), nn.Linear(16, 1)
    model = nn.ModuleList([trunk, actor, critic])
    first, second = torch.optim.Adam([*trunk.parameters(), *actor.parameters()]), torch.optim.RMSprop(critic.parameters())

    @wrap
    def losses(x, y):
        h = trunk(x)
        value = critic(h).squeeze(-1)
        chosen = F.log_softmax(actor(h), -1).gather(1, y[:, None]).squeeze(1)
        return -(chosen * (x.mean(1) - value).detach()).mean(), F.mse_loss(value, x.mean(1))
    for i in range(6):
        first.zero_grad()
        second.zero_grad()
        policy, value = losses(torch.randn(12, 8), torch.randint(4, (12,)))
        policy.backward(retain_graph=True)
        value.backward()
        first.step()
        second.step()
        yield policy.detach(), value.detach(), grads(model), state(model)


@program
def two_towers(wrap):
    """Embeddings of users and of items; the items' are detached every other time."""
    users, items = nn.Sequential(nn.Embedding(20, 8), mlp(8, 16, 8)), nn.Sequential(nn.Embedding(30, 8), mlp(8, 16, 8))
    model = nn.ModuleList([users, items])
    opt = torch.optim.AdamW(model.parameters(), 1e-2)
    towers = wrap(lambda a, b: (users(a), items(b)))
    for i in range(6):
        opt.zero_grad()
        u, v = towers(torch.randint(20, (12,)), torch.randint(30, (12,)))
        loss = F.mse_loss(u @ (v.detach() if i % 2 else v).t(), torch.eye(12))
        loss.backward()
        opt.step()
        yield loss.detach(), grads(model), state(model)


@program
def exits(wrap):
    """A loss behind each block; one of them is trained at a time, or all."""
    blocks, heads = nn.ModuleList(mlp(8, 8, 8) for _ in range(4)), nn.ModuleList(nn.Linear(8, 4) for _ in range(4))
    model = nn.ModuleList([blocks, heads])
    opt = torch.optim.SGD(model.parameters(), 1e-1, momentum=0.9)

    @wrap
    def losses(x, y):
        found = []
        for block, head in zip(blocks, heads, strict=True):
            x = x + block(x)
            found.append(F.cross_entropy(head(x), y))
        return tuple(found)
    for i in range(8):
        opt.zero_grad()
        found = losses(torch.randn(12, 8), torch.randint(4, (12,)))
        loss = sum(found) if i % 3 == 0 else found[i * 7 % 4]
        loss.backward()
        opt.step()
        yield loss.detach(), grads(model), state(model)


@program
def gradient_surgery(wrap):
    """autograd.grad for each task; where they disagree, one gradient is projected."""
    trunk, heads = mlp(8, 16, 12), nn.ModuleList([nn.Linear(12, 4), nn.Linear(12, 1)])
    model = nn.ModuleList([trunk, heads])
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    @wrap
    def losses(x, y):
        h = trunk(x).relu()
        return F.cross_entropy(heads[0](h), y), F.mse_loss(heads[1](h).squeeze(1), x.sum(1))
    shared = list(trunk.parameters())
    for i in range(6):
        a, b = losses(torch.randn(12, 8), torch.randint(4, (12,)))
        one = torch.autograd.grad(a, [*shared, *heads[0].parameters()], retain_graph=True)
        other = torch.autograd.grad(b, [*shared, *heads[1].parameters()])
        n = len(shared)
        factor = (sum((p * q).sum() for p, q in zip(one[:n], other[:n], strict=True)) / sum((q * q).sum() for q in other[:n])).clamp(max=0)
        for p, u, v in zip(shared, one[:n], other[:n], strict=True):
            p.grad = u - factor * v + v
        for p, g in zip([*heads[0].parameters(), *heads[1].parameters()], [*one[n:], *other[n:]], strict=True):
            p.grad = g
        opt.step()
        yield a.detach(), b.detach(), grads(model), state(model)


@program
def late_hooks(wrap):
    """Hooks of weights and of a loss, set between forward and backward; one of them belongs to a part that nothing comes back to."""
    one, other = mlp(8, 12, 4), mlp(8, 12, 4)
    model = nn.ModuleList([one, other])
    opt = torch.optim.SGD(model.parameters(), 1e-1)
    losses = wrap(lambda x, y: (F.cross_entropy(one(x), y), F.cross_entropy(other(x), y)))
    for i in range(6):
        opt.zero_grad()
        a, b = losses(torch.randn(12, 8), torch.randint(4, (12,)))
        seen = []
        handles = [one[0].weight.register_hook(lambda g, seen=seen: (seen.append(g.clone()), g * 0.5)[1]),
                   other[2].weight.register_hook(lambda g, seen=seen: (seen.append(g.clone()), g * 3)[1]), b.register_hook(lambda g: g * 2)]
        (a if i % 2 else b).backward()
        for handle in handles:
            handle.remove()
        opt.step()
        yield seen, grads(model), state(model)
