"""python -m kintsugi: run a script with torch.compile served by Kintsugi, or show what is known about breaks.

    python -m kintsugi run script.py args... | -m module args...
    python -m kintsugi explain script.py | -m module | module:fn      (the script's own arguments follow after --; so with all commands below)
    python -m kintsugi debug script.py | module:fn [--apply]
    python -m kintsugi check script.py | module:fn --baseline FILE [--update]
    python -m kintsugi report script.py | module:fn | LOGFILE | TRACE_DIR -o DIR
    python -m kintsugi validate script.py | module:fn
    python -m kintsugi minify script.py | module:fn -o FILE
    python -m kintsugi bisect script.py | module:fn
    python -m kintsugi breaks [NAME]
    python -m kintsugi backends
    python -m kintsugi bench [MODEL ...]
    python -m kintsugi doctor
    python -m kintsugi cache info | clear | export FILE | import FILE
"""

import argparse
import os
import sys

from ._errors import CommandError
from .commands import MODULE, add_module, at_least, bisect, check, check_outputs, debug, explain, report, run, validate


def main(argv=None):
    """Runs one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="kintsugi", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--version", action="version", version=f"kintsugi {_version()}")
    commands = parser.add_subparsers(dest="command", required=True)
    run.add(commands)
    explain.add(commands)
    debug.add(commands)
    check.add(commands)
    validate.add(commands)
    bisect.add(commands)
    report.add(commands)
    breaks = commands.add_parser("breaks", help="explain the reasons for graph breaks")
    breaks.add_argument("name", nargs="?", help="stable name, KIN number or PyTorch id")
    commands.add_parser("backends", help="list the names compile(backend=...) accepts")
    doctor = commands.add_parser("doctor", help="what works on this machine, what is switched on, and why not")
    doctor.add_argument("--json", action="store_true", help="the same as JSON")
    _add_bench(commands)
    cache = commands.add_parser("cache", help="compiled kernels on disk").add_subparsers(dest="action", required=True)
    cache.add_parser("info", help="folder, number, size, processors")
    cache.add_parser("clear", help="remove all")
    cache.add_parser("export", help="write all to an archive").add_argument("file")
    cache.add_parser("import", help="add those of an archive; only from people you trust").add_argument("file")
    argv, own = _split(sys.argv[1:] if argv is None else list(argv))
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        behind = "" if own is not None or not getattr(options, "target", None) else f"; arguments of the script itself stand behind --: {options.target} -- {' '.join(unknown)}"
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{behind}")
    if own is not None:
        options.args = own
    if getattr(options, "module", False):
        if options.command == "bench":
            options.models[:1] = [MODULE + name for name in options.models[:1]]
        else:
            options.target = MODULE + options.target
    command = {"run": run.run, "explain": explain.run, "debug": debug.run, "check": check.run, "validate": validate.run, "minify": validate.run, "bisect": bisect.run, "report": report.run, "breaks": _breaks, "backends": _backends, "bench": _bench, "cache": _cache, "doctor": _doctor}[options.command]
    if options.command == "run":
        return command(options)
    try:
        check_outputs(options)
        status = command(options)
        sys.stdout.flush()
        return status
    except CommandError as error:
        sys.stderr.write(f"kintsugi: {options.command}: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(f"kintsugi: {options.command}: interrupted\n")
        return 130
    except BrokenPipeError:  # `python -m kintsugi breaks | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _split(argv):
    """What stands behind `--` belongs to the script; of `kintsugi run` that is all behind its name anyway."""
    if "--" not in argv or argv[:1] == ["run"]:
        return argv, None
    at = argv.index("--")
    return argv[:at], argv[at + 1:]


def _add_bench(commands):
    bench = commands.add_parser("bench", help="time real models, or functions of your own: eager, Kintsugi, stock torch.compile")
    bench.add_argument("models", nargs="*", help="names or patterns of rows (`bert-*`); all when none is given. "
                       "Or one script.py, module:fn or file.py:fn of your own")
    bench.add_argument("--rows", metavar="NAMES", action="append", default=[], help="the same, separated by commas")
    add_module(bench)
    bench.add_argument("--inputs", metavar="EXPR", help="of module:fn: a function of that module that returns its arguments, or an expression")
    bench.add_argument("--against", metavar="git:REV", help="of script.py or module:fn: the same in an earlier revision, in turns with this one")
    bench.add_argument("--stock", action="store_true", help="of script.py or module:fn: stock torch.compile, too")
    bench.add_argument("--quick", action="store_true", help="half a second for each row, no processes for first calls")
    bench.add_argument("--no-stock", action="store_true", help="leave stock torch.compile out (it takes most of the time)")
    bench.add_argument("--no-first", action="store_true", help="no processes for first calls")
    bench.add_argument("--seconds", type=at_least(0.01, float), default=None, help="time for each row's steady state (3)")
    bench.add_argument("--threads", type=at_least(1), default=None, help="threads of PyTorch (its own choice by default)")
    bench.add_argument("--timeout", type=float, default=240.0, help="seconds that one process may take (240)")
    bench.add_argument("--minutes", type=float, default=None, help="after so many, rows that are left are not measured")
    bench.add_argument("--mkl-fast-path", action="store_true", help="load a library first with which MKL takes the code it keeps for Intel's "
                       "processors; on others eager, Kintsugi and stock all get faster products")
    bench.add_argument("--second", metavar="FILE", help="with --docs: a run with --mkl-fast-path, which the page shows as well")
    bench.add_argument("--train", action="store_true", help="steps of training: times, first steps, memory, losses over 50 steps")
    bench.add_argument("--profile", action="store_true", help="show what each operation of the launches takes, and nothing else")
    bench.add_argument("--json", metavar="FILE", help="write all numbers to FILE, after each row")
    bench.add_argument("--resume", action="store_true", help="keep the rows that FILE has from this machine")
    bench.add_argument("--report", metavar="FILE", help="measure nothing, report what FILE has")
    bench.add_argument("--docs", metavar="FOLDER", help="write FOLDER/bench.md and its pictures")
    bench.add_argument("--svg", metavar="FILE", help="write a picture to FILE")


def _bench(options):
    from . import bench
    from .bench import own, training

    if options.train:
        return training.main(options)
    if own.is_target(options.models):
        return own.main(options)
    return bench.main(options)


def _cache(options):
    from . import cache

    try:
        if options.action == "clear":
            print(f"{cache.clear()} kernels removed")
        elif options.action == "export":
            print(f"{cache.export_to(options.file)} kernels written to {options.file}")
        elif options.action == "import":
            print(f"{cache.import_from(options.file)} kernels added")
        else:
            _print_cache(cache.info())
    except cache.CacheError as error:
        sys.stderr.write(f"kintsugi: cache: {error}\n")
        return 1
    return 0


def _print_cache(info):
    from . import _tables

    limit = f"{info['limit'] >> 20} MB" if info["limit"] else "none"
    rows = [("folder", info["folder"]), ("kernels", info["kernels"]), ("size", f"{info['bytes'] / 1e6:.1f} MB, limit {limit}")]
    for title, counts in (("compiled for", info["processors"]), ("compiled by version", info["versions"])):
        for name, count in sorted(counts.items()):
            rows.append((title, f"{name}: {count}"))
            title = ""
    _tables.show(_tables.table(("", ""), rows))


def _breaks(options):
    from . import _messages

    rows = _messages.rows()
    if options.name:
        wanted = options.name.upper()
        rows = [row for row in rows if wanted in (row["why"], row["id"], *row["stock"])]
        if not rows:
            return _pytorch_id(wanted, options.name)
        print("\n\n".join(map(_page_of_break, rows)))
        return 0
    from . import _tables

    found = [(row["id"], row["why"], row["category"], " ".join(row["stock"]), row["type"]) for row in rows]
    _tables.show(_tables.table(("id", "name", "category", "PyTorch's ids", "first line of the report"), found))
    return 0


def _page_of_break(row):
    """What a report says of it, and its example before and after the fix."""
    from . import _examples, _messages

    text = _messages.break_block(row).replace(f"  Kintsugi's page on it: python -m kintsugi breaks {row['id']}\n\n", "")
    for title, code in zip(("Example:", "Without the graph break:"), _examples.parts(row["why"]) or ()):
        if code:
            text += f"\n\n  {title}\n\n" + "\n".join(f"    {line}".rstrip() for line in code.splitlines())
    return text


def _pytorch_id(name, asked):
    from . import _pytorch_ids

    found = _pytorch_ids.find(name)
    if found is None:
        what = f"{name} is no id of PyTorch's that is known here" if _pytorch_ids.is_id(name) else f"unknown graph break {asked!r}"
        sys.stderr.write(f"kintsugi: {what}; `python -m kintsugi breaks` lists all of them\n")
        return 1
    title, reason = found
    print(f"{name}: {title}\n\n  This is no graph break here. {reason}")
    return 0


def _version():
    from . import __version__

    return __version__


def _doctor(options):
    from . import doctor

    found = doctor.rows()
    if options.json:
        import json

        print(json.dumps([dict(zip(("part", "state", "text"), row)) for row in found], indent=2))
    else:
        print(doctor.report(found))
    return int(any(part in ("engine", "trial", "torch") and state == "off" for part, state, _ in found))


def _backends(options):
    from .backends import list_backends

    print("\n".join(list_backends()))
    return 0
