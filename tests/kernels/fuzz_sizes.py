"""Random tensor programs over sizes that vary: each program is compiled once and runs over many concrete sizes, 0 and 1 included, against eager.

    python tests/kernels/fuzz_sizes.py --seed 100 --count 500     seeds 100..599; prints each program that differs

Sizes are symbols (a, b) and numbers of the model; lines read them as programs do, from .shape. What eager refuses at some sizes has to be
refused then, by the same class of exception.
"""
import argparse
import os
import random
import sys
import warnings

import torch

import kintsugi
from kintsugi import _kintsugi as engine

os.environ.setdefault("KINTSUGI_VERIFY", "1")   # copied plans are compared with what the passes make
SIZES = [(5, 9), (9, 5), (7, 7), (1, 6), (6, 1), (17, 33), (40, 3), (0, 4), (4, 0), (3, 130), (1, 1), (64, 16), (2, 2), (33, 17)]
HIDDEN = 8


class Maker:
    """Values by name, with their dims: "a", "b", a number, or None where a line does not follow what becomes of it."""

    def __init__(self, seed):
        self.r, self.lines = random.Random(seed), []
        self.dims = {"i0": ("a", HIDDEN), "i1": ("a", "b"), "i2": ("b", HIDDEN)}

    def any(self, rank=None):
        names = [name for name, dims in self.dims.items() if rank is None or len(dims) in rank]
        return self.r.choice(names[-5:] if self.r.random() < 0.7 else names) if names else None

    def put(self, text, dims):
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.dims[name] = tuple(dims)

    def like(self, dims):
        return [name for name, other in self.dims.items() if other == dims and None not in dims]

    # -- lines ----------------------------------------------------------------------------------------------------------

    def pointwise(self):
        x = self.any()
        self.put(self.r.choice(("{0}.tanh()", "{0} * 2 - 1", "{0}.sigmoid() + {0}", "torch.where({0} > 0.25, {0}, -{0})", "F.gelu({0})", "({0} * {0} + 1).sqrt()",
                                "{0}.clamp(-0.5, 0.75)", "{0} / {0}.shape[0]")).format(x), self.dims[x])

    def binary(self):
        x = self.any()
        y = self.r.choice(self.like(self.dims[x]) or [x])
        self.put(f"{x} {self.r.choice('+-*')} {y}", self.dims[x])

    def reduce(self):
        x = self.any((1, 2, 3))
        if x is None:
            return
        d, keep = self.r.randrange(len(self.dims[x])), self.r.random() < 0.6
        dims = self.dims[x][:d] + ((1,) if keep else ()) + self.dims[x][d + 1:]
        how = self.r.choice(("sum", "mean", "amax", "var", "logsumexp", "norm"))
        given = f"dim={d}, keepdim={keep}"
        self.put(f"{x}.{how}({given})" if how != "norm" else f"{x}.norm({given})", dims)

    def spread(self):
        x = self.any((1, 2))
        if x is not None:
            d = self.r.randrange(len(self.dims[x]))
            self.put(f"{x} - {x}.mean({d}, keepdim=True)", self.dims[x])

    def along(self):
        x = self.any((1, 2, 3))
        if x is not None:
            d = self.r.randrange(len(self.dims[x]))
            self.put(self.r.choice(("{0}.softmax({1})", "{0}.cumsum({1})", "{0}.flip({1})", "{0}.roll(1, {1})", "F.normalize({0}, dim={1})",
                                    "{0}.sort({1}).values", "{0}.log_softmax({1})")).format(x, d), self.dims[x])

    def turn(self):
        x = self.any((2, 3))
        if x is not None:
            self.put(f"{x}.transpose(0, 1){self.r.choice(('', '.contiguous()'))}", (self.dims[x][1], self.dims[x][0], *self.dims[x][2:]))

    def product(self):
        x = self.any((2,))
        y = self.r.choice([name for name, dims in self.dims.items() if len(dims) == 2 and dims[0] == self.dims[x][1]] or [None])
        if y is not None and None not in self.dims[x] + self.dims[y]:
            self.put(f"{x} @ {y}", (self.dims[x][0], self.dims[y][1]))

    def join(self):
        x = self.any((1, 2))
        y = self.r.choice(self.like(self.dims[x]) or [x]) if x else None
        if y is not None:
            d = self.r.randrange(len(self.dims[x]))
            self.put(f"torch.cat(({x}, {y}), {d})", (*self.dims[x][:d], None, *self.dims[x][d + 1:]))

    def part(self):
        x = self.any((1, 2, 3))
        if x is not None:
            self.put(f"{x}{self.r.choice(('[1:]', '[::2]', '[:-1]', '[:3]', '[-2:]'))}", (None, *self.dims[x][1:]))

    def flat(self):
        x = self.any((2, 3))
        if x is not None:
            self.put(self.r.choice((f"{x}.reshape(-1)", f"{x}.flatten(0, 1)", f"{x}.reshape({x}.shape[0] * {x}.shape[1], -1)[:, :1].squeeze(1)"))
                     if len(self.dims[x]) == 2 else f"{x}.reshape(-1)", (None,))

    def heads(self):
        x = self.any((2,))
        if x is not None and self.dims[x][1] == HIDDEN:
            self.put(f"{x}.view({x}.shape[0], 2, {HIDDEN // 2}).transpose(0, 1).contiguous()", (2, self.dims[x][0], HIDDEN // 2))

    def mask(self):
        x = self.any((2,))
        if x is not None:
            self.put(f"{x}.masked_fill(torch.arange({x}.shape[0])[:, None] < torch.arange({x}.shape[1]), -1.0)", self.dims[x])

    def outer(self):
        x = self.any((1,))
        y = self.any((1,))
        if x is not None:
            self.put(f"({x}[:, None] * {y}[None]).sigmoid()", (self.dims[x][0], self.dims[y][0]))

    def pick(self):
        x = self.any((2,))
        if x is not None:
            self.put(self.r.choice((f"{x}[torch.arange({x}.shape[0] - 1, -1, -1)]", f"{x}.gather(1, ({x} > 0).long())", f"{x}.index_select(0, torch.arange({x}.shape[0]).roll(1))")),
                     self.dims[x])

    def pad(self):
        x = self.any((1, 2))
        if x is not None:
            self.put(f"F.pad({x}, (1, 2), value=0.5)", (*self.dims[x][:-1], None))

    def fresh(self):
        x = self.any((1, 2))
        if x is not None:
            self.put(f"{x} + torch.linspace(0, 1, {x}.shape[-1])", self.dims[x])

    def source(self):
        results = [name for name in self.dims if name.startswith("v")][-3:] or ["i0"]
        return "def f(i0, i1, i2):\n" + "".join(f"    {line}\n" for line in self.lines) + f"    return {', '.join(results)},\n"


def generate(seed):
    maker = Maker(seed)
    kinds = (maker.pointwise, maker.pointwise, maker.binary, maker.reduce, maker.spread, maker.along, maker.turn, maker.product, maker.join, maker.part, maker.flat,
             maker.heads, maker.mask, maker.outer, maker.pick, maker.pad, maker.fresh)
    for _ in range(maker.r.randrange(3, 11)):
        maker.r.choice(kinds)()
    return maker.source()


def function(source, seed):
    space = {"torch": torch, "F": torch.nn.functional}
    exec(compile(source, f"<sizes {seed}>", "exec"), space)
    return space["f"]


def attempt(fn, arguments):
    try:
        return fn(*arguments), None
    except (RuntimeError, IndexError, ValueError) as error:
        return None, error


def strides(t):
    return [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size != 1]


def difference(ours, eager):
    if (ours[1] is None) != (eager[1] is None):
        return f"raises {ours[1] or eager[1]!r} {'compiled' if ours[1] else 'in eager'} alone"
    if eager[1] is not None:
        return None if type(ours[1]) is type(eager[1]) else f"raises {ours[1]!r}, not {eager[1]!r}"
    for a, b in zip(ours[0], eager[0], strict=True):
        if a.shape != b.shape or strides(a) != strides(b) or a.dtype != b.dtype:
            return f"{tuple(a.shape)}{a.stride()} {a.dtype}, not {tuple(b.shape)}{b.stride()} {b.dtype}"
        least = float(b[b.isfinite()].abs().max()) if b.numel() and bool(b.isfinite().any()) else 1.0
        if not torch.allclose(a, b, rtol=1e-3, atol=2e-4 * max(least, 1.0), equal_nan=True):
            return f"differs by {float((a - b).abs().nan_to_num().max()):.3g}"
    return None


def check(seed, sizes=None):
    """What is wrong, and how many launches of code there were."""
    source = generate(seed)
    f = function(source, seed)
    order = list(SIZES if sizes is None else sizes)
    random.Random(seed).shuffle(order)
    engine.set_option("trials", 0)
    compiled = kintsugi.compile(f, dynamic=True)
    since = max((event["seq"] for event in kintsugi.events()), default=-1)
    torch.manual_seed(seed)
    with kintsugi.config.patch(kernels=True, step_aside=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for a, b in order + order[::3]:
            arguments = torch.randn(a, HIDDEN), torch.randn(a, b), torch.randn(b, HIDDEN)
            wrong = difference(attempt(compiled, arguments), attempt(f, arguments))
            if wrong is not None:
                return f"seed {seed}, a = {a}, b = {b}: {wrong}\n{source}", 0
    bugs = [event["message"] for event in kintsugi.events() if event["event"] == "bug" and event["seq"] > since]
    if bugs:
        return f"seed {seed}: {bugs[0]}\n{source}", 0
    rows = [row for row in kintsugi.stats(compiled)["kernels"] if row["compiled"]]
    return None, sum(row["launches"] for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    bad = launches = 0
    for seed in range(options.seed, options.seed + options.count):
        if options.show:
            print(generate(seed))
            continue
        wrong, runs = check(seed)
        launches += runs
        if wrong is not None:
            bad += 1
            print(wrong, flush=True)
    print(f"{options.count} programs, {launches} launches, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
