"""Recompiles: which value changed, from what to what, which line made it matter, and what to do about it."""

import linecache
import re

from .. import _messages
from .causes import Cause

_NAME = re.compile(r"\b[LG]\['(\w+)'\]")  # a variable of the function, or a global
_SIZES = r"(?P<sizes> \(size changed .*\))?$"  # the engine adds it, whatever it was that did not hold
_NOW = re.compile(r"^(?P<was>.*?)(?: \(now (?P<now>.*?)\))?" + _SIZES)
_TENSOR = re.compile(r"^tensor '(?P<name>.*?)' (?P<what>.*?)(?: at index (?P<dim>\d+))?\. expected (?P<was>.*?), actual (?P<now>.*?)" + _SIZES)
_OPEN = "; now dynamic"

_GRAD = re.compile(r"^tensor '(?P<name>.*?)' requires_grad mismatch\. expected requires_grad=(?P<was>\d)")
_MODE = re.compile(r"^(?P<name>\w+\(\)) == (?P<was>\w+)$")
_ASKED = re.compile(r"(type|len|list|bool)\((.*)\)$")
_HERE = "the value here"  # the engine's words, as below
_ENDED = "the recording"
_LOOP = "the loop here"
_CALLED = "called with another number of arguments, or with other keywords"  # the engine's words
_THE_CALL = "the way it is called"
_PRESENCE = re.compile(r"^(?P<key>'[^']*'|\S+) (?P<absent>not )?in (?:vars\((?P<owner>.+)\)|(?P<of>.+))$")
_NUMBER = re.compile(r"-?[\d.]+(e[-+]?\d+)?$|-?(inf|nan)$")
_KINDS = {"type": "type", "len": "length", "list": "keys", "bool": "true"}
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
    "identity": "{name} is a different object: create it once, outside of the calls (each different one needs a recording of its own)",
    "type": "pass {name} with the same type in every call",
    "length": "the length of {name} differs: pad it, or pass one stacked tensor instead",
    "presence": "{name} is there in some calls only: set it before the first call (None is a value, too)",
    "closure": "the variables that {name} captures differ: create the function once, outside of the calls, and pass what differs as an argument, a number as a tensor",
    "rounds": "each number of rounds needs a branch of its own: pad to one number of rounds, or let one tensor operation do the work of the loop",
    "data": "data decides: `torch.where(condition, a, b)` computes both sides in one graph, `torch.cond` runs one of them; a few outcomes are fine as they are",
    "ended": "nothing to change: what comes behind was recorded in a later call",
    "true": "decide outside of the compiled function, or compile one function per outcome",
    "__code__": "define the function once, outside of the calls",
}


def of_function(observed, dumps, branches=False):
    """A cause for each value that made a recording necessary; with `branches`, also for each that made a recorded call go another way, which was recorded as a branch."""
    found = {}
    for event in observed.events:
        failure = next((line.strip().removeprefix("- ") for line in event.get("failures", "").splitlines() if line.strip()), "")
        if event["event"] == "recompile" and failure:
            _add(found, observed, failure, dumps, event)
    for cause in found.values():
        cause.title = f"recompiled {_times(cause.count)}: {cause.title}"
    return list(found.values()) + (_branches(observed) if branches else [])


def _add(found, observed, failure, dumps, event):
    name, note, fact, dim = _read(failure, dumps)
    change = _change(failure, name)
    key = name, dim
    if key in found:
        found[key].count += 1
    else:
        found[key] = _cause(observed, name, fact, dim, change)
    cause = found[key]
    if note not in cause.notes:
        cause.notes.append(note)
    cause.entries += [later["entry"] for later in observed.events if later["event"] == "record" and "entry" in later and later["seq"] > event["seq"]][:1]
    cause.changes.append(tuple(map(_plain, change)))
    hint = _hint(name, fact, dim, change)
    if hint not in cause.hints:
        cause.hints.append(hint)


def _hint(name, fact, dim, change):
    kind, about = _kind(name, fact, dim, change)
    hint = _REMEDIES.get(kind, "keep it the same from call to call").format(name=_plain(about), dim=dim)
    return hint.replace(f" (`torch.tensor({about})`)", "") if "<unnamed value>" in about else hint


def branch_of(extend, events):
    """The exit behind which a branch was recorded; None: it is not among the events."""
    return next((e for e in reversed(events) if e["event"] == "exit" and e["seq"] < extend["seq"] and e["entry"] == extend["entry"] and e["step"] == extend["step"]), None)


def place_of(event):
    """(file, line, function) of an exit: the user's own line that leads there."""
    return _messages.user_place(_messages.refusal_stack(event) if event.get("stack") else [], (event.get("filename", ""), event.get("line", 0), event.get("function", "")))


def expression_of(event):
    """The part of the line at which a call left the recording."""
    if "column" not in event:
        return ""
    return linecache.getline(event["filename"], event["line"]).encode()[event["column"]:event["end_column"]].decode(errors="replace").strip()


def branch_text(event):
    """One line about an exit behind which a branch was recorded."""
    file, line, function = place_of(event)
    cause = Cause("branch", "", count=0)
    _add_branch(cause, event)
    what, was, now = cause.changes[0]
    return f"{what} was {was}, now {now} (at {file}:{line} in {function}); what follows was recorded as a branch. What to do about it: {cause.hints[0]}"


def _branches(observed):
    """A cause for each place at which calls went another way than those that were recorded before."""
    found = {}
    for event in observed.events:
        left = branch_of(event, observed.events) if event["event"] == "extend" else None
        if left is None:
            continue
        place = place_of(left)
        key = (place, _read(left["cause"], ())[0]) if left.get("cause") else (place, left["step"])
        cause = found.get(key)
        if cause is None:
            cause = Cause("branch", "", filename=place[0], line=place[1], function=place[2], user=place,
                          explanation="Calls in which this differs leave the recording at this line. What they do from there on was recorded as a branch, which later calls of the same kind take.")
            found[key] = cause
            cause.origin = [(place[0], place[1], linecache.getline(place[0], place[1]).strip())]
            cause.count = 0
        _add_branch(cause, left)
    return list(found.values())


def _add_branch(cause, event):
    failure, expression = event.get("cause", ""), expression_of(event)
    cause.count += 1
    name, note, _, dim = _read(failure, ()) if failure else (_ENDED, "the recording had ended here", None, None)
    change = _change(failure, name) if failure else (name, "ended here", "goes on")
    hint = _REMEDIES["data" if "why" in event else "ended"] if "why" in event or not failure else _hint(name, None, dim, change)
    title = f"a branch was recorded {_times(cause.count)}: " + ("the number of rounds changed" if name == _LOOP else f"{name} changed" if dim is None else f"the size of {name} changed (dim {dim})")

    def named(text):
        """With the expression itself where no variable holds its value."""
        return _plain(text.replace(_HERE, expression or _HERE))

    cause.title, note, hint = named(title), named(note), named(hint)
    cause.changes.append(tuple(map(named, change)))
    cause.notes += [note] if note not in cause.notes else []
    cause.hints += [hint] if hint not in cause.hints else []


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
        present = _presence(match["was"])
        if present is not None:
            return present[0], "{0} was {1}, now {2}".format(*present), _find_fact(match["was"], present[0], dumps), None
        name, now = _name(match["was"]), match["now"]
        sizes = "; sizes that differed, too, are dynamic from now on" if _OPEN in (match["sizes"] or "") else ""
        return name, match["was"] + (f", now {now}" if now else "") + sizes, _find_fact(match["was"], name, dumps), None
    what, dim = match["what"].removesuffix(" mismatch"), match["dim"]
    note = f"{what}{f' of dim {dim}' if dim is not None else ''} of {match['name']} was {match['was']}, now {match['now']}"
    if _OPEN in (match["sizes"] or ""):
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
    present = _presence(match["was"])
    if present is not None:
        return present
    was = match["was"].removeprefix(name).strip().removeprefix("== ")
    return name, was.removeprefix("is ") if was in ("is True", "is False") else was, match["now"] or ""


def _presence(was):
    """(what, was, now) of an attribute or a key that is there in some calls only; None: another fact."""
    match = _PRESENCE.match(was)
    if match is None:
        return None
    name = f"{match['owner']}.{match['key'][1:-1]}" if match["owner"] else f"{match['of']}[{match['key']}]"
    return (name, "absent", "there") if match["absent"] else (name, "there", "absent")


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
    if name == _LOOP:
        return "rounds", name
    if {was, now} == {"absent", "there"}:
        return "presence", name
    if ".__closure__[" in name:
        return "closure", name.partition(".__closure__[")[0]
    if was.startswith(("runs ", "was not replaced")):
        return "__code__", name
    if now in ("True", "False", "None") or was.removeprefix("is ") in ("True", "False", "None"):
        return "choice", name
    if now[:1] in ("'", '"'):
        return "text", name
    if _NUMBER.match(was) and _NUMBER.match(now):
        return "value", name
    if was.startswith("is ") and not what.startswith("type("):
        return "identity", name
    return fact["kind"] if fact is not None else "", name


def _cause(observed, name, fact, dim, change):
    filename, line = observed.place()
    function = observed.name
    if fact is not None and fact["line"]:
        filename, line, function = fact["filename"], fact["line"], fact["function"]
    shown = _plain(name)
    cause = Cause("recompile", f"{shown} changed" if dim is None else f"the size of {shown} changed (dim {dim})", filename=filename, line=line, function=function, user=(filename, line, function),
                  explanation="Each new kind of call is recorded and compiled once; beyond config.recompile_limit recordings, further kinds run eagerly.",
                  hints=[_hint(name, fact, dim, change)])
    if fact is not None and fact["line"]:
        cause.origin = [(filename, line, linecache.getline(filename, line).strip())]
    return cause


def _plain(text):
    return _NAME.sub(r"\1", text)


def _name(was):
    """The expression that is compared."""
    return re.split(r" (?:==|!=|is|in|has|runs|was|<|>|<=|>=) | not in | lacks ", was, maxsplit=1)[0].strip() or was


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


class _Causes(list):
    """A list that is printed as `kintsugi explain` shows its causes."""

    def __str__(self):
        from . import show

        return "\n\n".join("\n".join(text for text, _ in show.cause_lines(number, cause)) for number, cause in enumerate(self, 1)) or "no recompiles"


def recompiles(fn):
    """Why the compiled function was recorded more than once, and where calls went another way, which was recorded as a branch: a Cause for each value that changed, with its changes (what, was, now), the line that made
    it matter (filename, line) and what to do about it (hints).

        for cause in kintsugi.recompiles(compiled):
            print(cause.title, cause.changes, cause.line, cause.hints)

    print(kintsugi.recompiles(compiled)) shows all of them.
    """
    from .. import _api, _logs
    from .observe import Observed

    compiled = _api.engine_of(fn)
    if compiled is None:
        raise TypeError(f"recompiles({fn!r}): expected what kintsugi.compile returned")
    observed = Observed(compiled)
    observed.events = [event for event in _logs.events() if event.get("name") in observed.names and observed.is_about(event)]
    return _Causes(of_function(observed, [_api.start_engine().dump(entry) for entry in compiled.entries()], branches=True))
