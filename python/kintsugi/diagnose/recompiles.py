"""Recompiles: which value changed, from what to what, which line made it matter, and what to do about it."""

import linecache
import re

from .causes import Cause

_NAME = re.compile(r"\b[LG]\['(\w+)'\]")  # a variable of the function, or a global
_NOW = re.compile(r"^(?P<was>.*?)(?: \(now (?P<now>.*)\))?$")
_TENSOR = re.compile(r"^tensor '(?P<name>.*?)' (?P<what>.*?)(?: at index (?P<dim>\d+))?\. expected (?P<was>.*?), actual (?P<now>.*?)"
                     r"(?P<open> \(size changed .*; now dynamic\))?$")

_GRAD = re.compile(r"^tensor '(?P<name>.*?)' requires_grad mismatch\. expected requires_grad=(?P<was>\d)")
_MODE = re.compile(r"^(?P<name>\w+\(\)) == (?P<was>\w+)$")
_ASKED = re.compile(r"(type|len|list)\((.*)\)$")
_CALLED = "called with another number of arguments, or with other keywords"  # the engine's words
_THE_CALL = "the way it is called"
_KINDS = {"type": "type", "len": "length", "list": "keys"}
# What to do, by the kind of the fact that did not hold any more.
_REMEDIES = {
    "value": "pass a number that changes as a tensor (`torch.tensor({name})`), or compile with dynamic=True, which makes ints arguments of the compiled code",
    "tensor": "keep the dtype, device, layout and requires_grad of {name} the same, or convert it before the call",
    "size": "make the dim dynamic from the first call on with torch._dynamo.mark_dynamic({name}, {dim}) or dynamic=True; or pad {name} to one size",
    "special size": "a recording made with a size of 0 or 1 serves no other size, because size 1 broadcasts and size 0 is empty: make the first call with a larger size, or pad {name}",
    "rank": "give {name} the same number of dims in every call, e.g. with unsqueeze()",
    "stride": "the memory layout of {name} differs: call {name}.contiguous() before the call",
    "text": "each string needs a recording of its own: compile one function per string, or choose the branch outside of the compiled function",
    "choice": "each outcome needs a recording of its own. A few outcomes are fine; otherwise choose the branch outside of the compiled function",
    "requires_grad": "requires_grad of {name} differs: call detach() where no gradient is needed, or keep it the same",
    "mode": "{name} differs: make all calls under the same mode",
    "keys": "give {name} the same keys, in the same order, in every call",
    "call": "give the same arguments by position, and the same by keyword, in every call; a default that is left out is another way of calling it",
    "identity": "{name} is a different object: create it once, outside of the calls",
    "type": "pass {name} with the same type in every call",
    "length": "the length of {name} differs: pad it, or pass one stacked tensor instead",
    "true": "decide outside of the compiled function, or compile one function per outcome",
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
            cause = found[key] = _cause(observed, name, fact, dim, _change(failure, name))
        if note not in cause.notes:
            cause.notes.append(note)
        cause.entries += [later["entry"] for later in observed.events if later["event"] == "record" and "entry" in later and later["seq"] > event["seq"]][:1]
        change = _change(failure, name)
        cause.changes.append(change)
        hint = _REMEDIES.get(_kind(name, fact, dim, change)[0])
        if hint is not None and hint.format(name=_kind(name, fact, dim, change)[1], dim=dim) not in cause.hints:
            cause.hints.append(hint.format(name=_kind(name, fact, dim, change)[1], dim=dim))
    for cause in found.values():
        cause.title = f"recompiled {_times(cause.count)}: {cause.title}"
    return list(found.values())


def _read(failure, dumps):
    """(what changed, from what to what, the fact that did not hold, the dim or None)."""
    if failure == _CALLED:
        return _THE_CALL, failure, None, None
    match = _TENSOR.match(failure)
    grad = _GRAD.match(failure)
    if grad is not None:
        return grad["name"], f"requires_grad of {grad['name']} was {grad['was'] == '1'}, now {grad['was'] == '0'}", _find_fact("", grad["name"], dumps), None
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
    match = _GRAD.match(failure)
    if match is not None:
        return f"requires_grad of {match['name']}", str(match["was"] == "1"), str(match["was"] == "0")
    match = _MODE.match(failure)
    if match is not None and match["was"] in ("True", "False"):
        return match["name"], match["was"], str(match["was"] == "False")
    if failure == _CALLED:
        return name, "the arguments of the first call", "another number of arguments, or other keywords"
    match = _NOW.match(failure)
    return name, match["was"].removeprefix(name).strip().removeprefix("== "), match["now"] or ""


def _times(count):
    return "once" if count == 1 else f"{count} times"


def _kind(name, fact, dim, change):
    """(which remedy, the name of what it is about)."""
    what, was, now = change
    if name == _THE_CALL:
        return "call", name
    asked = _ASKED.match(name)
    if asked is not None:
        return _KINDS[asked[1]], asked[2]
    if dim is not None:
        return "special size" if {was, now} & {"0", "1"} else "size", name
    if name.endswith("()"):
        return "mode", name
    known = {"rank": "rank", "stride": "stride", "requires_grad": "requires_grad"}.get(what.split(" ")[0])
    if known is not None:
        return known, name
    if now in ("True", "False", "None") or was.removeprefix("is ") in ("True", "False", "None"):
        return "choice", name
    if now[:1] in ("'", '"'):
        return "text", name
    return fact["kind"] if fact is not None else "", name


def _cause(observed, name, fact, dim, change):
    filename, line = observed.place()
    function = observed.name
    kind, about = _kind(name, fact, dim, change)
    remedy = _REMEDIES.get(kind, "keep it the same from call to call")
    if fact is not None and fact["line"]:
        filename, line, function = fact["filename"], fact["line"], fact["function"]
    cause = Cause("recompile", f"{name} changed" if dim is None else f"the size of {name} changed (dim {dim})", filename=filename, line=line, function=function, user=(filename, line, function),
                  explanation="Each new kind of call is recorded and compiled once; beyond config.recompile_limit recordings, further kinds run eagerly.",
                  hints=[remedy.format(name=about, dim=dim)])
    if fact is not None and fact["line"]:
        cause.origin = [(filename, line, linecache.getline(filename, line).strip())]
    return cause


def _plain(text):
    return _NAME.sub(r"\1", text)


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
            asked = _ASKED.match(name)
            if _plain(fact["source"]) == _plain(asked[2] if asked else name) and (best is None or fact["kind"] == "tensor" and best["kind"] != "tensor"):
                best = fact
    return best


def recompiles(fn):
    """Why the compiled function was recorded more than once: a Cause for each value that changed, with its changes (what, was, now), the line that made
    it matter (filename, line) and what to do about it (hints).

        for cause in kintsugi.recompiles(compiled):
            print(cause.title, cause.changes, cause.line, cause.hints)
    """
    from .. import _api, _logs
    from .observe import Observed

    compiled = _api.engine_of(fn)
    if compiled is None:
        raise TypeError(f"recompiles({fn!r}): expected what kintsugi.compile returned")
    observed = Observed(compiled)
    observed.events = [event for event in _logs.events() if event.get("name") in observed.names]
    return of_function(observed, [_api.start_engine().dump(entry) for entry in compiled.entries()])
