"""Rows of segments on a common scale, which can be zoomed: the timeline of a call, what compiling took.

A picture is data and a script: it draws only what is in view, and neighbours that are too narrow to be seen as one block, so that a page with thousands of segments
opens at once. What the picture shows can be read with the arrow keys, too; each segment is then told in words.
"""

import json

from ..diagnose import show
from .text import esc

MOST = 20_000  # segments of a row


def picture(ident, label, rows, total):
    """rows: [(title, [(start, length, kind, text, link)])] in microseconds, of `total`; each row's segments in order."""
    rows = [(title, list(segments)) for title, segments in rows]
    data = {"total": total, "rows": [[title, [[round(start, 3), round(length, 3), kind, text, link] for start, length, kind, text, link in segments[:MOST]]]
                                     for title, segments in rows]}
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # what stands in a script ends at no tag
    lanes = "".join(f"<div class=\"lane\"><span class=\"lane-name\">{esc(title)}</span><div class=\"segs\"></div></div>" for title, _ in rows)
    buttons = "".join(f"<button type=\"button\" data-zoom=\"{factor}\" aria-label=\"{name}\">{sign}</button>" for factor, name, sign in (
        ("2", "Zoom in", "+"), ("0.5", "Zoom out", "−"), ("0", "Whole width", "1:1")))
    return (f"<div class=\"timeline\" id=\"{ident}\"><script type=\"application/json\">{text}</script><div class=\"zoom\" role=\"group\" aria-label=\"Zoom of: {esc(label)}\">"
            f"{buttons}</div>{_legend(rows)}<div class=\"view\" tabindex=\"0\" role=\"application\" aria-label=\"{esc(label)}\" aria-describedby=\"{ident}k\"><div class=\"inner\" aria-hidden=\"true\">"
            f"{lanes}<div class=\"ticks\"></div></div></div><p class=\"told\" role=\"status\"></p><p class=\"soft keys\" id=\"{ident}k\">Arrow keys go from segment to segment and from "
            "row to row, Enter follows a link, + and - zoom, 0 shows everything. With a mouse: the buttons, or Ctrl and the wheel.</p></div>")


_KINDS = {"graph": "graph", "break": "graph break", "read": "read of data", "eager": "eager", "effect": "side effect", "rest": "guards and replay", "compile": "compilation",
          "kernel": "kernel or pass", "extern": "library call or code generation"}


def _legend(rows):
    found = {kind for _, segments in rows for _, _, kind, _, _ in segments}
    keys = "".join(f"<li><span class=\"seg {kind}\"></span>{name}</li>" for kind, name in _KINDS.items() if kind in found)
    marked = "<li><span class=\"seg rest holds\"></span>several parts, a break or read among them</li>" if found & {"break", "read"} else ""
    return f"<ul class=\"legend\">{keys}{marked}</ul>"


def of_call(ident, one):
    """The call that was measured, by its parts: launches of graphs, prices of breaks; the rest is guards, replay and side effects."""
    if not one["sequence"] or not one["verdict"]["compiled_us"]:
        return ""
    compiled = one["verdict"]["compiled_us"]
    launches = {}
    for row in one["anatomy"]:
        if row["recording"] == one["shown"] and row["us"]:
            launches.setdefault(row["graph"], []).append(row)
    prices = {(cause["title"] if cause["kind"] in show.BRIDGED else cause["kind"], cause["line"]): (i, cause["price_us"] / max(1, cause["count"]) if cause["price_us"] else 0.0) for i, cause in enumerate(one["causes"])}
    steps = one["sequence"]
    known = sum(_length(step, launches, prices)[0] for step in steps)
    each = max(0.0, compiled - known) / max(1, sum(step[0] not in show.BRIDGED for step in steps))
    at, calls, kernels = 0.0, [], []
    for step in steps:
        length, link = _length(step, launches, prices)
        kind, line, text = step
        if kind == "graph":
            kernels += _kernels(at, launches.get(_number(text), ()))
        calls.append((at, length, kind, f"{text} (line {line})", f"{ident}{link}" if link else ""))
        at += length
        if kind not in show.BRIDGED:
            calls.append((at, each, "rest", "guards, replay, effects", ""))
            at += each
    rows = [("call", calls)] + ([("kernels", kernels)] if kernels else [])
    note = ("Lengths of graphs and kernels are those of their launches, lengths of breaks, reads of data and side effects are their prices; what else the call takes is spread between them."
            + ("" if kernels else " No kernel was profiled: graphs run step by step, or the function is not called again.") + (_steps(steps, launches) if kernels else ""))
    return f"<h3>Timeline of a call</h3>{picture(ident + 't', 'Timeline of a call', rows, max(at, compiled))}<p class=\"soft\">{note}</p>"


def _steps(steps, launches):
    graphs = [_number(text) for kind, _, text in steps if kind == "graph"]
    left = sum(number not in launches for number in graphs)
    return f" {show.count(left, 'graph')} of {len(graphs)} ran step by step (the table of compiled graphs says why): their time is spread with the rest." if left else ""


def _kernels(at, rows):
    """Those of a graph's parts, from where the graph begins."""
    for row in rows:
        for part in row["parts"]:
            yield at, part["us"], "extern" if part["extern"] else "kernel", part["name"] + (" (backward)" if part["backward"] else ""), ""
            at += part["us"]


def _number(text):
    return int(text.split(":")[0].removeprefix("graph "))


def _length(step, launches, prices):
    kind, line, text = step
    if kind == "graph":
        return sum(row["us"] for row in launches.get(_number(text), ())), ""
    key = text if kind in show.BRIDGED else kind, line
    if key in prices:
        number, price = prices[key]
        return price, f"c{number}"
    return 0.0, ""


def of_compiling(ident, one):
    """A flame view: recordings and graphs, below them what their compilation did."""
    top, below, at = [], [], 0.0
    for number, ms in enumerate(one["record_ms"], 1):
        top.append((at, ms * 1e3, "graph", f"recording {number}", ""))
        at += ms * 1e3
        for row in one["anatomy"]:
            if row["recording"] != number or not row["compile"]["total_ms"]:
                continue
            made, inner = row["compile"], at
            for name, ms in [("capture", made["capture_ms"]), *made["passes"]]:
                below.append((inner, ms * 1e3, "extern" if name == "codegen" else "kernel", name, ""))
                inner += ms * 1e3
            total = max(made["total_ms"] * 1e3, inner - at)
            if at + total - inner > 0.01 * total:
                below.append((inner, at + total - inner, "rest", "the rest: weights laid out, gradients derived, files", ""))
            top.append((at, total, "compile", f"graph {row['graph']} of recording {number}", ""))
            at += total
    if not at:
        return ""
    rows = [("made", top)] + ([("steps", below)] if below else [])
    return f"<h3>What compiling took</h3>{picture(ident + 'f', 'What compiling took', rows, at)}"


STYLE = """
.timeline { margin: .6rem 0; } .zoom { display: flex; gap: .3rem; margin-bottom: .3rem; } .zoom button { font: inherit; min-width: 2.2rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card); color: var(--fg); cursor: pointer; }
.view { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; background: var(--card); } .inner { position: relative; min-width: 100%; padding-bottom: 1.4rem; }
.lane { position: relative; height: 2.9rem; border-bottom: 1px solid var(--line); } .lane-name { position: sticky; left: .3rem; font-size: .75rem; color: var(--soft); line-height: 1.1rem; display: inline-block; }
.seg { position: absolute; top: 1.15rem; height: 1.5rem; line-height: 1.5rem; overflow: hidden; white-space: nowrap; font-size: .75rem; padding-left: 2px; border-left: 1px solid var(--card); color: var(--fg); background: var(--line); cursor: default; }
.seg.graph { background: var(--seg1); } .seg.break, .seg.read, .seg.eager { background: var(--mark); color: var(--bad); } .seg.effect { background: var(--seg3); } .seg.kernel { background: var(--plus); } .seg.extern { background: var(--seg3); } .seg.compile { background: var(--seg3); }
.seg.rest { background: repeating-linear-gradient(45deg, var(--line), var(--line) 2px, var(--card) 2px, var(--card) 6px); color: transparent; }
.seg.chosen { outline: 2px solid var(--fg); outline-offset: -2px; z-index: 1; } .seg.linked { cursor: pointer; text-decoration: underline; }
.seg.holds { border-top: 3px solid var(--bad); } .legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; list-style: none; margin: 0 0 .3rem; padding: 0; font-size: .8rem; color: var(--soft); }
.legend .seg { position: static; display: inline-block; width: 1.1rem; height: .8rem; margin-right: .35rem; padding: 0; vertical-align: -.05rem; }
.told { min-height: 1.5em; margin: .3rem 0 0; font-size: .9rem; } .keys { font-size: .85rem; margin: 0; }
.ticks { position: absolute; bottom: 0; left: 0; right: 0; height: 1.3rem; } .tick { position: absolute; font-size: .7rem; color: var(--soft); border-left: 1px solid var(--line); padding-left: 2px; white-space: nowrap; }
"""

SCRIPT = """
const told = us => us >= 1e6 ? +(us / 1e6).toPrecision(3) + ' s' : us >= 1000 ? +(us / 1000).toPrecision(3) + ' ms' : +us.toPrecision(us < 10 ? 2 : 3) + ' us';
const RANK = ['break', 'read', 'eager', 'graph', 'compile', 'extern', 'kernel', 'effect', 'rest'], NARROW = 4;
const count = (n, what) => n + ' ' + (what === 'rest' ? 'stretches of guards and replay' : n === 1 ? what : what + 's');
for (const box of document.querySelectorAll('.timeline')) {
  const {total, rows} = JSON.parse(box.querySelector('script').textContent), say = box.querySelector('.told');
  const view = box.querySelector('.view'), inner = box.querySelector('.inner'), ticks = box.querySelector('.ticks'), lanes = [...box.querySelectorAll('.segs')];
  let zoom = 1, row = 0, at = -1, waiting = false;
  const put = (place, kind, left, width, text, title) => {
    const one = document.createElement('span');
    one.className = kind; one.style.left = left + 'px'; one.style.width = width + 'px';
    one.textContent = text; one.title = title;
    return place.appendChild(one);
  };
  const words = ([start, length, kind, text]) => text + (length ? ': ' + told(length) : '') + ', from ' + told(start) + ' on';
  const draw = () => {
    waiting = false;
    const scale = view.clientWidth * zoom / total, first = view.scrollLeft, last = first + view.clientWidth;
    rows.forEach(([, segments], r) => {
      lanes[r].replaceChildren();
      let i = 0, far = segments.length;  // the first that ends in view
      while (i < far) { const half = (i + far) >> 1; if ((segments[half][0] + segments[half][1]) * scale < first) i = half + 1; else far = half; }
      while (i < segments.length && segments[i][0] * scale <= last) {
        const [start, length, kind, text, link] = segments[i], left = start * scale;
        let end = i, right = left + length * scale, kinds = {}, times = {};
        while (end < segments.length && segments[end][1] * scale < NARROW && segments[end][0] * scale - left < 3 * NARROW) {
          const own = segments[end][2];
          kinds[own] = (kinds[own] || 0) + 1;
          times[own] = (times[own] || 0) + segments[end][1];
          right = (segments[end][0] + segments[end][1]) * scale;
          end++;
        }
        const best = Object.keys(times).sort((a, b) => times[b] - times[a] || RANK.indexOf(a) - RANK.indexOf(b))[0] || kind;
        const some = end > i + 1, chosen = r === row && at >= i && at < Math.max(end, i + 1) ? ' chosen' : '';
        const holds = some && ['break', 'read', 'eager'].some(own => kinds[own]) ? ' holds' : '';
        const list = some ? Object.entries(kinds).map(([what, n]) => count(n, what)).join(', ') : words(segments[i]);
        const one = put(lanes[r], 'seg ' + best + chosen + holds + (link && !some ? ' linked' : ''), left, Math.max(right - left, 2), some ? '' : text, list);
        const mine = i;
        one.addEventListener('click', () => some ? set(4, left - view.scrollLeft) : choose(r, mine, true));
        i = some ? end : i + 1;
      }
    });
    ticks.replaceChildren();
    const shown = Math.max(2, Math.floor(view.clientWidth / 90)), step = view.clientWidth / shown;
    for (let k = Math.floor(first / step); k * step < last; k++) { const tick = put(ticks, 'tick', k * step, step, told(k * step / scale), ''); tick.style.width = 'auto'; tick.removeAttribute('title'); }
  };
  const later = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };
  const set = (factor, x = view.clientWidth / 2) => {
    const next = factor ? Math.min(4096, Math.max(1, zoom * factor)) : 1, left = (view.scrollLeft + x) * next / zoom - x;
    zoom = next;
    inner.style.width = 100 * zoom + '%';
    view.scrollLeft = left;
    later();
  };
  const follow = () => { const link = at >= 0 && rows[row][1][at][4]; if (link) location.hash = link; };
  const choose = (r, i, click) => {
    row = r; at = i;
    const one = rows[r][1][i], scale = view.clientWidth * zoom / total;
    say.textContent = rows[r][0] + ', ' + (i + 1) + ' of ' + rows[r][1].length + ': ' + words(one) + (one[4] ? '; Enter shows the cause' : '');
    if (one[0] * scale < view.scrollLeft || (one[0] + one[1]) * scale > view.scrollLeft + view.clientWidth) view.scrollLeft = one[0] * scale - view.clientWidth / 3;
    later();
    if (click) follow();
  };
  const near = r => { const when = at < 0 ? 0 : rows[row][1][at][0], found = rows[r][1].findIndex(one => one[0] + one[1] > when); return found < 0 ? rows[r][1].length - 1 : found; };
  const keys = {'+': () => set(2), '=': () => set(2), '-': () => set(0.5), '0': () => set(0), Enter: follow,
    ArrowRight: () => choose(row, Math.min(at + 1, rows[row][1].length - 1)), ArrowLeft: () => choose(row, Math.max(at - 1, 0)),
    ArrowDown: () => row + 1 < rows.length && choose(row + 1, near(row + 1)), ArrowUp: () => row > 0 && choose(row - 1, near(row - 1)),
    Home: () => choose(row, 0), End: () => choose(row, rows[row][1].length - 1)};
  view.addEventListener('keydown', event => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const button of box.querySelectorAll('[data-zoom]')) button.addEventListener('click', () => set(Number(button.dataset.zoom)));
  view.addEventListener('wheel', event => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    set(event.deltaY < 0 ? 1.25 : 0.8, event.clientX - view.getBoundingClientRect().left);
  }, {passive: false});
  view.addEventListener('scroll', later);
  draw();
  new ResizeObserver(later).observe(view);
}
"""
