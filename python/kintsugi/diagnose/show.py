"""A Diagnosis in the terminal: the verdict first, then the causes by what they cost, each with its line, the reason and the fix."""

import linecache
import os
import re
import sys

from .. import _messages

SHOWN = 5  # causes, unless all are asked for
EFFECTS = 4  # lines with side effects


def lines(diagnosis, everything=False):
    """[(text, style)] without line ends."""
    found = [*_verdict(diagnosis)]
    shown = diagnosis.causes if everything else diagnosis.causes[:SHOWN]
    for number, cause in enumerate(shown, 1):
        found += [("", ""), *cause_lines(number, cause, everything)]
    left = len(diagnosis.causes) - len(shown)
    if left:
        found += [("", ""), (f"{left} more; --all shows them", "dim")]
    return found + list(_effects(diagnosis))


def text(diagnosis, everything=False):
    """The same as plain text."""
    return "\n".join(line for line, _ in lines(diagnosis, everything)) + "\n"


def show(diagnosis, everything=False, file=None):
    put(lines(diagnosis, everything), file)


def put(rows, file=None):
    """Writes [(text, style)]: with its styles to a terminal, plain elsewhere."""
    file = file or sys.stdout
    if not file.isatty():
        file.writelines(line + "\n" for line, _ in rows)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, soft_wrap=True, highlight=False)
    for line, style in rows:
        console.print(Text(line, style=style))


def us(value):
    """Microseconds for people: three digits."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} s"
    if value >= 1000:
        return f"{value / 1000:.3g} ms"
    return f"{value:.2g} us" if value < 10 else f"{value:.0f} us"


def count(number, noun):
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def place(filename, line):
    """A short path where the file lies below the current folder, or in an installed package."""
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in filename:
            return f"{filename.rpartition(mark)[2]}:{line}"
    relative = os.path.relpath(filename) if os.path.isabs(filename) else filename
    return f"{filename if relative.startswith('..') else relative}:{line}"


def headline(diagnosis):
    """The verdict as one sentence."""
    verdict, where = diagnosis.verdict, f"{diagnosis.name} ({place(diagnosis.filename, diagnosis.line)})"
    if not verdict.certain:
        speed = "uncertain how fast"
    elif verdict.speedup is None:
        speed = f"{count(diagnosis.graphs, 'graph')}, {count(diagnosis.breaks, 'graph break')}"
    else:
        ratio = verdict.speedup
        speed = f"{ratio:.2f}x as fast as eager" if ratio >= 1 else f"{1 / ratio:.2f}x as long as eager"
        speed += f" ({us(verdict.eager * 1e6)} eager, {us(verdict.compiled * 1e6)} compiled{', on one thread' if verdict.one_thread else ''})"
    priced = [cause for cause in diagnosis.priced if cause.share]
    if priced and verdict.compiled:
        share = min(1.0, _lost(priced, verdict))
        told = f"{share:.0%} of the call" if share >= 0.005 else "next to nothing"
        return f"{where}: {speed}; {count(len(priced), 'cause')} {'costs' if len(priced) == 1 else 'cost'} {told}"
    if diagnosis.causes:
        return f"{where}: {speed}; {count(len(diagnosis.causes), 'cause')} found"
    return f"{where}: {speed}; nothing stands in the way of one graph" if diagnosis.graphs == 1 else f"{where}: {speed}"


def _lost(priced, verdict):
    """The share of a call that its causes cost together: breaks are not the sum of their prices, for they share boundaries."""
    breaks = [cause.share for cause in priced if cause.kind in BRIDGED]
    if breaks and verdict.without_breaks is not None:
        breaks = [max(0.0, 1 - verdict.without_breaks / verdict.compiled)]
    return sum(breaks) + sum(cause.share for cause in priced if cause.kind not in BRIDGED)


BRIDGED = ("break", "read")  # causes that a call is also timed without


def bridged(diagnosis):
    """What these are; "": there are none."""
    return " and ".join(noun for kind, noun in zip(BRIDGED, ("graph breaks", "reads of data")) if any(one.kind == kind for one in diagnosis.causes))


def _verdict(diagnosis):
    verdict = diagnosis.verdict
    yield headline(diagnosis), "bold"
    if verdict.certain and verdict.without_breaks and verdict.eager and verdict.without_breaks < 0.97 * verdict.compiled:
        yield (f"  without its {bridged(diagnosis)} a call would take about {us(verdict.without_breaks * 1e6)}: "
               f"{verdict.eager / verdict.without_breaks:.2f}x as fast as eager"), ""
    shape = f"  {count(diagnosis.recordings, 'recording')}, {count(diagnosis.graphs, 'graph')}, {count(diagnosis.ops, 'tensor call')}, " \
            f"{count(diagnosis.breaks, 'graph break')}"
    yield shape, "dim"
    level = sum(row["as_fast"] for row in diagnosis.kernels)
    if level:
        yield f"  {count(level, 'part')} of its graphs left to PyTorch's own kernels, which are as fast", "dim"
    if verdict.note:
        yield f"  {verdict.note}", "dim"
    if verdict.warning:
        yield f"  {verdict.warning}", "yellow"


def _price(cause):
    if cause.price_us is None:
        return ""
    share = f", {cause.share:.0%} of the call" if cause.share is not None else ""
    how = "" if cause.how == "measured" else f" ({cause.how})"
    return f"{us(cause.price_us)}{share}{how}"


def cause_lines(number, cause, everything=False):
    """Of one cause."""
    head = f"{number}. " + (f"{_price(cause)}: " if _price(cause) else "") + cause.title
    yield head, "bold red" if (cause.share or 0) >= 0.1 else "bold yellow"
    times = f", {cause.count} times in a call" if cause.kind in BRIDGED and cause.count > 1 else ""
    filename, line, function = cause.user
    yield f"   {place(filename, line)} in {function}{times}", ""
    if cause.kind in (*BRIDGED, "effect", "recompile"):
        yield from _source(filename, line, cause.user_columns if cause.library else cause.columns)
    if cause.library and (cause.filename, cause.line) != (filename, line):
        yield f"   in {cause.library}: {cause.filename}:{cause.line} in {cause.function}", ""
        yield from _source(cause.filename, cause.line, cause.columns)
    if cause.kind == "break":
        for file, at, code in cause.origin:
            yield f"   its data comes from {place(file, at)}: {code}", ""
    if cause.explanation:
        yield f"   {cause.explanation}", ""
    yield from _fix(cause, everything)
    if cause.unpriced:
        yield f"   no price: {cause.unpriced}", "dim"
    for note in cause.notes[:None if everything else 3]:
        yield f"   {note}", "dim"
    if cause.id:
        yield "   " + "   ".join(filter(None, (cause.own_page or f"kintsugi breaks {cause.id}", cause.page))), "dim"


def _source(filename, line, columns):
    code = linecache.getline(filename, line).rstrip("\n")
    if not code.strip():
        return
    yield f"   {line:>5} | {code}", ""
    first, last = characters(filename, line, columns)
    if first is not None:
        yield f"         | {' ' * first}{'^' * max(1, last - first)}", "red"


def characters(filename, line, columns):
    """First and last column of the instruction in characters of its first line; (None, None): not known."""
    column, end_line, end_column = columns
    raw = linecache.getline(filename, line).rstrip("\n").encode()
    if column is None or column < 0:
        return None, None
    end = end_column if end_line == line else len(raw)
    return len(raw[:column].decode(errors="replace")), len(raw[:end].decode(errors="replace"))


def _fix(cause, everything):
    if cause.patch is not None:
        yield "   fix:", ""
        for part in cause.patch.diff().splitlines()[3:]:
            yield f"     {part}", "green" if part.startswith("+") else "red"
        if cause.patch.caution:
            yield f"     ({cause.patch.caution})", "dim"
        return
    if cause.fix:
        yield f"   fix: {cause.fix}", "green"
    hints = [hint for hint in cause.hints if not (cause.fix and _words(cause.fix) <= _words(hint))]  # others only say the fix again
    for hint in hints[:None if everything or not cause.fix else 1]:
        yield f"   hint: {hint}", ""
    if cause.library and cause.kind == "break":
        yield f"   the line is {cause.library}'s: override the method that holds it in a subclass of your own", ""
    if cause.library and cause.kind == "effect":
        yield f"   the line is {cause.library}'s: the program can only change how often it comes there", ""


def _words(text):
    return set(re.findall(r"\w+", text.lower()))


def _effects(diagnosis):
    if not diagnosis.effects:
        return
    lines = dict.fromkeys(_messages.user_place(e.get("user_stack", ()), (e["filename"], e["line"], ""))[:2] for e in diagnosis.effects)
    places = [place(*line) for line in sorted(lines, key=lambda line: bool(_messages.library_of(line[0])))]
    where = ", ".join(places[:EFFECTS]) + (f" and {count(len(places) - EFFECTS, 'other line')}" if len(places) > EFFECTS else "")
    yield "", ""
    yield f"{count(len(diagnosis.effects), 'side effect')} ({where}): replayed in order, without a graph break", "dim"
