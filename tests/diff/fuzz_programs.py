"""Random programs, compiled against eager: finds, replays and shrinks differences.

    python tests/diff/fuzz_programs.py --seed 100 --count 500      seeds 100..599, stops at the first failure
    python tests/diff/fuzz_programs.py --seed 137 --show           prints the program of a seed and what it does
    python tests/diff/fuzz_programs.py --seed 137 --no-shrink --every-k
    python tests/diff/fuzz_programs.py --seed 100 --count 500 --sizes     with sizes that vary from call to call

Every check runs in a forked child, so that a crash or a hang of the engine is a finding, not the end of the run.
"""
import argparse
import copy
import functools
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("KINTSUGI_VERIFY", "1")   # what the engine makes of a program is compared with what its passes would make
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "corpus")]

from fuzz_generate import generate   # noqa: E402
from kincorpus import engines, run   # noqa: E402
from kincorpus.isolate import Died, in_child   # noqa: E402

MAX_EXITS = 60


def write_program(program, folder):
    path = pathlib.Path(folder) / f"fuzz_{program.seed}.py"
    path.write_text(program.source(), encoding="utf-8")
    return path


def compare_program(path, engine, exits=()):
    """Differences between eager and the engine, then with a forced exit before each step in `exits`."""
    expected = run.run_case(path, "f", engines.Eager())
    found = run.compare(expected, run.run_case(path, "f", engine), engine.close) + engine.bugs()
    for k in exits:
        if found:
            break
        left = run.run_case(path, "f", engine, k)
        found = [f"exit before step {k}: {d}" for d in run.compare(expected, left, engine.close) + engine.bugs()]
    return found


@functools.lru_cache(maxsize=None)
def warm_up():
    """One eager program in this process: torch imports a lot at first use, which each child would do again."""
    describe(generate(0))


def check(program, engine, exits=(), isolate=True):
    """The differences that this program shows; an empty list means equal."""
    if isolate:
        warm_up()
    with tempfile.TemporaryDirectory(prefix="fuzz_") as folder:
        path = write_program(program, folder)
        action = lambda: compare_program(path, engine, exits)   # noqa: E731
        try:
            return in_child(action) if isolate else action()
        except Died as e:
            return [str(e)]


# -- shrinking ------------------------------------------------------------------------------------------------------

def blocks_of(program):
    """Every list of statements in the program, outer ones first."""
    todo, out = [program.top, program.body], []
    while todo:
        block = todo.pop(0)
        out.append(block)
        for stmt in block:
            todo += [body for _, body in stmt.blocks]
    return out


def smaller(program):
    """Programs with one thing less."""
    for b, block in enumerate(blocks_of(program)):
        for i in range(len(block) - 1, -1, -1):
            if block[i].text == "" and not block[i].blocks:
                continue
            candidate = copy.deepcopy(program)
            del blocks_of(candidate)[b][i]
            yield candidate
            for h in range(len(block[i].blocks)):   # a compound statement becomes one of its blocks
                if block[i].blocks[h][0].startswith("def "):
                    continue
                candidate = copy.deepcopy(program)
                target = blocks_of(candidate)[b]
                target[i:i + 1] = target[i].blocks[h][1]
                yield candidate
            for h in range(1, len(block[i].blocks)):   # or loses a clause
                candidate = copy.deepcopy(program)
                del blocks_of(candidate)[b][i].blocks[h]
                yield candidate
    for i in range(len(program.changes)):
        candidate = copy.deepcopy(program)
        del candidate.changes[i]
        yield candidate
    if len(program.rows) > 2:
        candidate = copy.deepcopy(program)
        candidate.rows.pop()
        candidate.changes = [c for c in candidate.changes if c[0] < len(candidate.rows)]
        yield candidate


def is_valid(program):
    try:
        compile(program.source(), "candidate", "exec")
    except SyntaxError:
        return False
    return True


def failure_class(found):
    """What must stay the same while shrinking, so that one bug is not exchanged for another."""
    first = found[0]
    if first.startswith(("crash", "hang", "the harness")):
        return first.split(":")[0]
    return "difference"


def shrink(program, engine, found, exits=(), isolate=True, limit=600):
    """The smallest program found that fails in the same way as in `found`, and its differences."""
    first, found = found, check(program, engine, exits, isolate)
    if not found:
        return program, ["not seen when the program ran again:", *first]
    kind, tries, progress = failure_class(found), 0, True
    while progress and tries < limit:
        progress = False
        for candidate in smaller(program):
            tries += 1
            if tries >= limit:
                break
            if not is_valid(candidate):
                continue
            now = check(candidate, engine, exits, isolate)
            if now and failure_class(now) == kind:
                program, found, progress = candidate, now, True
                break
    return program, found


# -- command line ---------------------------------------------------------------------------------------------------

def describe(program):
    """What the program does in eager: one line per call."""
    with tempfile.TemporaryDirectory(prefix="fuzz_") as folder:
        result = run.run_case(write_program(program, folder), "f", engines.Eager())
    lines = []
    for i, seen in enumerate(result.observations):
        outcome = seen["exception"][0] if seen["exception"] else "returns"
        lines.append(f"call {i}: {outcome}, prints {len(seen['stdout'].splitlines())} lines, "
                     f"{len(seen['warnings'])} warnings")
    return "\n".join(lines)


def report(program, found, title):
    print(f"--- seed {program.seed}: {title}")
    print(program.source().split("OBJ = Obj(1)\n", 1)[1].strip())
    print("\n".join(found[:8]))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--engine", default=os.environ.get("KIN_ENGINE", "kintsugi"),
                        help="kintsugi (without kernels, every bit as in eager), kintsugi_kernels (last digits may differ)")
    parser.add_argument("--sizes", action="store_true", help="tensors have another length in most calls, 0 and 1 included")
    parser.add_argument("--show", action="store_true", help="print each program")
    parser.add_argument("--every-k", action="store_true", help=f"also force exits before steps 0..{MAX_EXITS}")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--no-isolate", action="store_true", help="in this process (for a debugger)")
    options = parser.parse_args(argv)
    engine = engines.make_engine(options.engine)
    exits = range(MAX_EXITS) if options.every_k else ()
    failures = 0
    for seed in range(options.seed, options.seed + options.count):
        program = generate(seed, options.sizes)
        if options.show:
            print(program.source())
            print(describe(program))
        found = check(program, engine, exits, not options.no_isolate)
        if not found:
            continue
        failures += 1
        if not options.no_shrink:
            program, found = shrink(program, engine, found, exits, not options.no_isolate)
        report(program, found, "differs from eager")
        if not options.keep_going:
            break
    print(f"{failures} failures from seed {options.seed} on, engine {engine.name}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
