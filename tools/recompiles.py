"""Runs the examples of docs/recompiles/examples.py under Kintsugi and stock, in a process for either, and writes docs/recompiles.md.

    python tools/recompiles.py [--no-stock] [--docs docs/recompiles.md]

The exit status is 1 if an example does not do what its page says (tests/py/test_recompile_examples.py checks the same). Stock runs with its backend "eager":
compared are the number of recompiles, their time and what TORCH_LOGS=recompiles reports.
"""

import argparse
import contextlib
import inspect
import json
import logging
import pathlib
import re
import subprocess
import sys
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARK = "# <- matters"
HEAD = """# Recompiles: causes and fixes

A compiled function is recorded again when a value that its code depends on changes. This page has one example of each cause. `python tools/recompiles.py`
makes it from `docs/recompiles/examples.py`, and the tests run the same examples.

To see your own recompiles, use any of these; they report the same causes:

- `kintsugi.recompiles(fn)` returns them as objects;
- `python -m kintsugi explain SCRIPT` lists them with the line that depends on the value;
- `TORCH_LOGS=recompiles` logs each as it happens;
- `kintsugi.stats(fn)["variants"]` has the `cause` of each recording.

To turn a recompile into an error, set `torch._dynamo.config.error_on_recompile = True` or call `torch.compiler.set_stance("fail_on_recompile")`.
"""
FOOT = ("Time: all calls of the example, compilation included. Stock PyTorch runs with `backend=\"eager\"`, so without Inductor's compile time, and its start-up "
        "is not counted.")


def load():
    sys.path.insert(0, str(ROOT / "docs/recompiles"))
    import examples

    return examples.EXAMPLES


def part(example, name, other=None):
    """A function of the example, not bound to it."""
    return example.__dict__.get(name) or example.__dict__[other]


def marked_line(example):
    lines, first = inspect.getsourcelines(part(example, "fn"))
    return first + next(i for i, line in enumerate(lines) if MARK in line)


def run(compiled, calls, around):
    """Results, and the seconds of the calls."""
    results, begin = [], time.perf_counter()
    for args, mode in zip(calls, around or [contextlib.nullcontext] * len(calls), strict=True):
        with mode():
            results.append(compiled(*args))
    return results, time.perf_counter() - begin


def under_kintsugi(example):
    import kintsugi

    kintsugi.reset()
    compiled = kintsugi.compile(part(example, "fn"))
    _, seconds = run(compiled, example.calls, getattr(example, "around", None))
    better = kintsugi.compile(part(example, "better", "fn"), **getattr(example, "options", {}))
    run(better, getattr(example, "better_calls", example.calls), getattr(example, "better_around", None))
    told = [f"{what}: {was} -> {now}" for cause in kintsugi.recompiles(compiled) for what, was, now in cause.changes]
    return {"recompiles": kintsugi.stats(compiled)["recordings"] - 1, "better": kintsugi.stats(better)["recordings"] - 1, "ms": seconds * 1e3, "told": told,
            "lines": [cause.line for cause in kintsugi.recompiles(compiled)], "hints": [hint for cause in kintsugi.recompiles(compiled) for hint in cause.hints]}


class Heard(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def under_stock(example):
    import torch

    heard = Heard()
    torch._logging.set_logs(recompiles=True)
    logger = logging.getLogger("torch._dynamo.guards.__recompiles")
    logger.handlers[:] = [heard]
    logger.propagate = False
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))  # what the first use of the compiler takes is not the example's
    torch._dynamo.reset()
    _, seconds = run(torch.compile(part(example, "fn"), backend="eager"), example.calls, getattr(example, "around", None))
    told = [line.strip().removeprefix("- ") for text in heard.texts for line in text.splitlines() if re.match(r"\s*- \d+/\d+: ", line)]
    return {"recompiles": len(heard.texts), "ms": seconds * 1e3, "told": told}


def in_process(who):
    """Rows by name."""
    done = subprocess.run([sys.executable, __file__, "--under", who], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the examples under {who} failed\n{done.stderr[-1500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def source_of(function):
    return textwrap.dedent(inspect.getsource(function)).rstrip()


def page(rows):
    text = [HEAD, "| example | recompiles | with the fix | time (ms) | recompiles in stock | time (ms) |", "|---|---|---|---|---|---|"]
    for example, ours, stock in rows:
        other = f"{stock['recompiles']} | {stock['ms']:.0f}" if stock else "- | -"
        text.append(f"| [{example.__name__}](#{example.__name__.lower()}) | {ours['recompiles']} | {ours['better']} | {ours['ms']:.0f} | {other} |")
    text += ["", FOOT]
    for example, ours, stock in rows:
        text += ["", f"## {example.__name__}", "", example.__doc__, "", "```python", source_of(part(example, "fn")), "```", "", "**Reported cause:** " + "; ".join(f"`{line}`" for line in ours["told"]),
                 "", f"**Fix:** {example.remedy}.", "", "**Hint shown:** " + "; ".join(dict.fromkeys(ours["hints"])) + "."]
        if stock:
            text += ["", "**Stock reports:** " + ("; ".join(f"`{line}`" for line in dict.fromkeys(stock["told"])) or "nothing; it does not recompile here.")]
    return re.sub(r"[\w./-]*docs/recompiles/examples\.py", "docs/recompiles/examples.py", "\n".join(text)) + "\n"  # no folders of this machine


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--no-stock", action="store_true")
    parser.add_argument("--docs")
    parser.add_argument("--under", help=argparse.SUPPRESS)
    options = parser.parse_args()
    examples = {example.__name__: example for example in load()}
    if options.under:
        print(json.dumps({name: (under_kintsugi if options.under == "kintsugi" else under_stock)(example) for name, example in examples.items()}))
        return 0
    rows, wrong = [], []
    kintsugi_rows, stock_rows = in_process("kintsugi"), {} if options.no_stock else in_process("stock")
    for name, example in examples.items():
        ours = kintsugi_rows[name]
        rows.append((example, ours, stock_rows.get(name)))
        print(f"{name:12} recompiles {ours['recompiles']}, with the remedy {ours['better']}" + (f"; stock {rows[-1][2]['recompiles']}" if rows[-1][2] else ""), flush=True)
        if ours["recompiles"] == 0 or ours["better"] > 0 or not any(example.told in line for line in ours["told"]):
            wrong.append(name)
    if options.docs:
        (ROOT / options.docs).write_text(page(rows))
    print("not as said: " + ", ".join(wrong) if wrong else "all as said")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
