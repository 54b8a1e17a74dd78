"""Training recipes: each with the model alone compiled, and again with the whole step."""
import copy

import torch
import torch.nn.functional as F
from loops.common import grads, mlp, program, state
from torch import nn
from torch.nn.utils import parametrizations


def both(fn):
    """fn(model, step): two wrappers, of which one compiles."""
    def compile_model(wrap):
        return fn(wrap, lambda f: f)

    def compile_step(wrap):
        return fn(lambda f: f, wrap)
    for made, what in ((compile_model, "model"), (compile_step, "step")):
        made.__name__ = f"{fn.__name__}_{what}"
        program(made)
    return fn


@both
def spectral_gan(wrap_model, wrap_step):
    norm = parametrizations.spectral_norm
    maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
    critic = nn.Sequential(norm(nn.Linear(6, 16)), nn.LeakyReLU(0.2), norm(nn.Linear(16, 1)))
    of_maker, of_critic = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 2e-3)
    make, judge = wrap_model(maker), wrap_model(critic)

    @wrap_step
    def step(real):
        of_critic.zero_grad()
        fake = make(torch.randn(real.shape[0], 4))
        loss = F.relu(1 - judge(real)).mean() + F.relu(1 + judge(fake.detach())).mean()
        loss.backward()
        of_critic.step()
        of_maker.zero_grad()
        other = -judge(fake).mean()
        other.backward()
        of_maker.step()
        return loss.detach(), other.detach()
    for _ in range(6):
        yield step(torch.randn(5, 6)), state(maker), state(critic)


@both
def queue_of_keys(wrap_model, wrap_step):
    class Contrast(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = mlp(6, 8, 4)
            self.key = copy.deepcopy(self.query).requires_grad_(False)
            self.register_buffer("queue", F.normalize(torch.randn(4, 12), dim=0))
            self.register_buffer("place", torch.zeros(1, dtype=torch.long))

        @torch.no_grad()
        def put(self, keys):
            at = int(self.place)
            self.queue[:, at:at + keys.shape[0]] = keys.T
            self.place[0] = (at + keys.shape[0]) % 12

        def forward(self, a, b):
            query = F.normalize(self.query(a), dim=1)
            with torch.no_grad():
                for p, q in zip(self.key.parameters(), self.query.parameters()):
                    p.data = p.data * 0.9 + q.data * 0.1
                keys = F.normalize(self.key(b), dim=1)
            scores = torch.cat([(query * keys).sum(1, keepdim=True), query @ self.queue.clone().detach()], 1)
            self.put(keys)
            return scores / 0.2
    model = Contrast()
    opt = torch.optim.SGD(model.query.parameters(), 0.1, momentum=0.9)
    run = wrap_model(model)

    @wrap_step
    def step(a, b):
        loss = F.cross_entropy(run(a, b), torch.zeros(a.shape[0], dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    for _ in range(7):
        yield step(torch.randn(4, 6), torch.randn(4, 6)), state(model)


@both
def sharpness_aware(wrap_model, wrap_step):
    model = mlp(4, 10, 3)
    run, opt = wrap_model(model), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    @wrap_step
    def step(x, y):
        F.cross_entropy(run(x), y).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moves = [p.grad * 0.05 / (norm + 1e-12) for p in model.parameters()]
            for p, e in zip(model.parameters(), moves):
                p.add_(e)
        opt.zero_grad()
        loss = F.cross_entropy(run(x), y)
        loss.backward()
        with torch.no_grad():
            for p, e in zip(model.parameters(), moves):
                p.sub_(e)
        opt.step()
        opt.zero_grad()
        return loss.detach()
    for _ in range(6):
        yield step(torch.randn(5, 4), torch.randint(3, (5,))), state(model)


@both
def learned_rate(wrap_model, wrap_step):
    """The rate of the inner steps learns by going back through them."""
    rate, model = torch.tensor(0.1, requires_grad=True), nn.Linear(3, 1)
    opt = torch.optim.SGD([rate], 0.01)
    run = wrap_model(lambda weights, x: F.linear(x, *weights).tanh())

    @wrap_step
    def step(x, y):
        weights = [p.detach().requires_grad_() for p in model.parameters()]
        for _ in range(2):
            inner = torch.autograd.grad(F.mse_loss(run(weights, x), y), weights, create_graph=True)
            weights = [w - rate * g for w, g in zip(weights, inner)]
        loss = F.mse_loss(run(weights, x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, w in zip(model.parameters(), weights):
                p.copy_(w)
        return loss.detach()
    for _ in range(6):
        yield step(torch.randn(5, 3), torch.randn(5, 1)), rate.detach().clone(), rate.grad.clone(), state(model)


@both
def groups_that_come_later(wrap_model, wrap_step):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).tanh()
            return x
    model = Net()
    opt = torch.optim.SGD(model.layers[2].parameters(), 0.1, momentum=0.9)
    run, cycle = wrap_model(model), torch.optim.lr_scheduler.OneCycleLR(opt, 0.2, total_steps=20)

    @wrap_step
    def step(x):
        opt.zero_grad()
        loss = (run(x) - 1).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(8):
        if i == 4:
            opt.add_param_group({"params": model.layers[1].parameters(), "lr": 0.01})
        loss = step(torch.randn(4, 4))
        if i < 4:
            cycle.step()
        yield loss, [(g["lr"], g["momentum"]) for g in opt.param_groups], grads(model), state(model)


@both
def hard_negatives(wrap_model, wrap_step):
    """Indexing by masks, and how many are taken depends on the labels."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 6, 1))
    run, opt = wrap_model(model), torch.optim.AdamW(model.parameters(), 1e-3)

    @wrap_step
    def step(x, label, box):
        out = run(x).permute(0, 2, 3, 1).flatten(1, 2)
        hit = label > 0
        n = hit.sum().clamp(min=1)
        losses = F.cross_entropy(out[..., :2].flatten(0, 1), label.flatten(), reduction="none")
        rest = losses.detach().clone()
        rest[hit.flatten()] = 0
        top = rest.topk(min(int(n) * 3, rest.numel())).indices
        loss = (losses[hit.flatten()].sum() + losses[top].sum() + F.smooth_l1_loss(out[..., 2:][hit], box[hit], reduction="sum")) / n
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    for _ in range(6):
        yield step(torch.randn(2, 3, 4, 4), (torch.rand(2, 16) > 0.7).long(), torch.randn(2, 16, 4)), state(model)


@both
def implicit_layer(wrap_model, wrap_step):
    """The gradient of a fixed point, solved in a hook that asks for gradients itself."""
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(5, 5), nn.Linear(3, 5)
            nn.init.normal_(self.inner.weight, std=0.1)

        def cell(self, z, x):
            return torch.tanh(self.inner(z) + self.outer(x))

        def forward(self, x):
            with torch.no_grad():
                z = torch.zeros(x.shape[0], 5)
                for _ in range(8):
                    z = self.cell(z, x)
            z = self.cell(z, x)
            start = z.clone().detach().requires_grad_()
            once = self.cell(start, x)

            def solve(g):
                y = g
                for _ in range(6):
                    y = torch.autograd.grad(once, start, y, retain_graph=True)[0] + g
                return y
            if z.requires_grad:
                z.register_hook(solve)
            return z
    model = Layer()
    run, opt = wrap_model(model), torch.optim.SGD(model.parameters(), 0.1)

    @wrap_step
    def step(x):
        loss = (run(x) - 0.2).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    for _ in range(5):
        yield step(torch.randn(4, 3)), state(model)
