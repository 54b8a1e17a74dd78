"""Functions whose graph breaks have a known price: each stands beside the same function without the break.

The gain that `explain` predicts from the first alone is compared with what the second one measures.
"""

import contextlib
import io
import math

import torch

S, L, W = (64, 64), (512, 1024), 64


def branch_small(x, w):
    y = torch.sin(x) * 2
    if y.sum() < 1e9:
        y = y + w
    return torch.cos(y)


def branch_small_fixed(x, w):
    y = torch.sin(x) * 2
    y = torch.where(y.sum() < 1e9, y + w, y)
    return torch.cos(y)


def item(x, w):
    scale = x.abs().max().item()
    if scale < 1e6:
        x = x / (w + 1.5)
    return torch.tanh(x) + 1


def item_fixed(x, w):
    scale = x.abs().max()
    x = torch.where(scale < 1e6, x / (w + 1.5), x)
    return torch.tanh(x) + 1


def loop(x, w):
    for _ in range(6):
        x = x * w + 0.5
        if x.mean() > -100:
            x = x * 0.99
    return x


def loop_fixed(x, w):
    for _ in range(6):
        x = x * w + 0.5
        x = torch.where(x.mean() > -100, x * 0.99, x)
    return x


def asked(x, w):
    y = x * w
    torch._dynamo.graph_break()
    z = y + 1
    torch._dynamo.graph_break()
    return z.relu() * y


def asked_fixed(x, w):
    y = x * w
    z = y + 1
    return z.relu() * y


def number(x, w):
    total = float((x * w).sum())
    if total != 0.25:
        x = x + 1
    return x * x - w


def number_fixed(x, w):
    total = (x * w).sum()
    x = torch.where(total != 0.25, x + 1, x)
    return x * x - w


class Layer(torch.nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.linear = torch.nn.Linear(W, W)
        self.fixed = fixed

    def forward(self, x):
        x = self.linear(x)
        if self.fixed:
            x = torch.where(x.sum() > -1e9, x * 0.5, x)
        elif x.sum() > -1e9:
            x = x * 0.5
        return x.relu()


class Layers(torch.nn.Module):
    def __init__(self, fixed):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(Layer(fixed) for _ in range(8))

    def forward(self, x, w):
        for layer in self.layers:
            x = layer(x)
        return x * w


def library(fixed):
    """A function that uses a library, in which the break is; and the same with the library's method overridden."""
    text = """
import torch

class Scaler:
    def bound(self, x):
        top = x.abs().amax()
        if top > 0.5:
            x = x / top
        return x

    def __call__(self, x):
        return self.bound(x.sin()).cos()
"""
    space = {}
    exec(compile(text, "lib/site-packages/scalers/core.py", "exec"), space)

    class Fixed(space["Scaler"]):
        def bound(self, x):
            top = x.abs().amax()
            return torch.where(top > 0.5, x / top, x)

    scale = (Fixed if fixed else space["Scaler"])()

    def use(x, w):
        for _ in range(3):
            x = scale(x + w) * 0.5
        return x
    return use


def told(x, w):
    y = x * w
    print("mean", y.mean())
    return (y + 1).relu()


def told_fixed(x, w):
    y = x * w
    return (y + 1).relu()


def bounded(x, w):
    for _ in range(3):
        x = x * w
        if x.max().item() > 1e3:
            x = x * 0.1
        x = x + 1
    return x


def bounded_fixed(x, w):
    for _ in range(3):
        x = x * w
        x = torch.where(x.max() > 1e3, x * 0.1, x)
        x = x + 1
    return x


def scaled(x, w):
    scale = x.abs().max().item()
    return torch.tanh(x * w / scale) + scale


def scaled_fixed(x, w):
    scale = x.abs().max()
    return torch.tanh(x * w / scale) + scale


def standard(x, w):
    mean, deviation = float(x.mean()), float(x.std())
    return (x - mean) / (deviation + 1e-6) * w


def standard_fixed(x, w):
    mean, deviation = x.mean(), x.std()
    return (x - mean) / (deviation + 1e-6) * w


def clipped(x, w):
    length = x.norm().item()
    return x * min(1.0, 1.0 / (math.sqrt(length) + 1e-6)) + w


def clipped_fixed(x, w):
    length = x.norm()
    return x * (1.0 / (length.sqrt() + 1e-6)).clamp(max=1.0) + w


def tested(x, w):
    for _ in range(4):
        x = x * w + 0.1
        if x.isnan().any():
            raise ValueError("no numbers")
    return torch.relu(x) + 1


def tested_fixed(x, w):
    for _ in range(4):
        x = x * w + 0.1
    return torch.relu(x) + 1


def _tensors(shape):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(shape, generator=generator), torch.rand(shape, generator=generator) + 0.5


# name: (with the break, without it, sizes)
CASES = {
    "branch, small": (branch_small, branch_small_fixed, S), "branch, large": (branch_small, branch_small_fixed, L),
    "item, small": (item, item_fixed, S), "item, large": (item, item_fixed, L),
    "loop, small": (loop, loop_fixed, S), "loop, large": (loop, loop_fixed, L),
    "asked for, small": (asked, asked_fixed, S), "asked for, large": (asked, asked_fixed, L),
    "number, small": (number, number_fixed, S), "number, large": (number, number_fixed, L),
    "layers": (lambda: Layers(False), lambda: Layers(True), (8, W)), "layers, wide": (lambda: Layers(False), lambda: Layers(True), (128, W)),
    "library": (lambda: library(False), lambda: library(True), S),
    "number in arithmetic": (scaled, scaled_fixed, S), "two numbers": (standard, standard_fixed, S), "functions of numbers": (clipped, clipped_fixed, S),
    "test": (tested, tested_fixed, S), "test, large": (tested, tested_fixed, L),
    "print": (told, told_fixed, S), "print, large": (told, told_fixed, L), "item in a loop": (bounded, bounded_fixed, S),
}
MADE = ("layers", "library")  # of these the functions are made anew


def make(name):
    """(function with the break, function without it, arguments)."""
    broken, fixed, shape = CASES[name]
    if name.startswith(MADE):
        broken, fixed = broken(), fixed()
    return broken, fixed, _tensors(shape)


def predicted(found):
    """Seconds that a call would gain without all that the diagnosis found."""
    verdict = found.verdict
    effects = sum(cause.price_us for cause in found.priced if cause.kind == "effect") * 1e-6
    return effects + (verdict.compiled - verdict.without_breaks if verdict.without_breaks is not None else 0.0)


def run(names=(), seconds=0.3):
    """[(name, predicted us, measured us, us of a call with the break, did the report call a price uncertain?)]."""
    import kintsugi
    from kintsugi.diagnose import diagnose, observe, screen, timing

    for name in names or CASES:
        broken, fixed, args = make(name)
        with observe.Session() as session, torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
            first, second = kintsugi.compile(broken), kintsugi.compile(fixed)
            for _ in range(3):
                first(*args)
        found = diagnose(session.functions[0], seconds=seconds)
        with torch.no_grad(), screen.quiet():
            ways = {"broken": lambda: first(*args), "fixed": lambda: second(*args)}
            for way in ways.values():
                timing.warm(way, [kintsugi._api.engine_of(first), kintsugi._api.engine_of(second)])
            times = timing.turns(ways, 4 * seconds)
        # The two are minutes apart in which the machine may have become slower: what a call of the same function takes relates them.
        broken = times["broken"].typical
        yield name, predicted(found) * 1e6 * broken / found.verdict.compiled, timing.difference(times, "broken", "fixed")[0] * 1e6, \
            broken * 1e6, any(cause.how == "uncertain" for cause in found.causes)


if __name__ == "__main__":
    import statistics
    import sys

    for one in sys.argv[1:] or CASES:
        rows = [row for _ in range(3) for row in run([one], seconds=0.3)]  # other programs use the machine as well: the median of three
        expected, measured, call = (statistics.median(row[i] for row in rows) for i in (1, 2, 3))
        off, uncertain = abs(expected - measured), sum(row[4] for row in rows) > 1
        verdict = "within 30%" if off <= 0.3 * abs(measured) else "within 5% of the call" if off <= 0.05 * call else "off"
        print(f"| {one} | {call:.1f} | {expected:.1f} | {measured:.1f} | {verdict} | {'uncertain' if uncertain else ''} |", flush=True)
