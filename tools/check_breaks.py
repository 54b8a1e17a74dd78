"""Checks the table of graph breaks against its examples and its users.

    check_breaks.py                every example belongs to a row; the rows still without one are the known ones
    check_breaks.py --unraised     lists rows that no C code mentions
    check_breaks.py --run PYTHON   runs every example alone

An example is docs/breaks/examples/NAME.py: it compares compiled with eager and asserts that the break is reported.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "src/core/diag/breaks.def"
EXAMPLES = ROOT / "docs/breaks/examples"

# Rows without an example yet. A new row needs its example; take a name out when its example is written.
WITHOUT_EXAMPLE = set("""
    BACKEND_FAILED CLOCK CONTEXT_MANAGER COROUTINE DISABLE_INSIDE DYNAMIC_SHAPE_OP EXCEPTION_ESCAPED
    FILE_ACCESS FOREIGN_TOOL FRAME_INSPECTION GENERATOR GENERATOR_ESCAPES IMPORT_STATEMENT INTERNAL
    MODULE_BACKWARD_HOOK NESTED_COMPILE NON_TENSOR_RESULT OPAQUE_CALLABLE OPAQUE_PYTHON RANDOM_GENERATOR
    RECOMPILE_LIMIT REQUIRES_GRAD SPARSE_TENSOR THREAD TORCH_FUNCTION_MODE
    TRACE_LIMIT UNKNOWN_OPERAND UNSUPPORTED_INSTRUCTION WARNING WEAK_REFERENCE 
""".split())


def rows():
    """Stable names and stock ids, in the order of the table."""
    return re.findall(r'^BREAK\((\d+), (\w+), "([^"]*)"', TABLE.read_text(), re.MULTILINE)


def check_examples():
    names = {name for _, name, _ in rows()}
    files = {path.stem for path in EXAMPLES.glob("*.py")}
    problems = [f"{name}.py is an example of no row" for name in sorted(files - names)]
    problems += [f"{name} has no example" for name in sorted(names - files - WITHOUT_EXAMPLE)]
    problems += [f"{name} has an example now: take it out of WITHOUT_EXAMPLE" for name in sorted(files & WITHOUT_EXAMPLE)]
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
    failed = []
    for path in sorted(EXAMPLES.glob("*.py")):
        done = subprocess.run([python, str(path)], capture_output=True, text=True)
        if done.returncode != 0:
            failed.append(f"{path.stem}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    return failed


def main(argv):
    if argv[:1] == ["--unraised"]:
        print("\n".join(list_unraised()))
        return 0
    problems = run_examples(argv[1]) if argv[:1] == ["--run"] else check_examples()
    print("\n".join(problems) or "breaks: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
