"""Steps of optimizers alone: eager's for-loop, foreach and fused forms against the same compiled, in turns in one process.

    python bench/optimizers.py [NAME ...] [--params 10 60 150] [--turns 30]

Processor time of one thread (medians and minima over the turns), so that other work on the machine counts little.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402

import kintsugi  # noqa: E402

SHAPES = [(256, 256), (256,), (512, 128), (512,), (64, 32, 3, 3), (64,), (1000, 64), (1000,), (128, 128), (128,)]
OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.01}),
    "SGD momentum nesterov": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "nesterov": True}),
    "Adam": (torch.optim.Adam, {}),
    "AdamW": (torch.optim.AdamW, {}),
    "RMSprop": (torch.optim.RMSprop, {}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "Adafactor": (torch.optim.Adafactor, {}),
    "Adadelta": (torch.optim.Adadelta, {}),
    "Adamax": (torch.optim.Adamax, {}),
    "NAdam": (torch.optim.NAdam, {}),
    "RAdam": (torch.optim.RAdam, {}),
    "ASGD": (torch.optim.ASGD, {}),
    "Rprop": (torch.optim.Rprop, {}),
}
FORMS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def make(cls, options, n):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(SHAPES[i % len(SHAPES)])) for i in range(n)]
    for p in params:
        p.grad = torch.randn_like(p) * 0.01
    return cls(params, **options)


def measure(name, n, form, turns):
    cls, options = OPTIMIZERS[name]
    try:
        eager, ours = (make(cls, {**options, **FORMS[form]}, n) for _ in range(2))
    except TypeError:
        return None
    start = time.perf_counter()
    compiled = kintsugi.compile(ours.step)
    compiled()
    first = time.perf_counter() - start
    for _ in range(3):
        eager.step()
        compiled()
    times = ([], [])
    for _ in range(turns):
        for step, into in zip((eager.step, compiled), times):
            start = time.process_time()
            step()
            into.append((time.process_time() - start) * 1e6)
    return {"name": name, "params": n, "form": form, "eager": statistics.median(times[0]), "ours": statistics.median(times[1]),
            "eager_min": min(times[0]), "ours_min": min(times[1]), "first_ms": first * 1e3}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="optimizers; all of them if none is named")
    parser.add_argument("--params", nargs="+", type=int, default=[10, 60, 150])
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    print("| optimizer | parameters | form | eager, us | compiled, us | ratio of medians | of minima | first step, ms |\n|---|---|---|---|---|---|---|---|")
    for name in options.names or OPTIMIZERS:
        for n in options.params:
            for form in FORMS:
                row = measure(name, n, form, options.turns)
                if row is not None:
                    print(f"| {row['name']} | {n} | {form} | {row['eager']:.0f} | {row['ours']:.0f} | {row['eager'] / row['ours']:.2f} | "
                          f"{row['eager_min'] / row['ours_min']:.2f} | {row['first_ms']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
