"""Checks the table of graph breaks against its examples and its users.

    check_breaks.py                every row has an example, or says in docs/breaks/README.md why not
    check_breaks.py --unraised     lists rows that no code raises
    check_breaks.py --run PYTHON   runs every example, each in a process of its own

An example is docs/breaks/examples/NAME.py: it compares compiled with eager and asserts that the break is reported, at the
line that a comment marks.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "src/core/diag/breaks.def"
EXAMPLES = ROOT / "docs/breaks/examples"

MARK = "# <- break"

# Rows without an example are named there, in backquotes, with the reason.
README = ROOT / "docs/breaks/README.md"


def rows():
    """Stable names and stock ids, in the order of the table."""
    return re.findall(r'^BREAK\((\d+), (\w+), "([^"]*)"', TABLE.read_text(), re.MULTILINE)


def examples():
    """Their files; support.py is what they share."""
    return sorted(path for path in EXAMPLES.glob("*.py") if path.stem.isupper())


def check_examples():
    names = {name for _, name, _ in rows()}
    files = {path.stem for path in examples()}
    problems = [f"{name}.py is an example of no row" for name in sorted(files - names)]
    excused = set(re.findall(r"`([A-Z_]+)`", README.read_text()))
    problems += [f"{name} has no example, and docs/breaks/README.md does not say why" for name in sorted(names - files - excused)]
    problems += [f"{name} has an example now: take it out of docs/breaks/README.md" for name in sorted(files & excused)]
    for name in sorted(files & names):
        text = (EXAMPLES / f"{name}.py").read_text()
        shown = f'check("{name}", ' in text and MARK in text
        if not shown and f'check_event("{name}", ' not in text:
            problems.append(f"{name}.py must mark the line of the break and call check() or check_event() of support.py")
    ids = [int(number) for number, _, _ in rows()]
    gone = {int(number) for number in re.findall(r"\d+", re.search(r"gone: ([\d, ]+)", TABLE.read_text()).group(1))}
    if len(set(ids)) != len(ids) or gone & set(ids):
        problems.append("an id is used twice")
    return problems


def list_unraised():
    sources = [p for p in (ROOT / "src").rglob("*.[cd]*") if "core/diag" not in str(p) and p.suffix in (".c", ".def")]
    text = "\n".join(path.read_text() for path in [*sources, *(ROOT / "python").rglob("*.py")])
    return [name for _, name, _ in rows() if not re.search(rf"\b(KIN_ROW_|KIN_WHY_)?{name}\b", text)]


def run_examples(python):
    done = subprocess.run([python, str(ROOT / "tools/fork_examples.py"), *map(str, examples())], capture_output=True, text=True)
    if done.returncode == 0:
        return []
    return done.stdout.strip().splitlines() or done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]


def main(argv):
    if argv[:1] == ["--unraised"]:
        print("\n".join(list_unraised()))
        return 0
    problems = run_examples(argv[1]) if argv[:1] == ["--run"] else check_examples()
    print("\n".join(problems) or "breaks: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
