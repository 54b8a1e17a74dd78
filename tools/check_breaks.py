"""Checks the table of graph breaks against its examples and its users.

    check_breaks.py                every row has an example, or says in docs/breaks/README.md why not
    check_breaks.py --unraised     lists rows that no C code mentions
    check_breaks.py --run PYTHON   runs every example alone

An example is docs/breaks/examples/NAME.py: it compares compiled with eager and asserts that the break is reported.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "src/core/diag/breaks.def"
EXAMPLES = ROOT / "docs/breaks/examples"

# Rows without an example are named there, in backquotes, with the reason.
README = ROOT / "docs/breaks/README.md"


def rows():
    """Stable names and stock ids, in the order of the table."""
    return re.findall(r'^BREAK\((\d+), (\w+), "([^"]*)"', TABLE.read_text(), re.MULTILINE)


def check_examples():
    names = {name for _, name, _ in rows()}
    files = {path.stem for path in EXAMPLES.glob("*.py")}
    problems = [f"{name}.py is an example of no row" for name in sorted(files - names)]
    excused = set(re.findall(r"`([A-Z_]+)`", README.read_text()))
    problems += [f"{name} has no example, and docs/breaks/README.md does not say why" for name in sorted(names - files - excused)]
    problems += [f"{name} has an example now: take it out of docs/breaks/README.md" for name in sorted(files & excused)]
    for name in sorted(files & names):
        text = (EXAMPLES / f"{name}.py").read_text()
        if "torch.equal" not in text or f'breaks.count("{name}")' not in text:
            problems.append(f"{name}.py must compare with eager and assert that the break is reported")
    ids = [int(number) for number, _, _ in rows()]
    if len(set(ids)) != len(ids):
        problems.append("an id is used twice")
    return problems


def list_unraised():
    sources = [p for p in (ROOT / "src").rglob("*.c") if "core/diag" not in str(p)]
    text = "\n".join(path.read_text() for path in sources)
    return [name for _, name, _ in rows() if not re.search(rf"\bKIN_(ROW|WHY)_{name}\b", text)]


def run_examples(python):
    def run(path):
        done = subprocess.run([python, str(path)], capture_output=True, text=True)
        return "" if done.returncode == 0 else f"{path.stem}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(filter(None, pool.map(run, sorted(EXAMPLES.glob("*.py")))))


def main(argv):
    if argv[:1] == ["--unraised"]:
        print("\n".join(list_unraised()))
        return 0
    problems = run_examples(argv[1]) if argv[:1] == ["--run"] else check_examples()
    print("\n".join(problems) or "breaks: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
