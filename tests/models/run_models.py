"""Runs the model list and prints a table: what was recorded, what was replayed, and whether results are right.

    run_models.py [names ...] [--engine E] [--mode eval|train|both] [--shard 0/4] [--json FILE] [--strict] [--no-fork]

The list is that of bench/models.py, the families of transformers in families.py and the architectures in architectures.py.

Each model runs in a forked child, so that a crash or a hang costs one row. The exit status is 1 if any result is wrong,
raised or crashed; with --strict also if a model was never replayed.
"""
import argparse
import faulthandler
import importlib.util
import json
import os
import pathlib
import select
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "bench")]

import torch  # noqa: E402

import architectures  # noqa: E402
import families  # noqa: E402
import models  # noqa: E402
from check import check  # noqa: E402
from engines import ENGINES  # noqa: E402

BAD = ("wrong", "raised", "crashed", "hung")
COLUMNS = [("recordings", "recorded"), ("variants", "variants"), ("graphs", "graphs"), ("breaks", "breaks"), ("deferred_effects", "deferred"),
           ("guards", "guards"), ("ops", "ops"), ("record_ms", "record ms"), ("replays", "replays"),
           ("whole", "whole"), ("exits", "exits"), ("guard_misses", "misses"), ("eager_calls", "eager")]
# With kernels: calls that are part of kernels, calls that stayed PyTorch's, how often compiled graphs ran.
KERNEL_COLUMNS = [("native", "native"), ("extern", "extern"), ("launches", "launched")]


def read_all(fd, deadline):
    """Everything the child writes until it closes the pipe; None when time runs out."""
    data = b""
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        piece = os.read(fd, 65536)
        if not piece:
            return data
        data += piece


def run_forked(entry, engine_name, train, count, limit):
    receive, send = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(receive)
        faulthandler.enable()
        os.write(send, json.dumps(check(entry, ENGINES[engine_name](), train, count)).encode())
        os._exit(0)
    os.close(send)
    data = read_all(receive, time.monotonic() + limit)
    os.close(receive)
    if data is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    row = {"model": entry.name, "mode": "train" if train else "eval"}
    if data is None:
        return row | {"verdict": "hung", "detail": f"no result after {limit} s"}
    try:
        return json.loads(data)
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        what = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return row | {"verdict": "crashed", "detail": what}


def find(names=None, train=False, shard=(0, 1)):
    """The entries of these names; all of the shard when no name is given."""
    entries = [*models.ENTRIES, *families.ENTRIES, *architectures.ENTRIES]
    known = {entry.name for entry in entries}
    for name in names or ():
        if name not in known:
            raise SystemExit(f"no model is called {name!r}; known: {', '.join(sorted(known))}")
    found = [e for e in entries if e.name in names] if names else entries[shard[0]::shard[1]]
    return [e for e in found if e.train or not train]


def missing(name):
    """The package that this entry is made with where it is not installed; None: it can be made."""
    (entry,) = find([name])
    return None if entry.needs is None or importlib.util.find_spec(entry.needs) else entry.needs


def import_models(entries):
    """Imports what the entries need here, once, and not in every child. One thread only: a pool does not survive fork."""
    torch.set_num_threads(1)
    for entry in entries:
        entry.make()


def run_list(names=None, engine="kintsugi", modes=("eval", "train"), fork=True, count=None, limit=180, note=None, shard=(0, 1)):
    rows = []
    for mode in modes:
        for entry in find(names, mode == "train", shard):
            if fork:
                row = run_forked(entry, engine, mode == "train", count, limit)
            else:
                row = check(entry, ENGINES[engine](), mode == "train", count)
            if row["verdict"] == "wrong" and entry.name in families.DIFFERS:
                row.update(verdict="differs", detail=f"{families.DIFFERS[entry.name]} ({row['detail']})")
            rows.append(row)
            if note:
                note(row)
    return rows


def cell(row, key):
    value = row.get(key)
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def print_table(rows, engine):
    from rich import box
    from rich.console import Console
    from rich.table import Table
    table = Table(title=f"Models, engine {engine}", box=box.SIMPLE_HEAD)
    table.add_column("model")
    table.add_column("mode")
    columns = COLUMNS + [column for column in KERNEL_COLUMNS if any(column[0] in row for row in rows)]
    for _, title in columns:
        table.add_column(title, justify="right")
    table.add_column("verdict")
    for row in rows:
        style = "red" if row["verdict"] in BAD else "green" if row["verdict"] == "ok" else "yellow"
        table.add_row(row["model"], row["mode"], *(cell(row, key) for key, _ in columns),
                      f"[{style}]{row['verdict']}[/{style}]")
    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(table)
    for row in rows:
        for text in filter(None, [row.get("detail"), *row.get("reasons", ())]):
            console.print(f"{row['model']} ({row['mode']}), {row['verdict']}: {text}", markup=False, highlight=False)


def in_one_graph(rows):
    """Of the models that were compiled, those without a graph break: "eval 118 of 123"."""
    modes = dict.fromkeys(row["mode"] for row in rows)
    counted = {mode: [row["breaks"] == 0 for row in rows if row["mode"] == mode and row.get("breaks") is not None] for mode in modes}
    return ", ".join(f"{mode} {sum(whole)} of {len(whole)}" for mode, whole in counted.items() if whole)


def summary(rows):
    good = sum(row["verdict"] == "ok" for row in rows)
    idle = sum(row["verdict"] == "not replayed" for row in rows)
    known = sum(row["verdict"] == "differs" for row in rows)
    bad = sum(row["verdict"] in BAD for row in rows)
    return f"{len(rows)} runs: {good} ok, {idle} right but never replayed, {known} different as known, {bad} bad; without a graph break: {in_one_graph(rows)}"


def exit_status(rows, strict=False):
    failing = BAD + ("not replayed",) if strict else BAD
    return 1 if not rows or any(row["verdict"] in failing for row in rows) else 0


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="models to run (default: all)")
    parser.add_argument("--engine", choices=sorted(ENGINES), default="kintsugi")
    parser.add_argument("--mode", choices=("eval", "train", "both"), default="both")
    parser.add_argument("--count", type=int, help="calls or steps per model (default 3)")
    parser.add_argument("--limit", type=float, default=180, help="seconds one model may take")
    parser.add_argument("--shard", default="0/1", help="the first of four parts of the list: 0/4")
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows to this file")
    parser.add_argument("--strict", action="store_true", help="a model that was never replayed is a failure")
    parser.add_argument("--no-fork", action="store_true", help="run in this process (for a debugger)")
    options = parser.parse_args(argv)
    modes = ("eval", "train") if options.mode == "both" else (options.mode,)
    shard = tuple(map(int, options.shard.split("/")))
    if not options.no_fork:
        import_models(find(options.names, shard=shard))
    progress = sys.stderr.isatty()
    rows = run_list(options.names, options.engine, modes, not options.no_fork, options.count, options.limit,
                    note=(lambda row: print(row["model"], row["verdict"], file=sys.stderr)) if progress else None, shard=shard)
    print_table(rows, options.engine)
    print(summary(rows))
    if options.json:
        options.json.write_text(json.dumps({"engine": options.engine, "torch": torch.__version__, "rows": rows}, indent=1))
    return exit_status(rows, options.strict)


if __name__ == "__main__":
    sys.exit(main())
