"""`kintsugi check SCRIPT --baseline FILE`: has anything become worse since the baseline was written? For continuous integration.

What is compared is the same in every run of the same program: graph breaks, recompiles, graphs, calls left eager, guards, steps, kernels, and
the values of results within a tolerance. Times are not. Exit status 0: nothing is worse; 1: something is; 2: it could not be checked.
"""

import json
import os

from .._errors import CommandError
from . import add_target, at_least


def add(commands):
    parser = commands.add_parser("check", help="has anything become worse since a baseline was written? For continuous integration", description=__doc__)
    parser.add_argument("--baseline", metavar="FILE", help="what is expected, written by --update")
    parser.add_argument("--update", action="store_true", help="write FILE anew with what is found now")
    parser.add_argument("--fullgraph", action="store_true", help="any graph break is an error, as --max-breaks 0")
    parser.add_argument("--max-breaks", type=at_least(0), metavar="N", help="graph breaks of a function that are accepted")
    parser.add_argument("--strict-breaks", action="store_true", help="print, logging, ... count as graph breaks")
    parser.add_argument("--tolerance", type=at_least(0.0, float), help="relative difference of results that is accepted (else by dtype: see docs/ci.md)")
    parser.add_argument("--annotations", choices=("github", "none"), help="mark lines for code review (github where GITHUB_ACTIONS is set)")
    add_target(parser)


def run(options):
    import kintsugi
    from kintsugi.diagnose import baseline, observe, screen

    if options.baseline is None and options.max_breaks is None and not options.fullgraph:
        raise CommandError("nothing to check against: give --baseline FILE, --max-breaks N or --fullgraph")
    if options.strict_breaks:
        kintsugi.config.strict_breaks = True
    expected = None if options.baseline is None or options.update else baseline.read(options.baseline)
    with screen.progress() as tell:
        found = baseline.take(options.target, options.args, inputs=options.inputs, tell=tell)
    if expected is None and not found["functions"]:
        raise baseline.BaselineError(observe.NOTHING.format(options.target))
    limit = 0 if options.fullgraph else options.max_breaks
    worse, better = baseline.limits(found, limit) if limit is not None else [], []
    if expected is not None:
        more, better = baseline.compare(expected, found, options.tolerance)
        worse += more
        note = baseline.describe_difference(expected, found)
        if note:
            print(f"note: {note}")
    if options.update and options.baseline:
        baseline.write(options.baseline, found)
    _tell(worse, better, found, options)
    return 1 if worse else 0


def _tell(worse, better, found, options):
    for change in worse:
        print(f"worse: {change.text}")
    for change in better:
        print(f"better: {change.text}")
    if options.update and options.baseline:
        print(f"{options.baseline} written: {_functions(found)}")
    elif better and not worse:
        print(f"nothing is worse; --update takes what is better into {options.baseline}")
    elif not worse:
        print(f"nothing is worse: {_functions(found)}")
    kind = options.annotations or ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "none")
    if kind == "github":
        for change in worse:
            print(_annotation(change))


def _functions(found):
    from kintsugi.diagnose import show

    breaks = sum(one["counters"]["breaks"] for one in found["functions"].values())
    return f"{show.count(len(found['functions']), 'compiled function')}, {show.count(breaks, 'graph break')}"


def _annotation(change):
    """A line that GitHub Actions shows at the place it names."""
    place = f"file={_escape(change.filename)},line={change.line}," if change.filename else ""
    return f"::error {place}title=kintsugi check::{_escape(change.text, message=True)}"


def _escape(text, message=False):
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text if message else text.replace(":", "%3A").replace(",", "%2C")
