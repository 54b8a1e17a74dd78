"""What compiling costs apart from kernels: Kintsugi against stock torch.compile(backend="eager"), side by side.

    overhead.py [models ...] [--turns N] [--first N] [--json FILE] [--docs FILE] [--without stock|kintsugi] [--no-memory]
                [--quick] [--minutes N] [--report FILE]

Four questions, one process (memory: one child per engine), one torch thread, evaluation under no_grad:

first call   What does the first call of a compiled model add to an eager call? Each round builds fresh copies and calls
             each engine once (stock after torch._dynamo.reset()), in rotating order. Reference: the first eager call of
             such a copy. A round before the measured ones, over this same model, is thrown away: imports and one-time
             set-up of either engine are not counted.
hit          What does a later call cost that finds its entry? Calls with the same arguments take turns: eager,
             Kintsugi, stock, and "flat": the captured graphs of stock called directly, one after the other,
             with no guards and no dispatch. Overhead = engine minus flat, in the same turn. It contains argument
             binding, guards, dispatch, building the results (ModelOutput and the like), and how the engine calls
             operators; Kintsugi may be below flat, since flat is Python code. Beside it stands guard evaluation alone,
             warm, asked from each engine itself: stock's root.check() in a Python loop (about 0.1 us is the loop),
             Kintsugi's time_guards.
two ops      A function of two operators on eight numbers: time per call.
memory       Bytes the process holds more after compiling and calling one more copy of the model, outputs dropped; every
             allocation is counted, since the child runs under PYTHONMALLOC=malloc. A first copy pays for what is
             shared. What Kintsugi itself says an entry takes is shown beside it.

A model that an engine does not replay (or recompiles while being timed) is shown as such and left out of means.
"""
import argparse
import gc
import json
import os
import pathlib
import subprocess
import sys
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[0] / "tests" / "models")]

import torch  # noqa: E402

import models  # noqa: E402
from timing import (bytes_in_use, differences, geomean, interleave, machine, no_gc, spread, time_loop,  # noqa: E402
                    time_once)


# -- engines ---------------------------------------------------------------------------------------------------------


class Kintsugi:
    name = "kintsugi"

    def __init__(self):
        import kintsugi
        import kintsugi._kintsugi   # raises ImportError where the extension is not built
        kintsugi.config.step_aside = False   # hits are what is measured, slow ones as well
        self.kintsugi = kintsugi

    def compile(self, function):
        return self.kintsugi.compile(function, backend="eager")   # recorded calls as they are, as stock's "eager"

    def reset(self):
        pass

    def recordings(self, compiled):
        """Changes when anything but a plain replay happened."""
        stats = self.kintsugi.stats(compiled)
        return stats["recordings"], stats["bail_outs"], sum(stats["eager_calls"].values()), len(stats["variants"])

    def replays(self, compiled):
        return self.kintsugi.stats(compiled)["replays"]

    def guard_ns(self, compiled, args, kwargs):
        """Guard evaluation alone, as the extension times it; None when it cannot for this call."""
        time_guards = getattr(self.kintsugi._kintsugi, "time_guards", None)
        if time_guards is None:
            return None
        try:
            inner = self.kintsugi._api.engine_of(compiled)
            return [time_guards(inner, args, 1000, *([kwargs] if kwargs else [])) for _ in range(5)]
        except (AttributeError, TypeError, ValueError):
            return None

    def own_bytes(self, compiled):
        return sum(v.get("bytes", 0) for v in self.kintsugi.stats(compiled)["variants"])


class Stock:
    """torch.compile(backend="eager"), and what is needed to look at it: its guards and its graphs."""
    name = "stock"

    def __init__(self):
        import logging
        import torch._dynamo
        from torch._dynamo import guards
        logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="torch._dynamo")
        self.dynamo = torch._dynamo
        self.guards, self.graphs = [], []
        profile = guards.profile_guard_manager

        def keep(root, scope, count):   # called once per compiled frame, with what its guards look at
            self.guards.append((root, scope))
            return profile(root, scope, count)
        guards.profile_guard_manager = keep

    def compile(self, function):
        return torch.compile(function, backend="eager")

    def compile_seeing(self, function):
        """The same, but what runs of each graph is written down: (callable, arguments) in order, while self.seen is a
        list."""
        self.seen = None

        def backend(graph, _):
            def run(*args):
                if self.seen is not None:
                    self.seen.append((graph.forward, args))
                return graph.forward(*args)
            return run
        return torch.compile(function, backend=backend)

    def reset(self):
        self.guards.clear()
        self.dynamo.reset()
        self.dynamo.utils.counters.clear()

    def recordings(self, compiled):
        return self.dynamo.utils.counters["frames"]["total"], self.dynamo.utils.counters["stats"]["unique_graphs"]

    def guard_ns(self):
        """Warm check() of every compiled frame whose guards hold in the scope they were made from, summed."""
        holding = [(root, scope) for root, scope in self.guards if root.check(scope)]
        if not holding or len(holding) != len(self.guards):
            return None

        def check_all():
            for root, scope in holding:
                root.check(scope)
        with no_gc():
            return [time_loop(check_all, 300) for _ in range(5)]


def open_engines(without):
    found = {}
    for cls in (Kintsugi, Stock):
        if cls.name in without:
            continue
        try:
            found[cls.name] = cls()
        except ImportError as error:
            print(f"{cls.name}: left out, {error}", file=sys.stderr)
    return found


SLOW_NS = 3e9   # a model whose discarded first call takes longer gets two rounds only


# -- first call ------------------------------------------------------------------------------------------------------


def first_calls(entry, engines, rounds):
    """{name: [ns of the first call on a fresh copy]}, eager included."""
    names = ["eager", *engines]
    samples = {name: [] for name in names}
    args, kwargs = entry.inputs(0)
    turn = 0
    while turn <= rounds:
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            function = entry.call(entry.make())
            if name != "eager":
                engines[name].reset()
                function = engines[name].compile(function)
            gc.collect()
            taken = time_once(lambda: function(*args, **kwargs))
            if turn > 0:
                samples[name].append(taken)
            elif taken > SLOW_NS:
                rounds = min(rounds, 2)
        turn += 1
    return samples


# -- hits ------------------------------------------------------------------------------------------------------------


def flat_call(entry, stock, args, kwargs):
    """A callable that runs what stock captured for this call, graph after graph; None when that cannot be done."""
    try:
        stock.reset()
        compiled = stock.compile_seeing(entry.call(entry.make()))
        for _ in range(3):
            compiled(*args, **kwargs)
        stock.seen = []
        compiled(*args, **kwargs)
        seen, stock.seen = stock.seen, None

        def flat():
            for run, inputs in seen:
                run(*inputs)
        flat()
        return flat if seen else None
    except Exception as error:
        print(f"{entry.name}: no flat reference, {type(error).__name__}: {error}"[:200], file=sys.stderr)
        return None


def hits(entry, engines, turns):
    """Samples of eager, the engines and flat; guard evaluation alone; which engines really hit all the time."""
    args, kwargs = entry.inputs(0)
    calls, guards, compiled = {}, {}, {}
    if "stock" in engines:   # before the others are compiled: it resets stock
        flat = flat_call(entry, engines["stock"], args, kwargs)
        if flat:
            calls["flat"] = flat
        engines["stock"].reset()

    def bind(function):
        return lambda: function(*args, **kwargs)
    calls["eager"] = bind(entry.call(entry.make()))
    for name, engine in engines.items():
        compiled[name] = engine.compile(entry.call(entry.make()))
        calls[name] = bind(compiled[name])
        for _ in range(4):
            calls[name]()
    if "stock" in engines:
        guards["stock"] = engines["stock"].guard_ns()
    before = {name: engine.recordings(compiled[name]) for name, engine in engines.items()}
    samples = interleave(calls, turns)
    steady = {name: engine.recordings(compiled[name]) == before[name] for name, engine in engines.items()}
    if "kintsugi" in engines:
        steady["kintsugi"] = steady["kintsugi"] and engines["kintsugi"].replays(compiled["kintsugi"]) >= turns
        guards["kintsugi"] = engines["kintsugi"].guard_ns(compiled["kintsugi"], args, kwargs)
    return samples, guards, steady


# -- two operators ---------------------------------------------------------------------------------------------------


def two_ops(x, y):
    return torch.add(torch.mul(x, y), 1.0)


def two_op_calls(engines, turns, inner=200):
    x, y = torch.arange(8.0), torch.ones(8)
    calls = {"eager": lambda: two_ops(x, y)}
    compiled = {}
    for name, engine in engines.items():
        engine.reset()
        function = compiled[name] = engine.compile(two_ops)
        function(x, y)
        calls[name] = (lambda f: lambda: f(x, y))(function)
    before = {name: engine.recordings(compiled[name]) for name, engine in engines.items()}
    samples = interleave(calls, turns, inner, warm=20)
    steady = {name: engine.recordings(compiled[name]) == before[name] for name, engine in engines.items()}
    return {"steady": steady} | {name: spread(values) for name, values in samples.items()}


# -- memory (in a child) ---------------------------------------------------------------------------------------------


def settled_bytes():
    for _ in range(3):
        gc.collect()
    return bytes_in_use()


def memory_of(entry, engine):
    """Bytes held more after compiling and calling a second copy of the model."""
    args, kwargs = entry.inputs(0)

    def compile_and_call(function):
        compiled = engine.compile(function)
        for _ in range(2):
            compiled(*args, **kwargs)
        return compiled
    shared = compile_and_call(entry.call(entry.make()))
    del shared
    engine.reset()
    function = entry.call(entry.make())
    function(*args, **kwargs)
    before = settled_bytes()
    compiled = compile_and_call(function)
    if engine.name == "stock":
        engine.guards.clear()   # held only for this benchmark
    row = {"bytes": settled_bytes() - before}
    if engine.name == "kintsugi":
        row["own"] = engine.own_bytes(compiled)
        if not row["own"]:
            return {"error": "nothing was recorded"}
    return row


def memory_child(name, names):
    engine = {cls.name: cls for cls in (Kintsugi, Stock)}[name]()
    for entry in models.find(names):
        try:
            row = memory_of(entry, engine)
        except Exception as error:
            row = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps({"model": entry.name} | row), flush=True)


def memory(engines, names):
    found = {}
    environment = os.environ | {"PYTHONMALLOC": "malloc"}
    for name in engines:
        command = [sys.executable, __file__, *names, "--memory-child", name]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                found.setdefault(row.pop("model"), {})[name] = row
    return found


# -- the report ------------------------------------------------------------------------------------------------------


def measure(entry, engines, rounds, turns):
    row = {"model": entry.name}
    first = first_calls(entry, engines, rounds)
    samples, guards, steady = hits(entry, engines, turns)
    row["first"] = {name: spread(values) for name, values in first.items()}
    row["added"] = {name: spread(differences(first, name, "eager")) for name in engines}
    row["call"] = {name: spread(values) for name, values in samples.items()}
    row["over_flat"] = {name: spread(differences(samples, name, "flat")) for name in ("eager", *engines)}
    row["over_eager"] = {name: spread(differences(samples, name, "eager")) for name in engines}
    row["guards"] = {name: spread(values or []) for name, values in guards.items()}
    row["steady"] = steady
    return row


def median(row, group, name):
    value = row.get(group, {}).get(name)
    return None if value is None else value["median"]


def means(rows):
    """Geometric means of ratios stock / Kintsugi and engine / eager, over models that both really replay."""
    both = [r for r in rows if all(r["steady"].get(name) for name in ("kintsugi", "stock"))]

    def ratios(group, over, under, under_group=None):
        pairs = [(median(r, group, over), median(r, under_group or group, under)) for r in both]
        return geomean([a / b for a, b in pairs if a and b and a > 0 and b > 0])
    return {"models": len(both),
            "first call added, stock / kintsugi": ratios("added", "stock", "kintsugi"),
            "first call added / eager call, kintsugi": ratios("added", "kintsugi", "eager", "call"),
            "first call added / eager call, stock": ratios("added", "stock", "eager", "call"),
            "hit / eager, kintsugi": ratios("call", "kintsugi", "eager"),
            "hit / eager, stock": ratios("call", "stock", "eager"),
            "guards alone, stock / kintsugi": ratios("guards", "stock", "kintsugi")}


def show(value, scale, digits=1):
    if value is None:
        return "-"
    text = f"{value['median'] / scale:,.{digits}f}"
    return f"{text} [{value['q1'] / scale:,.{digits}f} {value['q3'] / scale:,.{digits}f}]"


def report(result):
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    console = Console(width=None if sys.stdout.isatty() else 160)

    def table(title, columns, lines):
        made = Table(title=escape(title), box=box.SIMPLE_HEAD)
        made.add_column("model")
        for column in columns:
            made.add_column(column, justify="right")
        for line in lines:
            made.add_row(*map(escape, line))
        console.print(made)

    rows, ms, us = result["rows"], 1e6, 1e3
    table("First call: ms, median [quartiles]",
          ["eager", "kintsugi adds", "stock adds", "stock / kintsugi", "kintsugi adds / eager call"],
          [[r["model"], show(r["first"]["eager"], ms), show(r["added"].get("kintsugi"), ms, 2),
            show(r["added"].get("stock"), ms), ratio(median(r, "added", "stock"), median(r, "added", "kintsugi")),
            ratio(median(r, "added", "kintsugi"), median(r, "call", "eager"))] for r in rows])
    table("Hit: us, median [quartiles]",
          ["eager", "flat", "kintsugi - flat", "stock - flat", "guards kintsugi", "guards stock", "replayed"],
          [[r["model"], show(r["call"]["eager"], us, 0), show(r["call"].get("flat"), us, 0),
            show(r["over_flat"].get("kintsugi"), us), show(r["over_flat"].get("stock"), us),
            show(r["guards"].get("kintsugi"), us, 2), show(r["guards"].get("stock"), us, 2),
            ", ".join(name for name, yes in r["steady"].items() if yes) or "none"] for r in rows])
    two = result["two_ops"]
    table("Two operators: us per call", ["eager", "kintsugi", "stock"],
          [["add(mul(x, y), 1)", *(show(two.get(name), us, 2) for name in ("eager", "kintsugi", "stock"))]])
    if result.get("memory"):
        table("Memory of one more compiled copy: KiB", ["kintsugi", "kintsugi's own count", "stock"],
              [[name, *(kib(by.get(engine, {}).get(key)) for engine, key in
                        (("kintsugi", "bytes"), ("kintsugi", "own"), ("stock", "bytes")))]
               for name, by in result["memory"].items()])
    console.print("Geometric means: " + ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in result["means"].items() if value is not None), markup=False)
    console.print(f"{result['machine']}, torch {result['torch']}, threads {result['threads']}", markup=False)


# -- a page --------------------------------------------------------------------------------------------------------


def lines_of(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def page(result):
    """The report as Markdown, from what --json wrote."""
    ms, us, machine_ = 1e6, 1e3, result["machine"]
    parts = ["# What a call costs", "",
             "Written by `make bench-overhead`; `bench/overhead.py --report docs/overhead.json --docs docs/overhead.md` writes it again. "
             "What the columns mean: the head of `bench/overhead.py`. No kernels, on either side (`backend=\"eager\"`).", "",
             f"{machine_['cpu']}, {machine_['cpus']} cores, load {machine_['load']:.1f} at the start, one thread, PyTorch {result['torch']}; "
             f"{result['turns']} turns, {result['rounds']} rounds of first calls. Median [quartiles].", "",
             "Geometric means: " + "; ".join(f"{name}: {value:.3g}" for name, value in result["means"].items() if value is not None) + ".", "",
             "## Hits, microseconds", "",
             *lines_of(["model", "eager", "flat", "Kintsugi", "stock", "Kintsugi - flat", "stock - flat", "guards Kintsugi", "guards stock"],
                       [[r["model"], *(show(r["call"].get(name), us, 0) for name in ("eager", "flat", "kintsugi", "stock")),
                         show(r["over_flat"].get("kintsugi"), us), show(r["over_flat"].get("stock"), us),
                         show(r["guards"].get("kintsugi"), us, 2), show(r["guards"].get("stock"), us, 2)] for r in result["rows"]]),
             "## First calls, milliseconds", "",
             *lines_of(["model", "eager", "Kintsugi adds", "stock adds", "stock / Kintsugi"],
                       [[r["model"], show(r["first"]["eager"], ms), show(r["added"].get("kintsugi"), ms, 2),
                         show(r["added"].get("stock"), ms), ratio(median(r, "added", "stock"), median(r, "added", "kintsugi"))]
                        for r in result["rows"]]),
             "## Two operators on eight numbers, microseconds", "",
             *lines_of(["eager", "Kintsugi", "stock"], [[show(result["two_ops"].get(name), us, 2) for name in ("eager", "kintsugi", "stock")]])]
    if result.get("memory"):
        parts += ["## Memory of one more compiled copy, KiB", "",
                  *lines_of(["model", "Kintsugi", "its own count", "stock"],
                            [[name, *(kib(by.get(engine, {}).get(key)) for engine, key in
                                      (("kintsugi", "bytes"), ("kintsugi", "own"), ("stock", "bytes")))]
                             for name, by in result["memory"].items()])]
    left = [f"* {name}: {text}" for name, text in result.get("left_out", {}).items()]
    return "\n".join([*parts, *(["## Left out", "", *left, ""] if left else [])])


def ratio(a, b):
    return f"{a / b:,.2f}" if a and b and a > 0 and b > 0 else "-"


def kib(value):
    return "-" if value is None else f"{value / 1024:,.0f}"


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", help="default: the whole list")
    parser.add_argument("--turns", type=int, default=40, help="samples per engine of a hit")
    parser.add_argument("--first", type=int, default=3, help="rounds of first calls")
    parser.add_argument("--quick", action="store_true", help="one round of first calls, 20 turns, no memory")
    parser.add_argument("--minutes", type=float, help="models that come later are left out, and memory is not measured")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--docs", type=pathlib.Path, help="write the report as a page")
    parser.add_argument("--report", type=pathlib.Path, help="measure nothing, report what --json wrote")
    parser.add_argument("--without", action="append", default=[], choices=("kintsugi", "stock"))
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--memory-child", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def measure_all(options):
    rounds, turns = (1, 20) if options.quick else (options.first, options.turns)
    start, machine_ = time.monotonic(), machine()
    engines = open_engines(options.without)
    rows, left_out = [], {}

    def is_over():
        return options.minutes is not None and time.monotonic() - start > options.minutes * 60
    for entry in models.find(options.models):
        if is_over():
            left_out[entry.name] = "the time was over"
            continue
        try:
            rows.append(measure(entry, engines, rounds, turns))
        except Exception as error:
            left_out[entry.name] = f"{type(error).__name__}: {error}"[:300]
            print(f"{entry.name}: left out, {left_out[entry.name]}", file=sys.stderr)
        print(f"{time.monotonic() - start:4.0f} s  {entry.name}", file=sys.stderr, flush=True)
    result = {"torch": torch.__version__, "threads": torch.get_num_threads(), "machine": machine_, "rounds": rounds,
              "turns": turns, "rows": rows, "left_out": left_out, "means": means(rows), "two_ops": two_op_calls(engines, turns)}
    if not (options.no_memory or options.quick or is_over()):
        result["memory"] = memory(engines, options.models)
    return result


def main(argv=None):
    options = parse(argv)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if options.memory_child:
        return memory_child(options.memory_child, options.models)
    result = json.loads(options.report.read_text()) if options.report else measure_all(options)
    report(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.docs:
        options.docs.write_text(page(result))
    return 0 if result["rows"] else 1


if __name__ == "__main__":
    sys.exit(main())
