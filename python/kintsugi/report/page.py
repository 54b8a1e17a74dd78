"""The HTML report: one file without anything from elsewhere, for light and dark screens, keyboards and screen readers."""

import collections
import linecache

from .. import _messages, _pytorch_ids
from ..diagnose import causes, fixes, show
from . import compare, kernels, timeline
from .text import esc, prose, table

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1a1c20; --soft: #5a6068; --line: #d5d9df; --card: #f6f7f9; --bad: #b3261e; --good: #136c3a; --bar: #3b6fc4;
  --mark: #ffe3df; --plus: #d7efe0; --seg1: #cfe0fa; --seg3: #f3e6c4; }
@media (prefers-color-scheme: dark) { :root { --bg: #14161a; --fg: #e8eaee; --soft: #a4abb5; --line: #353a42; --card: #1d2025; --bad: #ff9b93; --good: #7fdc9f;
  --bar: #7fa8ee; --mark: #4d2522; --plus: #1d3b27; --seg1: #24406f; --seg3: #4a3d17; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem 1.25rem 4rem; background: var(--bg); color: var(--fg); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h1 code, h2 code { font-size: inherit; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
a { color: var(--bar); } .soft { color: var(--soft); } .bad { color: var(--bad); } .good { color: var(--good); }
.verdict { font-size: 1.15rem; font-weight: 600; }
pre, code { font: 13px/1.5 ui-monospace, monospace; } pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; overflow-x: auto; margin: .5rem 0; }
.cause { content-visibility: auto; contain-intrinsic-size: auto 24rem; border: 1px solid var(--line); border-radius: 8px; padding: .2rem 1rem .8rem; margin: 1rem 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92rem; } caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; } td.n, th.n { text-align: right; white-space: nowrap; }
td.w { min-width: 12rem; } p code, li code { overflow-wrap: anywhere; }
.hit { background: var(--mark); display: inline-block; min-width: 100%; } .under { color: var(--bad); } .plus { background: var(--plus); display: inline-block; min-width: 100%; }
.minus { background: var(--mark); display: inline-block; min-width: 100%; }
.strip { display: flex; flex-wrap: wrap; gap: .35rem; padding: 0; list-style: none; }
.strip li { border: 1px solid var(--line); border-radius: 6px; padding: .15rem .55rem; font-size: .85rem; background: var(--card); }
.strip li.break, .strip li.read { border-color: var(--bad); color: var(--bad); } .strip li.effect { border-style: dashed; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: .8rem; } .sides pre { font-size: 12px; } ul.plain { list-style: none; margin: 0; padding: 0; }
summary { cursor: pointer; } :focus-visible { outline: 3px solid var(--bar); outline-offset: 2px; }
.skip { position: absolute; left: -999px; } .skip:focus { left: 1rem; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--fg); font: 13px system-ui, sans-serif; } svg .bar { fill: var(--bar); } svg .lost { fill: var(--bad); }
"""


def page(title, body):
    return ("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            f"<title>{esc(title)}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}{timeline.STYLE}</style>\n</head>\n<body>\n"
            f"<a class=\"skip\" href=\"#main\">Skip to the findings</a>\n<main id=\"main\">\n<h1>{esc(title)}</h1>\n{body}\n</main>\n<script>{timeline.SCRIPT}</script>\n</body>\n</html>\n")


def of_diagnoses(title, diagnoses, earlier=None, failure=""):
    """The report on functions that were run and measured, those that lose most first; earlier: functions of a run to compare with; failure: what the program
    ended with, where that was an exception."""
    parts = [_failure(failure)] if failure else []
    if not diagnoses:
        return page(title, "\n".join([*parts, "<p>Nothing was compiled: no function that torch.compile or kintsugi.compile returned was called.</p>"]))
    if len(diagnoses) > 1:
        links = "".join(f"<li><a href=\"#f{number}\">{esc(show.headline(one))}</a></li>" for number, one in enumerate(diagnoses))
        parts.append(f"<nav aria-label=\"Functions\"><ul>{links}</ul></nav>")
    if earlier is not None:
        parts.append(compare.of_runs(earlier, [one.as_dict() for one in diagnoses]))
    parts += [_function(number, one) for number, one in enumerate(diagnoses)]
    return page(title, "\n".join(parts))


def _failure(text):
    first, _, rest = text.strip().partition("\n")
    more = f"<pre tabindex=\"0\">{esc(rest.strip())}</pre>" if rest.strip() else ""
    return f"<section class=\"cause\" aria-labelledby=\"failed\"><h2 id=\"failed\">The program ended with an exception</h2><p class=\"bad\">{esc(first)}</p>{more}</section>"


def _function(number, one):
    parts = [f"<section aria-labelledby=\"f{number}\"><h2 id=\"f{number}\"><code>{esc(one.name)}</code> "
             f"<span class=\"soft\">{esc(show.place(one.filename, one.line))}</span></h2>",
             f"<p class=\"verdict\">{esc(show.headline(one))}</p>"]
    if one.verdict.note:
        parts.append(f"<p class=\"soft\">{esc(one.verdict.note)}</p>")
    if one.verdict.warning:
        parts.append(f"<p class=\"soft\">{esc(one.verdict.warning)}</p>")
    data = one.as_dict()
    parts += [_times(one), timeline.of_call(f"f{number}", data), _sequence(one)]
    if one.causes:
        parts.append("<h3>What costs time</h3>" + _cause_table(number, one))
        parts += [_cause(f"f{number}c{i}", cause) for i, cause in enumerate(one.causes)]
    parts += [_sources(one), kernels.of_function(f"f{number}", one), timeline.of_compiling(f"f{number}", data), _effects(one), "</section>"]
    return "\n".join(part for part in parts if part)


def _without(one):
    kinds = {cause.kind for cause in one.causes}
    return "without reads" if "break" not in kinds and "read" in kinds else "without both" if {"break", "read"} <= kinds else "without breaks"


def _times(one):
    """Bars: eager, compiled, without graph breaks."""
    verdict = one.verdict
    rows = [(name, value) for name, value in (("eager", verdict.eager), ("compiled", verdict.compiled), (_without(one), verdict.without_breaks)) if value]
    if not rows:
        return ""
    longest, bars = max(value for _, value in rows), []
    for i, (name, value) in enumerate(rows):
        width = max(2, 440 * value / longest)
        bars.append(f"<text x=\"0\" y=\"{i * 26 + 17}\">{esc(name)}</text><rect class=\"bar\" x=\"120\" y=\"{i * 26 + 4}\" width=\"{width:.0f}\" height=\"17\" rx=\"3\"/>"
                    f"<text x=\"{128 + width:.0f}\" y=\"{i * 26 + 17}\">{esc(show.us(value * 1e6))}</text>")
    told = ", ".join(f"{name} {show.us(value * 1e6)}" for name, value in rows)
    return (f"<h3>A call</h3><div class=\"scroll\"><svg role=\"img\" aria-label=\"Time of a call: {esc(told)}\" viewBox=\"0 0 660 {len(rows) * 26}\" width=\"660\">"
            f"{''.join(bars)}</svg></div>")


def _sequence(one):
    if len(one.sequence) < 2:
        return ""
    items = []
    for kind, line, text in one.sequence[:200]:
        items.append(f"<li class=\"{esc(kind)}\"><span class=\"soft\">line {line}</span> {esc(text)}</li>")
    left = len(one.sequence) - 200
    more = f"<p class=\"soft\">{left} more</p>" if left > 0 else ""
    return f"<details><summary>The same as a list</summary><ol class=\"strip\">{''.join(items)}</ol>{more}</details>"


def _price(cause):
    return (show.us(cause.price_us) if cause.price_us is not None else "", f"{cause.share:.0%}" if cause.share is not None else "", cause.how)


def _cause_table(number, one):
    rows = []
    for i, cause in enumerate(one.causes):
        price, share, how = _price(cause)
        rows.append((price, share, how, f"<a href=\"#f{number}c{i}\">{prose(cause.title)}</a>", esc(show.place(*cause.user[:2])), cause.count))
    head = (("price", 1), ("of the call", 1), ("how", 0), ("cause", 0), ("line", 0), ("times", 1))
    return table(f"Causes of {one.name}", head, rows, "By what they cost in a call" + _together(one))


def _together(one):
    """Causes may only pay together: a graph that ends at one of them ends at its neighbour, too."""
    prices = [cause.price_us for cause in one.causes if cause.kind in show.BRIDGED and cause.price_us is not None]
    if len(prices) < 2 or not one.verdict.without_breaks or not one.verdict.compiled:
        return ""
    saved = max(0.0, one.verdict.compiled - one.verdict.without_breaks) * 1e6
    return f", each by itself; without all {show.bridged(one)} it takes {show.us(saved)} less" if abs(saved - sum(prices)) > 0.2 * max(saved, sum(prices)) else ""


def _cause(ident, cause):
    price, share, how = _price(cause)
    told = f"{price}{', ' + share + ' of the call' if share else ''}{' (' + how + ')' if how else ''}" if price else "not priced"
    parts = [f"<article class=\"cause\" aria-labelledby=\"{ident}\"><h3 id=\"{ident}\">{prose(cause.title)} <span class=\"soft\">{esc(told)}</span></h3>",
             excerpt(cause.user[0], cause.user[1], cause.user_columns if cause.library else cause.columns)]
    if cause.library:
        parts.append(f"<p>in {esc(cause.library)}:</p>" + excerpt(cause.filename, cause.line, cause.columns))
    for file, line, code in cause.origin if cause.kind == "break" else ():
        parts.append(f"<p>Its data comes from {esc(show.place(file, line))}: <code>{esc(code)}</code></p>")
    parts.append(f"<p>{prose(cause.explanation)}</p>")
    if cause.patch is not None:
        parts.append(_patch(cause.patch))
    elif cause.fix:
        parts.append(f"<p>Fix: {prose(cause.fix)}</p>")
    if cause.patch is None and cause.hints:
        parts.append("<ul>" + "".join(f"<li>{prose(hint)}</li>" for hint in cause.hints) + "</ul>")
    parts += [_sides(ident, cause), _changes(cause)]
    if cause.unpriced:
        parts.append(f"<p class=\"soft\">No price: {esc(cause.unpriced)}</p>")
    notes = cause.notes[:len(cause.notes) - len(cause.changes)]  # the table of changes says the others
    if notes:
        parts.append("<ul class=\"soft\">" + "".join(f"<li>{prose(note)}</li>" for note in notes) + "</ul>")
    if cause.id:
        link = f" · <a href=\"{esc(cause.page)}\">PyTorch's page</a>" if cause.page else ""
        own = f" · <a href=\"{esc(cause.own_page)}\">its page</a>" if cause.own_page.startswith("https:") else ""  # one on this machine is none for others who read the report
        parts.append(f"<p class=\"soft\"><code>kintsugi breaks {esc(cause.id)}</code>{own}{link}</p>")
    return "\n".join(part for part in parts if part) + "</article>"


def _patch(patch):
    lines = []
    for text in patch.diff().splitlines()[3:]:
        kind = "plus" if text.startswith("+") else "minus" if text.startswith("-") else ""
        lines.append(f"<span class=\"{kind}\">{esc(text)}</span>")
    return f"<p>Fix:</p><pre tabindex=\"0\">{chr(10).join(lines)}</pre><p class=\"soft\">{esc(patch.caution)}</p>"


def _sides(ident, cause):
    """The graph on both sides of a break."""
    if not any(cause.sides or ()):
        return ""
    shown = []
    for name, lines in zip(("the graph before it ends with", "the graph behind it begins with"), cause.sides):
        text = "\n".join(map(esc, lines)) if lines else "nothing: there is no tensor call"
        shown.append(f"<div><p class=\"soft\">{name}</p><pre tabindex=\"0\">{text}</pre></div>")
    return f"<details><summary>The graph on both sides</summary><div class=\"sides\">{''.join(shown)}</div></details>"


def _changes(cause):
    """What changed from call to call, as a diff of values."""
    if not cause.changes:
        return ""
    rows = [(i, f"<code>{esc(what)}</code>", f"<span class=\"minus\">{esc(was)}</span>", f"<span class=\"plus\">{esc(now)}</span>") for i, (what, was, now) in enumerate(cause.changes[:50], 1)]
    return table(f"History of recompiles: {cause.title}, {show.place(*cause.user[:2])}", (("number", 1), ("value", 0), ("was", 0), ("now", 0)), rows)


def excerpt(filename, line, columns=(-1, -1, -1), around=3):
    """Lines of a file, the one that matters marked."""
    lines = linecache.getlines(filename)
    if not 0 < line <= len(lines):
        return f"<p><code>{esc(show.place(filename, line))}</code></p>"
    found = []
    for number in range(max(1, line - around), min(len(lines), line + around) + 1):
        text = f"{number:>5}  {esc(lines[number - 1].rstrip())}"
        if number == line:
            text = f"<span class=\"hit\">{text}</span>"
            first, last = show.characters(filename, line, columns)
            if first is not None:
                text += f"\n<span class=\"under\" aria-hidden=\"true\">{' ' * (first + 7)}{'^' * max(1, last - first)}</span>"
        found.append(text)
    return f"<p><code>{esc(show.place(filename, line))}</code></p><pre tabindex=\"0\">{chr(10).join(found)}</pre>"


def _sources(one):
    """The user's files, with prices beside the lines."""
    prices = {}
    for cause in one.causes:
        if cause.kind in show.BRIDGED:
            prices.setdefault(cause.user[0], {}).setdefault(cause.user[1], []).append(cause)
    parts = []
    for filename, places in prices.items():
        lines = linecache.getlines(filename)
        first, last = max(1, min(places) - 15), min(len(lines), max(places) + 15)
        if last - first > 400:
            continue
        rows = []
        for number in range(first, last + 1):
            here = places.get(number, ())
            told = ", ".join(_price(cause)[0] or cause.kind for cause in here)
            code = f"{told:>9} {number:>5}  {esc(lines[number - 1].rstrip())}"
            rows.append(f"<span class=\"hit\">{code}</span>" if here else code)
        parts.append(f"<details><summary>{esc(show.place(filename, first).rpartition(':')[0])}, lines {first} to {last}, with prices</summary><pre tabindex=\"0\">{chr(10).join(rows)}</pre></details>")
    return "<h3>Source</h3>" + "".join(parts) if parts else ""


def _effects(one):
    if not one.effects:
        return ""
    counts = collections.Counter((effect["text"], show.place(effect["filename"], effect["line"])) for effect in one.effects)
    items = "".join(f"<li><code>{esc(text)}</code> <span class=\"soft\">{esc(where)}{f', {times} times' if times > 1 else ''}</span></li>"
                    for (text, where), times in counts.most_common(100))
    more = f"<p class=\"soft\">and {len(counts) - 100} more</p>" if len(counts) > 100 else ""
    shown = "" if len(counts) > 8 else " open"
    return (f"<h3>Side effects, replayed in order without a graph break</h3><details{shown}><summary>{show.count(len(one.effects), 'side effect')} in a call</summary>"
            f"<ul>{items}</ul>{more}</details>")


# ---- logs and traces ----

_KINDS = {"failure": "Failures", "break": "Graph breaks", "recompile": "Recompiles", "skip": "Functions that stay eager"}


def of_log(title, found):
    """The report on a log or trace folder that was read."""
    totals = {kind: sum(one.count if kind == "recompile" else 1 for one in found.findings if one.kind == kind) for kind in _KINDS}
    counts = ", ".join(show.count(totals[kind], noun) for kind, noun in (("break", "graph break"), ("recompile", "recompile"), ("failure", "failure")))
    counts += f", {show.count(totals['skip'], 'function')} left eager" if totals["skip"] else ""
    counts += f"; {show.count(len(found.compiled), 'compilation')} told of" + (f", {show.count(len(found.graphs), 'graph')}" if found.graphs else "")
    parts = [f"<p class=\"verdict\">{counts}</p>", f"<p class=\"soft\">{esc(found.source)}: {found.lines} lines read"
             + (f", {found.skipped} of them not understood" if found.skipped else "") + (f", {found.left_out} findings left out" if found.left_out else "")
             + ". A log has no times of calls: <code>kintsugi report SCRIPT</code> measures what each of these costs.</p>"]
    if not found.findings and not found.compiled:
        parts.append("<p>It tells of no graph break and no recompile. PyTorch writes about them with <code>TORCH_LOGS=graph_breaks,recompiles</code>; a log without these, or one that was cut "
                     "off, says nothing of them.</p>")
    for kind, name in _KINDS.items():
        mine = sorted((one for one in found.findings if one.kind == kind), key=lambda one: -one.count)
        if mine:
            parts += [f"<h2>{name}</h2>", *map(_finding, mine)]
    parts += [_compilations(found.compiled), _log_graphs(found.graphs)]
    return page(title, "\n".join(part for part in parts if part))


def _finding(one):
    times = f" <span class=\"soft\">{one.count} times</span>" if one.count > 1 and one.kind != "recompile" else ""
    parts = [f"<article class=\"cause\"><h3>{esc(one.title)}{times}</h3>", excerpt(one.filename, one.line) if one.filename else "", _failed_guards(one)]
    if one.kind in ("break", "failure"):
        parts.append(_remedy(one))
    if one.text:
        parts.append(f"<details><summary>What the log says</summary><pre tabindex=\"0\">{esc(one.text)}</pre></details>")
    if one.page.startswith(("http://", "https://")):
        parts.append(f"<p><a href=\"{esc(one.page)}\">PyTorch's page on it</a></p>")
    return "".join(parts) + "</article>"


def _failed_guards(one):
    """Which value changed each time, and the line that needs it to be the same."""
    if not one.changes:
        return ""
    rows = [(i, f"<code>{esc(guard)}</code>", f"<code>{esc(code)}</code> <span class=\"soft\">{esc(show.place(*_split(place)))}</span>" if place else "")
            for i, (guard, place, code) in enumerate(one.changes, 1)]
    return table(f"Recompiles: {one.title}", (("number", 1), ("guard that failed", 0), ("line that needs it", 0)), rows)


def _split(place):
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdigit() else 0


def _remedy(one):
    """What Kintsugi knows of one of PyTorch's graph breaks: a fix fitted to the line, and where to read on."""
    name = one.page.rpartition("/")[2].partition(".")[0].upper()
    if not _pytorch_ids.is_id(name):
        return ""
    elsewhere = _pytorch_ids.find(name)
    if elsewhere is not None:
        return f"<p>In Kintsugi this ends no graph: {prose(elsewhere[1])}</p>"
    rows = [row for row in _messages.rows() if name in row["stock"]]
    if not rows:
        return ""
    patch = next(filter(None, (fixes.fit(causes.Cause("break", "", why=row["why"], filename=one.filename, line=one.line, user=(one.filename, one.line, ""))) for row in rows)), None)
    return (_patch(patch) if patch is not None else "") + f"<p class=\"soft\"><code>kintsugi breaks {name}</code> shows an example, before and after the fix</p>"


def _compilations(rows):
    if not rows:
        return ""
    told = [(esc(one["id"]), f"<code>{esc(one['name'])}</code>", esc(show.place(one["filename"] or "?", one["line"])), _number(one["graph_ops"]), _number(one["guards"]),
             *("" if one[key] is None else format(one[key], ".3f") for key in ("seconds", "backend")), esc(one["failure"])) for one in rows]
    head = (("id", 0), ("function", 0), ("line", 0), ("calls in the graph", 1), ("guards", 1), ("seconds", 1), ("of these, backend", 1), ("failure or restart", 0))
    return "<h2>Compilations</h2>" + table("Compilations", head, told)


def _number(value):
    return "" if value is None else esc(value)


def _log_graphs(graphs):
    if not graphs:
        return ""
    return "<h2>Graphs</h2>" + "".join(f"<details><summary>{esc(one['name'])}: {show.count(one['calls'], 'call')}</summary><pre tabindex=\"0\">{esc(one['text'])}</pre></details>"
                                       for one in graphs)
