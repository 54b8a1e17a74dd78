"""Results of `kintsugi bench` as a table in the terminal, and as an SVG picture."""

import math
from html import escape


def geomean(values):
    """Of the positive numbers among them; None when there is none."""
    values = [v for v in values if v and v > 0]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def ratios(row):
    """Of one model: speed-up over eager, over stock, over the better of both; what first calls add, stock's to ours."""
    times = {name: t["median"] for name, t in row.get("times", {}).items()}
    ours, eager, stock = times.get("kintsugi"), times.get("eager"), times.get("stock")
    first = row.get("first", {})
    added = {key: value["added"] for key, value in first.items()}

    def per(a, b):
        return a / b if a and b else None
    return {"over_eager": per(eager, ours), "over_stock": per(stock, ours),
            "over_best": per(min(t for t in (eager, stock) if t), ours) if ours and eager else None,
            "first_cold": per(added.get("stock cold"), added.get("kintsugi cold")),
            "first_headers": per(added.get("stock headers"), added.get("kintsugi cold")),
            "first_warm": per(added.get("stock warm"), added.get("kintsugi warm"))}


def _ms(entry):
    if entry is None:
        return "-"
    return f"{entry['median'] * 1e3:.3f} ±{(entry['high'] - entry['low']) / 2 * 1e3:.3f}"


def _times(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}x"


def table(results):
    """The rows as text, widths fitted; the last line holds geometric means."""
    head = ["model", "eager ms", "kintsugi ms", "stock ms", "vs eager", "vs stock", "vs best", "first call s", "stock's",
            "difference"]
    lines = [head]
    for name, row in results["models"].items():
        if "error" in row:
            lines.append([name, row["error"]])
            continue
        r, times, first = ratios(row), row["times"], row.get("first", {})
        lines.append([name, _ms(times.get("eager")), _ms(times.get("kintsugi")), _ms(times.get("stock")),
                      _times(r["over_eager"]), _times(r["over_stock"]), _times(r["over_best"]),
                      f"+{first['kintsugi cold']['added']:.3f}" if "kintsugi cold" in first else "-",
                      f"+{first['stock cold']['added']:.1f}" if "stock cold" in first else "-",
                      f"{row['difference'].get('kintsugi', math.nan):.1e}"])
    rows = [ratios(row) for row in results["models"].values() if "error" not in row]
    mean = {key: geomean([r[key] for r in rows]) for key in rows[0]} if rows else {}
    lines.append(["geomean", "", "", "", *(_times(mean.get(key)) for key in ("over_eager", "over_stock", "over_best")),
                  "", _times(mean.get("first_cold"), 0), ""])
    widths = [max(len(line[i]) for line in lines if i < len(line) and len(line) > 2) for i in range(len(head))]
    return "\n".join("  ".join(text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths)))
                     .rstrip() if len(line) > 2 else f"{line[0].ljust(widths[0])}  {line[1]}" for line in lines)


def svg(results):
    """Bars of the speed-up over eager, one row a model: Kintsugi and stock."""
    rows = [(name, ratios(row), row) for name, row in results["models"].items() if "error" not in row]
    most = max([1.0, *(r["over_eager"] or 0 for _, r, _ in rows)])
    scale, left, step = 440 / math.log2(max(most, 2) * 2), 130, 34

    def length(value):
        return max(2.0, math.log2(max(value, 0.5) * 2) * scale)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {len(rows) * step + 60}" font-family="sans-serif" '
             'font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
             '<text x="10" y="20" font-size="14">Speed-up over eager (logarithmic; the line is eager itself)</text>']
    for i, (name, r, row) in enumerate(rows):
        y = 36 + i * step
        stock = row["times"]["eager"]["median"] / row["times"]["stock"]["median"] if "stock" in row["times"] else None
        parts.append(f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">{escape(name)}</text>')
        for value, color, dy in ((r["over_eager"], "#b8860b", 0), (stock, "#9aa5b1", 13)):
            if value:
                parts.append(f'<rect x="{left}" y="{y + dy}" width="{length(value):.1f}" height="11" fill="{color}"/>'
                             f'<text x="{left + length(value) + 4:.1f}" y="{y + dy + 10}">{value:.2f}x</text>')
    line = left + scale
    bottom = 36 + len(rows) * step
    parts.append(f'<line x1="{line:.1f}" x2="{line:.1f}" y1="30" y2="{bottom}" stroke="#444" stroke-dasharray="3 3"/>')
    parts.append(f'<rect x="{left}" y="{bottom + 6}" width="11" height="11" fill="#b8860b"/><text x="{left + 16}" '
                 f'y="{bottom + 16}">Kintsugi</text><rect x="{left + 90}" y="{bottom + 6}" width="11" height="11" '
                 f'fill="#9aa5b1"/><text x="{left + 106}" y="{bottom + 16}">torch.compile (default mode)</text>')
    return "\n".join([*parts, "</svg>\n"])
