"""Recompiles: which value changed, from what to what, which line made it matter, and what to do about it."""

import linecache
import re

from .causes import Cause

_LOCAL = re.compile(r"L\['(\w+)'\]")
_NOW = re.compile(r"^(?P<was>.*?)(?: \(now (?P<now>.*)\))?$")
_TENSOR = re.compile(r"^tensor '(?P<name>.*?)' (?P<what>.*?)(?: at index (?P<dim>\d+))?\. expected (?P<was>.*?), actual (?P<now>.*?)"
                     r"(?P<open> \(size changed .*; now dynamic\))?$")

# What to do, by the kind of the fact that did not hold any more.
_REMEDIES = {
    "value": "pass a number that changes as a tensor (`torch.tensor({name})`), or compile with dynamic=True so that it stays open",
    "tensor": "keep dtype, device, layout and requires_grad of {name} the same, or convert it before the call",
    "size": "open from the first call on: torch._dynamo.mark_dynamic({name}, {dim}), or compile with dynamic=True; or pad {name} to one size",
    "identity": "{name} is another object: create it once, outside of the calls",
    "type": "pass {name} as the same type in every call",
    "length": "{name} has another length in this call: pad it, or pass one tensor in its place",
    "true": "decide outside of the compiled function, or compile one function for each answer",
    "__code__": "define the function once, outside of the calls",
}


def of_function(observed, dumps):
    """A cause for each value that made a recording necessary."""
    found = {}
    for event in observed.events:
        if event["event"] != "recompile":
            continue
        failure = next((line.strip().removeprefix("- ") for line in event.get("failures", "").splitlines() if line.strip()), "")
        if not failure:
            continue
        name, note, fact, dim = _read(failure, dumps)
        key = name, dim
        if key in found:
            cause = found[key]
            cause.count += 1
        else:
            cause = found[key] = _cause(observed, name, fact, dim)
        cause.notes.append(note)
        cause.changes.append(_change(failure, name))
    for cause in found.values():
        cause.title = f"recompiled {_times(cause.count)}: {cause.title}"
    return list(found.values())


def _read(failure, dumps):
    """(what changed, from what to what, the fact that did not hold, the dim or None)."""
    match = _TENSOR.match(failure)
    if match is None:
        match = _NOW.match(failure)
        name, now = _name(match["was"]), match["now"]
        return name, match["was"] + (f", now {now}" if now else ""), _find_fact(match["was"], name, dumps), None
    what, dim = match["what"].removesuffix(" mismatch"), match["dim"]
    note = f"{what}{f' of dim {dim}' if dim is not None else ''} of {match['name']} was {match['was']}, now {match['now']}"
    if match["open"]:
        note += "; it is dynamic from now on, no further size is recorded"
    return match["name"], note, _find_fact("", match["name"], dumps), int(dim) if dim is not None and what == "size" else None


def _change(failure, name):
    """(what, was, now) of a failed check."""
    match = _TENSOR.match(failure)
    if match is not None:
        dim = f", dim {match['dim']}" if match["dim"] is not None else ""
        return f"{match['what'].removesuffix(' mismatch')} of {match['name']}{dim}", match["was"], match["now"]
    match = _NOW.match(failure)
    return name, match["was"].removeprefix(name).strip().removeprefix("== "), match["now"] or ""


def _times(count):
    return "once" if count == 1 else f"{count} times"


def _cause(observed, name, fact, dim):
    filename, line = observed.place()
    function, remedy = observed.name, "keep it the same from call to call"
    if fact is not None:
        remedy = _REMEDIES.get("size" if dim is not None else fact["kind"], remedy)
        if fact["line"]:
            filename, line, function = fact["filename"], fact["line"], fact["function"]
    cause = Cause("recompile", f"{name} changed" if dim is None else f"the size of {name} changed (dim {dim})", filename=filename, line=line, function=function, user=(filename, line, function),
                  explanation="Each kind of calls is recorded and compiled once more; beyond config.recompile_limit calls run eagerly.",
                  hints=[remedy.format(name=name, dim=dim)])
    if fact is not None and fact["line"]:
        cause.origin = [(filename, line, linecache.getline(filename, line).strip())]
    return cause


def _plain(text):
    return _LOCAL.sub(r"\1", text)


def _name(was):
    """The expression that is compared."""
    return re.split(r" (?:==|!=|is|in|has|<|>|<=|>=) | not in | lacks ", was, maxsplit=1)[0].strip() or was


def _find_fact(was, name, dumps):
    """The fact of an older recording that reads like this, or one about the same value, with the line that needed it."""
    best = None
    for dump in dumps:
        for fact in dump["facts"]:
            if was and _plain(fact["text"]) == _plain(was):
                return fact
            if _plain(fact["source"]) == _plain(name) and (best is None or fact["kind"] == "tensor" and best["kind"] != "tensor"):
                best = fact
    return best
