"""The texts users know from torch.compile: one place for errors, logs, explain() and reports."""

import linecache
import os
import traceback
import pathlib
import traceback

BREAK_PAGE = "https://meta-pytorch.github.io/compile-graph-break-site/gb/{}.html"
STANDARD = os.path.dirname(os.__file__) + os.sep  # files below it are of the standard library, unless they are of an installed package


def rows():
    """All reasons for graph breaks, as dicts. One depends on a setting of PyTorch's."""
    from ._engine import engine

    return engine.break_rows()


def find_row(key):
    """The row with that number or stable name; None when there is none."""
    if isinstance(key, int) and not isinstance(key, bool):
        return rows()[key] if 0 <= key < len(rows()) else None
    return next((row for row in rows() if key in (row["why"], row["id"])), None)


def _indent(text):
    return text.replace("\n", "\n    ")


def break_block(row, context=""):
    """The reason as PyTorch lays it out, the type string first."""
    lines = [row["type"], "  Explanation: " + _indent(row["explanation"])]
    lines += ["  Hint: " + _indent(hint) for hint in row["hints"]]
    if row["fix"] and row["fix"] != "defer":
        lines.append("  Fix: " + row["fix"])
    lines += ["", f"  Developer debug context: {row['id']} {row['why']} {context}".rstrip(), "", "  Kintsugi's page on it: " + (own_page(row["why"]) or f"python -m kintsugi breaks {row['id']}")]
    if row["stock"]:
        lines += ["", " For more details about this graph break, please visit: " + stock_page(row)]
    return "\n".join(lines)


def stock_page(row):
    """PyTorch's page on the reason, by its first id there; "": it has none."""
    return BREAK_PAGE.format(row["stock"][0].lower()) if row["stock"] else ""


def own_page(why):
    """Of the reason; "": nowhere."""
    return _on_site(f"breaks/{why}.html")


def recompiles_page():
    """What to do about recompiles: the page with an example of each kind, or the command that tells the same."""
    return _on_site("recompiles.html") or "`python -m kintsugi explain SCRIPT` or `kintsugi.recompiles(fn)` tells the line and what to change"


def _on_site(name):
    """Where the documentation is: in KINTSUGI_DOCS (a URL or a folder), or where `make docs` has built it beside these sources. "": nowhere."""
    site = os.environ.get("KINTSUGI_DOCS", "")
    if "://" in site:
        return f"{site.rstrip('/')}/{name}"
    site = site or os.path.join(os.path.dirname(__file__), "..", "..", "build", "site")
    path = pathlib.Path(site, name).resolve()
    return path.as_uri() if path.exists() else ""


def frames(stack):
    """[(file, line, function)] as traceback.FrameSummary objects."""
    return traceback.StackSummary.from_list([
        traceback.FrameSummary(file, line, function, lookup_line=False, line=linecache.getline(file, line).strip())
        for file, line, function in stack
    ])


def format_stack(stack):
    return "".join(frames(stack).format()).rstrip("\n")


def break_record(entry, outer=(), duplicate=False):
    """One record of TORCH_LOGS=graph_breaks; `entry` is a break of a dump."""
    note = " (user stack suppressed due to duplicate graph break)" if duplicate else ""
    text = (f"Graph break{note} in user code at {entry['filename']}:{entry['line']}\n"
            f"Graph Break Reason: {break_block(entry, entry.get('context', ''))}\n")
    if not duplicate:
        text += "\nUser code traceback:\n" + format_stack([*outer, *entry["user_stack"]]) + "\n"
    return text


def library_of(filename):
    """The installed package that the file belongs to; "" for the user's own."""
    _, found, path = filename.replace(os.sep, "/").rpartition("/site-packages/")
    return path.partition("/")[0] if found else ""


def user_place(stack, place):
    """(file, line, function) of the innermost frame that is the user's own; `place` when there is none."""
    return next((tuple(frame) for frame in reversed(stack) if not library_of(frame[0]) and not frame[0].startswith(STANDARD)), place)


def refusal_stack(event):
    """[(file, line, function)] of the break for which fullgraph=True raised, the compiled function first."""
    return [(file, int(line), name) for file, line, name in (row.split("\t") for row in event["stack"].splitlines())]


def describe_error(error):
    """An exception in words, with the innermost line that is the user's own."""
    frames = [(one.filename, one.lineno, one.name) for one in traceback.extract_tb(error.__traceback__)]
    own = [frame for frame in frames if not frame[0].startswith("<") and os.path.dirname(__file__) not in frame[0] and not frame[0].startswith(STANDARD)]
    file, line, _ = user_place(own, ("", 0, ""))
    return f"{type(error).__name__}: {error}" + (f" (at {file}:{line})" if line else "")


def effect_place(entry):
    """Where an effect of a dump is caused, with its line."""
    place = entry["filename"], entry["line"], entry["function"]
    file, line, function = user_place(entry.get("user_stack", ()), place)
    return f"# {linecache.getline(file, line).strip()}  # {file}:{line} in {function}"


def effect_record(entry):
    """One record of TORCH_LOGS=side_effects."""
    return f"Side effect that is replayed ({entry['kind']}): {entry['text']}\n  {effect_place(entry)}"


def unsupported_message(row, stack, context=""):
    """The text of the fullgraph=True error."""
    text = break_block(row, context)
    if stack:
        text += "\n\nfrom user code:\n " + format_stack(stack).replace("\n", "\n ") + "\n"
    return text + '\nSet TORCH_LOGS="graph_breaks" to see every graph break of the program.\n'


def guard_place(fact):
    if not fact["line"]:
        return ""
    code = linecache.getline(fact["filename"], fact["line"]).strip()
    return f"  # {code}  # {fact['filename']}:{fact['line']} in {fact['function']}"


def guard_tree(dump):
    """The guards of an entry by source, each with the line that needed it."""
    lines = ["", "TREE_GUARD_MANAGER:", "+- RootGuardManager"]
    by_source = {}
    for fact in dump["facts"]:
        by_source.setdefault(fact["source"], []).append(fact)
    for source, facts in by_source.items():
        indent = "| +- "
        if source:
            lines.append(f"| +- GuardManager: source={source}")
            indent = "| | +- "
        lines += [f"{indent}{fact['guard']}: {fact['text']}{guard_place(fact)}" for fact in facts]
    return "\n".join(lines) + "\n"


def traced_graph(graph, name):
    """One record of TORCH_LOGS=graph_code."""
    return f"TRACED GRAPH\n ===== {name} =====\n {__file__} {graph['code']}"


def recompile_record(event, frame=0):
    """One line per recording that did not fit, newest first."""
    failures = [line.strip().removeprefix("- ") for line in event.get("failures", "").splitlines() if line.strip()]
    lines = [f"Recompiling function {event.get('function', event['name'])} in {event.get('filename', '?')}:{event.get('line', 0)}",
             "    triggered by the following guard failure(s):"]
    for number, failure in zip(range(len(failures) - 1, -1, -1), failures):
        lines.append(f"    - {frame}/{number}: {failure}")
    lines.append(f"    What to do about it: {recompiles_page()}")
    return "\n".join(lines)


def limit_record(event):
    return (f"torch._dynamo hit config.recompile_limit ({event.get('limit')})\n"
            f"   function: '{event.get('function', event['name'])}' ({event.get('filename', '?')}:{event.get('line', 0)})\n"
            f"   last reason: {event.get('last', '')}\n"
            'To log all recompilation reasons, use TORCH_LOGS="recompiles".\n'
            f"What to do about them: {recompiles_page()}\n"
            "What was recorded stays fast; other calls of this function run eagerly.")
