"""Training loops with hooks, other precisions and uncommon optimizers."""
import contextlib

import torch
import torch.nn.functional as F
from loops.common import grads, mlp, program, state
from torch import nn


@program
def accumulation_no_sync(wrap):
    class Wrapper(nn.Module):
        """Like DistributedDataParallel: hooks on parameters when gradients are ready."""
        def __init__(self, module):
            super().__init__()
            self.module, self.sync, self.log = module, True, []
            for name, p in module.named_parameters():
                p.register_post_accumulate_grad_hook(self.hook(name))

        def hook(self, name):
            def ready(p):
                if self.sync:
                    self.log.append(name)
                    p.grad.div_(2)
            return ready

        @contextlib.contextmanager
        def no_sync(self):
            self.sync = False
            try:
                yield
            finally:
                self.sync = True

        def forward(self, *args):
            return self.module(*args)
    model = Wrapper(mlp(8, 16, 16, 3))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run = wrap(lambda x, y: F.cross_entropy(model(x), y))
    for i in range(6):
        with model.no_sync():
            run(torch.randn(6, 8), torch.randint(3, (6,))).backward()
        loss = run(torch.randn(6, 8), torch.randint(3, (6,)))
        loss.backward()
        g = grads(model)
        opt.step()
        opt.zero_grad()
        yield loss.detach(), g, state(model), list(model.log)


@program
def hooks_of_modules(wrap):
    log = []
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 2))
    for i, m in enumerate(model):
        m.register_full_backward_hook(lambda m, gi, go, i=i: log.append(("back", i, len(gi), None if gi[0] is None else float(gi[0].sum()))))
        m.register_full_backward_pre_hook(lambda m, go, i=i: log.append(("pre", i, float(go[0].sum()))))
        m.register_forward_hook(lambda m, a, o, i=i: log.append(("fwd", i)))
    for n, p in model.named_parameters():
        p.register_hook(lambda g, n=n: log.append(("grad", n, float(g.sum()))))
        p.register_post_accumulate_grad_hook(lambda p, n=n: log.append(("acc", n, float(p.grad.sum()))))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    opt.register_step_pre_hook(lambda *a: log.append("step pre"))
    opt.register_step_post_hook(lambda *a: log.append("step post"))
    run = wrap(lambda x: model(x).square().sum())
    for i in range(5):
        opt.zero_grad()
        loss = run(torch.randn(3, 6))
        loss.backward()
        opt.step()
        yield loss.detach(), list(log), grads(model)
        log.clear()


@program
def hooks_inside(wrap):
    log = []
    model = mlp(6, 8, 8, 2)

    @wrap
    def step(x):
        h = model[0](x)
        h.register_hook(lambda g: log.append(("h", float(g.sum()))))
        h2 = model[2](model[1](h))
        h2.register_hook(lambda g: g * 0.5)
        handle = model[4].register_full_backward_hook(lambda m, gi, go: log.append(("mod", float(go[0].sum()))))
        loss = model[4](h2.relu()).square().sum()
        loss.backward()
        handle.remove()
        return loss.detach()
    for i in range(5):
        model.zero_grad()
        yield step(torch.randn(3, 6)), list(log), grads(model)
        log.clear()


@program
def hooks_order_of_parameters(wrap):
    log = []
    model = nn.ModuleDict({"a": nn.Linear(6, 6), "b": nn.Linear(6, 6), "c": nn.Linear(6, 3)})
    for n, p in model.named_parameters():
        p.register_hook(lambda g, n=n: log.append(n))
        p.register_post_accumulate_grad_hook(lambda p, n=n: log.append("acc " + n))
    run = wrap(lambda x: (model["c"](model["a"](x).relu() * model["b"](x)) + model["a"](x)[:, :3]).sum())
    for i in range(5):
        model.zero_grad()
        loss = run(torch.randn(2, 6))
        loss.backward()
        yield loss.detach(), list(log), grads(model)
        log.clear()


@program
def hooks_later(wrap):
    log = []
    model, other = mlp(6, 8, 8), mlp(6, 8)
    run = wrap(lambda x: (model(x), other(x).relu() * 2, x.sum()))
    for i in range(5):
        model.zero_grad()
        other.zero_grad()
        a, b, _ = run(torch.randn(2, 6))
        a.register_hook(lambda g: log.append(("a", float(g.sum()))))
        b.register_hook(lambda g: g * 3)
        b.retain_grad()
        (a.sum() * (i + 1) + b.square().sum()).backward()
        yield a.detach(), b.detach(), list(log), grads(model), grads(other), b.grad.clone()
        log.clear()


@program
def optimizer_in_backward(wrap):
    model = mlp(6, 12, 3)
    opts = {p: torch.optim.Adam([p], lr=1e-2, foreach=False) for p in model.parameters()}

    def hook(p):
        opts[p].step()
        opts[p].zero_grad()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    run = wrap(lambda x, y: F.cross_entropy(model(x), y))
    for i in range(6):
        loss = run(torch.randn(4, 6), torch.randint(3, (4,)))
        loss.backward()
        yield loss.detach(), state(model), grads(model)


@program
def saved_hooks_and_anomaly(wrap):
    model = mlp(4, 8, 2)
    run = wrap(lambda x: model(x).square().sum())
    for i in range(6):
        model.zero_grad()
        x = torch.randn(3, 4)
        if i % 3 == 1:
            with torch.autograd.graph.save_on_cpu():
                loss = run(x)
        elif i % 3 == 2:
            with torch.autograd.detect_anomaly(check_nan=True):
                loss = run(x)
        else:
            loss = run(x)
        loss.backward()
        yield loss.detach(), grads(model)


@program
def amp_bf16(wrap):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @wrap
    def step(x, y):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(6):
        yield step(torch.randn(4, 3, 6, 6), torch.randint(5, (4,))), "coarse", grads(model)


@program
def amp_scaler(wrap):
    model = mlp(8, 16, 4)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024., growth_interval=2)

    @wrap
    def step(x, y):
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.detach()
    for i in range(6):
        x = torch.randn(4, 8)
        if i == 3:
            x[0, 0] = float("inf")
        yield step(x, torch.randn(4, 4)), "coarse", scaler.get_scale(), state(model)


@program
def bf16_weights(wrap):
    model = mlp(8, 16, 4).bfloat16()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)

    @wrap
    def step(x, y):
        opt.zero_grad()
        loss = F.mse_loss(model(x).float(), y)
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(6):
        yield step(torch.randn(4, 8).bfloat16(), torch.randn(4, 4)), "coarse", grads(model)


@program
def double_weights(wrap):
    model = mlp(8, 16, 4).double()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2, amsgrad=True)

    @wrap
    def step(x, y):
        opt.zero_grad()
        loss = F.huber_loss(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(6):
        yield step(torch.randn(4, 8).double(), torch.randn(4, 4).double()), grads(model), state(model)


@program
def lbfgs(wrap):
    model = mlp(4, 8, 1, act=nn.Tanh)
    opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    run = wrap(lambda: F.mse_loss(model(x), y))

    def closure():
        opt.zero_grad()
        loss = run()
        loss.backward()
        return loss
    for i in range(3):
        yield opt.step(closure).detach(),


@program
def lbfgs_compiled(wrap):
    model = mlp(4, 8, 1, act=nn.Tanh)
    opt = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    @wrap
    def step(x, y):
        def closure():
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss
        return opt.step(closure).detach()
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    for i in range(3):
        yield step(x, y),


@program
def muon(wrap):
    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 4, bias=False))
    opt = torch.optim.Muon(model.parameters(), lr=1e-2)

    @wrap
    def step(x, y):
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(5):
        yield step(torch.randn(4, 8), torch.randn(4, 4)), "coarse", grads(model)


@program
def sparse_adam(wrap):
    emb, head = nn.Embedding(20, 8, sparse=True), nn.Linear(8, 20)
    o1, o2 = torch.optim.SparseAdam(emb.parameters(), lr=1e-2), torch.optim.Adam(head.parameters(), lr=1e-2)

    @wrap
    def step(i, y):
        o1.zero_grad()
        o2.zero_grad()
        loss = F.cross_entropy(head(emb(i)).flatten(0, 1), y.flatten())
        loss.backward()
        o1.step()
        o2.step()
        return loss.detach()
    for i in range(5):
        yield step(torch.randint(20, (3, 5)), torch.randint(20, (3, 5))), emb.weight.grad.to_dense(), state(emb), state(head)
