"""What each graph break costs in its own example: python tools/break_prices.py

Each program of docs/breaks/examples is timed with its break and without, compiled, in turns: with its own arguments, and with tensors a thousand times as large.
Writes docs/breaks/prices.json, from which the pages of the reasons are made (tools/make_docs.py). What a break costs in a program of your own is another
question: `kintsugi explain` measures it.
"""

import contextlib
import io
import json
import pathlib
import runpy
import sys
import time
import types

import torch

import kintsugi

ROOT = pathlib.Path(__file__).resolve().parent.parent
LARGER, SECONDS, LONGEST = 1000, 0.4, 0.1


def example(path):
    """(f, make_args, fixed, strict) as the example hands them to its check; None: it has no form without the break."""
    found = []
    support = types.ModuleType("support")
    support.check = lambda name, f, make_args, fixed=None, count=1, fullgraph=True, strict=False: found.append((f, make_args, fixed, strict))
    support.check_event = support.check_fullgraph = lambda *_: None
    sys.modules["support"] = support
    try:
        runpy.run_path(str(path), run_name="__main__")
    except Exception:  # examples of events do more than call check
        return None
    return found[0] if len(found) == 1 and found[0][2] is not None else None


def enlarge(value):
    if isinstance(value, torch.Tensor) and value.dim():
        return value.repeat_interleave(LARGER, 0)
    return value


def best(compiled, args, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        compiled(*args)
    return (time.perf_counter() - begin) / calls


def price(f, fixed, args):
    """(microseconds of a call with the break, without it); None: it cannot be called so."""
    kintsugi.reset()
    both = [kintsugi.compile(f), kintsugi.compile(fixed)]
    expected = f(*args)
    for _ in range(30):
        for compiled in both:
            begin = time.perf_counter()
            torch.testing.assert_close(compiled(*args), expected, rtol=1e-3, atol=1e-3)
            if time.perf_counter() - begin > LONGEST and _ > 5:
                return None
    kintsugi.wait_for_kernels()
    calls = max(1, int(0.004 / max(best(both[0], args, 3), 1e-6)))
    times, end = [[], []], time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times[0]) < 5:
        for compiled, mine in zip(both, times):
            mine.append(best(compiled, args, calls))
    return [round(1e6 * min(mine), 2) for mine in times]


def measure(path):
    found = example(path)
    if found is None:
        return None
    f, make_args, fixed, strict = found
    row = {}
    for name, change in (("small", lambda value: value), ("large", enlarge)):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception), kintsugi.config.patch(strict_breaks=strict):
            times = price(f, fixed, tuple(map(change, make_args())))
            if times is not None:
                row[name] = times
    return row or None


def main():
    torch.set_num_threads(1)
    rows = {}
    for path in sorted((ROOT / "docs/breaks/examples").glob("*.py")):
        if path.stem == "support":
            continue
        row = measure(path)
        print(path.stem, row)
        if row:
            rows[path.stem] = row
    note = f"PyTorch {torch.__version__}, one thread; the best of many calls, in turns"
    (ROOT / "docs/breaks/prices.json").write_text(json.dumps({"note": note, "larger": LARGER, "reasons": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
