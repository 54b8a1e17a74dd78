"""Two runs: what an earlier one found (the JSON of `explain` or of an earlier report) against this one."""

import json
import os

from ..diagnose import show
from .read import ReportError
from .text import esc, table


def read(path):
    """The functions of an earlier run."""
    path = os.path.join(path, "found.json") if os.path.isdir(path) else path
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("functions"), list):
        raise ReportError(f"{path}: expected the file of `kintsugi explain --json`, or found.json of an earlier report")
    return found["functions"]


def of_runs(before, now):
    """The section on both; functions by their names."""
    old, new = {one["name"]: one for one in before}, {one["name"]: one for one in now}
    rows, changes = [], []
    for name in dict.fromkeys([*old, *new]):
        a, b = old.get(name), new.get(name)
        rows.append((f"<code>{esc(name)}</code>", *(_cell(a, b, key) for key in ("compiled_us", "eager_us")), _counts(a, b, "breaks"), _counts(a, b, "graphs"), _counts(a, b, "recordings")))
        changes += _causes(name, a, b)
    head = (("function", 0), ("a compiled call", 1), ("an eager call", 1), ("graph breaks", 1), ("graphs", 1), ("recordings", 1))
    listed = "<ul>" + "".join(f"<li class=\"{kind}\">{esc(text)}</li>" for kind, text in changes) + "</ul>" if changes else "<p>The same causes in both.</p>"
    return ("<section aria-labelledby=\"compared\"><h2 id=\"compared\">Against the earlier run</h2>"
            + table("Both runs", head, rows, "before → now; times of two runs at different moments differ by what else the machine did") + listed + "</section>")


def _cell(a, b, key):
    values = [one["verdict"].get(key) if one else None for one in (a, b)]
    told = [show.us(value) if value else "–" for value in values]
    ratio = f" ({values[1] / values[0]:.2f}x)" if all(values) else ""
    return f"{told[0]} → {told[1]}{ratio}"


def _counts(a, b, key):
    values = [one.get(key, 0) if one else None for one in (a, b)]
    told = ["–" if value is None else str(value) for value in values]
    if None in values or values[0] == values[1]:
        return told[1] if values[0] == values[1] else " → ".join(told)
    return f"<span class=\"{'bad' if values[1] > values[0] else 'good'}\">{' → '.join(told)}</span>"


def _key(cause):
    return cause["kind"], cause["why"] or cause["title"].rpartition(": ")[2], cause["function"], cause["code"]


def _causes(name, a, b):
    old, new = ({_key(cause): cause for cause in one["causes"]} if one else {} for one in (a, b))
    for key in [*old, *(key for key in new if key not in old)]:
        cause = new.get(key) or old[key]
        told = f"{name}: {cause['title']} at {show.place(*cause['user'][:2])}"
        if key not in new:
            yield "good", f"gone: {told}{_price(cause, ', it cost ')}"
        elif key not in old:
            yield "bad", f"new: {told}{_price(cause, ', it costs ')}"
        elif all(one["price_us"] is not None for one in (old[key], cause)) and abs(old[key]["price_us"] - cause["price_us"]) > 0.3 * max(old[key]["price_us"], 1):
            yield "soft", f"{told}: {show.us(old[key]['price_us'])} → {show.us(cause['price_us'])}"


def _price(cause, lead):
    return lead + show.us(cause["price_us"]) if cause["price_us"] is not None else ""
