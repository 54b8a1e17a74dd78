"""Calls on a GPU, relative to eager: python bench/gpu.py [--engines kintsugi,reduce-overhead,stock,stock-reduce-overhead] [--models ...]

A row is a model, small ones (where launching takes longer than computing) and large ones. The ways of calling take turns in rounds; a
round is so many calls and one wait for the device. Printed are medians of the rounds' ratios to eager with their quartiles, and the
seconds of the first three calls.
"""
import argparse
import json
import pathlib
import statistics
import time

import torch
from torch import nn

import kintsugi

ENGINES = {
    "kintsugi": lambda fn: kintsugi.compile(fn),
    "reduce-overhead": lambda fn: kintsugi.compile(fn, mode="reduce-overhead"),
    "stock": lambda fn: torch.compile(fn),
    "stock-reduce-overhead": lambda fn: torch.compile(fn, mode="reduce-overhead"),
}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


def transformer(width, heads, depth, dtype):
    return nn.Sequential(*(Block(width, heads) for _ in range(depth))).to("cuda", dtype)


def convolutions(width, depth):
    layers = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(depth):
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).cuda()


def mlp(width, depth):
    return nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.SiLU(), nn.LayerNorm(width)))).cuda()


MODELS = {
    "small mlp": lambda: (mlp(128, 12), torch.randn(16, 128, device="cuda")),
    "small transformer": lambda: (transformer(256, 4, 6, torch.float16), torch.randn(2, 64, 256, device="cuda", dtype=torch.float16)),
    "one token": lambda: (transformer(1024, 16, 12, torch.bfloat16), torch.randn(1, 1, 1024, device="cuda", dtype=torch.bfloat16)),
    "small convolutions": lambda: (convolutions(32, 16), torch.randn(2, 3, 32, 32, device="cuda")),
    "large transformer": lambda: (transformer(2048, 16, 8, torch.bfloat16), torch.randn(16, 1024, 2048, device="cuda", dtype=torch.bfloat16)),
    "large convolutions": lambda: (convolutions(128, 8), torch.randn(64, 3, 112, 112, device="cuda")),
}


def timed(fn, x, calls):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        fn(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def measure(make, engines, seconds):
    torch.manual_seed(0)
    model, x = make()
    model.eval()
    with torch.inference_mode(False), torch.no_grad():
        for _ in range(3):
            expected = model(x)
        eager = min(timed(model, x, 3) for _ in range(3))
        calls = max(3, min(200, int(0.02 / eager)))
        rows, ways = {}, {}
        for name in engines:
            torch.cuda.synchronize()
            start = time.perf_counter()
            try:
                ways[name] = ENGINES[name](model)
                for _ in range(3):
                    got = ways[name](x)
                torch.cuda.synchronize()
            except Exception as error:
                rows[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
                del ways[name]
                continue
            rows[name] = {"first_s": time.perf_counter() - start, "differs": float((got - expected).abs().max())}
        for name in ways:
            timed(ways[name], x, calls)
        until, ratios, base = time.perf_counter() + seconds, {name: [] for name in ways}, []
        while time.perf_counter() < until or len(base) < 5:
            base.append(timed(model, x, calls))
            for name, fn in ways.items():
                ratios[name].append(base[-1] / timed(fn, x, calls))
    for name, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4)
        rows[name] |= {"speed": middle, "low": low, "high": high}
    return {"eager_us": 1e6 * statistics.median(base), "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", default="kintsugi,reduce-overhead")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=2.0, help="for each model")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    results = {}
    for name in options.models.split(","):
        results[name] = found = measure(MODELS[name], options.engines.split(","), options.seconds)
        cells = [f"{engine} {row['speed']:.2f} ({row['low']:.2f}-{row['high']:.2f}, first calls {row['first_s']:.2f} s, differs {row['differs']:.1e})" if "speed" in row
                 else f"{engine} {row['failed']}" for engine, row in found["rows"].items()]
        print(f"{name}: eager {found['eager_us']:.0f} us; " + "; ".join(cells), flush=True)
        if options.json:
            options.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "models": results}, indent=1))


if __name__ == "__main__":
    main()
