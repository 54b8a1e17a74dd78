"""Training loops that ask for gradients themselves, that learn by trial, or stop and go on."""
import copy

import torch
import torch.nn.functional as F
from loops.common import grads, mlp, program, state
from torch import nn


@program
def maml(wrap):
    model = mlp(1, 20, 20, 1, act=nn.Tanh)
    params = dict(model.named_parameters())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss_of(p, x, y):
        return F.mse_loss(torch.func.functional_call(model, p, (x,)), y)

    def adapted(p, xs, ys, xq, yq):
        g = torch.func.grad(loss_of)(p, xs, ys)
        return loss_of({k: p[k] - 0.05 * g[k] for k in p}, xq, yq)

    @wrap
    def meta(xs, ys, xq, yq):
        return torch.func.vmap(lambda *a: adapted(params, *a))(xs, ys, xq, yq).mean()
    for i in range(6):
        opt.zero_grad()
        loss = meta(*[torch.randn(3, 5, 1) for _ in range(4)])
        loss.backward()
        opt.step()
        yield loss.detach(), grads(model), state(model)


@program
def maml_autograd(wrap):
    w1, w2 = torch.randn(4, 8, requires_grad=True), torch.randn(8, 1, requires_grad=True)
    opt = torch.optim.Adam([w1, w2], lr=1e-2)

    @wrap
    def meta(x, y):
        inner = F.mse_loss(torch.tanh(x @ w1) @ w2, y)
        g1, g2 = torch.autograd.grad(inner, (w1, w2), create_graph=True)
        outer = F.mse_loss(torch.tanh(x @ (w1 - 0.1 * g1)) @ (w2 - 0.1 * g2), y)
        return outer
    for i in range(6):
        opt.zero_grad()
        loss = meta(torch.randn(6, 4), torch.randn(6, 1))
        loss.backward()
        opt.step()
        yield loss.detach(), w1.grad.clone(), w2.grad.clone()


@program
def wgan_gp(wrap):
    critic, gen = mlp(4, 16, 1, act=lambda: nn.LeakyReLU(0.2)), mlp(3, 16, 4)
    oc = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    og = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.9))

    @wrap
    def critic_step(real):
        fake = gen(torch.randn(real.size(0), 3)).detach()
        eps = torch.rand(real.size(0), 1)
        mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
        g, = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
        loss = critic(fake).mean() - critic(real).mean() + 10 * (g.norm(2, dim=1) - 1).pow(2).mean()
        oc.zero_grad()
        loss.backward()
        oc.step()
        return loss.detach()

    @wrap
    def gen_step(n: int):
        loss = -critic(gen(torch.randn(n, 3))).mean()
        og.zero_grad()
        loss.backward()
        og.step()
        return loss.item()
    for i in range(6):
        yield critic_step(torch.randn(8, 4)), gen_step(8), state(critic), state(gen), grads(critic)


@program
def backward_inputs(wrap):
    model = mlp(4, 8, 2)
    extra = torch.randn(4, requires_grad=True)

    @wrap
    def step(x):
        loss = model(x * extra).square().sum()
        loss.backward(inputs=[model[0].weight, extra])
        return loss.detach()
    for i in range(5):
        yield step(torch.randn(3, 4)), grads(model), extra.grad.clone()


@program
def autograd_grad_outside(wrap):
    model = mlp(3, 16, 1, act=nn.Tanh)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    net = wrap(model)
    for i in range(5):
        x = torch.randn(5, 3, requires_grad=True)
        u = net(x)
        du, = torch.autograd.grad(u.sum(), x, create_graph=True)
        d2 = sum(torch.autograd.grad(du[:, k].sum(), x, create_graph=True)[0][:, k] for k in range(3))
        loss = (d2 + u.squeeze(-1)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield loss.detach(), grads(model), state(model)


@program
def pinn_inside(wrap):
    model = mlp(2, 16, 1, act=nn.Tanh)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)

    @wrap
    def step(x):
        x = x.requires_grad_()
        u = model(x)
        du, = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
        loss = (du[:, 0] - du[:, 1] ** 2).square().mean() + u.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(5):
        yield step(torch.randn(6, 2)), grads(model), state(model)


@program
def reinforce(wrap):
    policy = mlp(4, 16, 3)
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)

    @wrap
    def act(s):
        dist = torch.distributions.Categorical(logits=policy(s))
        a = dist.sample()
        return a, dist.log_prob(a), dist.entropy()
    for i in range(5):
        logs, ents, rewards = [], [], []
        for t in range(4):
            a, lp, e = act(torch.randn(2, 4))
            logs.append(lp)
            ents.append(e)
            rewards.append((a == 1).float())
        loss = -(torch.stack(logs) * torch.stack(rewards)).sum() - 0.01 * torch.stack(ents).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield loss.detach(), grads(policy), state(policy)


@program
def ppo(wrap):
    actor, critic = mlp(4, 16, 2, act=nn.Tanh), mlp(4, 16, 1, act=nn.Tanh)
    log_std = nn.Parameter(torch.zeros(2))
    opt = torch.optim.Adam([*actor.parameters(), *critic.parameters(), log_std], lr=1e-3, eps=1e-5)

    @wrap
    def update(s, a, old, adv, ret):
        dist = torch.distributions.Normal(actor(s), log_std.exp())
        lp = dist.log_prob(a).sum(-1)
        ratio = (lp - old).exp()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pl = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        vl = F.mse_loss(critic(s).squeeze(-1), ret)
        loss = pl + 0.5 * vl - 0.01 * dist.entropy().sum(-1).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
        opt.step()
        return loss.detach(), pl.detach()
    for i in range(6):
        yield update(torch.randn(8, 4), torch.randn(8, 2), torch.randn(8) - 2, torch.randn(8), torch.randn(8)), grads(actor), log_std.grad.clone()


@program
def resume(wrap):
    model = mlp(5, 8, 2)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)

    @wrap
    def step(x, y):
        opt.zero_grad()
        loss = F.l1_loss(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(8):
        if i == 4:
            saved = copy.deepcopy((model.state_dict(), opt.state_dict()))
            step(torch.ones(3, 5), torch.ones(3, 2))
            model.load_state_dict(saved[0])
            opt.load_state_dict(saved[1])
        yield step(torch.randn(3, 5), torch.randn(3, 2)), grads(model), state(model), [float(s["step"]) for s in opt.state.values()]


@program
def hvp_and_jacobian(wrap):
    w = torch.randn(4, 4, requires_grad=True)

    @wrap
    def both(x, v):
        f = lambda p: torch.tanh(x @ p).square().sum()
        g, hv = torch.func.jvp(torch.func.grad(f), (w,), (v,))
        j = torch.func.jacrev(lambda a: torch.tanh(a @ w))(x)
        return g, hv, j.square().sum()
    for i in range(5):
        w.grad = None
        g, hv, j = both(torch.randn(4), torch.randn(4, 4))
        (hv.sum() + j).backward()
        yield g.detach(), hv.detach(), j.detach(), w.grad.clone()


@program
def per_sample_gradients(wrap):
    model = mlp(4, 8, 3)
    params = {k: v.detach() for k, v in model.named_parameters()}

    @wrap
    def per_sample(p, x, y):
        def one(p, x, y):
            return F.cross_entropy(torch.func.functional_call(model, p, (x[None],)), y[None])
        return torch.func.vmap(torch.func.grad_and_value(one), (None, 0, 0))(p, x, y)
    for i in range(5):
        g, l = per_sample(params, torch.randn(6, 4), torch.randint(3, (6,)))
        norms = torch.stack([v.flatten(1).norm(dim=1) for v in g.values()]).norm(dim=0)
        params = {k: params[k] - 0.1 * (v / norms.view(-1, *[1] * (v.ndim - 1))).sum(0) for k, v in g.items()}
        yield l.mean(), norms, list(params.values())


@program
def lightning_style(wrap):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.logged = mlp(6, 12, 3), {}

        def log(self, k, v):
            self.logged.setdefault(k, []).append(v.detach())

        def training_step(self, batch, idx):
            x, y = batch
            logits = self.net(x)
            loss = F.cross_entropy(logits, y)
            self.log("loss", loss)
            self.log("acc", (logits.argmax(-1) == y).float().mean())
            return {"loss": loss, "idx": idx}
    module = Module()
    opt = torch.optim.Adadelta(module.parameters(), lr=1.0)
    training_step = wrap(module.training_step)
    for i in range(6):
        out = {}

        def closure():
            opt.zero_grad()
            out.update(training_step((torch.randn(5, 6), torch.randint(3, (5,))), i))
            out["loss"].backward()
            return out["loss"]
        opt.step(closure)
        yield out["loss"].detach(), out["idx"], [torch.stack(v) for v in module.logged.values()], state(module)


@program
def fgsm(wrap):
    model = mlp(6, 16, 3)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    @wrap
    def step(x, y):
        adv = x.detach().clone().requires_grad_(True)
        g, = torch.autograd.grad(F.cross_entropy(model(adv), y), adv)
        adv = (x + 0.1 * g.sign()).detach()
        opt.zero_grad()
        loss = F.cross_entropy(model(adv), y)
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(6):
        yield step(torch.randn(5, 6), torch.randint(3, (5,))), grads(model), state(model)


@program
def early_exit_break(wrap):
    model = mlp(6, 12, 12, 1)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    log = []

    @wrap
    def step(x, i):
        h = model[1](model[0](x))
        if h.mean().item() > 0.3:
            log.append("big")
            h = h * 0.5
        print(end="")
        loss = model[4](model[3](model[2](h))).square().mean()
        opt.zero_grad()
        loss.backward()
        if i % 3 == 2:
            for g in opt.param_groups:
                g["lr"] *= 0.5
        opt.step()
        return loss.detach()
    for i in range(9):
        yield step(torch.randn(4, 6), i), list(log), grads(model), state(model)
