"""Results of `kintsugi bench`: a table in the terminal, a page with pictures for the documentation.

Everything here is computed from the file of results, so that a page can be written again without measuring.
"""

import json
import math
import os
from html import escape

from .. import _tables

# What a row is held to; `misses` says which of these it does not reach.
TARGETS = {
    "eager": "not slower than eager",
    "stock": "not slower than stock's default mode",
    "first": "the first call adds at most 1 s, with nothing on disk",
    "six": "the first six calls together add at most 1 s, with nothing on disk",
    "warm": "with the disk caches of an earlier process, first calls add at most a fifth of what stock's do",
    "copy": "at least 85% of the bandwidth of copying the same tensor",
    "digits": "results within 1e-5 of eager's, relative to the largest element",
    "kernels": "at least one graph runs as kernels",
    "noise": "not a target: times spread by more than a quarter, so that the row's ratios mean little",
}
NOT_SLOWER, MOST_ADDED, WARM_RATIO, COPY_SHARE, MOST_DIFFERENT, MOST_SPREAD = 0.995, 1.0, 5.0, 0.85, 1e-5, 0.25


def profile(name, result, most=30):
    """What one model's launches do, the dearest first: the best time of each operation, added up over launches and layers."""
    total, rows = sum(result["launches"]), result["rows"]
    known = sum(row["best"] for row in rows)
    lines = [f"{name}: {result['seconds'] * 1e3:.3f} ms a call, {len(result['launches'])} launches of {total * 1e3:.3f} ms, "
             f"{(total - known) * 1e6:.0f} us of it outside of operations"]
    for row in rows[:most]:
        lines.append(f"{row['best'] * 1e6:11.1f} us {row['best'] / total:6.1%} {row['times']:4}x  "
                     f"{'call  ' if row['extern'] else 'kernel'} {row['name'][:140]}")
    if len(rows) > most:
        rest = rows[most:]
        lines.append(f"{sum(row['best'] for row in rest) * 1e6:11.1f} us {sum(row['best'] for row in rest) / total:6.1%} "
                     f"{sum(row['times'] for row in rest):4}x  others")
    return "\n".join(lines)


def geomean(values):
    """Of the positive numbers among them; None when there is none."""
    values = [v for v in values if v and v > 0]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _per(a, b):
    return a / b if a and b else None


def ratios(row, headers=0.0):
    """Of one model: speed-up over eager, over stock, over the better of both; what first calls add, stock's to ours (cold: with
    `headers`, the seconds stock's own headers take; headers: without); bandwidth to that of copying."""
    times = {name: t["median"] for name, t in row.get("times", {}).items()}
    ours, eager, stock, copy = (times.get(name) for name in ("kintsugi", "eager", "stock", "copy"))
    added = {key: value["added"] for key, value in row.get("first", {}).items()}
    cold = added.get("stock cold")
    return {"over_eager": _per(eager, ours), "over_stock": _per(stock, ours),
            "over_best": _per(min(t for t in (eager, stock) if t), ours) if ours and eager else None,
            "first_cold": _per(cold and cold + (headers or 0.0), added.get("kintsugi cold")),
            "first_headers": _per(cold, added.get("kintsugi cold")),
            "first_warm": _per(added.get("stock warm"), added.get("kintsugi warm")),
            "copy": _per(copy, ours)}


def alone(first, key):
    """What the very first call adds, setting up included; None: it was not measured."""
    entry = first.get(key, {})
    return entry["setup"] + max(0.0, entry["calls"][0] - entry["eager"]) if "calls" in entry else None


def judged(row):
    """For each target: does the row miss it? None: it was not measured."""
    if "error" in row:
        return dict.fromkeys(TARGETS)
    r, first, times = ratios(row), row.get("first", {}), row.get("times", {})

    def less(value, least):
        return None if value is None else value < least

    def more(value, most):
        return None if value is None else value > most
    difference = row.get("difference", {}).get("kintsugi")
    return {"eager": less(r["over_eager"], NOT_SLOWER), "stock": less(r["over_stock"], NOT_SLOWER),
            "first": more(alone(first, "kintsugi cold"), MOST_ADDED),
            "six": more(first.get("kintsugi cold", {}).get("added"), MOST_ADDED), "warm": less(r["first_warm"], WARM_RATIO),
            "copy": less(r["copy"], COPY_SHARE),
            "digits": None if difference is None else not difference <= MOST_DIFFERENT,
            "kernels": less(row.get("kernels"), 1),
            "noise": any(t["high"] - t["low"] > MOST_SPREAD * t["median"] for t in times.values())}


def misses(row):
    """Names of the targets that the row does not reach; nothing is said of what was not measured."""
    return [name for name, missed in judged(row).items() if missed]


# -- text ----------------------------------------------------------------------------------------------------------


def _ms(entry):
    if entry is None:
        return "-"
    return f"{entry['median'] * 1e3:.3f} ±{(entry['high'] - entry['low']) / 2 * 1e3:.3f}"


def _times(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}x"


def _added(first, key, digits=2):
    return f"+{first[key]['added']:.{digits}f}" if key in first else "-"


def _mb(value):
    return "-" if not value else f"{value / 1e6:.0f}"


def _failed(row):
    return [f"{name}: {text}" for name, text in row.get("errors", {}).items()]


def _means(results):
    headers = results.get("machine", {}).get("stock_headers")
    rows = [ratios(row, headers) for row in results["models"].values() if "error" not in row]
    return {key: geomean([r[key] for r in rows]) for key in rows[0]} if rows else {}


def table(results):
    """The rows as text, widths fitted; a line of geometric means, then what else there is to say."""
    head = ["model", "eager ms", "kintsugi ms", "stock ms", "vs eager", "vs stock", "vs best", "first call s", "stock's",
            "warm", "stock's", "kernels", "difference", "misses"]
    lines, notes = [], []
    for name, row in results["models"].items():
        notes += [f"{name}: {text}" for text in _failed(row)]
        if "error" in row:
            lines.append([name, *[""] * (len(head) - 2), row["error"]])
            continue
        r, times, first = ratios(row), row["times"], row.get("first", {})
        lines.append([name, _ms(times.get("eager")), _ms(times.get("kintsugi")), _ms(times.get("stock")),
                      _times(r["over_eager"]), _times(r["over_stock"]), _times(r["over_best"]),
                      _added(first, "kintsugi cold"), _added(first, "stock cold", 1), _added(first, "kintsugi warm"),
                      _added(first, "stock warm", 1), str(row.get("kernels", "-")),
                      f"{row.get('difference', {}).get('kintsugi', math.nan):.1e}", " ".join(misses(row))])
        notes += [f"{name}: {text}" for text in _bandwidth(row)]
    mean = _means(results)
    lines.append(["geomean", "", "", "", *(_times(mean.get(key)) for key in ("over_eager", "over_stock", "over_best")),
                  "", _times(mean.get("first_cold"), 0), "", _times(mean.get("first_warm"), 1), "", "", ""])
    text = _tables.render(_tables.table(head, lines, right=range(1, len(head) - 1)))
    headers = results.get("machine", {}).get("stock_headers")
    if headers:
        notes.append(f"stock's headers, once for a machine: {headers:.1f} s more; its geometric mean has them")
    return "\n".join([text, *notes])


def _bandwidth(row):
    if not row.get("bytes"):
        return []
    return ["GB/s: " + ", ".join(f"{name} {row['bytes'] / t['median'] / 1e9:.1f}" for name, t in row["times"].items())]


# -- the page --------------------------------------------------------------------------------------------------------


def _lines(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def _good(results):
    return [(name, row) for name, row in results["models"].items() if "error" not in row]


def _steady_lines(results):
    head = ["model", "what", "eager ms", "Kintsugi ms", "stock ms", "over eager", "over stock", "kernels", "library calls",
            "difference", "misses"]
    rows = []
    for name, row in _good(results):
        r, times = ratios(row), row["times"]
        rows.append([name, row.get("about", ""), *(_ms(times.get(key)) for key in ("eager", "kintsugi", "stock")),
                     _times(r["over_eager"]), _times(r["over_stock"]), str(row.get("kernels", "-")),
                     str(row.get("library_calls", "-")), f"{row.get('difference', {}).get('kintsugi', math.nan):.1e}",
                     ", ".join(misses(row))])
    mean = _means(results)
    rows.append(["geometric mean", "", "", "", "", _times(mean.get("over_eager")), _times(mean.get("over_stock")), "", "", "", ""])
    return _lines(head, rows)


def _first_lines(results):
    headers = results["machine"].get("stock_headers")
    head = ["model", "Kintsugi cold", "its first call", "stock cold, headers there", "stock cold", "Kintsugi warm", "stock warm", "stock / Kintsugi, warm",
            "peak MB: eager", "Kintsugi", "stock"]
    rows = []
    for name, row in _good(results):
        first = row.get("first", {})
        if not row.get("alone"):
            continue
        cold = first.get("stock cold")
        only = alone(first, "kintsugi cold")
        rows.append([name, _added(first, "kintsugi cold"), "-" if only is None else f"+{only:.2f}", _added(first, "stock cold", 1),
                     f"+{cold['added'] + headers:.1f}" if cold and headers else "-", _added(first, "kintsugi warm"),
                     _added(first, "stock warm", 1), _times(ratios(row)["first_warm"], 1),
                     _mb(first.get("kintsugi cold", {}).get("eager_peak_bytes")),
                     _mb(first.get("kintsugi cold", {}).get("peak_bytes")), _mb(first.get("stock cold", {}).get("peak_bytes"))])
    return _lines(head, rows) if rows else ["Not measured.", ""]


def _miss_lines(results):
    answers = [(name, judged(row)) for name, row in _good(results)]
    lines = []
    for target, text in TARGETS.items():
        measured = [name for name, found in answers if found[target] is not None]
        missing = [name for name, found in answers if found[target]]
        if target == "noise":
            lines += [f"* Spread by more than a quarter: {', '.join(missing)}"] if missing else []
        elif missing:
            lines.append(f"* {text}: missed by **{len(missing)}** of {len(measured)} rows ({', '.join(missing)})")
        else:
            lines.append(f"* {text}: {f'reached by all {len(measured)} rows' if measured else 'not measured'}")
    return [*lines, ""]


def _picture_lines(results, kind, text):
    return [f"![{text}](bench-{kind}.svg)", ""] if _bars(results, kind) else []


def _second_lines(results, second):
    """The run in which MKL takes its code for Intel's processors, beside the first one."""
    if second is None:
        return []
    rows = []
    for name, row in _good(second):
        now, before = ratios(row), ratios(results["models"].get(name, {"times": {}}))
        rows.append([name, *(_times(r.get(key)) for key in ("over_eager", "over_stock") for r in (before, now))])
    first, mean = _means(results), _means(second)
    rows.append(["geometric mean", *(_times(m.get(key)) for key in ("over_eager", "over_stock") for m in (first, mean))])
    return ["## MKL's code for Intel's processors", "",
            "On other processors MKL, which does eager's and stock's products, takes code that is less than half as fast, and a part of the speed-up "
            "above is that. Here a library loaded first (`make bench-mkl`: `mkl_serv_intel_cpu_true` returns 1) gives its best code to eager, Kintsugi "
            "and stock alike.", "",
            *_lines(["model", "over eager", "with MKL's best", "over stock", "with MKL's best"], rows), ""]


def page(results, second=None):
    """The page of the documentation, in Markdown; second: a run with --mkl-fast-path."""
    machine = results["machine"]
    failed = [f"* {name}: {text}" for name, row in results["models"].items()
              for text in [*([row["error"]] if "error" in row else []), *_failed(row)]]
    bandwidth = [f"* {name}: {text}" for name, row in _good(results) for text in _bandwidth(row)]
    headers = f" Its headers take {machine['stock_headers']:.1f} s, once for a machine." if machine.get("stock_headers") else ""
    parts = ["# Benchmark", "",
             "Written by `make bench`; `python -m kintsugi bench --report docs/bench.json --docs docs` writes it again from the numbers.", "",
             f"{machine['cpu']}, {machine['threads']} threads, PyTorch {machine['torch']}, Python {machine['python']}, load "
             f"{machine.get('load', 0):.1f} at the start. Inference, float32, random weights. Milliseconds: median and half of the distance between "
             f"the 10% and 90% quantiles, eager, Kintsugi and stock's default mode taking turns in one process for {results.get('seconds', 0):g} s.", "",
             *_picture_lines(results, "speed", "speed-up over eager"), "## Calls", "", *_steady_lines(results)]
    parts += [*bandwidth, ""] if bandwidth else []
    parts += _second_lines(results, second)
    parts += ["## Targets", "", *_miss_lines(results), "## First calls", "",
              f"Seconds that importing and the first six calls take beyond eager calls. Cold: a fresh process with empty disk caches. Warm: a "
              f"fresh process with those of the cold ones.{headers}", "", *_picture_lines(results, "first", "first calls"),
              *_first_lines(results), *_picture_lines(results, "memory", "memory")]
    if failed:
        parts += ["## What went wrong", "", *failed, ""]
    return "\n".join(parts)


def write_docs(results, folder, second=None):
    """bench.md and its pictures; second: the file of a run with --mkl-fast-path, if there is one."""
    os.makedirs(folder, exist_ok=True)
    other = None
    if second and os.path.exists(second):
        with open(second) as file:
            other = json.load(file)
    files = {"bench.md": page(results, other), **{f"bench-{kind}.svg": picture(results, kind) for kind in PICTURES if _bars(results, kind)}}
    for name, text in files.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)


# -- pictures --------------------------------------------------------------------------------------------------------

_GOLD, _GREY, _LIGHT = "#b8860b", "#7d8a97", "#c9d0d6"


def _speed_bars(row):
    times = row.get("times", {})
    eager = times.get("eager", {}).get("median")
    return [_per(eager, times.get(name, {}).get("median")) for name in ("kintsugi", "stock")]


def _first_bars(row):
    first = row.get("first", {}) if row.get("alone") else {}
    return [first.get(key, {}).get("added") for key in ("kintsugi cold", "kintsugi warm", "stock cold", "stock warm")]


def _memory_bars(row):
    first = row.get("first", {}) if row.get("alone") else {}
    eager = first.get("kintsugi cold", {}).get("eager_peak_bytes")
    return [_per(first.get(key, {}).get("peak_bytes"), eager) for key in ("kintsugi cold", "stock cold")]


# kind: (title, bars of a row, their names and colours, what is written on one, where the axis begins, a line to compare with)
PICTURES = {
    "speed": ("Speed-up over eager (logarithmic; the line is eager itself)", _speed_bars,
              [("Kintsugi", _GOLD), ("torch.compile (default mode)", _GREY)], "{:.2f}x", 0.5, 1.0),
    "first": ("Seconds that the first calls add (logarithmic; the line is one second)", _first_bars,
              [("Kintsugi cold", _GOLD), ("warm", "#e0c068"), ("stock cold, headers there", _GREY), ("warm", _LIGHT)],
              "{:.2f} s", 0.01, 1.0),
    "memory": ("Peak memory of a process, over eager's (logarithmic; the line is eager's)", _memory_bars,
               [("Kintsugi", _GOLD), ("torch.compile (default mode)", _GREY)], "{:.2f}x", 0.5, 1.0),
}


def _bars(results, kind):
    rows = [(name, PICTURES[kind][1](row)) for name, row in _good(results)]
    return [(name, bars) for name, bars in rows if any(bars)]


def picture(results, kind):
    """An SVG picture: bars for each row."""
    title, _, series, text, begin, line = PICTURES[kind]
    rows = _bars(results, kind)
    most = max([line * 2, *(bar or 0 for _, bars in rows for bar in bars)])
    left, width, bar_height = 130, 440, 11
    scale = width / math.log(most / begin)
    step = len(series) * (bar_height + 2) + 8

    def length(value):
        return max(2.0, math.log(max(value, begin) / begin) * scale)
    bottom = 36 + len(rows) * step
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {bottom + 24}" font-family="sans-serif" font-size="11">',
             '<rect width="100%" height="100%" fill="white"/>', f'<text x="10" y="20" font-size="14">{escape(title)}</text>']
    for i, (name, bars) in enumerate(rows):
        y = 36 + i * step
        parts.append(f'<text x="{left - 8}" y="{y + step / 2 - 1:.0f}" text-anchor="end">{escape(name)}</text>')
        for k, (value, (_, color)) in enumerate(zip(bars, series)):
            at = y + k * (bar_height + 2)
            if value:
                parts.append(f'<rect x="{left}" y="{at}" width="{length(value):.1f}" height="{bar_height}" fill="{color}"/>'
                             f'<text x="{left + length(value) + 4:.1f}" y="{at + bar_height - 1}">{text.format(value)}</text>')
    x = left + length(line)
    parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="30" y2="{bottom}" stroke="#444" stroke-dasharray="3 3"/>')
    at = left
    for name, color in series:
        parts.append(f'<rect x="{at}" y="{bottom + 6}" width="11" height="11" fill="{color}"/>'
                     f'<text x="{at + 15}" y="{bottom + 15}">{escape(name)}</text>')
        at += 24 + 6 * len(name)
    return "\n".join([*parts, "</svg>\n"])
