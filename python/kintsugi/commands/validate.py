"""`kintsugi validate script.py | module:fn`: does compiled code compute what eager does? Exit status 1 when it does not.

The program runs with its compiled graphs compared with eager at their first launches, then whole calls are compared: outputs, arguments that are written to,
gradients. The first operation that differs is named with its line.
"""

import json
import sys

from . import add_target, at_least


NOT_SMALL = 3  # minify: something was found, and nothing written


def add(commands):
    parser = commands.add_parser("validate", help="does compiled code compute what eager does?", description=__doc__)
    add_common(parser)
    parser.add_argument("--minify", metavar="FILE", help="write a small script that shows the first difference to FILE")
    parser.add_argument("--json", metavar="FILE", help="write what was found to FILE")
    small = commands.add_parser("minify", help="write a small script that shows a difference, a failure of the compiler, or a slowdown",
                                description="validate, and write a small script that shows the first difference, or where the compiler fails. Exit status 0: "
                                            "there is nothing to show; 1: the script was written; 3: there is something, and no small program shows it; "
                                            "2: it could not be looked for")
    add_common(small)
    small.add_argument("--slow", action="store_true", help="look for calls that take longer compiled than eager")
    small.add_argument("-o", "--output", metavar="FILE", default="repro.py", help="the script (repro.py)")


def add_common(parser):
    """Arguments of the commands that validate a program."""
    parser.add_argument("--launches", type=at_least(1), default=3, metavar="N", help="launches of each compiled graph that are compared (3)")
    add_target(parser)


def run(options):
    from kintsugi import _logs
    from kintsugi.diagnose import screen, show

    seen = max((event["seq"] for event in _logs.events()), default=-1)
    with screen.progress() as tell:
        if getattr(options, "slow", False):
            functions, found = slowdowns(options.target, options.args, inputs=options.inputs, tell=tell)
        else:
            functions, found = validate(options.target, options.args, inputs=options.inputs, launches=options.launches, tell=tell)
            if options.command == "minify":
                tell("looking for a smaller program")
                found += failures(functions, seen)
    for difference in found:
        tell_of(difference)
    if not found and getattr(options, "slow", False):
        print("no graph takes longer compiled than eager")
    elif not found:
        print(f"compiled code gives what eager does: {show.count(len(functions), 'function')}, "
              f"{show.count(sum(one.launches for one in functions), 'compiled graph')} compared")
    return _write(options, functions, found)


def _write(options, functions, found):
    script = next((difference.script for difference in found if difference.script), "")
    target = options.output if options.command == "minify" else options.minify
    if target and script:
        with open(target, "w") as file:
            file.write(script)
        print(f"{target}: shows the difference, {len(script.splitlines())} lines")
    elif target and found:
        sys.stderr.write(f"kintsugi: {options.command}: no small program shows the difference\n")
        if options.command == "minify":
            return NOT_SMALL
    if options.command == "minify":
        return 1 if found else 0
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"version": 1, "functions": [one.name for one in functions], "differences": [one.as_dict() for one in found]}, file, indent=1)
    return 1 if found else 0


def tell_of(found):
    from kintsugi.diagnose import show

    where = f"graph {found.graph}" if found.graph else "a call as a whole"
    print(f"{found.function}, {where}: {found.text}")
    if found.operation:
        print(f"  the first operation that differs: {found.operation} at {show.place(found.filename, found.line)}: {found.code}")
    if found.note:
        print(f"  {found.note}")
    if found.graph:
        print("  the graph runs step by step in a program that validates; without validation: "
              "kintsugi.compile(..., options={'kernels': False}) for this function")


def validate(target, arguments=(), *, inputs=None, launches=3, tell=lambda text: None):
    """([observed functions], [Difference])."""
    from kintsugi import _api
    from kintsugi.diagnose import differ, observe, outside

    engine = _api.start_engine()
    with observe.same_each_time(target, arguments, inputs, validate=launches) as functions:
        if not functions:
            raise observe.TargetError(observe.NOTHING.format(target))
        found = []
        for one in functions:
            tell(f"{one.name}: comparing further calls with eager ones")
            dumps = [engine.dump(entry) for entry in one.compiled.entries()]
            again = one.calls and not outside.find_obstacle(dumps, one)
            text = _call_again(one, launches) if again else ""
            one.launches = sum(bool(row["compiled"]) for row in _rows(engine, one))
            graphs = _differences(one) or ({0: text} if text else {})
            for graph, what in graphs.items():
                tell(f"{one.name}: {what}; looking for the operation")
                found.append(differ.locate(one, graph, what))
        return functions, found


def failures(functions, seen):
    """[Difference] for what the compiler failed at since event `seen`: such a graph runs step by step."""
    from kintsugi import _api
    from kintsugi.diagnose import differ

    engine = _api.start_engine()
    return [differ.locate(one, graph, text, differ.fails) for one in functions for graph, text in differ.failures(engine, one.compiled, seen)[:1]]


def slowdowns(target, arguments=(), *, inputs=None, tell=lambda text: None):
    """([observed functions], [Difference]) of functions whose calls take longer compiled."""
    from kintsugi.diagnose import differ, observe

    status, functions = observe.watch(target, arguments, inputs)
    if observe.describe_end(status):
        raise observe.TargetError(f"{target} ended with {observe.describe_end(status)}")
    if not functions:
        raise observe.TargetError(observe.NOTHING.format(target))
    tell("measuring graphs compiled and eagerly")
    found = [differ.locate(one, 0, "calls that take longer compiled", differ.slower) for one in functions]
    return functions, [one for one in found if one.operation]


def _call_again(one, launches):
    """Further calls until each graph was compared, then the call as a whole."""
    from kintsugi.diagnose import differ, screen, state

    call = one.calls[-1]
    try:
        with screen.quiet(), call.modes(), state.unchanged(one.compiled.fn, call.args, call.kwargs) as kept:
            for _ in range(launches + 1):
                args, kwargs = call.copy()
                one.compiled(*args, **kwargs)
                kept.restore()
        return differ.whole_call(one)
    except Exception as error:
        return _raised(one, error)


def _raised(one, error):
    """Does eager raise the same? Then it is the program's own."""
    from kintsugi.diagnose import screen

    try:
        with screen.quiet(), one.calls[-1].modes():
            args, kwargs = one.calls[-1].copy()
            one.compiled.fn(*args, **kwargs)
    except Exception:
        return ""
    return f"a compiled call raised {type(error).__name__}: {error}"


def _rows(engine, one):
    from kintsugi import _kernels

    return _kernels.rows(engine, one.compiled)


def _differences(one):
    from kintsugi import _logs

    numbers = {entry.number for entry in one.compiled.entries()}
    return {event["graph"]: event["text"] for event in _logs.events()
            if event["event"] == "differ" and event["entry"] in numbers and event["name"] in one.names}
