"""`kintsugi explain script.py | module:fn`: what keeps compiled functions from being faster, what it costs, and what to do about it."""

import json
import sys

from . import add_target, at_least


def add(commands):
    parser = commands.add_parser("explain", help="what keeps compiled functions from being faster, what it costs, and the fix",
                                 description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write all that was found to FILE as JSON (-: to the standard output, in place of the text)")
    parser.add_argument("--sarif", metavar="FILE", help="write it to FILE as SARIF 2.1.0, for code review")
    parser.add_argument("--all", action="store_true", help="all causes, with all hints")
    parser.add_argument("--no-measure", action="store_true", help="no times and no prices: calls are not repeated")
    parser.add_argument("--repeat", action="store_true", help="measure functions whose calls have effects outside of the process, too")
    parser.add_argument("--seconds", type=at_least(0.01, float), default=None, help="of measuring for each variant (0.25)")
    parser.add_argument("--strict-breaks", action="store_true", help="report print, logging, ... as graph breaks")
    add_target(parser, inputs="arguments of module:fn: a function of that module that returns them, or an expression")


def run(options):
    import kintsugi
    from kintsugi.diagnose import observe

    if options.strict_breaks:
        kintsugi.config.strict_breaks = True
    status, diagnoses = explain(options.target, options.args, inputs=options.inputs, measure=not options.no_measure, repeat=options.repeat,
                                seconds=options.seconds, kernels=options.json is not None)
    ended = observe.describe_end(status)
    if diagnoses or not ended:
        write(diagnoses, options)
    if ended:
        sys.stderr.write(f"kintsugi: explain: {options.target} ended with {ended}\n")
    return 1 if ended else 0


def explain(target, arguments=(), *, inputs=None, measure=True, repeat=False, seconds=None, kernels=False):
    """(exit status of the script or its exception, [Diagnosis]). kernels: as of diagnose()."""
    from kintsugi.diagnose import diagnose, observe, price, screen

    status, functions = observe.watch(target, arguments, inputs)
    with screen.progress() as tell:
        return status, [diagnose(found, measure=measure, repeat=repeat, progress=tell, seconds=seconds or price.SECONDS, kernels=kernels)
                        for found in functions]


def write(diagnoses, options):
    from kintsugi.diagnose import sarif, show

    if options.sarif:
        with open(options.sarif, "w") as file:
            json.dump(sarif.log(diagnoses), file, indent=1)
    if options.json:
        if options.json == "-":
            write_json(diagnoses, sys.stdout)
            return
        write_json(diagnoses, options.json)
    if not diagnoses:
        print("Nothing was compiled: no function that torch.compile or kintsugi.compile returned was called.")
    for number, diagnosis in enumerate(sorted(diagnoses, key=loss, reverse=True)):
        if number:
            print()
        show.show(diagnosis, options.all)


def write_json(diagnoses, target):
    """To a path, or to an open file."""
    text = json.dumps({"version": 1, "functions": [diagnosis.as_dict() for diagnosis in diagnoses]}, indent=1, default=str) + "\n"
    if not isinstance(target, str):
        target.write(text)
        return
    with open(target, "w") as file:
        file.write(text)


def loss(diagnosis):
    """Seconds of its calls that the causes cost."""
    return sum(cause.price_us or 0.0 for cause in diagnosis.causes) * diagnosis.calls, len(diagnosis.causes)
