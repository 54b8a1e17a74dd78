"""Rows of segments on a common scale, which can be zoomed: the timeline of a call, what compiling took."""

from ..diagnose import show
from .text import esc

MOST = 1500  # segments of a picture


def picture(ident, label, rows, total, unit):
    """rows: [(title, [(start, length, kind, text, link)])] in parts of `total`; unit: formats a length for people."""
    parts = []
    for title, segments in rows:
        items = "".join(_segment(segment, total, unit) for segment in segments[:MOST])
        parts.append(f"<div class=\"lane\"><span class=\"lane-name\">{esc(title)}</span>{items}</div>")
    ticks = "".join(f"<span class=\"tick\" style=\"left:{i * 10}%\">{esc(unit(total * i / 10))}</span>" for i in range(10))
    buttons = "".join(f"<button type=\"button\" data-zoom=\"{factor}\" aria-label=\"{name}\">{sign}</button>" for factor, name, sign in (
        ("2", "Zoom in", "+"), ("0.5", "Zoom out", "−"), ("0", "Whole width", "1:1")))
    return (f"<div class=\"timeline\" id=\"{ident}\"><div class=\"zoom\" role=\"group\" aria-label=\"Zoom of: {esc(label)}\">{buttons}</div>"
            f"<div class=\"view\" tabindex=\"0\" role=\"region\" aria-label=\"{esc(label)}\"><div class=\"inner\">{''.join(parts)}<div class=\"ticks\" aria-hidden=\"true\">{ticks}</div></div></div></div>")


def _segment(segment, total, unit):
    start, length, kind, text, link = segment
    told = f"{text}: {unit(length)}" if length else text
    place = f"left:{100 * start / total:.3f}%;width:{max(100 * length / total, .08):.3f}%"
    if link:
        return f"<a class=\"seg {kind}\" href=\"#{esc(link)}\" style=\"{place}\" title=\"{esc(told)}\" tabindex=\"-1\">{esc(text)}</a>"
    return f"<span class=\"seg {kind}\" style=\"{place}\" title=\"{esc(told)}\">{esc(text)}</span>"


def of_call(ident, one):
    """The call that was recorded first, by measured parts: launches of graphs, prices of breaks; the rest is guards, replay and side effects."""
    if not one["sequence"] or not one["verdict"]["compiled_us"]:
        return ""
    compiled = one["verdict"]["compiled_us"]
    launches = {}
    for row in one["anatomy"]:
        if row["recording"] == 0:
            launches.setdefault(row["graph"], []).append(row)
    prices = {(cause["title"], cause["line"]): (i, cause["price_us"] / max(1, cause["count"]) if cause["price_us"] else 0.0) for i, cause in enumerate(one["causes"])}
    steps = one["sequence"]
    known = sum(_length(step, launches, prices)[0] for step in steps)
    rest = max(0.0, compiled - known)
    each = rest / max(1, sum(step[0] != "break" for step in steps))
    at, calls, kernels = 0.0, [], []
    for step in steps:
        length, link = _length(step, launches, prices)
        kind, line, text = step
        if kind == "graph":
            inner = at
            for row in launches.get(_number(text), ()):
                for part in row["parts"]:
                    kernels.append((inner, part["us"], "extern" if part["extern"] else "kernel", part["name"], ""))
                    inner += part["us"]
        calls.append((at, length, kind, f"{text} (line {line})", f"{ident}{link}" if link else ""))
        at += length
        if kind != "break":
            calls.append((at, each, "rest", "guards, replay, effects", ""))
            at += each
    rows = [("call", calls)] + ([("kernels", kernels)] if kernels else [])
    note = ("Lengths of graphs and kernels are those of their launches, lengths of breaks are their prices; what else the call takes is spread between them."
            + ("" if kernels else " No kernel was profiled: graphs run step by step, or the function is not called again."))
    return (f"<h3>Timeline of a call</h3>{picture(ident + 't', 'Timeline of a call', rows, max(at, compiled), show.us)}<p class=\"soft\">{note} "
            "Zoom with the buttons, or + and - while the picture has the focus.</p>")


def _number(text):
    return int(text.split(":")[0].removeprefix("graph "))


def _length(step, launches, prices):
    kind, line, text = step
    if kind == "graph":
        return sum(row["us"] or 0.0 for row in launches.get(_number(text), ())), ""
    if kind == "break" and (text, line) in prices:
        number, price = prices[text, line]
        return price, f"c{number}"
    return 0.0, ""


def of_compiling(ident, one):
    """A flame view: recordings and graphs, below them what their compilation did."""
    top, below, at = [], [], 0.0
    for number, ms in enumerate(one["record_ms"]):
        top.append((at, ms, "graph", f"recording {number}", ""))
        at += ms
        for row in one["anatomy"]:
            if row["recording"] != number:
                continue
            made = row["compile"]
            inner = at
            for name, ms in [("capture", made["capture_ms"]), *made["passes"]]:
                kind = "extern" if name == "codegen" else "kernel"
                below.append((inner, ms, kind, name, ""))
                inner += ms
            total = max(made["total_ms"], inner - at)
            top.append((at, total, "compile", f"graph {row['graph']} of recording {number}", ""))
            at += total
    if not at:
        return ""
    rows = [("made", top)] + ([("steps", below)] if below else [])
    return f"<h3>What compiling took</h3>{picture(ident + 'f', 'What compiling took', rows, at, _ms)}"


def _ms(value):
    return show.us(value * 1e3)


STYLE = """
.timeline { margin: .6rem 0; } .zoom { display: flex; gap: .3rem; margin-bottom: .3rem; } .zoom button { font: inherit; min-width: 2.2rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card); color: var(--fg); cursor: pointer; }
.view { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; background: var(--card); } .inner { position: relative; min-width: 100%; padding-bottom: 1.4rem; }
.lane { position: relative; height: 2.9rem; border-bottom: 1px solid var(--line); } .lane-name { position: sticky; left: .3rem; font-size: .75rem; color: var(--soft); line-height: 1.1rem; display: inline-block; }
.seg { position: absolute; top: 1.15rem; height: 1.5rem; line-height: 1.5rem; overflow: hidden; white-space: nowrap; font-size: .75rem; padding-left: 2px; border-left: 1px solid var(--card); color: var(--fg); text-decoration: none; background: var(--line); }
.seg.graph { background: var(--seg1); } .seg.break, .seg.eager { background: var(--mark); color: var(--bad); } .seg.effect { background: var(--seg3); } .seg.kernel { background: var(--plus); } .seg.extern { background: var(--seg3); } .seg.compile { background: var(--seg3); }
.seg.rest { background: repeating-linear-gradient(45deg, var(--line), var(--line) 2px, var(--card) 2px, var(--card) 6px); color: transparent; }
.ticks { position: absolute; bottom: 0; left: 0; right: 0; height: 1.3rem; } .tick { position: absolute; font-size: .7rem; color: var(--soft); border-left: 1px solid var(--line); padding-left: 2px; white-space: nowrap; }
@media (max-width: 40rem) { .tick:nth-child(even) { display: none; } }
"""

SCRIPT = """
for (const box of document.querySelectorAll('.timeline')) {
  const view = box.querySelector('.view'), inner = box.querySelector('.inner');
  let zoom = 1;
  const set = (factor, at) => {
    const next = factor ? Math.min(256, Math.max(1, zoom * factor)) : 1, x = at === undefined ? view.clientWidth / 2 : at;
    const left = (view.scrollLeft + x) * next / zoom - x;
    zoom = next;
    inner.style.width = 100 * zoom + '%';
    view.scrollLeft = left;
  };
  for (const button of box.querySelectorAll('[data-zoom]')) button.addEventListener('click', () => set(Number(button.dataset.zoom)));
  view.addEventListener('keydown', event => {
    if (event.key === '+' || event.key === '=') set(2); else if (event.key === '-') set(0.5); else if (event.key === '0') set(0); else return;
    event.preventDefault();
  });
  view.addEventListener('wheel', event => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    set(event.deltaY < 0 ? 1.25 : 0.8, event.clientX - view.getBoundingClientRect().left);
  }, {passive: false});
}
"""
