"""The commands of `python -m kintsugi`, a module each: add(commands) declares its arguments, run(options) runs it and returns the exit status. A CommandError
is told by the command line itself, with status 2."""

import argparse
import os
import shlex

from .._errors import CommandError


def add_target(parser, target="a script, or module:fn, or file.py:fn", inputs="arguments of module:fn"):
    """What a command is about: a script with its arguments, or a function with its own."""
    parser.add_argument("--inputs", metavar="EXPR", help=inputs)
    add_module(parser)
    parser.add_argument("target", help=f"{target}; arguments of a script follow after --")
    parser.set_defaults(args=[])


MODULE = "-m "  # begins a target that is run as `python -m` runs it


def add_module(parser):
    parser.add_argument("-m", dest="module", action="store_true", help="the target is a module, which is run as `python -m` runs it")


def command_for(target, arguments=()):
    """How a target and its arguments are written behind a command."""
    return " ".join([target, *(["--", *map(shlex.quote, arguments)] if arguments else [])])


def at_least(least, kind=int):
    """A type of argparse: a number, and not a smaller one."""
    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not value >= least:
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"expected {what}, {least} or more, and not {text!r}")
        return value
    return read


def check_outputs(options):
    """Before any work is done: can the files that were asked for be written?"""
    for name in ("json", "sarif", "minify", "output", "baseline", "events", "svg"):
        path = getattr(options, name, None)
        folder = os.path.dirname(os.path.abspath(path)) if isinstance(path, str) and path != "-" else None
        if folder is None or name == "output" and options.command in ("report", "debug"):  # these make their folders
            continue
        if not os.path.isdir(folder):
            raise CommandError(f"--{name} {path}: there is no folder {os.path.relpath(folder)!r}; make it first")
        if os.path.isdir(path):
            raise CommandError(f"--{name} {path}: that is a folder; name a file")
