"""What compiled graphs are made of: kernels against what the machine reaches, refused fusions, guards."""

from ..diagnose import show
from .text import esc, table


SHOWN = 12  # rows of a table; the others are behind a line that opens


def _first_rows(title, head, rows, noun):
    """A table with its first rows, and one with the others."""
    shown, rest = rows[:SHOWN], rows[SHOWN:]
    if len(rest) < SHOWN:
        return table(title, head, rows)
    return table(title, head, shown) + f"<details><summary>{show.count(len(rest), f'more {noun}')}</summary>{table(f'{title}, the rest', head, rest)}</details>"


def of_function(ident, one):
    return "\n".join(part for part in (_graphs(one), _kernels(one), _refused(one), _guards(one)) if part)


def _spent(times):
    return show.us(sum(times) * 1e3) if times else ""


def _graphs(one):
    """A row for each graph; kinds of inputs (sizes, mostly) for which it was compiled alike share one, and so do parts without code for the same reason."""
    alike = {}
    for row in one.kernels:
        part = None if row["reason"] and not row["native_calls"] else row["part"]  # parts without code share a row, too
        alike.setdefault((row["recording"], row["graph"], part, row["native_calls"], row["kernels"], row["library_calls"], row["reason"]), []).append(row)
    rows = []
    for (recording, graph, _, native, kernels, library, reason), found in alike.items():
        parts = {row["part"] for row in found}
        number = f"{recording}.{graph}" + (f": {len(parts)} parts" if len(parts) > 1 else f".{found[0]['part']}" if found[0]["parts"] > 1 else "")
        rows.append((number, len(found) if len(parts) == 1 else "", native, kernels, library, _range(found, "launch_us"), _range(found, "steps_us"),
                     _spent([row["compile_ms"] for row in found if row["compile_ms"] is not None]), esc(reason or "")))
    head = (("graph", 0), ("kinds of inputs", 1), ("calls compiled", 1), ("kernels", 1), ("left to PyTorch", 1), ("a launch", 1), ("step by step", 1), ("compiling", 1),
            ("not compiled, because", 0))
    note = "<p class=\"soft\">1.1 is the first graph of the first recording.</p>"
    return "<h3>Compiled graphs</h3>" + note + _first_rows(f"Compiled graphs of {one.name}", head, rows, "graph") if rows else ""


def _range(rows, key):
    """The times that were measured, shortest to longest."""
    times = sorted(row[key] for row in rows if row[key])
    if not times:
        return ""
    shortest, longest = show.us(times[0]), show.us(times[-1])
    return shortest if shortest == longest else f"{shortest} – {longest}"


def _kernels(one):
    """Each kernel with its share of what the machine reaches."""
    rows = []
    for graph in one.anatomy:
        for part in graph["parts"]:
            way = " backward" if part["backward"] else ""
            rows.append((part["us"], f"{graph['recording']}.{graph['graph']}{way}", f"<code>{esc(part['name'])}</code>", show.us(part["us"]), *_shares(part, one.limits)))
    if not rows:
        return ""
    rows.sort(key=lambda row: -row[0])
    left = f"<p class=\"soft\">{show.count(len(rows) - 100, 'faster kernel')} left out</p>" if len(rows) > 100 else ""
    reached = (f"Measured limits of this machine: {one.limits['gb_per_s']:.0f} GB/s for a copy of large tensors, {one.limits['gflops']:.0f} GFLOP/s for a product of matrices. "
               "More than 100% of the bandwidth: the data stays in caches." if one.limits else "")
    head = (("graph", 0), ("kernel or library call, with the sizes of what it reads and writes", 0), ("a run", 1), ("GB/s", 1), ("of the limit", 1), ("GFLOP/s", 1), ("of the limit", 1))
    return f"<h3>Kernels</h3><p class=\"soft\">{esc(reached)}</p>" + _first_rows(f"Kernels of {one.name}", head, [row[1:] for row in rows[:100]], "kernel") + left


def _shares(part, limits):
    found = []
    for amount, limit in ((part["bytes"], limits and limits["gb_per_s"]), (part["flops"], limits and limits["gflops"])):
        if not amount or not part["us"] or not limit:
            found += ["", ""]
            continue
        rate = amount / part["us"] / 1e3
        found += [f"{rate:.1f}", f"<meter min=\"0\" max=\"1\" value=\"{min(1, rate / limit):.2f}\" aria-label=\"share of the limit\"></meter> {rate / limit:.0%}"]
    return found


def _refused(one):
    rows = []
    for graph in one.anatomy:
        for refused in graph["refused"]:
            value, _, why = refused["text"].partition(": ")
            cost = f"{show.us(refused['us'] * refused['times'])} (modelled)" if refused["us"] is not None else ""
            rows.append((-(refused["us"] or 0), f"{graph['recording']}.{graph['graph']}", f"<code>{esc(value)}</code>", esc(why), refused["times"], cost))
    if not rows:
        return ""
    rows.sort(key=lambda row: row[0])
    head = (("graph", 0), ("value", 0), ("why it is not computed together with its neighbour", 0), ("times", 1), ("at most", 1))
    note = "<p class=\"soft\">The last column is what writing the value to memory and reading it again takes at the measured bandwidth.</p>"
    return "<details><summary>Refused fusions</summary>" + note + table(f"Refused fusions of {one.name}", head, [row[1:] for row in rows[:200]]) + "</details>"


def _guards(one):
    if not one.guards:
        return ""
    rows = []
    for guard in one.guards:
        checks = "".join(f"<li><code>{esc(text)}</code></li>" for text in guard["checks"][:20])
        left = f"<li class=\"soft\">{len(guard['checks']) - 20} more</li>" if len(guard["checks"]) > 20 else ""
        rows.append((f"{esc(show.place(guard['filename'], guard['line']))}<br><span class=\"soft\">{esc(guard['function'])}</span>", f"<ul class=\"plain\">{checks}{left}</ul>"))
    total = sum(len(guard["checks"]) for guard in one.guards)
    return (f"<details><summary>Guards: {show.count(total, 'check')} before a recording is used, by the line that needs them</summary>"
            + table(f"Guards of {one.name}", (("line", 0), ("checks", 0)), rows) + "</details>")
