"""make demo: a transformers model with random weights and a small function that breaks, as Kintsugi sees them.

Shows what a recording found (graphs, graph breaks, guards), what became of the graph, how far results are from eager's, what a
call costs, and what happens to calls that differ. Lines fit a terminal; the full texts are in explain().
"""

import collections
import itertools
import os
import shutil
import statistics
import sys
import textwrap
import time

import torch

import kintsugi
from kintsugi import _kernels
from kintsugi._engine import engine

TURNS = 60
WARM = 10  # calls: the graph is compiled and tried against its steps in them


def make_model():
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=1000)
    torch.manual_seed(0)
    return BertModel(config).eval(), {"input_ids": torch.randint(0, 1000, (2, 32))}


def scale(x, y):
    x = torch.sin(x)
    print("   (the function prints: shape", tuple(x.shape), end=")\n")
    if y.sum() < 0:
        y = y * -1
    return x * y


# -- printing ---------------------------------------------------------------------------------------------------------


def title(text):
    print(f"\n== {text} " + "=" * max(0, width() - len(text) - 4))


def width():
    return min(120, shutil.get_terminal_size((110, 24)).columns)


def show(text, indent=2):
    """One line, cut at the edge of the terminal."""
    line = " " * indent + text
    print(line if len(line) <= width() else line[:width() - 3] + "...")


def tell(text, indent=2):
    """All of it, in as many lines as it takes."""
    print(textwrap.fill(text, width(), initial_indent=" " * indent, subsequent_indent=" " * (indent + 2)))


def show_counts(output):
    show(f"graphs {output.graph_count}   graph breaks {output.graph_break_count}   torch calls {output.op_count}   "
         f"guards {len(output.out_guards)}   deferred effects {len(output.deferred_effects)}")
    for frame in output.frames:
        show(f"{frame['name']}: {frame['outcome']}")


def show_graph(graph, most):
    """The calls of a graph by source line: place, then the source, then what torch is asked to do."""
    rows = [(place, [node["target"].split(".")[-1] for node in nodes])
            for place, nodes in itertools.groupby(graph["nodes"], lambda n: (n["filename"], n["line"], n["code_line"]))]
    for (filename, line, source), calls in rows[:most]:
        show(f"{os.path.basename(filename) + ':' + str(line):<22} {', '.join(calls):<28} {source}", 4)
    if len(rows) > most:
        show(f"... and {len(rows) - most} more source lines", 4)


def show_guards(output, most):
    kinds = collections.Counter(guard.kind for guard in output.out_guards)
    show("by kind: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(6)) + ", ...")
    seen = set()
    for guard in output.out_guards:
        if guard.kind not in seen and len(seen) < most:
            seen.add(guard.kind)
            show(f"{guard.text}    # {os.path.basename(guard.filename)}:{guard.line}", 4)


def show_breaks(output):
    for reason in output.break_reasons:
        frame = reason.user_stack[-1]
        show(f"graph break at {os.path.basename(frame.filename)}:{frame.lineno}  {frame.line}")
        for line in reason.reason.splitlines():
            if line.strip().startswith(("Data", "Explanation:", "Fix:")):
                show(line.strip(), 4)


# -- measuring --------------------------------------------------------------------------------------------------------


def time_turns(calls):
    """Median milliseconds of each; they take turns, so a slow moment of the machine hits all alike."""
    times = {name: [] for name in calls}
    for turn in range(TURNS):
        for name in sorted(calls, reverse=turn % 2 == 1):
            start = time.perf_counter()
            calls[name]()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


# -- the parts --------------------------------------------------------------------------------------------------------


def show_model():
    model, inputs = make_model()
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
        output = kintsugi.explain(model)(**inputs)
        title("BERT (2 layers, random weights): explain(model)(**inputs)")
        show_counts(output)
        show("graph 1, by source line:")
        show_graph(output._graphs[0], 14)
        title("its guards: what a later call has to satisfy, and the line that needs it")
        show_guards(output, 8)
        replayed, compiled = kintsugi.compile(model, backend="eager"), kintsugi.compile(model)
        first_ms, worst = [], 0.0
        for turn in range(WARM):
            assert torch.equal(replayed(**inputs).last_hidden_state, expected), "replay and eager differ"
            start = time.perf_counter()
            result = compiled(**inputs).last_hidden_state
            first_ms.append(1e3 * (time.perf_counter() - start))
            worst = max(worst, (result - expected).abs().max().item())
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        times = time_turns({"eager": lambda: model(**inputs), "replayed": lambda: replayed(**inputs),
                            "compiled": lambda: compiled(**inputs)})
    title("its cost (one torch thread)")
    stats = kintsugi.stats(compiled)
    for row in _kernels.rows(engine, kintsugi._api.engine_of(compiled)):
        tell(_kernels.describe(row))
    show(f"first call {first_ms[0]:.1f} ms (recorded), second {first_ms[1]:.1f} ms (compiled, or read from the cache)")
    show(f"later, per call: eager {times['eager']:.2f} ms, backend='eager' {times['replayed']:.2f} ms, "
         f"compiled {times['compiled']:.2f} ms")
    show(f"largest difference from eager's result: 0 with backend='eager', {worst:.1e} compiled")
    show(f"{stats['calls']} calls, {stats['replays']} of them replays, {stats['guard_misses']} guard misses")
    aside = sum(stats["eager_calls"].values())  # on a busy machine a compiled call may look slower than eager for a while
    if aside:
        show("calls that ran eagerly: " + ", ".join(f"{count} ({reason})" for reason, count in stats["eager_calls"].items()))
    assert stats["replays"] + aside >= stats["calls"] - 1


def show_function():
    title("a function that breaks: explain(scale)(x, y)")
    x, y = torch.ones(3), torch.ones(3)
    output = kintsugi.explain(scale)(x, y)
    show_counts(output)
    for number, graph in enumerate(output._graphs, 1):
        show(f"graph {number}:")
        show_graph(graph, 10)
    show_breaks(output)
    show("The print is a deferred effect: replayed, and the graph goes on.")


def power(x, n):
    for _ in range(n):
        x = x * x
    return x


def show_changes():
    title("later calls that differ")
    compiled = kintsugi.compile(scale)
    calls = [("recorded", 3, 1), ("another size: a side trace from where it matters (the print)", 5, 1),
             ("the other side of the if: a side trace behind the break", 3, -1), ("and replayed from then on", 3, -1)]
    for what, size, sign in calls:
        x, y = torch.ones(size), sign * torch.ones(size)
        torch.testing.assert_close(compiled(x, y), torch.sin(x))
        stats = kintsugi.stats(compiled)
        show(f"{what}   [recordings {stats['recordings']}, replays {stats['replays']}, branches {stats['branches']}]")
    compiled = kintsugi.compile(power)
    compiled(torch.ones(3), 2)
    compiled(torch.ones(3), 3)
    show("power(x, 2), then power(x, 3): recompiled, because")
    for entry in kintsugi.stats(compiled)["variants"]:
        for line in (entry["cause"] or "").splitlines():
            show(line, 4)


def main():
    sys.stdout.reconfigure(line_buffering=True)
    torch.set_num_threads(1)  # this model is too small for more; idle threads would only spin
    show_model()
    show_function()
    show_changes()
    print("\nNext: kintsugi.explain(fn)(*args) on your own code; python -m kintsugi breaks lists every reason for a graph break.")


if __name__ == "__main__":
    main()
