"""`kintsugi run script.py args...`: runs a script with torch.compile served by Kintsugi, and sums up what was compiled."""

import os
import runpy
import sys

from .._errors import CommandError
from . import MODULE, add_module, summary


def add(commands):
    parser = commands.add_parser("run", help="run a script with torch.compile served by Kintsugi")
    parser.add_argument("--strict-breaks", action="store_true", help="report print, logging, ... as graph breaks")
    parser.add_argument("--events", metavar="FILE", help="append the event log to FILE as JSON lines")
    parser.add_argument("--stats", action="store_true", help="print the counters of all compiled functions at the end")
    parser.add_argument("--quiet", action="store_true", help="no summary at the end")
    add_module(parser)
    parser.add_argument("target", metavar="script", help="a script, a folder or archive with a __main__.py, or with -m a module")
    parser.add_argument("args", nargs="...", help="arguments of the script")


def run(options):
    import kintsugi
    from kintsugi._engine import engine
    from kintsugi.diagnose import observe

    try:
        start = _start(options, observe)
    except CommandError as error:
        sys.stderr.write(f"kintsugi: run: {error}\n")
        return 2
    if options.strict_breaks:
        kintsugi.config.strict_breaks = True
    kintsugi.install()
    if options.events:
        try:
            engine.log_file(options.events)
        except OSError as error:
            sys.stderr.write(f"kintsugi: run: --events: {error}\n")
            return 2
    try:
        kept = start()  # what the script compiled has counters for as long as it lives
    except Exception as error:
        kept = error
        _show(error)
        if isinstance(error, ImportError) and "no known parent package" in str(error) and options.target.endswith(".py"):
            name = os.path.splitext(os.path.relpath(options.target))[0].replace(os.sep, ".")
            sys.stderr.write(f"kintsugi: a module of a package is run by its name, as by `python -m`: python -m kintsugi run -m {name}\n")
    finally:
        if options.stats:
            _print_stats(kintsugi.stats())
        if not options.quiet:
            sys.stderr.write("".join(f"kintsugi: {line}\n" for line in summary.lines(options.target, options.args)))
    return int(isinstance(kept, Exception))


def _start(options, observe):
    """What runs the script, with what it may read in sys."""
    target = options.target
    if target.startswith(MODULE):
        sys.argv = [observe.file_of(target), *options.args]
        return lambda: runpy.run_module(target.removeprefix(MODULE), run_name="__main__", alter_sys=True)
    if not os.path.isdir(target):
        observe.need_script(target)
    sys.argv = [target, *options.args]
    sys.path[0:1] = [target.rpartition("/")[0] or "."]
    return lambda: runpy.run_path(target, run_name="__main__")


def _show(error):
    """As Python shows what ended a script: without the frames that led there."""
    trace = error.__traceback__
    while trace is not None and (trace.tb_frame.f_code.co_filename == __file__ or trace.tb_frame.f_code.co_filename == "<frozen runpy>"):
        trace = trace.tb_next
    sys.stdout.flush()
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _print_stats(stats):
    from .. import _tables

    keys = list(dict.fromkeys(key for numbers in stats.values() for key, value in numbers.items() if isinstance(value, int) and value))
    rows = [(name, *(numbers.get(key, 0) for key in keys)) for name, numbers in stats.items()]
    head = ("compiled function", *(key.replace("_", " ") for key in keys))
    _tables.show(_tables.table(head, rows, right=range(1, len(head))), sys.stderr)
