"""`kintsugi bench --train`: steps of training, eager and Kintsugi side by side.

For each row five processes, one after the other: the first step of Kintsugi with an empty disk cache and again with a filled one; the memory of a step, eager
and Kintsugi; then one in which both take turns, from the same seeds, with dropout active. There the losses of all steps are compared, and those of
the same model in float64, which tell rounding from defects: losses drift apart as steps go on, and how fast they do is seen from eager
against float64.

Each row is measured twice: model and loss compiled, and the whole step (gradients set to zero, forward, backward, optimizer) as one compiled function.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

STEPS = 50
LAUNCHED = 4  # steps after which a compiled function runs its own code: it was recorded, and tried


# -- models: (model, data, loss of model and data) --------------------------------------------------------------------


def _mlp(torch, nn):
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Dropout(0.1), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return model, (torch.randn(64, 256), torch.randint(0, 10, (64,))), lambda m, x, t: nn.functional.cross_entropy(m(x), t)


def _cnn(torch, nn):
    def block(a, b, stride=1):
        return [nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
    model = nn.Sequential(*block(3, 32), *block(32, 64, 2), *block(64, 64), *block(64, 128, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10))
    return model, (torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))), lambda m, x, t: nn.functional.cross_entropy(m(x), t)


def _transformer(torch, nn):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Embedding(1000, 256), nn.Embedding(64, 256)
            layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
            self.body, self.out = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(256, 1000)

        def forward(self, x):
            n = x.shape[1]
            mask = torch.ones(n, n, dtype=torch.bool).triu(1)
            return self.out(self.body(self.embed(x) + self.place.weight[:n], mask=mask))
    tokens = torch.randint(0, 1000, (4, 64))
    return Model(), (tokens,), lambda m, x: nn.functional.cross_entropy(m(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())


def _lstm(torch, nn):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layers, self.out = nn.Embedding(1000, 128), nn.LSTM(128, 256, 2, batch_first=True, dropout=0.1), nn.Linear(256, 1000)

        def forward(self, x):
            return self.out(self.layers(self.embed(x))[0])
    tokens = torch.randint(0, 1000, (8, 32))
    return Model(), (tokens,), lambda m, x: nn.functional.cross_entropy(m(x).flatten(0, 1), x.flatten())


def _checkpointed(torch, nn):
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Dropout(0.1), nn.Linear(1024, 256)) for _ in range(6)])

        def forward(self, x):
            for block in self.blocks:
                x = x + checkpoint(block, x, use_reentrant=False)
            return x
    return Model(), (torch.randn(1024, 256), torch.randn(1024, 256)), lambda m, x, t: nn.functional.mse_loss(m(x), t)


ROWS = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer, "lstm": _lstm, "checkpointed": _checkpointed}


# -- in the child ---------------------------------------------------------------------------------------------------------


class _Trainer:
    """One engine's copy of a model, with an optimizer and random numbers of its own."""

    def __init__(self, name, engine, whole=False, dtype=None):
        import torch

        torch.manual_seed(1)
        self.torch = torch
        self.model, data, loss = ROWS[name](torch, torch.nn)
        if dtype is not None:
            self.model.to(dtype)
        self.data = tuple(d.to(dtype) if dtype is not None and d.is_floating_point() else d for d in data)
        optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)
        forward = lambda *data: loss(self.model, *data)  # noqa: E731

        def step(*data):
            optimizer.zero_grad()
            value = forward(*data)
            value.backward()
            optimizer.step()
            return value

        if engine == "kintsugi":
            import kintsugi

            step, forward = (kintsugi.compile(step), forward) if whole else (step, kintsugi.compile(forward))
        self.run = step
        self.random, self.losses, self.times, self.first = torch.get_rng_state(), [], [], None

    def step(self):
        self.torch.set_rng_state(self.random)
        wall, begin = time.perf_counter(), time.process_time()
        value = self.run(*self.data)
        self.times.append(time.process_time() - begin)
        self.random = self.torch.get_rng_state()
        self.losses.append(float(value.detach()))
        if len(self.losses) == LAUNCHED:
            self.first = {k: p.grad.detach().clone() for k, p in self.model.named_parameters() if p.grad is not None}
        return time.perf_counter() - wall


def _steps(job):
    """Turns, losses, gradients."""
    import torch

    trainers = {"eager": _Trainer(job["model"], "eager"), "kintsugi": _Trainer(job["model"], "kintsugi"), "whole": _Trainer(job["model"], "kintsugi", whole=True)}
    for _ in range(job["steps"]):
        for trainer in trainers.values():
            trainer.step()
    skip, eager = min(10, job["steps"] // 2), trainers["eager"]
    row = {"losses": {name: t.losses for name, t in trainers.items()}}
    for name, trainer in trainers.items():
        times = trainer.times[skip:]
        low, _, high = statistics.quantiles(times, n=4)
        row[name] = {"ms": statistics.median(times) * 1e3, "spread_ms": (high - low) * 1e3,
                     "loss": max(abs(a - b) / abs(a) for a, b in zip(eager.losses, trainer.losses, strict=True)),
                     "gradients": max(float((eager.first[k] - g).abs().max() / eager.first[k].abs().max().clamp(min=1e-30)) for k, g in trainer.first.items())}
    statistics_of = [[(k, v) for k, v in t.model.named_buffers() if v.is_floating_point()] for t in trainers.values()]
    row["buffers"] = max([float((a - b).abs().max() / a.abs().max().clamp(min=1e-30)) for other in statistics_of[1:]
                          for (_, a), (_, b) in zip(statistics_of[0], other, strict=True)], default=0.0)
    exact = _Trainer(job["model"], "eager", dtype=torch.float64)
    for _ in range(job["steps"]):
        exact.step()
    row["referee"] = {name: max(abs(a - b) / abs(a) for a, b in zip(exact.losses, t.losses, strict=True)) for name, t in trainers.items()}
    return row


def _first(job):
    eager = _Trainer(job["model"], "eager")
    eager.step()
    plain = eager.step()
    trainer = _Trainer(job["model"], "kintsugi", whole=job["whole"])
    walls = [trainer.step() for _ in range(4)]
    return {"added_s": sum(walls) - 4 * plain}


def _resident(field):
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def _memory(job):
    """What a step takes at its peak beyond what is there between steps."""
    trainer = _Trainer(job["model"], job["engine"], whole=job.get("whole", False))
    for _ in range(6):
        trainer.step()
    peaks = []
    for _ in range(3):
        with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
            clear.write("5")
        trainer.step()
        peaks.append(_resident("VmHWM"))
    return {"peak": min(peaks), "between": _resident("VmRSS")}


# -- in the parent --------------------------------------------------------------------------------------------------------


def _job(job, cache, threads, timeout):
    environment = os.environ | {"KINTSUGI_CACHE_DIR": cache, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    try:
        done = subprocess.run([sys.executable, "-m", "kintsugi.bench.training", json.dumps(job)], capture_output=True, text=True, timeout=timeout, env=environment,
                              check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {timeout:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:300]}


def measure(name, steps, threads, timeout, first=True):
    """One row."""
    row = {}
    with tempfile.TemporaryDirectory(prefix="kintsugi-train-") as cache:
        for state in ("cold", "warm") if first else ():
            row[state] = _job({"task": "first", "model": name, "whole": False}, cache, threads, timeout)
        row["memory"] = {engine: _job({"task": "memory", "model": name, "engine": engine}, cache, threads, timeout) for engine in ("eager", "kintsugi")}
        row["steps"] = _job({"task": "steps", "model": name, "steps": steps}, cache, threads, timeout)
    return row


def _number(value, form):
    return form.format(value) if isinstance(value, (int, float)) else "-"


COLUMNS = ("eager, ms", "model and loss", "whole step", "first steps add, cold", "warm", "peak memory", "losses apart", "... whole step", "gradients of step 4 apart",
           "from float64: eager / Kintsugi")
TOLD = ("a step, eager, in ms", "compiled model and loss, times as fast", "compiled whole step, times as fast", "first steps take longer by, nothing on disk",
        "first steps take longer by, kernels on disk", "peak memory", "losses differ by", "losses differ by, whole step", "gradients of step 4 differ by", "losses differ from float64 by, eager / Kintsugi")


def _cells(row):
    """A text for each column; one that begins with "failed": there are no others."""
    steps, memory = row.get("steps", {}), row.get("memory", {})
    if "error" in steps:
        return [f"failed: {steps['error']}"]
    eager = steps["eager"]["ms"]
    peak = [memory.get(e, {}).get("peak") for e in ("eager", "kintsugi")]
    referee = steps.get("referee") or {}
    return [f"{eager:.1f} ± {steps['eager']['spread_ms'] / 2:.1f}", f"{eager / steps['kintsugi']['ms']:.2f}x", f"{eager / steps['whole']['ms']:.2f}x",
            _number(row.get("cold", {}).get("added_s"), "{:.2f} s"), _number(row.get("warm", {}).get("added_s"), "{:.2f} s"),
            f"{peak[1] / peak[0] - 1:+.1%}" if all(peak) else "-", f"{steps['kintsugi']['loss']:.1e}", f"{steps['whole']['loss']:.1e}",
            _number(steps['kintsugi'].get('gradients'), "{:.1e}"), " / ".join(f"{referee[e]:.1e}" for e in ("eager", "kintsugi")) if referee else "-"]


def _line(name, row):
    cells = _cells(row)
    return f"| {name} | {' | '.join(cells)} |" + " |" * (len(COLUMNS) - len(cells))


def tell(name, row):
    """The row for a terminal: a line for each number that was measured."""
    cells = _cells(row)
    if len(cells) == 1:
        return f"{name}: {cells[0]}"
    return "\n".join([name, *(f"  {what:<50}{cell:>16}" for what, cell in zip(TOLD, cells, strict=True) if cell != "-")])


HEAD = f"| model | {' | '.join(COLUMNS)} |\n|" + "---|" * (1 + len(COLUMNS))


def table(rows):
    return "\n".join([HEAD, *(_line(name, row) for name, row in rows.items())])


COLOURS = {"eager": "#888888", "kintsugi": "#c8553d", "whole": "#2a6f97"}


def picture(rows):
    """Losses over steps, a panel for each row."""
    good = [(name, row["steps"]["losses"]) for name, row in rows.items() if "losses" in row.get("steps", {})]
    width, height = 300, 170
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * width} {height * ((len(good) + 1) // 2) + 20}" font-family="sans-serif" font-size="11">']
    for k, (name, losses) in enumerate(good):
        left, top = 40 + k % 2 * width, 24 + k // 2 * height
        values = [v for line in losses.values() for v in line]
        low, high = min(values), max(values)
        parts.append(f'<text x="{left}" y="{top - 8}">{name}: {high:.3g} to {low:.3g}</text><rect x="{left}" y="{top}" width="{width - 60}" height="{height - 50}" fill="none" stroke="#ccc"/>')
        for order, (engine, line) in enumerate(losses.items()):
            points = " ".join(f"{left + i * (width - 60) / max(1, len(line) - 1):.1f},{top + (high - v) / ((high - low) or 1) * (height - 50):.1f}" for i, v in enumerate(line))
            dash = "" if order == 0 else f' stroke-dasharray="{2 + 3 * order} {4 * order}"'
            parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[engine]}" stroke-width="{3 - order}"{dash}/>')
    for k, (engine, colour) in enumerate(COLOURS.items()):
        y = height * ((len(good) + 1) // 2) + 12
        label = {"eager": "eager", "kintsugi": "model and loss compiled", "whole": "whole step compiled"}[engine]
        parts.append(f'<text x="{40 + 170 * k}" y="{y}" fill="{colour}">{label}</text>')
    return "\n".join([*parts, "</svg>\n"])


MARKS = ("<!-- measured: kintsugi bench --train -->", "<!-- end of what is measured -->")


def write_docs(rows, about, folder):
    """The measured part of FOLDER/training.md, and its picture."""
    path = os.path.join(folder, "training.md")
    with open(path, encoding="utf-8") as page:
        text = page.read()
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    with open(path, "w", encoding="utf-8") as page:
        page.write(f"{before}{MARKS[0]}\n\n{about}\n\n{table(rows)}\n\n![losses](training-loss.svg)\n\n{MARKS[1]}{after}")
    with open(os.path.join(folder, "training-loss.svg"), "w", encoding="utf-8") as file:
        file.write(picture(rows))


def main(options):
    """The command."""
    import platform

    import torch

    names = options.models or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        sys.stderr.write(f"kintsugi: bench --train: there is no row {unknown[0]!r}; there are {', '.join(ROWS)}\n")
        return 2
    threads, steps = options.threads or torch.get_num_threads(), 12 if options.quick else STEPS
    about = f"PyTorch {torch.__version__}, Python {platform.python_version()}, {threads} thread(s), {os.cpu_count()} cores; {steps} steps, AdamW; medians of processor time."
    print(about, flush=True)
    rows = {}
    for name in names:
        rows[name] = measure(name, steps, threads, options.timeout, first=not (options.quick or options.no_first))
        print(f"\n{tell(name, rows[name])}", flush=True)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)
    if options.docs:
        write_docs(rows, about, options.docs)
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(picture(rows))
    return 0


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    print(json.dumps({"steps": _steps, "first": _first, "memory": _memory}[wanted["task"]](wanted)))
