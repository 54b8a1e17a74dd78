"""Runs PyTorch's own tests of torch.compile with stock PyTorch and with Kintsugi, and says which of those that stock passes Kintsugi does not.

    pytorch_tests.py SOURCES test_functions test_misc ...    SOURCES: the sources of a PyTorch release (Debian's source package has them); files of SOURCES/test/dynamo
    pytorch_tests.py --report                                runs nothing, writes the page again

Tests of another release than the one installed may fail with both: what counts is what stock passes here. A test that compares the text of a graph or of a
guard fails although nothing is wrong; the table sets those apart by what the failure says. Results go to FOLDER/results.json and docs/measurements/pytorch-tests.md.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE, MARK = ROOT / "docs/measurements/pytorch-tests.md", "<!-- below: written by tools/pytorch_tests.py -->"
ENGINES = ("stock", "kintsugi")

PLUGIN = '''
import importlib
import os
import signal

import pytest

if os.environ["KIN_ENGINE"] == "kintsugi":
    import kintsugi
    kintsugi.install()


def missing(name):
    """Helpers that the installed release lacks: decorators that change nothing."""
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *args, **kwargs: args[0] if len(args) == 1 and callable(args[0]) and not kwargs else lambda fn: fn


for module in ("torch.testing._internal.common_utils", "torch.testing._internal.common_cuda", "torch.testing._internal.common_device_type", "torch._dynamo.testing",
               "torch._dynamo.utils", "torch._dynamo.source", "torch._dynamo.guards", "torch._dynamo.exc", "torch.fx.experimental.symbolic_shapes", "torch._inductor.utils"):
    module = importlib.import_module(module)
    if not hasattr(module, "__getattr__"):
        module.__getattr__ = missing


def late(*_):
    raise TimeoutError("60 s")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
'''

# What a failure says, first match; the last row takes the others.
KINDS = (("refused under fullgraph", r"dynamo\.exc\.Unsupported"), ("another number of graphs or operations", r"Scalars are not equal|'\d+' != '\d+'"),
         ("another text", r"!= '|not found in|Regex didn't match"), ("an error that was expected did not come", r"not raised"),
         ("private parts of stock", r"_dynamo\.(variables|symbolic_convert)|current_tx|NoneType|has no attribute|does not have the attribu"), ("something else", r""))


def run(sources, name, engine, folder):
    """{test: "" where it passed, or what the failure says}; None: the file could not be run."""
    (folder / "kin_tests_plugin.py").write_text(PLUGIN)
    tests = sources / "test/dynamo"
    env = {**os.environ, "KIN_ENGINE": engine, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
           "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "python", folder, sources / "test")))}
    command = [sys.executable, "-m", "pytest", "-p", "kin_tests_plugin", "-q", "--tb=short", "-rA", "-p", "no:cacheprovider", f"{name}.py"]
    done = subprocess.run(command, cwd=tests, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    found = {match[1]: "" for match in re.finditer(r"^PASSED \S+::(\S+)$", done.stdout, re.M)}
    failures = re.split(r"\n=+ [^=\n]+ =+\n", done.stdout.partition("= FAILURES =")[2], maxsplit=1)[0]
    for section in re.split(r"\n_{3,} (?=\S.* _{3,}\n)", failures)[1:]:
        test = section.partition(" ")[0].rpartition(".")[2]
        found[test] = found.get(test) or " ".join(line[4:].strip() for line in section.splitlines() if line.startswith("E   "))[:600] or "it ended without a message"
    return found or None


def kind_of(text):
    return next(name for name, pattern in KINDS if re.search(pattern, text))


def page(results):
    yield f"| file | stock passes | of these Kintsugi passes | {' | '.join(name for name, _ in KINDS)} |"
    yield "|---|---|---|" + "---|" * len(KINDS)
    reasons, total = collections.Counter(), [0, 0]
    for name, engines in sorted(results.items()):
        passed = [test for test, text in engines["stock"].items() if not text]
        behind = {test: engines["kintsugi"].get(test, "it did not run") for test in passed if engines["kintsugi"].get(test, "it did not run")}
        kinds = collections.Counter(map(kind_of, behind.values()))
        reasons.update(found[1] for text in behind.values() if (found := re.search(r"KIN\d{4} ([A-Z_]+)", text)))
        total = [total[0] + len(passed), total[1] + len(passed) - len(behind)]
        share = f"{len(passed) - len(behind)} ({1 - len(behind) / max(1, len(passed)):.0%})"
        yield f"| {name} | {len(passed)} | {share} | {' | '.join(str(kinds[kind] or '') for kind, _ in KINDS)} |"
    yield f"| all | {total[0]} | {total[1]} ({total[1] / max(1, total[0]):.0%}) |" + " |" * len(KINDS)
    yield "\nReasons of refusals: " + (", ".join(f"{name} {n}" for name, n in reasons.most_common()) or "none") + "."


def write(results):
    head = PAGE.read_text().partition(MARK)[0] if PAGE.exists() else "# PyTorch's own tests\n\n"
    PAGE.write_text(head + MARK + "\n\n" + "\n".join(page(results)) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="?", type=pathlib.Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/pytorch-tests", help="where results are kept (build/pytorch-tests)")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="only this one; the other's results are those of before")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    kept = args.folder / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    if not args.report and (args.sources is None or not (args.sources / "test/dynamo").is_dir()):
        parser.error(f"{args.sources}: no folder with test/dynamo; give the sources of a PyTorch release")
    for name in () if args.report else args.files:
        for engine in args.engine or ENGINES:
            found = run(args.sources.resolve(), name.removesuffix(".py"), engine, args.folder)
            print(name, engine, "could not be run" if found is None else f"{sum(not text for text in found.values())} of {len(found)} pass", flush=True)
            if found is not None:
                results.setdefault(name.removesuffix(".py"), {})[engine] = found
                kept.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    write({name: engines for name, engines in results.items() if len(engines) == len(ENGINES)})


if __name__ == "__main__":
    main()
