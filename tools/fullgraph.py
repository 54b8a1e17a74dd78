"""`make fullgraph`: what fullgraph=True accepts, and how many graphs a backend gets, by stock PyTorch and by Kintsugi.

The programs are in tests/fullgraph/graph_programs.py; each engine counts in a process of its own. Writes docs/fullgraph.json, which
tests/py/test_fullgraph_truth.py compares with, and docs/fullgraph.md.
"""

import inspect
import json
import pathlib
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fullgraph"))

HEAD = """# What `fullgraph=True` accepts

Made by `make fullgraph` from {n} programs (`tests/fullgraph/graph_programs.py`). They run under Kintsugi and under the `torch.compile` of PyTorch {version}, in the
same environment. "graphs" is the number that a backend gets: under `fullgraph=True`, and without it (where stock's number depends on
`capture_scalar_outputs` and `capture_dynamic_output_shape_ops`, which are off by default and on under `fullgraph`; Kintsugi's does not).

Both accept {both}, both refuse {neither}.
"""


def count(engine):
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "fullgraph" / "graph_count.py"), engine], capture_output=True, text=True, check=True)
    return {row["name"]: row for row in map(json.loads, (line for line in done.stdout.splitlines() if line.startswith("{")))}


def _cells(row):
    accepts = "yes" if row.get("accepts") else "no"
    return f"{accepts} | {row['graphs'].get('full', 0) if row.get('accepts') else '-'} | {row['graphs'].get('plain', 0)}"


def _section(title, text, names, table):
    from graph_programs import PROGRAMS

    lines = [f"## {title}", "", text, ""]
    for name in names:
        row = table[name]
        refused = row["stock"] if not row["stock"].get("accepts") else row["kintsugi"]
        lines += [f"### `{name}`", "", f"Refused with: {refused.get('error', '')}", "", "```python",
                  textwrap.dedent(inspect.getsource(PROGRAMS[name])).partition("\n")[2].rstrip(), "```", ""]
    return lines


def page(table, version):
    more = [n for n, r in table.items() if r["kintsugi"].get("accepts") and not r["stock"].get("accepts")]
    less = [n for n, r in table.items() if r["stock"].get("accepts") and not r["kintsugi"].get("accepts")]
    both = sum(bool(r["stock"].get("accepts") and r["kintsugi"].get("accepts")) for r in table.values())
    lines = HEAD.format(n=len(table), version=version, both=both, neither=len(table) - both - len(more) - len(less)).splitlines() + [""]
    lines += _section("Accepted here, refused by stock", "Code that relies on these will not run under stock's `fullgraph=True`.", more, table)
    lines += _section("Refused here, accepted by stock", "Without `fullgraph` they run with a graph break.", less, table)
    lines += ["## All programs", "", "| program | stock accepts | graphs | without | Kintsugi accepts | graphs | without |", "|---|---|---|---|---|---|---|"]
    lines += [f"| `{name}` | {_cells(r['stock'])} | {_cells(r['kintsugi'])} |" for name, r in table.items()]
    return "\n".join(lines) + "\n"


def main():
    import torch

    ours, stock = count("kintsugi"), count("stock")
    keep = ("accepts", "graphs", "explain", "error")
    table = {name: {engine: {key: rows[name][key] for key in keep if key in rows[name]} for engine, rows in
                    (("stock", stock), ("kintsugi", ours))} for name in ours}
    (ROOT / "docs" / "fullgraph.json").write_text(json.dumps(table, indent=1) + "\n")
    (ROOT / "docs" / "fullgraph.md").write_text(page(table, torch.__version__.partition("+")[0]))
    differ = [name for name, r in table.items() if r["stock"].get("accepts") != r["kintsugi"].get("accepts")]
    print(f"{len(table)} programs, {len(differ)} answered otherwise than by stock: {' '.join(differ)}")


if __name__ == "__main__":
    main()
