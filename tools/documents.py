"""Runs the programs of four published texts on torch.compile under eager, Kintsugi and stock, and writes docs/documents.md.

    python tools/documents.py [--no-stock] [--docs docs/documents.md] [PATTERN ...]

The programs are tests/documents/programs/*.py: A, a how-to on regressions; B, a lesson on debugging; C, a skill for removing graph
breaks; D, the compile tutorial. Lines at the top of each say what a reader of the text expects:

    # title: what the text shows
    # env: NAME=value ...             environment of the run
    # equal: eager | none             is standard output the same as eager's (where eager can run the program)?
    # expect: PATTERN                 a line of standard output (expect-err: of standard error, expect-not: of neither)
    # partly: PATTERN | WHY         as expect, but where only this does not hold the program is a "p", for that reason
    # count-err: TEXT = N             how often standard error contains TEXT
    # stats: breaks=0                 sums over the compiled functions, as `kintsugi run --stats` prints them (Kintsugi only)

A program whose expectations all hold is a "y", one with something else is an "n". Exit status 1: there is an n under Kintsugi.
"""

import argparse
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "documents" / "programs"
TEXTS = {"A": "How to fix regressions caused by graph breaks", "B": "Debugging compiled models",
         "C": "A skill for removing graph breaks", "D": "Introduction to torch.compile"}
# Eager: torch.compile and Module.compile do nothing. (TORCH_COMPILE_DISABLE=1 would raise where fullgraph=True is asked for.)
EAGER = """
import runpy, sys, torch
def compile(model=None, **options):
    return model if model is not None else lambda function: function
torch.compile = compile
torch.nn.Module.compile = lambda self, *args, **kwargs: None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
ENGINES = {"eager": ["-c", EAGER], "kintsugi": ["-m", "kintsugi", "run", "--stats"], "stock": []}
SUMMED = re.compile(r"^kintsugi: [^:]+: (.*)$", re.M)


def header(program):
    """The expectations at the top of a program: {"title": [...], "expect": [...], ...}."""
    found = {}
    for line in program.read_text().splitlines():
        match = re.match(r"# ([a-z-]+): (.*)", line)
        if not match:
            break
        found.setdefault(match[1], []).append(match[2])
    return found


def run(program, engine, wanted):
    """(exit status, standard output, standard error)"""
    given = dict(pair.split("=", 1) for line in wanted.get("env", []) for pair in line.split())
    path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, **given}
    if engine != "kintsugi":
        env.pop("KINTSUGI_KERNELS", None)
    try:
        done = subprocess.run([sys.executable, *ENGINES[engine], str(program)], capture_output=True, text=True, env=env, timeout=600)
    except subprocess.TimeoutExpired:
        return -1, "", "took longer than 600 s"
    return done.returncode, done.stdout, done.stderr


def totals(stderr):
    """Sums of the counters of `kintsugi run --stats`."""
    sums = {}
    for line in SUMMED.findall(stderr):
        for name, number in re.findall(r"(\w+) (\d+)", line):
            sums[name] = sums.get(name, 0) + int(number)
    return sums


def failures(wanted, engine, done, eager):
    """What does not hold, as texts."""
    status, out, err = done
    if status != 0:
        last = err.strip().splitlines()[-1:] or ["no message"]
        yield f"exit status {status}: {last[0][:160]}"
        return
    if eager is not None and eager[0] == 0 and out != eager[1]:
        yield "output differs from eager's"
    for pattern in wanted.get("expect", []):
        if not re.search(pattern, out, re.M):
            yield f"no output line matches `{pattern}`"
    if engine == "eager":
        return
    for pattern in wanted.get("expect-err", []):
        if not re.search(pattern, err, re.M):
            yield f"nothing in the log matches `{pattern}`"
    for pattern in wanted.get("expect-not", []):
        if re.search(pattern, out + err, re.M):
            yield f"`{pattern}` appears"
    for line in wanted.get("count-err", []):
        text, number = line.rsplit(" = ", 1)
        if err.count(text) != int(number):
            yield f"`{text}` {err.count(text)} times in the log instead of {number}"
    if engine == "kintsugi":
        sums = totals(err)
        for name, relation, number in re.findall(r"(\w+)(<=|=)(\d+)", " ".join(wanted.get("stats", []))):
            held = sums.get(name, 0) <= int(number) if relation == "<=" else sums.get(name, 0) == int(number)
            if not held:
                yield f"{name} is {sums.get(name, 0)}, expected {relation}{number}"


def partly(wanted, done):
    """Why the program is right in part only, as texts."""
    for line in wanted.get("partly", []):
        pattern, why = line.split(" | ", 1)
        if not re.search(pattern, done[1], re.M):
            yield why


def letter_of(found):
    return "n" if found["n"] else "p" if found["p"] else "y"


def cell(found):
    letter = letter_of(found)
    return letter if letter == "y" else f"{letter}: " + "; ".join(found[letter]).replace("|", "\\|").replace("\n", " ")


def page(rows, engines):
    lines = ["# The programs of four texts on torch.compile", "",
             "Made by `make documents`. y: everything that the text shows holds; p: all but the one thing that is named; n: something does not hold, as named. Each",
             "program is a file in `tests/documents/programs` that runs unmodified; its first lines say what is checked.", ""]
    for engine in engines:
        letters = [letter_of(row[2][engine]) for row in rows]
        lines += [f"- {engine}: {letters.count('y')} y, {letters.count('p')} p, {letters.count('n')} n of {len(rows)}"]
    lines += [""]
    for letter, text in TEXTS.items():
        chosen = [row for row in rows if row[0].startswith(letter)]
        if chosen:
            lines += [f"## {letter}: {text}", "", "| program | what it shows | " + " | ".join(engines) + " |", "|---|---|" + "---|" * len(engines)]
            for name, title, found in chosen:
                lines.append(f"| {name} | {title} | " + " | ".join(cell(found[engine]) for engine in engines) + " |")
            lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="names or patterns of programs; all when none is given")
    parser.add_argument("--no-stock", action="store_true", help="leave stock torch.compile out")
    parser.add_argument("--docs", metavar="FILE", help="write the page to FILE")
    options = parser.parse_args()
    engines = [e for e in ("kintsugi", "stock") if e == "kintsugi" or not options.no_stock]
    programs = [p for p in sorted(PROGRAMS.glob("*.py"))
                if not options.patterns or any(fnmatch.fnmatch(p.stem, pattern + "*") for pattern in options.patterns)]
    if not programs:
        sys.exit(f"documents: no program is called {' or '.join(options.patterns)}; they are in {PROGRAMS}")
    rows = []
    for program in programs:
        wanted = header(program)
        eager = run(program, "eager", wanted) if "eager" in wanted.get("equal", []) else None
        found = {}
        for engine in engines:
            done = run(program, engine, wanted)
            found[engine] = {"n": list(failures(wanted, engine, done, eager)), "p": list(partly(wanted, done))}
        rows.append((program.stem, wanted["title"][0], found))
        print(f"{program.stem:24} " + "  ".join(f"{e}: {cell(found[e])}" for e in engines), flush=True)
    if options.docs:
        pathlib.Path(options.docs).write_text(page(rows, engines))
    return int(any(row[2]["kintsugi"]["n"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
