"""Recompiles: which value changed, from what to what, which line made it matter, and what to do about it."""

import linecache
import re

from .causes import Cause

_LOCAL = re.compile(r"L\['(\w+)'\]")
_NOW = re.compile(r"^(?P<was>.*?)(?: \(now (?P<now>.*)\))?$")

# What to do, by the kind of the fact that did not hold any more.
_REMEDIES = {
    "value": "pass a number that changes as a tensor (`torch.tensor({name})`), or compile with dynamic=True so that it stays open",
    "tensor": "keep dtype, device, layout and requires_grad of {name} the same, or convert it before the call; for sizes compile with "
              "dynamic=True, or torch._dynamo.mark_dynamic({name}, dim)",
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
        match = _NOW.match(failure)
        was, now = match["was"], match["now"] or ""
        fact = _find_fact(was, dumps)
        name = _name(was)
        if name in found:
            cause = found[name]
            cause.count += 1
        else:
            cause = found[name] = _cause(observed, name, fact)
        cause.notes.append(f"{was}" + (f", now {now}" if now else ""))
    for cause in found.values():
        cause.title = f"recompiled {_times(cause.count)}: {cause.title}"
    return list(found.values())


def _times(count):
    return "once" if count == 1 else f"{count} times"


def _cause(observed, name, fact):
    filename, line = observed.place()
    function, remedy = observed.name, "keep it the same from call to call"
    if fact is not None:
        remedy = _REMEDIES.get(fact["kind"], remedy)
        if fact["line"]:
            filename, line, function = fact["filename"], fact["line"], fact["function"]
    cause = Cause("recompile", f"{name} changed", filename=filename, line=line, function=function, user=(filename, line, function),
                  explanation="Each kind of calls is recorded and compiled once more; beyond config.recompile_limit calls run eagerly.",
                  hints=[remedy.format(name=name)])
    if fact is not None and fact["line"]:
        cause.origin = [(filename, line, linecache.getline(filename, line).strip())]
    return cause


def _plain(text):
    return _LOCAL.sub(r"\1", text)


def _name(was):
    """The expression that is compared."""
    return re.split(r" (?:==|!=|is|in|has|<|>|<=|>=) | not in | lacks ", was, maxsplit=1)[0].strip() or was


def _find_fact(was, dumps):
    """The fact of an older recording that reads like this, with the line that needed it."""
    best = None
    for dump in dumps:
        for fact in dump["facts"]:
            if _plain(fact["text"]) == _plain(was):
                return fact
            if best is None and _plain(fact["source"]) == _plain(_name(was)):
                best = fact
    return best
