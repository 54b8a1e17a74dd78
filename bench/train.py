"""Steps of training, eager against compiled, in turns in one process: model and loss compiled, backward and optimizer as the program
calls them.

    python bench/train.py [NAME ...] [--turns 12] [--stock] [--whole] [--wall] [--profile]

Reported are medians of processor time (--wall: of elapsed time, for more than one thread on an idle machine) over the turns, their quartiles' distance, and the ratio, also of model, loss and backward alone (without the
optimizer, which is eager's in both); the largest relative difference of
losses over all steps; the first compiled step. --whole also compiles zero_grad, backward and optimizer.step() with it. --profile tells instead
where the time of a step goes: in eager by operator, in ours by operation of the forward and the backward program.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import kintsugi  # noqa: E402

clock = time.process_time


def _mlp():
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Dropout(0.1), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return model, (torch.randn(64, 256), torch.randint(0, 10, (64,))), lambda m, x, t: F.cross_entropy(m(x), t)


class _Block(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.one, self.norm_one = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.two, self.norm_two = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.short = nn.Sequential() if stride == 1 and width == out else nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.norm_two(self.two(F.relu(self.norm_one(self.one(x)), inplace=True)))
        return F.relu(y + self.short(x), inplace=True)


def _resnet():
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), _Block(32, 32, 1), _Block(32, 64, 2), _Block(64, 128, 2),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    return model, (torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))), lambda m, x, t: F.cross_entropy(m(x), t)


def _gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=2000, n_positions=128, use_cache=False))
    tokens = torch.randint(0, 2000, (4, 64))
    return model, (tokens,), lambda m, x: m(x, labels=x).loss


def _bert():
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(num_hidden_layers=3, num_attention_heads=4, hidden_size=256, intermediate_size=1024, vocab_size=2000))
    return model, (torch.randint(0, 2000, (4, 64)), torch.randint(0, 2, (4,))), lambda m, x, t: m(x, labels=t).loss


def _vit():
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_hidden_layers=3, num_attention_heads=4, hidden_size=256, intermediate_size=1024, image_size=64, patch_size=8))
    return model, (torch.randn(4, 3, 64, 64), torch.randint(0, 2, (4,))), lambda m, x, t: m(pixel_values=x, labels=t).loss


def _lstm():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layers, self.out = nn.Embedding(1000, 128), nn.LSTM(128, 256, 2, batch_first=True), nn.Linear(256, 1000)

        def forward(self, x):
            return self.out(self.layers(self.embed(x))[0])

    tokens = torch.randint(0, 1000, (8, 32))
    return Model(), (tokens,), lambda m, x: F.cross_entropy(m(x).flatten(0, 1), x.flatten())


class _Twice(nn.Sequential):
    def __init__(self, width, out):
        super().__init__(nn.Conv2d(width, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(), nn.Conv2d(out, out, 3, padding=1, bias=False),
                         nn.BatchNorm2d(out), nn.ReLU())


def _unet():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = nn.ModuleList([_Twice(3, 32), _Twice(32, 64)]), nn.ModuleList([_Twice(128, 64), _Twice(64, 32)])
            self.turn, self.out = nn.ModuleList([nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)]), nn.Conv2d(32, 4, 1)
            self.bottom, self.pool = _Twice(64, 128), nn.MaxPool2d(2)

        def forward(self, x):
            kept = []
            for block in self.down:
                x = block(x)
                kept.append(x)
                x = self.pool(x)
            x = self.bottom(x)
            for turn, block in zip(self.turn, self.up, strict=True):
                x = block(torch.cat([turn(x), kept.pop()], 1))
            return self.out(x)

    return Model(), (torch.randn(4, 3, 48, 48), torch.randint(0, 4, (4, 48, 48))), lambda m, x, t: F.cross_entropy(m(x), t)


def _gru():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layers, self.out = nn.Embedding(2000, 128), nn.GRU(128, 256, 2, batch_first=True), nn.Linear(256, 2000)

        def forward(self, x):
            return self.out(self.layers(self.embed(x))[0])

    tokens = torch.randint(0, 2000, (8, 32))
    return Model(), (tokens,), lambda m, x: F.cross_entropy(m(x).flatten(0, 1), x.flatten())


class _Attend(nn.Module):
    def __init__(self, width, heads, experts=0):
        super().__init__()
        self.heads, self.experts = heads, experts
        self.one, self.two, self.all, self.back = nn.LayerNorm(width), nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        if experts:
            self.gate = nn.Linear(width, experts)
            self.wide, self.narrow = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.05), nn.Parameter(torch.randn(experts, 2 * width, width) * 0.05)
        else:
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def feed(self, x):
        if not self.experts:
            return self.narrow(F.gelu(self.wide(x)))
        rows = x.flatten(0, 1)
        share = torch.softmax(self.gate(rows), -1)
        made = torch.bmm(F.silu(torch.bmm(rows.expand(self.experts, -1, -1), self.wide)), self.narrow)
        return (made * share.t().unsqueeze(-1)).sum(0).view_as(x)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.all(self.one(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, length, width)
        x = x + self.back(y)
        return x + self.feed(self.two(x))


class _Decoder(nn.Module):
    def __init__(self, words, width, heads, layers, length, experts=0):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers, self.norm, self.out = nn.Sequential(*(_Attend(width, heads, experts) for _ in range(layers))), nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x):
        return self.out(self.norm(self.layers(self.words(x) + self.places)))


def _decoder(words, width, heads, layers, batch, length, experts=0):
    tokens = torch.randint(0, words, (batch, length))
    return _Decoder(words, width, heads, layers, length, experts), (tokens,), lambda m, x: F.cross_entropy(m(x).flatten(0, 1), x.flatten())


def _vit_wide():
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_hidden_layers=2, num_attention_heads=8, hidden_size=512, intermediate_size=2048, image_size=96, patch_size=8))
    return model, (torch.randn(4, 3, 96, 96), torch.randint(0, 2, (4,))), lambda m, x, t: m(pixel_values=x, labels=t).loss


MODELS = {"mlp": _mlp, "resnet": _resnet, "gpt2": _gpt2, "bert": _bert, "vit": _vit, "lstm": _lstm, "unet": _unet, "gru": _gru,
          "moe": lambda: _decoder(1000, 256, 4, 2, 4, 64, experts=4), "gpt-512": lambda: _decoder(4000, 512, 8, 2, 4, 128),
          "gpt-768": lambda: _decoder(4000, 768, 12, 2, 8, 128), "vit-512": _vit_wide}


class _Trainer:
    """One engine's copy of a model, with an optimizer and random numbers of its own."""

    def __init__(self, name, compiler, whole):
        torch.manual_seed(1)
        self.model, self.data, loss = MODELS[name]()
        self.model.train()
        optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)
        forward = lambda *data: loss(self.model, *data)  # noqa: E731

        def step(*data):
            optimizer.zero_grad()
            begin = clock()
            value = forward(*data)
            value.backward()
            self.inner.append(clock() - begin)
            optimizer.step()
            return value

        def whole_step(*data):
            optimizer.zero_grad()
            value = forward(*data)
            value.backward()
            optimizer.step()
            return value

        if whole:
            self.run = compiler(whole_step)
        else:
            self.compiled = forward = compiler(forward)
            self.run = step
        self.random = torch.get_rng_state()
        self.losses, self.times, self.inner = [], [], []

    def step(self):
        torch.set_rng_state(self.random)
        wall, begin = time.perf_counter(), clock()
        value = self.run(*self.data)
        self.times.append(clock() - begin)
        wall = time.perf_counter() - wall
        self.random = torch.get_rng_state()
        self.losses.append(float(value.detach()))
        return wall


def _spread(times):
    low, _, high = statistics.quantiles(times, n=4)
    return high - low


def measure(name, turns, stock, whole):
    engines = {"eager": lambda fn: fn, "kintsugi": lambda fn: kintsugi.compile(fn)}
    if stock:
        engines["stock"] = lambda fn: torch.compile(fn)
    trainers = {engine: _Trainer(name, compiler, whole) for engine, compiler in engines.items()}
    first = {engine: trainer.step() for engine, trainer in trainers.items()}
    for _ in range(4):
        for trainer in trainers.values():
            trainer.step()
    for trainer in trainers.values():
        trainer.times.clear()
        trainer.inner.clear()
    for _ in range(turns):
        for trainer in trainers.values():
            trainer.step()
    eager = statistics.median(trainers["eager"].times)
    row = {"model": name, "whole": whole, "eager_ms": eager * 1e3, "eager_spread_ms": _spread(trainers["eager"].times) * 1e3}
    for engine, trainer in trainers.items():
        if engine == "eager":
            continue
        median = statistics.median(trainer.times)
        row |= {f"{engine}_ms": median * 1e3, f"{engine}_spread_ms": _spread(trainer.times) * 1e3, f"{engine}_ratio": eager / median,
                f"{engine}_first_s": first[engine],
               f"{engine}_model_ratio": statistics.median(trainers["eager"].inner) / statistics.median(trainer.inner) if trainer.inner else 0.0,
                f"{engine}_loss": max(abs(a - b) / abs(a) for a, b in zip(trainers["eager"].losses, trainer.losses, strict=True))}
    return row


def _operators(trainer, turns):
    """Milliseconds a step by torch's operators themselves."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(turns):
            trainer.step()
    rows = sorted(profile.key_averages(), key=lambda row: -row.self_cpu_time_total)
    return [(row.self_cpu_time_total / turns / 1e3, row.count // turns, row.key) for row in rows]


def _operations(trainer, turns):
    """(part, milliseconds a step, times, operation) of the programs that the engine launches: best times."""
    from kintsugi._api import engine_of
    from kintsugi._engine import engine

    engine.set_profile(True)
    for _ in range(turns):
        trainer.step()
    engine.set_profile(False)
    rows = {}
    for entry in engine_of(trainer.compiled).entries():
        for version in (v for subgraph in engine.kernels(entry) for v in subgraph["versions"]):
            for part in ("profile", "profile_backward"):
                for row in version[part] or ():
                    label = ("forward" if part == "profile" else "backward", row["name"])
                    ms, times = rows.get(label, (0, 0))
                    rows[label] = ms + row["best_ns"] * 1e-6, times + 1
    return sorted(((part, ms, times, name) for (part, name), (ms, times) in rows.items()), key=lambda row: -row[1])


def tell_profile(name, turns, rows=24):
    eager, ours = _Trainer(name, lambda fn: fn, False), _Trainer(name, lambda fn: kintsugi.compile(fn), False)
    for trainer in (eager, ours):
        for _ in range(4):
            trainer.step()
    print(f"{name}: eager's operators, ms, calls")
    for ms, count, key in _operators(eager, turns)[:rows]:
        print(f"  {ms:8.3f} {count:5}  {key}")
    print(f"{name}: operations of launches, ms, times")
    for part, ms, times, operation in _operations(ours, turns)[:2 * rows]:
        print(f"  {ms:8.3f} {times:5}  {part:8} {operation}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--wall", action="store_true")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    if args.wall:
        globals()["clock"] = time.perf_counter
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    for name in args.names or MODELS:
        if args.profile:
            tell_profile(name, args.turns)
            continue
        row = measure(name, args.turns, args.stock, args.whole)
        print(json.dumps({key: round(value, 7) if isinstance(value, float) else value for key, value in row.items()}), flush=True)


if __name__ == "__main__":
    main()
