"""Random programs that train, as source text: modules, a loss, a step, and what happens between steps.

A program renders to a file with `class Net`, `forward(net, x, t)` (model and loss), `step(i)` and `between(i)`; fuzz_training.py runs
it in eager and compiled. The model is a chain of lines over `h`, whose shape is known, so most programs do not raise; those that do
(a write to what autograd has saved, say) are compared like all others. Lines can be left out one by one, which the shrinker does.

No decision hangs on the last digit of a float: bounds are a bit (MARGIN) off, optimizers have large eps, so that a gradient of nearly zero
makes no step of full size.
"""
import dataclasses
import random

MARGIN = 0.0137
STEPS = 5

HEAD = '''"""Made by training_programs.py."""
import contextlib
import threading
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

LOG = []


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w.tanh()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        t = w.tanh()
        gw = g * x * (1 - t * t)
        return g * t, gw.sum(tuple(range(gw.dim() - 1)))


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1.5137, 1.5137)

    @staticmethod
    def backward(ctx, g):
        return g


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.by * g, None


class Unit(nn.Module):
    def forward(self, w):
        return w / (0.5 + w.norm())


def noted(name, value=None):
    LOG.append(name)
    return value


'''


@dataclasses.dataclass
class Program:
    seed: int
    init: list
    forward: list
    loss: list
    optimizer: str
    step: list
    between: list   # (step, text)
    data: list
    compiled: str   # "forward", "module", "step", "backward"
    autocast: bool

    def source(self):
        def block(lines, indent, empty="pass"):
            return "".join("    " * indent + line + "\n" for text in lines or [empty] for line in text.split("\n"))
        out = HEAD
        out += "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n" + block(self.init, 2)
        out += "\n    def forward(self, h):\n        aux = h.new_zeros(()) if h.is_floating_point() else torch.zeros(())\n" + block(self.forward, 2)
        out += "        return h, aux\n\n\n"
        out += "def forward(net, x, t):\n    h, aux = net(x)\n" + block(self.loss, 1) + "    return loss\n\n\n"
        out += "def make_optimizer(net):\n" + block([self.optimizer], 1) + "\n\n"
        out += "def step(i, net, forward, optimizer, scheduler, x, t, state):\n" + block(self.step, 1) + "\n\n"
        out += "def between(i, net, optimizer, state):\n    pass\n"
        for k, text in self.between:
            out += f"    if i == {k}:\n" + block([text], 2)
        out += "\n\ndef data(i):\n    return [\n" + block([f"lambda: ({row})," for row in self.data], 2) + "    ][i]()\n"
        return out


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.seed = seed
        self.init, self.forward, self.n = [], [], 0
        self.kept = []   # (name, shape)
        self.shape = ()  # without the batch
        self.batches = [6] * STEPS

    def layer(self, text):
        self.n += 1
        self.init.append(f"self.l{self.n} = {text}")
        return f"self.l{self.n}"

    def module_call(self, name):
        """The module, called in one of the ways that programs have."""
        r = self.r.random()
        if r < 0.06:
            self.forward.append(f"h = checkpoint({name}, h, use_reentrant=False)")
        elif r < 0.09:
            self.forward.append(f"h = checkpoint({name}, h, use_reentrant=True)")
        elif r < 0.11:
            self.forward.append(f"h = torch.func.functional_call({name}, {{k: v * 1.5 for k, v in {name}.named_parameters()}}, (h,))")
        else:
            self.forward.append(f"h = {name}(h)")

    def say(self, *lines):
        self.forward += lines

    # -- layers of each kind of value -----------------------------------------------------------------------------

    def linear(self):
        width, out = self.shape[-1], self.r.choice((4, 6, 8, 16))
        bias = self.r.choice(("True", "True", "False"))
        name = self.layer(f"nn.Linear({width}, {out}, bias={bias})")
        kind = self.r.random()
        if kind < 0.08:
            self.init.append(f"{name}.requires_grad_(False)")
        elif kind < 0.13:
            self.init.append(f"parametrizations.weight_norm({name})")
        elif kind < 0.17:
            self.init.append(f"torch.nn.utils.parametrize.register_parametrization({name}, 'weight', Unit())")
        elif kind < 0.22:
            a, b = self.parameter(f"{width}, 2"), self.parameter(f"2, {out}")
            self.init.append(f"{name}.weight.requires_grad_(False)")
            self.say(f"h = {name}(h) + h @ {a} @ {b} * 0.5")
            self.shape = (*self.shape[:-1], out)
            return
        elif kind < 0.27 and width == out:
            self.say(f"h = {name}({name}(h).tanh())")
            return
        elif kind < 0.30:
            self.say(f"h = F.linear(h, {name}.weight.detach(), {name}.bias)")
            self.shape = (*self.shape[:-1], out)
            return
        self.module_call(name)
        self.shape = (*self.shape[:-1], out)

    def parameter(self, sizes, start="torch.randn"):
        self.n += 1
        self.init.append(f"self.l{self.n} = nn.Parameter({start}({sizes}) * 0.5)")
        return f"self.l{self.n}"

    def buffer(self, text, persistent=True):
        self.n += 1
        self.init.append(f"self.register_buffer('l{self.n}', {text}, persistent={persistent})")
        return f"self.l{self.n}"

    def norm(self):
        n = self.shape[-1]
        choices = [f"nn.LayerNorm({n}, eps=0.05)", f"nn.LayerNorm({n}, elementwise_affine=False, eps=0.05)", f"nn.RMSNorm({n}, eps=0.05)"]
        if len(self.shape) == 1:
            choices += [f"nn.BatchNorm1d({n}, eps=0.05)", f"nn.BatchNorm1d({n}, affine=False, eps=0.05)", f"nn.BatchNorm1d({n}, momentum=None, eps=0.05)",
                        f"nn.BatchNorm1d({n}, track_running_stats=False, eps=0.05)"]
        if len(self.shape) == 3:
            c = self.shape[0]
            choices = [f"nn.BatchNorm2d({c}, eps=0.05)"] * 3 + [f"nn.GroupNorm({2 if c % 2 == 0 else 1}, {c}, eps=0.05)", f"nn.InstanceNorm2d({c}, affine=True, eps=0.05)"]
        self.module_call(self.layer(self.r.choice(choices)))

    def activation(self):
        module = self.r.choice(("nn.ReLU()", "nn.ReLU(inplace=True)", "nn.GELU()", "nn.GELU(approximate='tanh')", "nn.SiLU()", "nn.Tanh()", "nn.Sigmoid()", "nn.ELU()",
                                "nn.LeakyReLU(0.1)", "nn.Softplus()", "nn.Hardswish()", "nn.Mish()", "nn.PReLU()", "nn.LogSigmoid()", "nn.Softmax(-1)",
                                "nn.SELU()", "nn.CELU()", "nn.Softsign()", "nn.Hardtanh(-1.5137, 1.5137)", "nn.ReLU6()", "nn.LogSoftmax(-1)", "nn.Tanhshrink()"))
        self.module_call(self.layer(module))

    def dropout(self):
        p = self.r.choice((0.1, 0.3, 0.5))
        options = [f"h = F.dropout(h, {p}, self.training)", f"h = F.dropout(h, {p})", f"h = h * torch.bernoulli(torch.full_like(h, {1 - p}))",
                   "h = h + torch.randn_like(h) * 0.1", f"h = h * (torch.rand_like(h) > {p})", "h = h * torch.rand(h.shape[-1])"]
        if len(self.shape) == 3:
            options.append(f"h = F.dropout2d(h, {p}, self.training)")
        if self.r.random() < 0.5:
            self.module_call(self.layer(f"nn.Dropout({p})"))
        else:
            self.say(self.r.choice(options))

    def pointwise(self):
        n = self.shape[-1]
        p = self.parameter(str(n))
        self.say(self.r.choice((
            f"h = h * {p}", f"h = h + {p}.exp()", f"h = h * {p}.sigmoid() + {p}", f"h = torch.where(h > {MARGIN}, h, h * {p})", f"h = h / (1 + {p}.abs())",
            f"h = torch.lerp(h, h.tanh(), {p}.sigmoid())", f"h = torch.addcmul(h, h, {p}, value=0.5)", f"h = h.masked_fill({p} > {MARGIN}, 0.25)",
            f"h = F.normalize(h + {p}, dim=-1, eps=0.1)", f"h = h.clamp(-2.0137, 2.0137) * {p}", f"h = torch.maximum(h, {p} + {MARGIN})",
            f"h = h * {p}.softmax(0)", f"h = h.sin() + {p}.cos()", f"h = Twice.apply(h, {p})", f"h = torch.pow(h.abs() + 0.5, 1.5) * {p}",
            f"h = torch.hypot(h, {p} + 3)", f"h = F.softplus(h) - {p}", f"h = h * {p}.std()", f"h = h - (h * {p}).mean(-1, keepdim=True)")))

    def shaped(self):
        """Views and copies, back in the same shape."""
        n = self.shape[-1]
        half = n // 2
        self.say(self.r.choice((
            "h = h.flip(-1)", "h = h.roll(1, -1)", f"h = torch.cat([h[..., {half}:], h[..., :{half}]], -1)", f"h = torch.cat(h.chunk(2, -1)[::-1], -1)",
            "h = h.transpose(0, -1).contiguous().transpose(0, -1)", "h = h.view(-1).view(h.shape)" if len(self.shape) == 1 else "h = h.reshape(-1).view(h.shape)",
            "h = torch.stack([h, h * 2]).mean(0)", f"h = h[..., torch.arange({n} - 1, -1, -1)]", "h = h.unsqueeze(1).expand(-1, 2, *h.shape[1:]).sum(1)",
            f"h = h.index_select(-1, torch.tensor([{', '.join(str(self.r.randrange(n)) for _ in range(n))}]))", "h = h.clone()", "h = h.sort(-1).values",
            "h = h.cumsum(-1) * 0.5", f"a, b = h.split([{half}, {n - half}], -1)\nh = torch.cat([b * 0.5, a], -1)", f"h = F.pad(h, (1, 1))[..., 1:-1]",
            "h = torch.stack(h.unbind(0))", "h = h.mT.mT" if len(self.shape) > 1 else "h = h.t().t()", "h = h.tril() + h.triu(1)",
            "h = h.topk(h.shape[-1], -1).values")))

    def in_place(self):
        n = self.shape[-1]
        self.say(self.r.choice((
            "h = h.clone()\nh.mul_(0.5)", "h = h * 1\nh.add_(h.detach())", "h = h + 0\nh[..., 0] = 0.5", "h = h.clone()\nh[..., 1:].mul_(2)",
            "h = h.clone()\nv = h[..., 0]\nv.tanh_()", f"h = h + 1\nh[h > 1 + {MARGIN}] = 0.25", "h = F.relu(h * 2, inplace=True)", "h = h * 2\nh.clamp_(-1.0137, 1.0137)",
            "h = h.clone()\nh.view(-1)[0:2].zero_()", "v = h.clone()\nv[..., :1].copy_(h[..., 1:2])\nh = v", "h = h.exp().clamp(max=3.0137)\nh.add_(1)", "h.add_(0.5)", "h.sigmoid_()",
            f"h = h.new_zeros(h.shape).index_add_(-1, torch.arange({n}), h)", "out = torch.zeros_like(h)\nfor k in range(h.shape[-1]):\n    out[..., k] = h[..., k] * (k + 1) / 4\nh = out",
            "h = h.detach().clone().copy_(h)", "h = torch.zeros_like(h).scatter_add_(-1, torch.zeros_like(h, dtype=torch.int64), h)", "h = h * h\nh.sqrt_()\nh = h + 0.1")))

    def surroundings(self):
        """Regions, detached values, buffers, hooks, breaks."""
        n = self.shape[-1]
        options = [
            "with torch.no_grad():\n    scale = h.abs().mean() + 1\nh = h / scale", "h = h + h.detach()", "h = h * (h.detach().abs() + 0.5).rsqrt()",
            "with torch.no_grad():\n    aux = aux + h.square().mean()", "aux = aux + h.square().mean() * 0.1", "aux = aux + h.mean()",
            "with torch.enable_grad():\n    aux = aux + h.abs().mean()", "h.register_hook(lambda g: g * 0.5) if h.requires_grad else None",
            "h.register_hook(lambda g: noted('hook')) if h.requires_grad else None", "h.retain_grad() if h.requires_grad else None",
            "print(end='')", f"if h.detach().sum() > {MARGIN}:\n    h = h * 0.5\nelse:\n    h = h + 0.5", "h = Straight.apply(h)", "h = Reverse.apply(h, 0.3)",
            "with torch.inference_mode():\n    level = float(h.detach().clone().mean().sign())\nh = h + level", "h = h.detach().requires_grad_() * h.mean()",
            "h = h + torch.func.grad(lambda v: v.square().sum())(h.detach()) * 0.1", "h = torch.vmap(lambda v: v * v.mean())(h)",
            "with torch.random.fork_rng():\n    torch.manual_seed(3)\n    h = h * torch.rand_like(h)", "h = h * torch.where(torch.isnan(h), 0.0, 1.0)",
            "LOG.append(h.requires_grad)", "h = h if self.training else h * 0.5", "torch.set_grad_enabled(torch.is_grad_enabled())",
            "h = checkpoint(lambda v: F.dropout(v.tanh(), 0.3) * 2, h, use_reentrant=False)", "h = checkpoint(lambda v: v.sigmoid() * v, h, use_reentrant=True)",
            "h = checkpoint(lambda v: v.exp().clamp(max=3.0137) * torch.rand_like(v), h, use_reentrant=False, preserve_rng_state=True)",
            "with torch.autograd.graph.saved_tensors_hooks(lambda v: (noted('pack'), v)[1], lambda v: (noted('unpack'), v)[1]):\n    h = h * h.tanh()",
            "h = h.float().to(torch.bfloat16).float()", "h = h.double().mul(0.5).float()"]
        buffers = [lambda: (lambda b: f"{b}.mul_(0.9).add_(h.detach().mean(0).reshape(-1)[:{n}].mean(), alpha=0.1)\nh = h - {b}.mean()")(self.buffer(f"torch.zeros({n})")),
                   lambda: (lambda b: f"with torch.no_grad():\n    {b}.lerp_(h.mean(), 0.1)\nh = h - {b}")(self.buffer("torch.zeros(())")),
                   lambda: (lambda b: f"{b} += 1\nh = h / {b}.float().sqrt()")(self.buffer("torch.zeros((), dtype=torch.int64)")),
                   lambda: (lambda b: f"h = h + {b}\n{b}.copy_(h.detach().mean())")(self.buffer("torch.ones(())", False)),
                   lambda: (lambda p: f"h = h * {p}.clamp(min=0.1)\nwith torch.no_grad():\n    self.level = float({p}.sum())")(self.parameter(str(n))),
                   lambda: (lambda p: f"with torch.no_grad():\n    {p}.clamp_(-1, 1)\nh = h * {p}")(self.parameter(str(n)))]
        self.say(self.r.choice(buffers)() if self.r.random() < 0.25 else self.r.choice(options))

    def keep(self):
        self.n += 1
        self.say(f"k{self.n} = h")
        self.kept.append((f"k{self.n}", self.shape))

    def residual(self):
        same = [name for name, shape in self.kept if shape == self.shape]
        if not same:
            return self.keep()
        name = self.r.choice(same)
        self.say(self.r.choice((f"h = h + {name}", f"h = h * {name}.sigmoid()", f"h += {name}", f"h = torch.where({name} > {MARGIN}, h, {name})",
                                f"aux = aux + F.mse_loss(h, {name}.detach())", f"aux = aux + (h * {name}).mean()")))

    # -- (B, T, D)

    def sequence(self):
        t, d = self.shape
        kind = self.r.randrange(6)
        if kind == 0:
            name = self.layer(f"nn.{self.r.choice(('LSTM', 'GRU', 'RNN'))}({d}, 6, {self.r.choice((1, 2))}, batch_first=True)")
            self.say(f"h, _ = {name}(h)")
            self.shape = (t, 6)
        elif kind == 1 and d % 2 == 0:
            name = self.layer(f"nn.MultiheadAttention({d}, 2, dropout={self.r.choice((0.0, 0.2))}, batch_first=True)")
            self.say(f"h = {name}(h, h, h, need_weights={self.r.choice((True, False))})[0]")
        elif kind == 2:
            self.say(f"h = F.scaled_dot_product_attention(h[:, None], h[:, None], h[:, None], is_causal={self.r.choice((True, False))})[:, 0]")
        elif kind == 3 and d % 2 == 0:
            self.module_call(self.layer(f"nn.TransformerEncoderLayer({d}, 2, 8, dropout={self.r.choice((0.0, 0.1))}, batch_first=True, norm_first={self.r.choice((True, False))}, layer_norm_eps=0.05)"))
        elif kind == 4:
            self.say("s = h @ h.mT / 4", f"h = s.masked_fill(torch.ones({t}, {t}).triu(1).bool(), float('-inf')).softmax(-1) @ h")
        else:
            name = self.layer(f"nn.Conv1d({d}, 6, 3, padding=1)")
            self.say(f"h = {name}(h.transpose(1, 2)).transpose(1, 2)")
            self.shape = (t, 6)

    def image(self):
        c, hgt, w = self.shape
        kind, out = self.r.randrange(8), self.r.choice((3, 4, 6))
        if kind < 3:
            stride, apart = self.r.choice((1, 1, 2)) if hgt >= 4 else 1, self.r.choice((1, 1, 1, 2))
            self.module_call(self.layer(f"nn.Conv2d({c}, {out}, 3, {stride}, {apart}, {apart}, bias={self.r.choice((True, False))})"))
            self.shape = (out, (hgt - 1) // stride + 1, (w - 1) // stride + 1)
        elif kind == 3 and hgt >= 4:
            self.say(self.r.choice(("h = F.max_pool2d(h, 2)", "h = F.avg_pool2d(h, 2)", "h = F.adaptive_avg_pool2d(h, (h.shape[2] // 2, h.shape[3] // 2))")))
            self.shape = (c, hgt // 2, w // 2)
        elif kind == 4 and hgt <= 4:
            self.say(self.r.choice(("h = F.interpolate(h, scale_factor=2)", "h = F.interpolate(h, scale_factor=2, mode='bilinear', align_corners=False)")))
            self.shape = (c, hgt * 2, w * 2)
        elif kind == 5 and hgt <= 4:
            self.module_call(self.layer(f"nn.ConvTranspose2d({c}, {out}, 2, 2)"))
            self.shape = (out, hgt * 2, w * 2)
        elif kind == 6:
            self.module_call(self.layer(f"nn.Conv2d({c}, {c}, 3, padding=1, groups={c})"))
        else:
            self.say("h = h.to(memory_format=torch.channels_last)")

    def narrower(self):
        """To fewer dimensions."""
        if len(self.shape) == 2:
            self.say(self.r.choice(("h = h.mean(1)", "h = h[:, -1]", "h = h.max(1).values", "h = h.logsumexp(1)", "h = h.sum(1)", "h = h.amax(1)")))
            self.shape = self.shape[1:]
        elif len(self.shape) == 3:
            if self.r.random() < 0.5:
                self.say(self.r.choice(("h = h.mean((2, 3))", "h = F.adaptive_avg_pool2d(h, 1).flatten(1)", "h = h.amax((2, 3))")))
                self.shape = self.shape[:1]
            else:
                self.say("h = h.flatten(2).transpose(1, 2)")
                self.shape = (self.shape[1] * self.shape[2], self.shape[0])

    def line(self):
        common = [self.pointwise] * 4 + [self.shaped] * 3 + [self.in_place] * 3 + [self.surroundings] * 5 + [self.activation] * 4 + [self.dropout] * 2
        common += [self.norm] * 2 + [self.keep] + [self.residual] * 3
        special = {1: [self.linear] * 6, 2: [self.sequence] * 3 + [self.linear] * 3 + [self.narrower], 3: [self.image] * 5 + [self.narrower]}[len(self.shape)]
        self.r.choice(common + special)()

    # -- what surrounds the model ----------------------------------------------------------------------------------

    def start(self):
        """The data's rows, one for each step."""
        r = self.r
        self.batches = batches = [6] * STEPS if r.random() < 0.75 else [6, 6, 6, 4, 6]
        kind = r.choice(("vector", "vector", "vector", "sequence", "image", "tokens"))
        wants = ".requires_grad_()" if r.random() < 0.2 and kind != "tokens" else ""
        if kind == "tokens":
            if r.random() < 0.2:
                self.shape = (8,)
                extra = r.choice(("", ", mode='sum'", ", mode='max'", ", mode='sum', padding_idx=0", ", padding_idx=3", ", mode='sum', sparse=True"))
                self.say(f"h = {self.layer(f'nn.EmbeddingBag(12, 8{extra})')}(h)")
                return [f"torch.randint(0, 12, ({b}, 5))" for b in batches]
            self.shape = (5, 8)
            extra = r.choice(("", "", ", padding_idx=0", ", max_norm=1.0", ", sparse=True", ", scale_grad_by_freq=True"))
            self.say(f"h = {self.layer(f'nn.Embedding(12, 8{extra})')}(h)" if r.random() < 0.8 else f"h = F.embedding(h, {self.parameter('12, 8')})")
            return [f"torch.randint(0, 12, ({b}, 5))" for b in batches]
        self.shape = {"vector": (8,), "sequence": (5, 8), "image": (3, 6, 6)}[kind]
        sizes = ", ".join(map(str, self.shape))
        return [f"torch.randn({b}, {sizes}){wants}" for b in batches]

    def make_loss(self):
        """Lines from h and aux to loss, and the target's text for a batch of B."""
        while len(self.shape) > 1:
            self.narrower()
        n, r = self.shape[0], self.r
        kind = r.choice(("mse", "mse", "cross", "cross", "bce", "l1", "nll", "kl", "own", "gaussian"))
        loss = {"mse": "loss = F.mse_loss(h, t)", "cross": f"loss = F.cross_entropy(h, t, label_smoothing={r.choice((0.0, 0.0, 0.1))})", "bce": "loss = F.binary_cross_entropy_with_logits(h, t)",
                "l1": "loss = F.smooth_l1_loss(h, t, beta=0.7137)", "nll": "loss = F.nll_loss(h.log_softmax(-1), t)", "own": "loss = (h - t).square().sum(-1).add(0.1).sqrt().mean()",
                "kl": "loss = F.kl_div(h.log_softmax(-1), t.softmax(-1), reduction='batchmean')", "gaussian": "loss = F.gaussian_nll_loss(h, t, h.square() + 0.5)"}[kind]
        target = "torch.randint(0, %d, ({b},))" % n if kind in ("cross", "nll") else "torch.rand({b}, %d)" % n
        lines = [loss, "loss = loss + aux"]
        if r.random() < 0.15:
            lines.append("loss = loss + 0.01 * sum(p.square().sum() for p in net.parameters() if p.requires_grad)")
        if r.random() < 0.1:
            lines.append("LOG.append(round(float(loss.detach()), 2) < 100)")
        return lines, target

    def make_optimizer(self):
        r = self.r
        form = r.choice(("", "", ", foreach=True", ", foreach=False", ", fused=True"))
        no_fused = "" if "fused" in form else form
        text = r.choice((
            f"torch.optim.SGD(P, 0.1{form})", f"torch.optim.SGD(P, 0.1, momentum=0.9, nesterov=True{form})", f"torch.optim.SGD(P, 0.05, momentum=0.9, weight_decay=0.01{form})",
            f"torch.optim.Adam(P, 0.05, eps=0.3{form})", f"torch.optim.AdamW(P, 0.05, eps=0.3, weight_decay=0.1{form})", f"torch.optim.Adam(P, 0.05, eps=0.3, amsgrad=True{form})",
            f"torch.optim.AdamW(P, 0.05, eps=0.3{form})", f"torch.optim.RMSprop(P, 0.01, eps=0.3, momentum=0.5{no_fused})", f"torch.optim.Adagrad(P, 0.05, eps=0.3{form})",
            f"torch.optim.NAdam(P, 0.02, eps=0.3{no_fused})", f"torch.optim.Adamax(P, 0.02, eps=0.3{no_fused})", f"torch.optim.Adadelta(P, 0.5, eps=0.3{no_fused})"))
        groups = "[p for p in net.parameters() if p.requires_grad]"
        if r.random() < 0.15:
            return f"ps = {groups}\nhalf = len(ps) // 2 + 1\nreturn " + text.replace("P,", "[{'params': ps[:half]}, {'params': ps[half:], 'lr': 0.02}],", 1)
        return "return " + text.replace("P,", groups + ",", 1)

    def make_step(self):
        r = self.r
        zero = r.choice(("optimizer.zero_grad()", "optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)", "net.zero_grad()"))
        accumulate = r.random() < 0.12
        lines = [f"if i % 2 == 0:\n    {zero}" if accumulate else zero]
        call = "loss = forward(net, x, t)"
        if r.random() < 0.06:
            call = "with torch.autograd.set_detect_anomaly(True):\n    loss = forward(net, x, t)"
        lines.append(call)
        lines.append(r.choice(["loss.backward()"] * 10 + [
            "(loss / 2).backward()", "loss.backward(retain_graph=True)\nloss.backward()", "loss.backward(gradient=torch.tensor(2.0))", "forward(net, x, t).backward()\nloss.backward()",
            "gs = torch.autograd.grad(loss, [p for p in net.parameters() if p.requires_grad], allow_unused=True)\nfor p, g in zip([p for p in net.parameters() if p.requires_grad], gs):\n    p.grad = g",
            "worker = threading.Thread(target=loss.backward)\nworker.start()\nworker.join()", "if i != 2:\n    loss.backward()", "loss.backward()\ntry:\n    loss.backward()\nexcept RuntimeError as e:\n    LOG.append(str(e)[:60])",
            "ps = [p for p in net.parameters() if p.requires_grad and p.dim() == 2][:2]\nif ps:\n    gs = torch.autograd.grad(loss, ps, create_graph=True, allow_unused=True)\n    loss = loss + 0.1 * sum(g.square().sum() for g in gs if g is not None)\nloss.backward()",
            "loss.register_hook(lambda g: g * 0.5)\nloss.backward()", "with torch.no_grad():\n    LOG.append(forward(net, x, t).requires_grad)\nloss.backward()"]))
        lines += r.choice(([],) * 5 + (["torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)"], ["torch.nn.utils.clip_grad_value_(net.parameters(), 0.05)"],
                                       ["with torch.no_grad():\n    for p in net.parameters():\n        if p.grad is not None:\n            p.grad.mul_(0.5)"],
                                       ["LOG.append([p.grad is None for p in net.parameters()])"]))
        lines.append("if i % 2 == 1:\n    optimizer.step()" if accumulate else "optimizer.step()")
        if r.random() < 0.2:
            lines.append("scheduler.step()")
        if r.random() < 0.15:
            lines.append("with torch.no_grad():\n    for k, p in enumerate(net.parameters()):\n        state.setdefault(k, p.detach().clone()).lerp_(p, 0.1)")
        lines.append(r.choice(("return loss", "return loss", "return loss.detach()", "return loss.item()")))
        return lines

    def make_between(self):
        r, out = self.r, []
        for _ in range(r.choice((0, 0, 1, 1, 2))):
            out.append((r.randrange(1, STEPS), r.choice((
                "net.eval()", "net.train()", "for g in optimizer.param_groups:\n    g['lr'] *= 0.5", "next(net.parameters()).requires_grad_(False)",
                "for p in net.parameters():\n    p.requires_grad_(True)", "net.load_state_dict({k: v * 0.9 if v.is_floating_point() else v for k, v in net.state_dict().items()})",
                "p = next(p for p in net.parameters() if p.requires_grad)\np.register_hook(lambda g: noted('param', g * 2))", "p = next(p for p in net.parameters() if p.requires_grad)\np.register_post_accumulate_grad_hook(lambda p: noted('accumulated'))",
                "net.register_full_backward_hook(lambda m, gi, go: noted('module'))", "net.register_forward_hook(lambda m, a, out: noted('forward'))",
                "torch.manual_seed(7)", "with torch.no_grad():\n    for p in net.parameters():\n        p.mul_(0.9)", "for p in net.parameters():\n    p.data = p.data * 0.9",
                "net.register_forward_pre_hook(lambda m, a: noted('before'))", "torch.set_rng_state(torch.get_rng_state())", "for p in net.parameters():\n    p.grad = None"))))
        return sorted(out)


def without_late_hooks(lines):
    """Without hooks on a value that another result was computed from before: of results of one graph, a hook on one sees what comes to it from behind
    the graph (docs/training.md, known differences)."""
    kept, used = [], False
    for line in lines:
        if "register_hook" in line and used:
            continue
        used = (used and not line.lstrip().startswith("h =")) or "aux = aux" in line
        kept.append(line)
    return kept


def generate(seed):
    m = Maker(seed)
    rows = m.start()
    for _ in range(m.r.randint(2, 10)):
        m.line()
    while len(m.shape) > 1:
        m.narrower()
    width = m.r.choice((3, 5, 8))
    m.say(f"h = {m.layer(f'nn.Linear({m.shape[0]}, {width})')}(h)")
    m.shape = (width,)
    loss, target = m.make_loss()
    data = [f"{row}, {target.format(b=b)}" for row, b in zip(rows, m.batches)]
    compiled = m.r.choice(("forward", "forward", "forward", "module", "module", "step", "step", "optimizer"))
    step = m.make_step()
    if compiled == "step" and any("forward(net, x, t).backward()" in line for line in step):
        # Two results of one graph are results of one node: a hook on one is called with None where only the other is gone back from.
        m.forward = [line for line in m.forward if "register_hook" not in line]
    m.forward = without_late_hooks(m.forward)
    return Program(seed, m.init, m.forward, loss, m.make_optimizer(), step, m.make_between(), data, compiled, m.r.random() < 0.1)
