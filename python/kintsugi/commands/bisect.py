"""`kintsugi bisect script.py | module:fn`: which pass of the compiler, or which kernel, is behind a difference between compiled code and eager.

The program is validated (`kintsugi validate`); for each graph that differs, what each pass left is run with PyTorch's own operators. Exit status 1 where something differs.
"""

import json

from . import validate


def add(commands):
    parser = commands.add_parser("bisect", help="which pass or kernel is behind a difference between compiled code and eager", description=__doc__)
    parser.add_argument("--all", action="store_true", help="look at all graphs, also at those whose results are right")
    parser.add_argument("--json", metavar="FILE", help="write what was found to FILE")
    validate.add_common(parser)


def run(options):
    from kintsugi import _logs
    from kintsugi.diagnose import screen
    from kintsugi.diagnose.show import count

    seen = max((event["seq"] for event in _logs.events()), default=-1)
    with screen.progress() as tell:
        functions, differences = validate.validate(options.target, options.args, inputs=options.inputs, launches=options.launches, tell=tell)
        tell("running what each pass of the compiler left")
        found = bisect(functions, differences, options.all)
    names = {name for one in functions for name in one.names}
    bugs = [event for event in _logs.events() if event["event"] == "bug" and event["seq"] > seen and event.get("name") in names]
    for difference in differences:
        validate.tell_of(difference)
    for one in found:
        _tell(one)
    for event in bugs:
        print(f"{event['name']}: pass {event['where']} was stopped by a verifier or failed: {event['message']}; its graph runs step by step")
    if not differences and not bugs:
        print(f"compiled code gives what eager does: {count(len(functions), 'function')}; nothing to look for" if not options.all else "nothing differs")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"version": 1, "differences": [one.as_dict() for one in differences], "graphs": [one.as_dict() for one in found],
                       "bugs": bugs}, file, indent=1)
    return 1 if differences or bugs else 0


def bisect(functions, differences, everything=False):
    """[Finding] for the graphs that differ; where only a call as a whole does, for all graphs of that function."""
    from kintsugi import _api
    from kintsugi.diagnose import bisect

    engine, found = _api.start_engine(), []
    for one in functions:
        graphs = {difference.graph for difference in differences if difference.function == one.name}
        if graphs or everything:
            wrong = None if 0 in graphs else graphs
            found += bisect.of_function(engine, one.compiled, None if everything else wrong, wrong)
    return found


def _tell(found):
    print(f"{found.function}, graph {found.graph}: {found.verdict}")
    if found.right:
        print(f"  right: {', '.join(found.right)}")
    for line in found.change:
        print(f"    {line}")
    if found.wrong and not found.passed:
        for name, loops in found.kernels[:4]:
            print("\n".join(f"    {line}" for line in loops.rstrip().splitlines()[:24]))
