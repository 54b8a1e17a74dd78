"""Programs whose sizes keep changing: eager and compiled in turns over distinct sizes in shuffled order, every result compared.

    python bench/sizes.py [NAME ...] [--quick] [--passes 4] [--threads 1] [--stock] [--fixed 4] [--wall] [--json FILE]

For each program, in a process of its own: the time of the first pass over sizes never seen, compiling included, as eager over compiled; the same
for the passes after it ("steady", median of their ratios); steady speed as a share of that of code made for one size, over --fixed of the sizes
(each in a fresh compilation); how often machine code was made for a graph, and the recordings. Times are processor time of the process
unless --wall: other processes of the machine do not count. --stock adds torch.compile(dynamic=True).
"""

import argparse
import collections
import json
import os
import random
import statistics
import subprocess
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import kintsugi  # noqa: E402


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, causal=False):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.one, self.two, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, heads)
        self.up, self.down, self.causal = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), causal

    def forward(self, x):
        x = x + self.attention(self.one(x), self.causal)
        return x + self.down(F.gelu(self.up(self.two(x))))


class Language(nn.Module):
    def __init__(self, layers=4, width=256, heads=4, causal=False):
        super().__init__()
        self.words, self.places = nn.Embedding(1000, width), nn.Embedding(512, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal) for _ in range(layers)))
        self.head = nn.Linear(width, 1000 if causal else 4)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        x = self.blocks(x)
        return self.head(x if self.head.out_features == 1000 else x.mean(1))


class Residual(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.one, self.norm_one = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.two, self.norm_two = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.short = nn.Identity() if stride == 1 and width == out else nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.norm_two(self.two(F.relu(self.norm_one(self.one(x))))) + self.short(x))


def vision():
    return nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), Residual(32, 32, 1), Residual(32, 64, 2),
                         Residual(64, 128, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class Translator(nn.Module):
    def __init__(self, width=192, heads=4):
        super().__init__()
        self.words, self.encoder = nn.Embedding(1000, width), nn.Sequential(*(Block(width, heads, False) for _ in range(2)))
        self.decoder, self.norm, self.head = nn.Sequential(*(Block(width, heads, True) for _ in range(2))), nn.LayerNorm(width), nn.Linear(width, 1000)
        self.query, self.keys = nn.Linear(width, width), nn.Linear(width, 2 * width)

    def forward(self, source, target):
        memory, x = self.encoder(self.words(source)), self.decoder(self.words(target))
        k, v = self.keys(memory).chunk(2, -1)
        x = self.norm(x + F.scaled_dot_product_attention(self.query(x).unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)).squeeze(1))
        return self.head(x)


def detections(boxes, scores):
    """Boxes of an image from offsets, and the best score of each with how far others overlap it: matrices over all pairs."""
    x, y, w, h = boxes.unbind(-1)
    corners = torch.stack((x - w.exp() / 2, y - h.exp() / 2, x + w.exp() / 2, y + h.exp() / 2), -1)
    best, label = scores.softmax(-1).max(-1)
    order = best.argsort(descending=True)
    corners, best, label = corners[order], best[order], label[order]
    area = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    low, high = torch.maximum(corners[:, None, :2], corners[None, :, :2]), torch.minimum(corners[:, None, 2:], corners[None, :, 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    overlap = inside / (area[:, None] + area[None] - inside)
    worst = torch.where(label[:, None] == label[None], overlap, 0).triu(1).amax(0)
    return corners, best * torch.exp(-(worst * worst) / 0.5), label


class Decoder(nn.Module):
    """One token at a time, with keys and values of all before."""

    def __init__(self, layers=3, width=256, heads=4):
        super().__init__()
        self.heads, self.words, self.head = heads, nn.Embedding(1000, width), nn.Linear(width, 1000)
        self.blocks = nn.ModuleList(Block(width, heads, False) for _ in range(layers))

    def forward(self, token, cache):
        x, grown = self.words(token), []
        for block, (keys, values) in zip(self.blocks, cache):
            q, k, v = block.attention.qkv(block.one(x)).view(x.shape[0], 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
            grown.append((keys, values))
            y = F.scaled_dot_product_attention(q, keys, values)
            x = x + block.attention.out(y.transpose(1, 2).reshape(x.shape))
            x = x + block.down(F.gelu(block.up(block.two(x))))
        return self.head(x[:, -1]), grown


class Beams(Decoder):
    """The same where each step first takes up the caches of the best beams."""

    def forward(self, token, cache, order):
        return super().forward(token, [(keys.index_select(0, order), values.index_select(0, order)) for keys, values in cache])


class Recurrent(nn.Module):
    """A cell of the program's own, over the length."""

    def __init__(self, width=64, hidden=128):
        super().__init__()
        self.gate, self.inner, self.outer, self.hidden = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(width, hidden), hidden

    def forward(self, x):
        h, states = x.new_zeros(x.shape[0], self.hidden), []
        for t in range(x.shape[1]):
            gate = torch.sigmoid(self.gate(h))
            h = gate * torch.tanh(self.outer(x[:, t]) + self.inner(h)) + (1 - gate) * h
            states.append(h)
        return torch.stack(states, 1)


def _cache(batch, length):
    return [(torch.randn(batch, 4, length, 64), torch.randn(batch, 4, length, 64)) for _ in range(3)]


def _tokens(batch, length):
    return torch.randint(0, 1000, (batch, length))


def _both(rng, n, batches, lengths):
    pairs = [(b, t) for b in batches for t in lengths]
    rng.shuffle(pairs)
    return pairs[:n]


# name: model, and from a source of randomness and a number of sizes to lists of arguments
PROGRAMS = {
    "encoder": (Language, lambda rng, n: [(_tokens(b, t),) for b, t in _both(rng, n, range(1, 5), range(9, 97))]),
    "decoder": (lambda: Language(causal=True), lambda rng, n: [(_tokens(b, t),) for b, t in _both(rng, n, range(1, 4), range(9, 80))]),
    "encoder-decoder": (Translator, lambda rng, n: [(_tokens(2, s), _tokens(2, t)) for s, t in _both(rng, n, range(10, 70), range(10, 70))]),
    "vision": (vision, lambda rng, n: [(torch.randn(b, 3, s, s),) for b, s in _both(rng, n, range(1, 5), range(64, 161, 8))]),
    "mlp": (lambda: nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1024), nn.SiLU(), nn.Linear(1024, 64)),
            lambda rng, n: [(torch.randn(b, 256),) for b in rng.sample(range(2, 260), n)]),
    "detection": (lambda: detections, lambda rng, n: [(torch.randn(k, 4), torch.randn(k, 20)) for k in rng.sample(range(60, 400), n)]),
    "growing cache": (Decoder, lambda rng, n: [(_tokens(2, 1), _cache(2, 16 + i)) for i in range(n)]),
    "beam search": (Beams, lambda rng, n: [(_tokens(6, 1), _cache(6, 16 + i), torch.randint(0, 6, (6,))) for i in range(n)]),
    "recurrent": (Recurrent, lambda rng, n: [(torch.randn(4, t, 64),) for t in rng.sample(range(5, 60), n)]),
    "buckets": (Language, lambda rng, n: [(_tokens(8, 8 * (1 + rng.randrange(12))),) for _ in range(5 * n)]),
}


MOST_COMPILATIONS = 4  # of one graph: --quick fails above; tiny sizes give kernels of other shapes


def _flat(result):
    return [result] if isinstance(result, torch.Tensor) else [t for part in result for t in _flat(part)]


def _compare(ours, eager):
    for a, b in zip(_flat(ours), _flat(eager), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-4)


def _timed(clock, fn, args):
    begin = clock()
    result = fn(*args)
    return clock() - begin, result


def _pass(clock, ways, inputs, compare=True):
    """Seconds of each way; they alternate, and so does who begins."""
    sums = dict.fromkeys(ways, 0.0)
    for number, args in enumerate(inputs):
        results = {}
        for name in (list(ways) if number % 2 else reversed(list(ways))):
            seconds, results[name] = _timed(clock, ways[name], args)
            sums[name] += seconds
        for name in ways if compare else ():
            _compare(results[name], results["eager"])
    return sums


def _compilations(since):
    """Most over graphs: how often machine code for it was not there."""
    counts = collections.Counter()
    for event in kintsugi.events()[since:]:
        if event["event"] == "lower" and event["compiled"] + event["from_disk"] > 0:
            counts[event["name"], event["entry"], event["graph"]] += 1
    return max(counts.values(), default=0)


def _fixed_share(clock, model, compiled, inputs, rounds=12):
    """Median over sizes: least time of code for one size over that of code for all."""
    shares = []
    for args in inputs:
        with kintsugi.config.patch(open_sizes=False):
            fixed = kintsugi.compile(model, dynamic=False)
            for _ in range(40):
                fixed(*args)
            for _ in range(30):
                compiled(*args)
            times = [(_timed(clock, fixed, args)[0], _timed(clock, compiled, args)[0]) for _ in range(rounds)]
        shares.append(min(t for t, _ in times) / min(t for _, t in times))
    return statistics.median(shares)


def measure(name, options):
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    make, draw = PROGRAMS[name]
    model = make()
    model = model.eval() if isinstance(model, nn.Module) else model
    inputs = draw(random.Random(7), 12 if options.quick else 40)
    clock = time.perf_counter if options.wall else time.process_time
    with torch.no_grad():
        for args in inputs[:2]:
            model(*args)
        compiled = kintsugi.compile(model)
        ways = {"eager": model, "kintsugi": compiled}
        if options.stock:
            ways["stock"] = torch.compile(model, dynamic=True)
        passes = [_pass(clock, ways, inputs) for _ in range(options.passes)]
        row = {"name": name, "sizes": len(inputs), "eager_ms": passes[0]["eager"] * 1e3}
        for way in list(ways)[1:]:
            row[way] = {"first": passes[0]["eager"] / passes[0][way], "steady": statistics.median(p["eager"] / p[way] for p in passes[-max(1, len(passes) // 2):])}
        row["compilations"] = _compilations(0)
        row["recordings"] = kintsugi.stats(compiled)["recordings"]
        if options.fixed:
            row["share"] = _fixed_share(clock, model, compiled, inputs[:: max(1, len(inputs) // options.fixed)][:options.fixed])
    return row


def _show(row):
    ours, stock = row["kintsugi"], row.get("stock")
    text = f"{row['name']:16} {row['sizes']:4} sizes {row['eager_ms']:8.1f} ms  first {ours['first']:5.2f}x  steady {ours['steady']:5.2f}x"
    text += f"  of fixed {100 * row['share']:4.0f}%" if "share" in row else ""
    text += f"  compilations {row['compilations']}  recordings {row['recordings']}"
    print(text + (f"  stock first {stock['first']:.3f}x steady {stock['steady']:.2f}x" if stock else ""), flush=True)


def _mean(values):
    return statistics.geometric_mean(values) if values else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--quick", action="store_true", help="12 sizes, 2 passes, no fixed code: whether results are equal and compilations few; no times")
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fixed", type=int, default=4, help="sizes at which code for one size is measured, too")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--wall", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.passes, options.fixed = min(options.passes, 2), 0
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return 0
    rows, failed = [], []
    rest = [argument for argument in sys.argv[1:] if argument not in options.names]
    for name in options.names or PROGRAMS:
        done = subprocess.run([sys.executable, __file__, "--one", name, *rest], capture_output=True, text=True)
        if done.returncode != 0:
            failed.append(name)
            print(f"{name:16} failed\n{done.stderr[-1500:]}", flush=True)
            continue
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        _show(rows[-1])
    print(f"geometric means: first {_mean([r['kintsugi']['first'] for r in rows]):.2f}x, steady {_mean([r['kintsugi']['steady'] for r in rows]):.2f}x")
    many = [row["name"] for row in rows if row["compilations"] > MOST_COMPILATIONS] if options.quick else []
    for name in many:
        print(f"{name}: machine code was made more than {MOST_COMPILATIONS} times for one graph")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 1 if failed or many else 0


if __name__ == "__main__":
    sys.exit(main())
