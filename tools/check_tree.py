"""Checks every tracked file: its length (and that of the functions in src/), and that it holds no path of a particular machine. No two files of tests have one name. The pages about the code may
only name source files and functions that exist, and ARCHITECTURE.md has a row for each folder of src/.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_LINES = 1200
MOST_LINES_OF_SOURCE = 800  # below src/
MOST_LINES_OF_FUNCTION = 60
FUNCTION = re.compile(r"^(\w+)\([^;]*?^\{\n(.*?)^\}", re.M | re.S)
GENERATED = "/gen/"
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/design/")
FUNCTION_NAME = re.compile(r"`((?:kin|rec)_\w+)[`(]")
SOURCE_FILE = re.compile(r"`([a-z0-9_/]+\.(?:c|h|def|inc))`")
MACHINE_PATH = re.compile(r"(?<![\w.}])/(?:work|root|home|Users|tmp|opt|mnt)/\w")


def tracked():
    """Paths from the root; None where this is no git checkout."""
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True)
    return done.stdout.split("\0")[:-1] if done.returncode == 0 else None


def problems_in(name, text):
    lines = text.splitlines()
    most = MOST_LINES_OF_SOURCE if name.startswith("src/") else MOST_LINES
    if len(lines) > most and GENERATED not in name and name.startswith(("src/", "tests/", "python/", "tools/", "bench/")):
        yield f"{name}: {len(lines)} lines, more than {most}: split it"
    for function, body in FUNCTION.findall(text) if name.startswith("src/") and name.endswith(".c") else ():
        if body.count("\n") > MOST_LINES_OF_FUNCTION:
            yield f"{name}: {function} has {body.count(chr(10))} lines, more than {MOST_LINES_OF_FUNCTION}: split it"
    for number, line in enumerate(lines, 1):
        if MACHINE_PATH.search(line):
            yield f"{name}:{number}: a path of some machine"


def missing_in(name, text, names):
    """Source files that the page names and that are not there; a name without its whole path stands for any file that ends with it."""
    ends = {"/".join(other.split("/")[first:]) for other in names for first in range(other.count("/") + 1)}
    for found in sorted(set(SOURCE_FILE.findall(text)) - ends):
        yield f"{name}: names {found}, which does not exist"


def unknown_in(name, text, words):
    """Functions and types of the engine that the page names and that no source file mentions."""
    for found in sorted(set(FUNCTION_NAME.findall(text)) - words):
        yield f"{name}: names {found}, which does not exist"


def folders_without_row(text, names):
    for folder in sorted({"/".join(name.split("/")[1:3]) for name in names if name.startswith("src/") and name.count("/") > 2}):
        if f"| `{folder}` |" not in text:
            yield f"ARCHITECTURE.md: folder src/{folder} has no row"


def tests_of_one_name(names):
    """pytest imports a file of tests by its name alone, so one run cannot have two. tests/gpu has runs of its own."""
    seen = {}
    for name in names:
        path = pathlib.PurePath(name)
        if name.startswith("tests/") and path.match("test_*.py") and path.parts[1] != "gpu" and (ROOT / name).is_file():
            if path.name in seen:
                yield f"{name}: {seen[path.name]} has the same name, and pytest imports only one of them: rename it"
            seen[path.name] = name


def problems(names):
    yield from tests_of_one_name(names)
    sources = [(ROOT / name) for name in names if name.startswith("src/")]
    words = {word for path in sources if path.is_file() for word in re.findall(r"\w+", path.read_text(errors="replace"))}
    for name in names:
        path = ROOT / name
        if path.is_file():  # one that was just deleted is tracked still
            text = path.read_text(errors="replace")
            yield from problems_in(name, text)
            if name.startswith(PAGES):
                yield from missing_in(name, text, names)
                yield from unknown_in(name, text, words)
            if name == "ARCHITECTURE.md":
                yield from folders_without_row(text, names)


if __name__ == "__main__":
    names = tracked()
    found = list(problems(names or []))
    print("\n".join(found) or ("tree: ok" if names is not None else "tree: not checked, this is no git checkout"))
    sys.exit(1 if found else 0)
