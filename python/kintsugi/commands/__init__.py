"""The commands of `python -m kintsugi`, a module each: add(commands) declares its arguments, run(options) runs it and returns the exit status."""


def add_target(parser, target="a script, or module:fn, or file.py:fn", inputs="arguments of module:fn"):
    """What a command is about: a script with its arguments, or a function with its own."""
    parser.add_argument("--inputs", metavar="EXPR", help=inputs)
    parser.add_argument("target", help=f"{target}; arguments of a script follow after --")
    parser.set_defaults(args=[])
