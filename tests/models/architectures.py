"""Architectures that people write by hand, small: what decides on data, gathers and scatters, loops over pieces, keeps states.

`make models` compares each with eager, behind the families of transformers. A row in BREAKS has more than one graph, and says why.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

from models import BATCH, Entry, features, generator, images, tokens


def first_loss(out):
    values = out if isinstance(out, (tuple, list)) else out.values() if isinstance(out, dict) else (out,)
    return sum(v.float().pow(2).mean() for v in values if isinstance(v, torch.Tensor) and v.is_floating_point() and v.numel())


class Trained(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args):
        out = self.model(*args)
        return first_loss(out), out


# -- detection ---------------------------------------------------------------------------------------------------------


class OneStage(nn.Module):
    """Anchors on two levels, scores, top-k, boxes from offsets; in evaluation a greedy suppression without a loop over data."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
        self.down = nn.Conv2d(16, 16, 3, 2, 1)
        self.scores, self.boxes = nn.Conv2d(16, 3, 1), nn.Conv2d(16, 4, 1)

    @staticmethod
    def grid(f, stride):
        h, w = f.shape[-2:]
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        return (torch.stack([xs, ys], -1).reshape(-1, 2).to(f.dtype) + 0.5) * stride

    def forward(self, x):
        levels = [self.stem(x)]
        levels.append(self.down(levels[0]).relu())
        all_scores, all_boxes = [], []
        for f, stride in zip(levels, (4, 8)):
            centre = self.grid(f, stride)
            size = self.boxes(f).flatten(2).transpose(1, 2).sigmoid() * stride * 4
            all_boxes.append(torch.cat([centre - size[..., :2], centre + size[..., 2:]], -1))
            all_scores.append(self.scores(f).flatten(2).transpose(1, 2))
        scores, boxes = torch.cat(all_scores, 1).sigmoid(), torch.cat(all_boxes, 1)
        best, which = scores.max(-1)
        top, index = best.topk(10, 1)
        kept = boxes.gather(1, index[..., None].expand(-1, -1, 4))
        lt, rb = torch.max(kept[:, :, None, :2], kept[:, None, :, :2]), torch.min(kept[:, :, None, 2:], kept[:, None, :, 2:])
        inter = (rb - lt).clamp(min=0).prod(-1)
        area = (kept[..., 2:] - kept[..., :2]).prod(-1)
        iou = inter / (area[:, :, None] + area[:, None] - inter)
        later = torch.triu(torch.ones(10, 10, dtype=torch.bool), 1)
        keep = ~((iou > 0.5) & later).any(1)
        return kept * keep[..., None], top * keep, which.gather(1, index)


class KeptBoxes(nn.Module):
    """How many boxes stay is decided by their scores: sizes from data."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 5)

    def forward(self, x):
        f = self.conv(x).relu().flatten(2).transpose(1, 2)
        out = self.head(f)
        results = []
        for one in out:
            keep = one[:, 4].sigmoid() > 0.5
            boxes = one[keep]
            results.append(boxes[:, :4].mean(0) + boxes.shape[0])
        return torch.stack(results)


class TwoStage(nn.Module):
    """Regions of interest cut out with sizes from tolist()."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, 1, 1), nn.Linear(8 * 4, 3)

    def forward(self, x, rois):
        f, cut = self.conv(x).relu(), []
        for b, x0, y0, x1, y1 in rois.tolist():
            cut.append(F.adaptive_max_pool2d(f[b:b + 1, :, y0:y1, x0:x1], 2))
        return self.head(torch.cat(cut).flatten(1))


class Matcher(nn.Module):
    """Set prediction: a greedy assignment between queries and targets in tensors."""

    def __init__(self):
        super().__init__()
        self.q = nn.Parameter(torch.randn(6, 16) * 0.1)
        self.att, self.cls, self.box = nn.MultiheadAttention(16, 4, batch_first=True), nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x, target):
        h, _ = self.att(self.q.expand(x.shape[0], -1, -1), x, x, need_weights=False)
        logits, boxes = self.cls(h), self.box(h).sigmoid()
        cost = torch.cdist(boxes, target, p=1)
        taken = torch.zeros_like(cost[..., 0], dtype=torch.bool)
        pairs = []
        for t in range(target.shape[1]):
            c = cost[..., t].masked_fill(taken, float("inf"))
            i = c.argmin(1)
            taken = taken.scatter(1, i[:, None], True)
            pairs.append(i)
        index = torch.stack(pairs, 1)
        matched = boxes.gather(1, index[..., None].expand(-1, -1, 4))
        return F.l1_loss(matched, target), logits.log_softmax(-1), index


# -- text out of images, sound -------------------------------------------------------------------------------------------


class CRNN(nn.Module):
    """A line of text: columns of features, an LSTM in both directions, CTC; greedy decoding without repeats."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.rnn, self.out = nn.LSTM(16 * 4, 16, bidirectional=True, batch_first=True), nn.Linear(32, 11)

    def forward(self, x):
        f = self.conv(x)
        h, _ = self.rnn(f.permute(0, 3, 1, 2).flatten(2))
        logits = self.out(h).log_softmax(-1)
        best = logits.argmax(-1)
        first = F.pad(best[:, 1:] != best[:, :-1], (1, 0), value=True) & (best != 0)
        return logits, torch.where(first, best, 0), first.sum(1)


class SpeechLengths(nn.Module):
    """Frames of each clip by its length; masks made of lengths; mean over valid frames only."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(1, 16, 10, 5), nn.Conv1d(16, 16, 3, 2)
        self.att, self.norm, self.out = nn.MultiheadAttention(16, 2, batch_first=True), nn.LayerNorm(16), nn.Linear(16, 5)

    @staticmethod
    def frames(n):
        for kernel, stride in ((10, 5), (3, 2)):
            n = torch.div(n - kernel, stride, rounding_mode="floor") + 1
        return n

    def forward(self, wave, length):
        h = F.gelu(self.conv2(F.gelu(self.conv1(wave[:, None])))).transpose(1, 2)
        n = self.frames(length)
        pad = torch.arange(h.shape[1])[None] >= n[:, None]
        h = h.masked_fill(pad[..., None], 0)
        a, _ = self.att(h, h, h, key_padding_mask=pad, need_weights=False)
        h = self.norm(h + a).masked_fill(pad[..., None], 0)
        return self.out(h.sum(1) / n[:, None])


class PackedSpeech(nn.Module):
    """Sequences cut to the longest clip: a size from data."""

    def __init__(self):
        super().__init__()
        self.lin, self.rnn = nn.Linear(8, 16), nn.GRU(16, 16, batch_first=True)

    def forward(self, x, length):
        longest = int(length.max())
        h = self.lin(x[:, :longest]).tanh()
        out, _ = self.rnn(h)
        last = out.gather(1, (length - 1).view(-1, 1, 1).expand(-1, 1, 16)).squeeze(1)
        return last, out.sum(1)


class Durations(nn.Module):
    """Speech synthesis: each phoneme is repeated as often as predicted."""

    def __init__(self):
        super().__init__()
        self.emb, self.dur, self.dec = nn.Embedding(40, 16), nn.Linear(16, 1), nn.Conv1d(16, 8, 3, padding=1)

    def forward(self, ids):
        h = self.emb(ids)
        d = torch.clamp(torch.round(torch.exp(self.dur(h).squeeze(-1)) + 1), 1, 4).long()
        out = [torch.repeat_interleave(one, n, dim=0) for one, n in zip(h, d)]
        h = nn.utils.rnn.pad_sequence(out, batch_first=True)
        return self.dec(h.transpose(1, 2)), d


# -- text --------------------------------------------------------------------------------------------------------------


class LocalAttention(nn.Module):
    """Chunks with their neighbours, after asserts on lengths, padding to whole chunks."""

    def __init__(self, window=4):
        super().__init__()
        self.window, self.qkv, self.out = window, nn.Linear(16, 48), nn.Linear(16, 16)

    def chunks(self, x):
        b, n, d = x.shape
        assert n % self.window == 0, f"{n} is not a multiple of {self.window}"
        return x.view(b, n // self.window, self.window, d)

    def forward(self, x):
        n = x.shape[1]
        pad = (self.window - n % self.window) % self.window
        if pad:
            x = F.pad(x, (0, 0, 0, pad))
        q, k, v = map(self.chunks, self.qkv(x).chunk(3, -1))
        near = lambda t: torch.cat([F.pad(t, (0, 0, 0, 0, 1, 0))[:, :-1], t, F.pad(t, (0, 0, 0, 0, 0, 1))[:, 1:]], 2)
        k, v = near(k), near(v)
        score = torch.einsum("bcqd,bckd->bcqk", q, k) / math.sqrt(16)
        position = torch.arange(x.shape[1]).view(-1, self.window)
        keys = torch.cat([position - self.window, position, position + self.window], 1)
        bad = (keys < 0) | (keys >= n)
        score = score.masked_fill(bad[None, :, None], torch.finfo(score.dtype).min)
        return self.out((score.softmax(-1) @ v).flatten(1, 2))[:, :n]


class GlobalTokens(LocalAttention):
    """As local attention, and a branch where any token asks for global attention."""

    def forward(self, x, asks):
        out = super().forward(x)
        if asks.any():
            q = (x * asks[..., None]).sum(1, keepdim=True)
            out = out + (q @ x.transpose(1, 2)).softmax(-1) @ x
        return out


class TokenChoice(nn.Module):
    """Mixture of experts, tokens choose two of four: index_add of what each expert gets."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)) for _ in range(4))

    def forward(self, x):
        flat = x.flatten(0, 1)
        w, chosen = self.gate(flat).softmax(-1).topk(2, -1)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            row, slot = torch.where(chosen == e)
            out.index_add_(0, row, expert(flat[row]) * w[row, slot, None])
        load = F.one_hot(chosen, 4).float().mean((0, 1))
        return out.view_as(x), (load * self.gate(flat).softmax(-1).mean(0)).sum()


class ExpertChoice(nn.Module):
    """Mixture of experts with capacity: experts choose tokens; products of stacked weights."""

    def __init__(self):
        super().__init__()
        self.gate, self.w1, self.w2 = nn.Linear(16, 4), nn.Parameter(torch.randn(4, 16, 32) * 0.1), nn.Parameter(torch.randn(4, 32, 16) * 0.1)

    def forward(self, x):
        flat = x.flatten(0, 1)
        capacity = max(1, flat.shape[0] // 4)
        score, index = self.gate(flat).softmax(-1).t().topk(capacity, -1)
        h = torch.bmm(F.gelu(torch.bmm(flat[index], self.w1)), self.w2) * score[..., None]
        return torch.zeros_like(flat).scatter_add(0, index.reshape(-1, 1).expand(-1, 16), h.flatten(0, 1)).view_as(x)


class SkippedExperts(TokenChoice):
    """Experts that get nothing are left out: a branch on data."""

    def forward(self, x):
        flat = x.flatten(0, 1)
        w, chosen = self.gate(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            mask = chosen == e
            if mask.any():
                out[mask] = expert(flat[mask]) * w[mask, None]
        return out.view_as(x)


class EarlyExit(nn.Module):
    """Layers until all rows are sure."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.heads = nn.ModuleList(nn.Linear(16, 3) for _ in range(4))

    def forward(self, x):
        for layer, head in zip(self.layers, self.heads):
            x = layer(x).tanh() + x
            p = head(x).softmax(-1)
            if (p.max(-1).values > 0.95).all():
                break
        return p


class Retrieval(nn.Module):
    """Two towers, in-batch negatives, nearest of a bank, a queue that is written in training."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 8), nn.Linear(16, 8)
        self.register_buffer("queue", F.normalize(torch.randn(32, 8), dim=1))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    def forward(self, x, y):
        q, k = F.normalize(self.a(x), dim=1), F.normalize(self.b(y), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().t()], 1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))
        if self.training:
            with torch.no_grad():
                where = (self.at + torch.arange(len(k))) % 32
                self.queue[where] = k.detach()
                self.at.add_(len(k)).remainder_(32)
        near, index = (q @ self.queue.t()).topk(3, 1)
        return loss, near, index


# -- images and text ---------------------------------------------------------------------------------------------------------


class ImageInText(nn.Module):
    """Features of patches take the places of image tokens: masked_scatter, and a check of the counts."""

    def __init__(self):
        super().__init__()
        self.patch, self.emb, self.layer = nn.Conv2d(3, 16, 8, 8), nn.Embedding(64, 16), nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)

    def forward(self, ids, image):
        patches = self.patch(image).flatten(2).transpose(1, 2)
        h, mask = self.emb(ids), ids == 7
        if mask.sum() * 16 != patches.numel():
            raise ValueError("image tokens and patches do not match")
        h = h.masked_scatter(mask[..., None].expand_as(h), patches)
        return self.layer(h)


class Segmenter(nn.Module):
    """Masks of prompts: points to embeddings, upsampling by learned filters, thresholds in evaluation."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GELU(), nn.Conv2d(8, 16, 3, 2, 1))
        self.up = nn.Sequential(nn.ConvTranspose2d(16, 8, 2, 2), nn.GroupNorm(2, 8), nn.GELU(), nn.ConvTranspose2d(8, 8, 2, 2))
        self.register_buffer("freq", torch.randn(2, 4))
        self.prompt = nn.Linear(8, 8)

    def forward(self, x, points):
        p = (2 * points - 1) @ self.freq * 2 * math.pi
        e = self.prompt(torch.cat([p.sin(), p.cos()], -1))
        f = self.up(self.enc(x))
        masks = torch.einsum("bpc,bchw->bphw", e, f)
        area = (masks > 0).flatten(2).sum(-1)
        return masks if self.training else (masks > 0, area)


# -- graphs, states, series, decisions ---------------------------------------------------------------------------------------


class GraphConv(nn.Module):
    """Edges as two rows of numbers: degrees, messages by index_add, mean per graph."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def step(self, lin, x, edges):
        src, dst = edges
        degree = torch.zeros(x.shape[0]).index_add_(0, dst, torch.ones(dst.shape[0])).clamp(min=1)
        message = lin(x)[src] * (degree[src] * degree[dst]).rsqrt()[:, None]
        return torch.zeros(x.shape[0], message.shape[1]).index_add_(0, dst, message)

    def forward(self, x, edges, batch):
        h = self.step(self.b, self.step(self.a, x, edges).relu(), edges).relu()
        count = int(batch.max()) + 1
        total = torch.zeros(count, 16).index_add_(0, batch, h)
        return self.out(total / torch.bincount(batch, minlength=count).clamp(min=1)[:, None])


class GraphAttention(nn.Module):
    """A softmax over the edges of each node: scatter_reduce."""

    def __init__(self):
        super().__init__()
        self.lin, self.att = nn.Linear(8, 16, bias=False), nn.Parameter(torch.randn(2, 16) * 0.1)

    def forward(self, x, edges):
        h, (src, dst) = self.lin(x), edges
        e = F.leaky_relu((h @ self.att[0])[src] + (h @ self.att[1])[dst], 0.2)
        top = torch.full((x.shape[0],), float("-inf")).scatter_reduce(0, dst, e, "amax")
        w = (e - top[dst]).exp()
        w = w / torch.zeros(x.shape[0]).scatter_add(0, dst, w)[dst]
        return torch.zeros_like(h).index_add(0, dst, h[src] * w[:, None])


class Diffusion(nn.Module):
    """A small UNet with time embeddings, attention in the middle, group norms, skips."""

    class Block(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.n1, self.c1, self.t = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, 1, 1), nn.Linear(16, o)
            self.n2, self.c2, self.skip = nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, 1, 1), nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x, t):
            h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
            return self.c2(F.silu(self.n2(h))) + self.skip(x)

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 3, 3, 1, 1)
        self.down, self.mid, self.up = self.Block(8, 16), self.Block(16, 16), self.Block(24, 8)
        self.pool, self.qkv = nn.Conv2d(16, 16, 3, 2, 1), nn.Conv2d(16, 48, 1)

    def forward(self, x, t):
        f = torch.exp(-math.log(1e4) * torch.arange(8) / 8)
        e = torch.cat([(t[:, None] * f).sin(), (t[:, None] * f).cos()], -1)
        a = self.first(x)
        h = self.mid(self.pool(self.down(a, e)), e)
        q, k, v = (p.flatten(2).transpose(1, 2) for p in self.qkv(h).chunk(3, 1))
        h = h + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).view_as(h)
        return self.last(self.up(torch.cat([F.interpolate(h, scale_factor=2), a], 1), e))


class StateSpace(nn.Module):
    """A selective scan, step by step, with a convolution before it."""

    def __init__(self):
        super().__init__()
        self.inp, self.conv, self.dt, self.bc = nn.Linear(8, 16), nn.Conv1d(16, 16, 4, groups=16, padding=3), nn.Linear(16, 16), nn.Linear(16, 8)
        self.a, self.d = nn.Parameter(torch.rand(16, 4)), nn.Parameter(torch.ones(16))

    def forward(self, x):
        u = self.inp(x)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
        dt, (b, c) = F.softplus(self.dt(u)), self.bc(u).chunk(2, -1)
        da = torch.exp(-dt[..., None] * self.a)
        db = dt[..., None] * b[:, :, None]
        h, out = torch.zeros(x.shape[0], 16, 4), []
        for i in range(x.shape[1]):
            h = da[:, i] * h + db[:, i] * u[:, i, :, None]
            out.append((h * c[:, i, None]).sum(-1))
        return torch.stack(out, 1) + u * self.d


class ActorCritic(nn.Module):
    """Actions drawn from a distribution, log-probabilities, entropy, advantages by a loop from the end."""

    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v = nn.Sequential(nn.Linear(6, 16), nn.Tanh()), nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, obs, reward, done):
        h = self.body(obs)
        policy, value = torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)
        action = policy.sample()
        advantage, after, out = torch.zeros(obs.shape[1]), torch.zeros(obs.shape[1]), []
        for t in reversed(range(obs.shape[0])):
            delta = reward[t] + 0.99 * after * (1 - done[t]) - value[t]
            advantage = delta + 0.95 * 0.99 * (1 - done[t]) * advantage
            after = value[t]
            out.insert(0, advantage)
        return -(policy.log_prob(action) * torch.stack(out).detach()).mean() - 0.01 * policy.entropy().mean(), action


class Gaussian(nn.Module):
    """A policy over continuous actions, squashed, with the correction of its density; a target network by averages."""

    def __init__(self):
        super().__init__()
        self.net, self.q, self.target = nn.Linear(6, 4), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        action = raw.tanh()
        log = (normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)).sum(-1)
        if self.training:
            with torch.no_grad():
                for p, t in zip(self.q.parameters(), self.target.parameters()):
                    t.lerp_(p, 0.05)
        return (0.2 * log - self.q(torch.cat([obs, action], -1)).squeeze(-1)).mean(), action


class Quantizer(nn.Module):
    """Vector quantisation: nearest code, straight-through gradients, perplexity."""

    def __init__(self):
        super().__init__()
        self.enc, self.dec, self.book = nn.Conv2d(3, 8, 4, 2, 1), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Embedding(16, 8)

    def forward(self, x):
        z = self.enc(x).permute(0, 2, 3, 1)
        flat = z.reshape(-1, 8)
        d = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.book.weight.t() + self.book.weight.pow(2).sum(1)
        code = d.argmin(1)
        q = self.book(code).view_as(z)
        used = F.one_hot(code, 16).float().mean(0)
        loss = F.mse_loss(q.detach(), z) * 0.25 + F.mse_loss(q, z.detach())
        q = z + (q - z).detach()
        return loss, self.dec(q.permute(0, 3, 1, 2)), torch.exp(-(used * (used + 1e-10).log()).sum())


class Hypernet(nn.Module):
    """Weights made by another network, applied by functional_call and vmap."""

    def __init__(self):
        super().__init__()
        self.make, self.main = nn.Linear(4, 8 * 3 + 3), nn.Linear(8, 3)

    def forward(self, context, x):
        w = self.make(context)
        one = lambda w, x: torch.func.functional_call(self.main, {"weight": w[:24].view(3, 8), "bias": w[24:]}, (x,))
        return torch.func.vmap(one)(w, x)


class Flow(nn.Module):
    """Coupling layers with their log-determinants, and back again."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 6)) for _ in range(3))

    def forward(self, x):
        z, det = x, torch.zeros(x.shape[0])
        for net in self.nets:
            a, b = z.chunk(2, 1)
            s, t = net(a).chunk(2, 1)
            s = s.tanh()
            z, det = torch.cat([b * s.exp() + t, a], 1), det + s.sum(1)
        y = z
        for net in reversed(self.nets):
            b, a = y.chunk(2, 1)
            s, t = net(a).chunk(2, 1)
            y = torch.cat([a, (b - t) * (-s.tanh()).exp()], 1)
        return -(torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1) + det).mean(), z, y


class PointCloud(nn.Module):
    """Farthest points, groups of neighbours, a maximum over each."""

    def __init__(self):
        super().__init__()
        self.mlp, self.out = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16)), nn.Linear(16, 4)

    def forward(self, p):
        b, n, _ = p.shape
        chosen, far = [], torch.zeros(b, dtype=torch.long)
        distance = torch.full((b, n), 1e10)
        rows = torch.arange(b)
        for _ in range(4):
            chosen.append(far)
            d = (p - p[rows, far][:, None]).pow(2).sum(-1)
            distance = torch.minimum(distance, d)
            far = distance.argmax(-1)
        centre = p[rows[:, None], torch.stack(chosen, 1)]
        index = torch.cdist(centre, p).topk(5, largest=False).indices
        group = p[rows[:, None, None], index]
        h = self.mlp(torch.cat([group - centre[:, :, None], group], -1)).amax(2)
        return self.out(h.amax(1))


class Memory(nn.Module):
    """A memory that is read and written by attention over steps; usage kept by decay."""

    def __init__(self):
        super().__init__()
        self.cell, self.key, self.erase, self.add = nn.GRUCell(14, 16), nn.Linear(16, 6), nn.Linear(16, 6), nn.Linear(16, 6)

    def forward(self, x):
        h, m, read, out = torch.zeros(x.shape[0], 16), torch.full((x.shape[0], 5, 6), 1e-2), torch.zeros(x.shape[0], 6), []
        for step in x.unbind(1):
            h = self.cell(torch.cat([step, read], -1), h)
            w = F.cosine_similarity(self.key(h)[:, None], m, dim=-1).softmax(-1)
            m = m * (1 - w[..., None] * self.erase(h).sigmoid()[:, None]) + w[..., None] * self.add(h)[:, None]
            read = (w[..., None] * m).sum(1)
            out.append(read)
        return torch.stack(out, 1)


class Beam(nn.Module):
    """Beam search over a small recurrent model, until all beams have ended."""

    def __init__(self):
        super().__init__()
        self.emb, self.cell, self.out = nn.Embedding(12, 16), nn.GRUCell(16, 16), nn.Linear(16, 12)

    def forward(self, h):
        b, k = h.shape[0], 3
        h = h.repeat_interleave(k, 0)
        last, score = torch.ones(b * k, dtype=torch.long), torch.tensor([0.0] + [-1e9] * (k - 1)).repeat(b)
        seqs, done = last[:, None], torch.zeros(b * k, dtype=torch.bool)
        for _ in range(6):
            h = self.cell(self.emb(last), h)
            p = self.out(h).log_softmax(-1)
            p = torch.where(done[:, None], torch.full_like(p, -1e9).index_fill(1, torch.tensor([0]), 0.0), p)
            score, index = (score[:, None] + p).view(b, -1).topk(k)
            row = (index // 12 + torch.arange(b)[:, None] * k).view(-1)
            last, score, h, seqs, done = index.view(-1) % 12, score.view(-1), h[row], seqs[row], done[row]
            seqs, done = torch.cat([seqs, last[:, None]], 1), done | (last == 0)
            if done.all():
                break
        return seqs, score


class Forecast(nn.Module):
    """Moving averages, decomposition, Fourier features, quantiles; normalised by each series."""

    def __init__(self):
        super().__init__()
        self.trend, self.season = nn.Linear(24, 6), nn.Linear(24, 6)
        self.quantiles = nn.Parameter(torch.tensor([0.1, 0.5, 0.9]), requires_grad=False)

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True, correction=0) + 1e-5
        z = (x - mean) / std
        smooth = F.avg_pool1d(F.pad(z[:, None], (2, 2), mode="replicate"), 5, 1).squeeze(1)
        power = torch.fft.rfft(z - smooth).abs().pow(2)
        top = power[:, 1:].topk(2).indices + 1
        y = (self.trend(smooth) + self.season(z - smooth)) * std + mean
        error = x[:, -6:, None] - y[..., None]
        return torch.maximum(self.quantiles * error, (self.quantiles - 1) * error).mean(), y, top


def rows(*makers):
    return lambda i: (tuple(make(i) for make in makers), {})


def f(*shape):
    return lambda i: features(i, *shape)


def picture(size=32, channels=3):
    return lambda i: images(i, channels, size)


def whole(low, high, shape, salt=31):
    return lambda i: torch.randint(low, high, shape, generator=generator(i, salt))


def regions(i):
    corner = torch.randint(0, 8, (5, 2), generator=generator(i, 37))
    size = torch.randint(3, 8, (5, 2), generator=generator(i, 41))
    return torch.cat([torch.arange(5)[:, None] % BATCH, corner, corner + size], 1)


def with_places(i):
    text = tokens(i, (BATCH, 24), low=8)
    text[:, 2:18] = 7
    return text % 64


ROWS = {
    "one_stage": ("detection", OneStage, rows(picture())), "kept_boxes": ("detection", KeptBoxes, rows(picture(16))),
    "two_stage": ("detection", TwoStage, rows(picture(16), regions)), "matcher": ("detection", Matcher, rows(f(BATCH, 10, 16), lambda i: torch.rand(BATCH, 3, 4, generator=generator(i, 5)))),
    "crnn": ("optical character recognition", CRNN, rows(picture(16, 1))),
    "speech_lengths": ("sound", SpeechLengths, rows(f(BATCH, 400), whole(100, 400, (BATCH,)))),
    "packed_speech": ("sound", PackedSpeech, rows(f(BATCH, 20, 8), whole(5, 20, (BATCH,)))),
    "durations": ("sound", Durations, rows(whole(0, 40, (BATCH, 9)))),
    "local_attention": ("text", LocalAttention, lambda i: ((features(i, BATCH, 16 + 3 * i, 16),), {})),
    "global_tokens": ("text", GlobalTokens, rows(f(BATCH, 16, 16), lambda i: torch.arange(16)[None].expand(BATCH, 16) < i)),
    "token_choice": ("mixture", TokenChoice, rows(f(BATCH, 8, 16))), "expert_choice": ("mixture", ExpertChoice, rows(f(BATCH, 8, 16))),
    "skipped_experts": ("mixture", SkippedExperts, rows(f(BATCH, 8, 16))), "early_exit": ("text", EarlyExit, rows(f(BATCH, 16))),
    "retrieval": ("retrieval", Retrieval, rows(f(6, 16), f(6, 16))), "image_in_text": ("images and text", ImageInText, rows(with_places, picture())),
    "segmenter": ("images", Segmenter, rows(picture(), lambda i: torch.rand(BATCH, 3, 2, generator=generator(i, 7)))),
    "graph_conv": ("graphs", GraphConv, rows(f(12, 8), whole(0, 12, (2, 30)), lambda i: torch.arange(12) // 4)),
    "graph_attention": ("graphs", GraphAttention, rows(f(12, 8), whole(0, 12, (2, 30)))),
    "diffusion": ("diffusion", Diffusion, rows(picture(16), lambda i: torch.rand(BATCH, generator=generator(i, 9)) * 1000)),
    "state_space": ("states", StateSpace, rows(f(BATCH, 10, 8))), "memory": ("states", Memory, rows(f(BATCH, 5, 8))),
    "actor_critic": ("decisions", ActorCritic, rows(f(5, 4, 6), f(5, 4), lambda i: (torch.rand(5, 4, generator=generator(i, 3)) < 0.2).float())),
    "gaussian": ("decisions", Gaussian, rows(f(BATCH, 6))), "quantizer": ("images", Quantizer, rows(picture(16))),
    "hypernet": ("weights from weights", Hypernet, rows(f(BATCH, 4), f(BATCH, 8))), "flow": ("densities", Flow, rows(f(BATCH, 6))),
    "point_cloud": ("points", PointCloud, rows(f(BATCH, 20, 3))), "beam": ("text", Beam, rows(f(BATCH, 16))), "forecast": ("series", Forecast, rows(f(BATCH, 24))),
}

# More than one graph, and why.
BREAKS = {
    "global_tokens": "if asks.any()",
    "skipped_experts": "if mask.any()",
    "early_exit": "if all rows are sure: break",
    "beam": "if done.all(): break",
}

ENTRIES = [Entry(name, family, make, inputs, train=True, build_train=lambda make=make: Trained(make())) for name, (family, make, inputs) in ROWS.items()]
