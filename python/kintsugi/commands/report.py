"""`kintsugi report SCRIPT | module:fn | LOGFILE | TRACE_DIR -o DIR`: writes DIR/index.html, one file that needs nothing else.

A script is run and measured, as by `kintsugi explain`. A file or folder is read: the output of TORCH_LOGS (stock's, too), a TORCH_TRACE folder, or an event log of
`kintsugi run --events`.
"""

import os
import sys

from .._errors import CommandError
from . import MODULE, add_target


def add(commands):
    parser = commands.add_parser("report", help="an HTML report on a script, or on a log or trace that is there", description=__doc__)
    parser.add_argument("-o", "--output", metavar="DIR", default="kintsugi-report", help="folder of the report (kintsugi-report)")
    parser.add_argument("--no-measure", action="store_true", help="no times and no prices: calls are not repeated")
    parser.add_argument("--repeat", action="store_true", help="measure functions whose calls have effects outside of the process, too")
    parser.add_argument("--against", metavar="FILE", help="compare with an earlier run: the folder of its report, its found.json, or a file of `kintsugi explain --json`")
    add_target(parser, "a script, module:fn, a log file or a trace folder")


def run(options):
    from kintsugi.diagnose import observe, screen
    from kintsugi.report import compare, page, read

    from . import explain

    target, status = options.target, 0
    title = f"Kintsugi: {os.path.basename(os.path.abspath(target)) if os.path.exists(target) else target}"
    try:
        if os.path.exists(target) and not target.endswith(".py"):
            with screen.progress() as tell:
                text = page.of_log(title, read.read(target, tell))
        else:
            if not target.endswith(".py") and ":" not in target and not target.startswith(MODULE):
                raise CommandError(f"no such file or folder: {target!r}")
            earlier = compare.read(options.against) if options.against else None
            status, diagnoses = explain.explain(target, options.args, inputs=options.inputs, measure=not options.no_measure, repeat=options.repeat,
                                                kernels=True)
            failure = observe.describe_end(status) if isinstance(status, Exception) else ""
            text = page.of_diagnoses(title, sorted(diagnoses, key=explain.loss, reverse=True), earlier, failure)
            os.makedirs(options.output, exist_ok=True)
            explain.write_json(diagnoses, os.path.join(options.output, "found.json"))
        os.makedirs(options.output, exist_ok=True)
        path = os.path.join(options.output, "index.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        sys.stderr.write(f"kintsugi: report: {error}\n")
        return 2
    print(f"{path} written ({len(text) / 1e3:.0f} kB)")
    if isinstance(status, Exception):
        sys.stderr.write(f"kintsugi: report: the script ended with {failure}\n")
        return 1
    return 0
