"""Training loops as people write them, by model."""
import copy

import torch
import torch.nn.functional as F
from loops.common import grads, mlp, program, state
from torch import nn
from torch.utils.checkpoint import checkpoint


@program
def lora(wrap):
    class LoRA(nn.Module):
        def __init__(self, base, rank=4, alpha=8):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.02)
            self.b = nn.Parameter(torch.randn(base.out_features, rank) * 0.02)
            self.scale = alpha / rank
            self.drop = nn.Dropout(0.1)

        def forward(self, x):
            return self.base(x) + self.drop(x) @ self.a.t() @ self.b.t() * self.scale
    model = nn.Sequential(LoRA(nn.Linear(16, 32)), nn.GELU(), LoRA(nn.Linear(32, 4)))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)

    @wrap
    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(8):
        yield step(torch.randn(8, 16), torch.randint(4, (8,))), grads(model), state(model)


@program
def ema_teacher(wrap):
    student = mlp(8, 32, 4)
    teacher = copy.deepcopy(student).requires_grad_(False)
    opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)

    @wrap
    def step(x):
        with torch.no_grad():
            target = teacher(x + 0.1 * torch.randn_like(x)).softmax(-1)
        loss = F.kl_div(student(x).log_softmax(-1), target, reduction="batchmean")
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(teacher.parameters(), student.parameters()):
                p.lerp_(q, 0.1)
        return loss.detach()
    with torch.no_grad():
        for p in teacher.parameters():
            p.add_(0.3 * torch.randn_like(p))
    for i in range(8):
        yield step(torch.randn(8, 8)), grads(student), state(student), state(teacher)


@program
def averaged_model(wrap):
    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.05, total_steps=20)
    crit = wrap(lambda x, y: F.mse_loss(model(x), y))
    for i in range(8):
        opt.zero_grad()
        loss = crit(torch.randn(8, 8), torch.randn(8, 2))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        sched.step()
        ema.update_parameters(model)
        yield loss.detach(), grads(model), state(model), state(ema), sched.get_last_lr()


@program
def weight_norms(wrap):
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 16)), nn.Tanh(),
                          nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)), nn.ReLU(),
                          nn.utils.weight_norm(nn.Linear(16, 2)))
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5)

    @wrap
    def loss_of(x):
        return model(x).pow(2).mean()
    for i in range(8):
        opt.zero_grad()
        loss = loss_of(torch.randn(8, 8))
        loss.backward()
        opt.step()
        yield loss.detach(), grads(model), state(model)


@program
def parametrize_symmetric(wrap):
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).transpose(-1, -2)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    nn.utils.parametrize.register_parametrization(model[0], "weight", Symmetric())
    nn.utils.parametrizations.orthogonal(model[2])
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)

    @wrap
    def step(x):
        with nn.utils.parametrize.cached():
            loss = (model(x) - model(-x) + 1).square().sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(6):
        yield step(torch.randn(4, 6)), grads(model), state(model)


@program
def checkpointed(wrap):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2, self.drop, self.norm = nn.Linear(16, 32), nn.Linear(32, 16), nn.Dropout(0.2), nn.LayerNorm(16)

        def forward(self, x):
            return x + self.drop(self.l2(F.gelu(self.l1(self.norm(x)))))
    blocks = nn.ModuleList([Block() for _ in range(3)])
    opt = torch.optim.AdamW(blocks.parameters(), lr=1e-2)

    @wrap
    def loss_of(x, reentrant: bool):
        for b in blocks:
            x = checkpoint(b, x, use_reentrant=reentrant)
        return x.square().mean()
    for i in range(8):
        opt.zero_grad()
        loss = loss_of(torch.randn(4, 16, requires_grad=True), i % 2 == 0)
        loss.backward()
        opt.step()
        yield loss.detach(), grads(blocks), state(blocks)


@program
def checkpointed_step(wrap):
    model = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.SiLU()) for _ in range(2)])
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    @wrap
    def step(x):
        h = x
        for m in model:
            h = checkpoint(m, h, use_reentrant=False)
        loss = h.pow(2).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()
    for i in range(6):
        yield step(torch.randn(4, 8)), state(model)


@program
def seq2seq_attention(wrap):
    emb, enc, dec = nn.Embedding(20, 16), nn.GRU(16, 16, batch_first=True), nn.GRUCell(32, 16)
    out = nn.Linear(16, 20)
    model = nn.ModuleList([emb, enc, dec, out])
    opt = torch.optim.NAdam(model.parameters(), lr=5e-3)

    @wrap
    def loss_of(src, tgt):
        mem, h = enc(emb(src))
        h = h[0]
        loss = 0.0
        for t in range(tgt.size(1) - 1):
            w = torch.softmax((mem @ h.unsqueeze(-1)).squeeze(-1), -1)
            ctx = (w.unsqueeze(-1) * mem).sum(1)
            h = dec(torch.cat([emb(tgt[:, t]), ctx], -1), h)
            loss = loss + F.cross_entropy(out(h), tgt[:, t + 1])
        return loss / (tgt.size(1) - 1)
    for i in range(5):
        opt.zero_grad()
        loss = loss_of(torch.randint(20, (3, 6)), torch.randint(20, (3, 5)))
        loss.backward()
        opt.step()
        yield loss.detach(), grads(model), state(model)


@program
def tied_lm(wrap):
    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(30, 16)
            layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 30, bias=False)
            self.head.weight = self.emb.weight

        def forward(self, ids, labels=None):
            mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
            logits = self.head(self.body(self.emb(ids), mask=mask, is_causal=True))
            return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    model = LM()
    net = wrap(model)
    opt = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
                             {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}], lr=3e-3, eps=1e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 4))
    for i in range(6):
        loss = net(torch.randint(30, (2, 7)))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        g = grads(model)
        opt.zero_grad()
        yield loss.detach(), norm, g, state(model)


@program
def diffusion(wrap):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
            self.a, self.b, self.c = nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 2)

        def forward(self, x, t):
            f = torch.exp(-torch.arange(4) * 0.5)
            e = t[:, None].float() * f
            e = self.t(torch.cat([e.sin(), e.cos()], -1))
            h = F.silu(self.a(x)) + e
            return self.c(F.silu(self.b(h)) + h)
    model = Net()
    opt = torch.optim.RAdam(model.parameters(), lr=1e-2)
    beta = torch.linspace(1e-3, 0.1, 10)
    alpha = (1 - beta).cumprod(0)

    @wrap
    def step(x):
        t = torch.randint(0, 10, (x.size(0),))
        noise = torch.randn_like(x)
        a = alpha[t][:, None]
        loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()
    for i in range(8):
        yield step(torch.randn(16, 2)), grads(model), state(model)


@program
def multitask(wrap):
    trunk, heads = mlp(6, 16, 16), nn.ModuleList([nn.Linear(16, 1) for _ in range(3)])
    logvar = nn.Parameter(torch.zeros(3))
    params = [*trunk.parameters(), *heads.parameters(), logvar]
    opt = torch.optim.Adamax(params, lr=1e-2)

    @wrap
    def losses(x, y):
        h = trunk(x).relu()
        return [F.mse_loss(head(h).squeeze(-1), y[:, i]) for i, head in enumerate(heads)]
    for i in range(6):
        opt.zero_grad()
        ls = losses(torch.randn(8, 6), torch.randn(8, 3))
        gs = [torch.autograd.grad(l, trunk[0].weight, retain_graph=True)[0].norm() for l in ls]
        total = sum(l * (-v).exp() + v for l, v in zip(ls, logvar))
        total.backward()
        opt.step()
        yield total.detach(), gs, grads(trunk), logvar.grad.clone()


@program
def freeze_and_unfreeze(wrap):
    model = mlp(6, 12, 12, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run = wrap(lambda x: model(x).square().mean())
    for i in range(9):
        model[0].requires_grad_(i % 3 != 0)
        model.train(i % 2 == 0)
        opt.zero_grad()
        loss = run(torch.randn(4, 6))
        loss.backward()
        opt.step()
        yield loss.detach(), grads(model), state(model)


@program
def evaluation_between(wrap):
    model = nn.Sequential(nn.Conv1d(2, 8, 3, bias=False), nn.BatchNorm1d(8), nn.ELU(), nn.Dropout1d(0.2), nn.Flatten(), nn.Linear(8 * 6, 3))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-3)
    net = wrap(model)
    for i in range(8):
        model.train()
        loss = F.cross_entropy(net(torch.randn(4, 2, 8)), torch.randint(3, (4,)), label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.eval()
        with torch.no_grad():
            out = net(torch.randn(4, 2, 8))
        with torch.inference_mode():
            inf = net(torch.randn(2, 2, 8)).clone()
        yield loss.detach(), out, float(inf.sum()), grads(model), state(model)


@program
def mixture_of_experts(wrap):
    gate, experts = nn.Linear(8, 4), nn.ModuleList([mlp(8, 16, 8) for _ in range(4)])
    model = nn.ModuleList([gate, experts])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)

    @wrap
    def loss_of(x):
        p = gate(x).softmax(-1)
        w, idx = p.topk(2, dim=-1)
        w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e, expert in enumerate(experts):
            rows, slot = torch.where(idx == e)
            out.index_add_(0, rows, expert(x[rows]) * w[rows, slot, None])
        aux = (p.mean(0) * F.one_hot(idx[:, 0], 4).float().mean(0)).sum() * 4
        return F.mse_loss(out, x.flip(-1)) + 0.01 * aux
    for i in range(6):
        opt.zero_grad(set_to_none=False)
        loss = loss_of(torch.randn(10, 8))
        loss.backward()
        opt.step()
        yield loss.detach(), grads(model), state(model)


@program
def siamese_triplet(wrap):
    net = nn.Sequential(nn.Linear(6, 16), nn.PReLU(), nn.Linear(16, 4))
    opt = torch.optim.ASGD(net.parameters(), lr=1e-2)
    crit = nn.TripletMarginLoss(margin=1.0)

    @wrap
    def step(a, p, n):
        opt.zero_grad()
        loss = crit(net(a), net(p), net(n))
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(6):
        a = torch.randn(5, 6)
        yield step(a, a + 0.1 * torch.randn(5, 6), torch.randn(5, 6)), grads(net), state(net)


@program
def ctc_ocr(wrap):
    rnn, head = nn.LSTM(6, 8, bidirectional=True), nn.Linear(16, 5)
    model = nn.ModuleList([rnn, head])
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)

    @wrap
    def loss_of(x, y, n):
        return F.ctc_loss(head(rnn(x)[0]).log_softmax(-1), y, torch.full((3,), x.size(0)), n, zero_infinity=True)
    for i in range(5):
        opt.zero_grad()
        loss = loss_of(torch.randn(9, 3, 6), torch.randint(1, 5, (3, 4)), torch.tensor([4, 2, 3]))
        loss.backward()
        opt.step()
        yield loss.detach(), grads(model), state(model)


@program
def graph_network(wrap):
    w1, w2 = nn.Linear(5, 8), nn.Linear(8, 3)
    model = nn.ModuleList([w1, w2])
    opt = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    edge = torch.randint(10, (2, 30))

    def conv(x, lin):
        src, dst = edge
        deg = torch.zeros(10).scatter_add(0, dst, torch.ones(30)).clamp(min=1)
        h = lin(x)
        return torch.zeros(10, h.size(1)).index_add(0, dst, h[src]) / deg[:, None]

    @wrap
    def step(x, y, mask):
        opt.zero_grad()
        h = F.dropout(F.relu(conv(x, w1)), 0.5)
        loss = F.nll_loss(conv(h, w2).log_softmax(-1)[mask], y[mask])
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(6):
        yield step(torch.randn(10, 5), torch.randint(3, (10,)), torch.arange(10) < 7), grads(model), state(model)


@program
def style_transfer(wrap):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3)).requires_grad_(False)
    image = torch.randn(1, 3, 12, 12, requires_grad=True)
    opt = torch.optim.Adam([image], lr=0.05)
    target = net(torch.randn(1, 3, 12, 12)).flatten(2)
    gram = target @ target.mT

    @wrap
    def loss_of():
        f = net(image).flatten(2)
        tv = (image[..., 1:] - image[..., :-1]).abs().sum() + (image[..., 1:, :] - image[..., :-1, :]).abs().sum()
        return F.mse_loss(f @ f.mT, gram) + 1e-3 * tv
    for i in range(6):
        opt.zero_grad()
        loss = loss_of()
        loss.backward()
        opt.step()
        with torch.no_grad():
            image.clamp_(-2, 2)
        yield loss.detach(), image.grad.clone(), image.detach().clone()


@program
def simclr(wrap):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 16))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    @wrap
    def loss_of(a, b):
        z = F.normalize(torch.cat([net(a), net(b)]), dim=1)
        sim = z @ z.t() / 0.5
        sim.fill_diagonal_(-1e9)
        n = a.size(0)
        target = torch.cat([torch.arange(n) + n, torch.arange(n)])
        return F.cross_entropy(sim, target)
    for i in range(6):
        opt.zero_grad()
        loss = loss_of(torch.randn(4, 3, 8, 8), torch.randn(4, 3, 8, 8))
        loss.backward()
        opt.step()
        yield loss.detach(), grads(net), state(net)


@program
def vq_vae(wrap):
    enc, dec, book = nn.Linear(8, 4), nn.Linear(4, 8), nn.Embedding(6, 4)
    model = nn.ModuleList([enc, dec, book])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)

    @wrap
    def step(x):
        z = enc(x)
        idx = torch.cdist(z, book.weight).argmin(-1)
        q = book(idx)
        commit = F.mse_loss(z, q.detach()) * 0.25 + F.mse_loss(q, z.detach())
        q = z + (q - z).detach()
        loss = F.mse_loss(dec(q), x) + commit
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), idx
    for i in range(6):
        yield step(torch.randn(5, 8)), grads(model), state(model)


@program
def tbptt(wrap):
    cell, head = nn.LSTMCell(4, 8), nn.Linear(8, 4)
    model = nn.ModuleList([cell, head])
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3, centered=True)

    @wrap
    def chunk(xs, h, c):
        loss = 0
        for x in xs:
            h, c = cell(x, (h, c))
            loss = loss + F.mse_loss(head(h), x)
        return loss, h, c
    h, c = torch.zeros(2, 8), torch.zeros(2, 8)
    for i in range(6):
        loss, h, c = chunk(torch.randn(4, 2, 4), h.detach(), c.detach())
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield loss.detach(), h.detach(), grads(model)


@program
def ste_quantize(wrap):
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(x, scale)
            return (x / scale).round().clamp(-8, 7) * scale

        @staticmethod
        def backward(ctx, g):
            x, scale = ctx.saved_tensors
            inside = ((x / scale).abs() < 8).to(g.dtype)
            return g * inside, (g * (1 - inside) * x.sign()).sum().reshape(1) * 7
    lin = nn.Linear(8, 4)
    scale = nn.Parameter(torch.tensor([0.05]))
    opt = torch.optim.Adam([*lin.parameters(), scale], lr=1e-2)

    @wrap
    def step(x, y):
        opt.zero_grad()
        loss = F.mse_loss(F.linear(x, Round.apply(lin.weight, scale), lin.bias), y)
        loss.backward()
        opt.step()
        return loss.detach()
    for i in range(6):
        yield step(torch.randn(5, 8), torch.randn(5, 4)), grads(lin), scale.grad.clone(), state(lin)
