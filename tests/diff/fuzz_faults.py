"""Random programs and cases of the corpus while the engine's allocations, calls of LLVM and writes to disk fail, or recordings have to stop: results and exceptions
are eager's all the same.

    make faults ARGS="--seed 100 --count 20"     needs an extension built with -Dfaults=true
    make faults ARGS="--corpus 3/24"             the third 24th of the corpus in place of random programs

A replay that is left without memory for its frames raises MemoryError, as CPython itself does there; anything else is a finding.
For each program and each kind the n-th fails, for n = 1, 2, 3, 5, 8, 12, ... until nothing is left to fail; then all from the n-th on.
"""
import argparse
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "corpus")]

from fuzz_generate import generate   # noqa: E402
from fuzz_programs import warm_up, write_program   # noqa: E402
from kincorpus import engines, run   # noqa: E402
from kincorpus.isolate import Died, in_child   # noqa: E402

LIMIT_SECONDS = 300  # for all runs of a program, also where the machine does other things as well
KINDS = ("allocation", "call of LLVM", "write to disk", "version of a class")


def fail(what, n, every=False):
    from kintsugi import _kintsugi

    return _kintsugi._fail(what, n, every)


class Failing(engines.KintsugiKernels):
    """Kernels, with one kind of failure planted before each run."""
    what, n, all = 0, 0, False

    def reset(self):
        super().reset()
        fail(self.what, self.n, self.all)

    def stop(self):
        return fail(self.what, 0)


def steps():
    n = 1
    while True:
        yield n
        n += 1 + n // 2


def try_program(path, name, most, only):
    """(differences, runs in which something failed)"""
    expected, engine, failed = run.run_case(path, name, engines.Eager()), Failing(), 0
    for engine.what, kind in enumerate(KINDS):
        if only not in (None, kind):
            continue
        for engine.all in (False, True):
            for engine.n, _ in zip(steps(), range(most)):
                found = run.compare(expected, run.run_case(path, name, engine), engine.close)
                happened = engine.stop()
                failed += happened
                if found and not (kind == KINDS[0] and "builtins.MemoryError" in found[0]):
                    return [f"{kind} {engine.n}{'+' if engine.all else ''} fails: {difference}" for difference in found], failed
                if not happened:
                    break
    return [], failed


def programs(options, folder):
    """(what it is called, path, name of the function)"""
    if options.corpus is None:
        for seed in range(options.seed, options.seed + options.count):
            yield f"seed {seed}", write_program(generate(seed), folder), "f"
        return
    part, parts = map(int, options.corpus.split("/"))
    cases = [(path, case.name) for path in run.topics() for case in run.cases_of(path)]
    for path, name in cases[part - 1::parts]:
        yield f"{path.stem}-{name}", path, name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--most", type=int, default=40, help="runs for each kind of failure of a program")
    parser.add_argument("--corpus", metavar="N/M", help="the N-th of M parts of the corpus, in place of random programs")
    parser.add_argument("--only", choices=KINDS, help="failures of this kind alone")
    options = parser.parse_args()
    from kintsugi import _kintsugi

    if not hasattr(_kintsugi, "_fail"):
        sys.exit("fuzz_faults: this extension has no failure injection; use `make faults`")
    warm_up()
    bad = total = count = 0
    with tempfile.TemporaryDirectory(prefix="faults_") as folder:
        for title, path, name in programs(options, folder):
            try:
                found, failed = in_child(lambda path=path, name=name: try_program(path, name, options.most, options.only), LIMIT_SECONDS)
            except Died as error:
                found, failed = [str(error)], 0
            bad += bool(found)
            total += failed
            count += 1
            if found:
                print(f"{title}: {found[0]}", flush=True)
    print(f"{count} programs, {total} runs with a failure, {bad} programs differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
