"""Compares two recordings as `_kintsugi.dump` describes them, without what may differ between two worlds.

Left out: addresses, counters and times, the numbers of values (they only have to correspond one to one), and notes on
tensors (what a recording depends on is a fact or a check, and those are compared).
"""
import re

ADDRESS = re.compile(r"0x[0-9a-fA-F]+|\b\d{14,15}\b")   # also as id() shows it
NUMBER = re.compile(r"%\d+")
DICTS = re.compile(r"(.*)\.__dict__( is (?:not )?)(.*)\.__dict__")
FITS = 16    # the check in front of a store
ANSWERED = 18    # a cached function has an answer
STORES = ("setattr", "delattr", "set_subscr", "del_subscr", "global_set", "cell_set", "call")


class Numbers:
    """A one-to-one correspondence between the value numbers of two recordings, built up while they are compared. Constants
    that are known by their value stand for themselves: two of them may be one object in one world and two in the other."""

    def __init__(self):
        self.there, self.back = {}, {}

    def same(self, a, b):
        if type(a) is not int or type(b) is not int:
            return a == b
        return self.there.setdefault(a, b) == b and self.back.setdefault(b, a) == a


def plain(text):
    return NUMBER.sub("%", ADDRESS.sub("ADDRESS", text))


def constant(value):
    """An operand of a graph node as text that two worlds share."""
    if isinstance(value, dict) and set(value) == {"vid"}:
        return "%"
    if type(value) in (tuple, list):
        return type(value).__name__ + "(" + ", ".join(map(constant, value)) + ")"
    if type(value) is dict:
        return "{" + ", ".join(f"{constant(k)}: {constant(v)}" for k, v in value.items()) + "}"
    if type(value) in (int, float, complex, bool, str, bytes, type(None), slice, range, type):
        return ADDRESS.sub("ADDRESS", repr(value))
    return f"<{type(value).__name__}>"


def step(entry, constants):
    """(what has to be equal, value numbers that have to correspond)"""
    known = [f"{type(constants[v]).__name__} {constants[v]!r}" if v in constants else v for v in entry["operands"]]
    text = plain(entry["text"])
    if entry["kind"] == "check" and entry["imm"] == FITS:   # see is_about_materialised_dict; what is stored to is an operand of the store
        text, known = re.sub(r"\.__dict__(?=\)$|, )", "", text), []
    key = (entry["kind"], text, tuple(sorted(entry["flags"])), entry["line"], entry["imm"],
           entry["alt"], entry["graph"])
    return key, (entry["out"], *known)


def fact(entry):
    # the text on a tensor is the note on it; what the guard asks is the record
    said = (entry["source"], entry["record"]) if "record" in entry else plain(entry["text"])
    kind, owner = entry["kind"], entry["source"].removesuffix(".__dict__")
    if kind == "lacks key" and owner != entry["source"]:   # see is_about_materialised_dict
        kind, said = "lacks attribute", said.replace(f"not in {owner}.__dict__", f"not in vars({owner})")
    if kind in ("same object", "other object"):   # of dicts that only their objects have, as the check before a store asks
        said = DICTS.sub(r"\1\2\3", said)
    return (kind, said, entry["epoch"], entry["line"], entry["function"])


def graph(entry):
    nodes = tuple((n["name"], n["op"], n["target"], constant(n["args"]), constant(n["kwargs"]), n["line"])
                  for n in entry["nodes"])
    return (("inputs", tuple((i["name"], plain(i["source"])) for i in entry["inputs"])), ("nodes", nodes),
            ("outputs", len(entry["outputs"])))


def graph_break(entry):
    return (entry["id"], plain(entry["context"]), entry["line"], tuple(entry["user_stack"]), entry["step"])


def effect(entry):
    return (entry["kind"], plain(entry["text"]), entry["line"])


def first_difference(a, b):
    """Index at which two sequences stop being equal; None when they are equal."""
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def side(rows, i):
    return repr(rows[i]) if i < len(rows) else "nothing"


def first_step_difference(a, b, loose=False):
    """(index, text) of the first step in which two lists of steps differ, or None. loose: only what was done counts,
    not what finishing the trace concluded from later steps, nor whether reports call it an effect."""
    numbers = Numbers()

    def key(entry):
        (kind, text, flags, line, imm, alt, number), vids = entry
        if loose:
            return (kind, text.removeprefix("% = "), tuple(f for f in flags if f not in ("sunk", "effect")), line, imm), \
                vids[1:] if "opaque" in flags else vids
        return (kind, text, flags, line, imm, alt, number), vids

    rows = [list(map(key, side)) for side in (a, b)]
    for i in range(max(map(len, rows))):
        if i >= len(rows[0]) or i >= len(rows[1]):
            return i, f"step {i}:\n    recorded first: {side(rows[0], i)}\n    recorded now:   {side(rows[1], i)}"
        (x, xs), (y, ys) = rows[0][i], rows[1][i]
        if x != y or len(xs) != len(ys):
            return i, f"step {i}:\n    recorded first: {x}\n    recorded now:   {y}"
        if not all(map(numbers.same, xs, ys)):
            return i, f"step {i} works on other values: {x}\n    recorded first: {xs}\n    recorded now:   {ys}"
    return None


def is_about_materialised_dict(entry):
    """CPython makes an instance's __dict__ when somebody looks at it, which the program cannot tell. Attributes are read
    from either form, so a recording notes the type of the dict only where there happened to be one."""
    return entry["kind"] == "type" and entry["text"] == f"type({entry['source']}) is dict" \
        and entry["source"].endswith(".__dict__")


def simplify(dump):
    """A dump as plain data that can be sent between processes; compare takes these."""
    # what a region asked before it was undone depends on how far it came; the steps do without it
    dump = {**dump, "facts": [f for f in dump["facts"] if not f["undone"] and not is_about_materialised_dict(f)]}
    out = {key: [row(entry) for entry in dump[key]] for key, row in (
        ("steps", lambda entry: step(entry, dump["constants"])), ("facts", fact), ("graphs", graph), ("breaks", graph_break), ("effects", effect))}
    out["epochs"] = dump["epochs"]
    return out


def has_consumed_now(a, b, at):
    """Is step number `at` of `a` a call that is handed a generator made before, and is that generator resumed by the
    recorder itself in `b`? Then `b` shows what happens below the same call."""
    made = {vids[0] for (kind, *_), vids in a[:at] if kind == "generator"} & set(a[at][1][1:])
    if a[at][0][0] != "call" or not made:
        return False
    place = next(i for i, (key, vids) in enumerate(a[:at]) if vids[0] in made)
    twin = b[place][1][0]    # up to `at` the two do the same
    uses = [key for key, vids in b[at:] if twin in vids[1:]]
    return bool(uses) and not any("opaque" in key[2] for key in uses)


# The __dict__ of an instance that had none before: asked for in each call, so right for one that is there too.
MAKES_DICT = re.compile(r"vars\(.*\)|getattr\(.*, '__dict__'\)")


def asks_no_place(entry, rest):
    """Is the step a store to an older object that was not looked at before it, and does `rest` begin with a look at its place
    and the same store? What was to be replaced would have run code when it died, or might have, so the first recording
    assumes nothing of the heap behind the store."""
    (kind, text, _, line, *_), _ = entry
    (kind_now, _, _, line_now, imm, *_), _ = rest[0]
    if kind not in STORES or (kind_now, imm, line_now) != ("check", FITS, line) or len(rest) < 2:
        return False
    return rest[1][0][:2] == (kind, text)


def does_it_really(a, b):
    """Is the first different step opaque in `a`, and modelled, folded or inlined in `b`? What executes the instruction asks
    no facts about callee and operands and stays right for all of them; which can be modelled may depend on them. (The other way round is a difference: a model without the facts that it depends on.)"""
    found = first_step_difference(a["steps"], b["steps"], loose=True)
    if found is None or found[0] >= min(len(a["steps"]), len(b["steps"])):
        return False
    (kind, text, flags, *_), _ = a["steps"][found[0]]
    (kind_now, text_now, flags_now, *_), _ = b["steps"][found[0]]
    text, text_now = text.removeprefix("% = "), text_now.removeprefix("% = ")
    if asks_no_place(a["steps"][found[0]], b["steps"][found[0]:]) or MAKES_DICT.fullmatch(text):
        return True
    if "opaque" not in flags or (kind, text) == (kind_now, text_now):
        return "opaque" in flags and "opaque" not in flags_now
    if has_consumed_now(a["steps"], b["steps"], found[0]):
        return True
    # a cached function is called, or the answer that it has is looked up
    if kind == "call" and (kind_now, b["steps"][found[0]][0][4]) == ("check", ANSWERED):
        return True
    # a class is called, or its instance is made step by step
    if kind == "call" and kind_now == "object" and text.startswith(f'{text_now.removeprefix("object(").removesuffix(")")}('):
        return True
    # folded or inlined now: only the new recording knows what is called, or one of the operands
    epoch = sum(key[0] == "epoch" for key, _ in a["steps"][:found[0]]) - 1
    head, _, rest = text.partition("(")
    for value in filter(lambda v: v[:2] in ("L[", "G["), [head, *rest.removesuffix(")").split(", ")]):
        known = [any(type(f[1]) is str and value in f[1] and f[2] <= epoch for f in side["facts"]) for side in (a, b)]
        if known == [False, True]:
            return True
    return False


def compare(a, b):
    """Readable differences between two recordings; an empty list means that they say the same."""
    out = []
    found = first_step_difference(a["steps"], b["steps"])
    if found is not None:
        out.append(found[1])
    for key in ("facts", "graphs", "breaks", "effects"):
        left, right = a[key], b[key]
        i = first_difference(left, right)
        if i is not None:
            out.append(f"{key}[{i}]:\n    recorded first: {side(left, i)}\n    recorded now:   {side(right, i)}")
    if a["epochs"] != b["epochs"]:
        out.append(f"epochs: {a['epochs']} and {b['epochs']}")
    return out


def compare_until(a, b, left_at):
    """Differences between the steps of `a` before `left_at`, where a replay left it, and the recording `b` of the same
    call. What was done up to there must be the same; from there on the call went another way."""
    found = first_step_difference(a["steps"], b["steps"], loose=True)
    # a recording that had to stop early says nothing about what comes then
    stopped = found is not None and found[0] == len(b["steps"]) - 1 and b["steps"][-1][0][0] == "exit"
    # checks that passed on the way to the one that did not have done nothing
    only_asked = found is not None and all(step[0][0] in ("check", "epoch") for step in a["steps"][found[0]:left_at])
    if found is not None and found[0] < left_at and not stopped and not only_asked and not does_it_really(a, b):
        return [f"before the exit at step {left_at}, {found[1]}"]
    return []
