"""Runs the corpus and shares of other tests with each pair of CPython and torch that is at hand, and writes docs/versions.json and the table in docs/versions.md.

    test_matrix.py                                      the interpreter that runs this
    test_matrix.py --python A/bin/python --python ...    these, each with the torch that it has
    test_matrix.py --venv 3.12=2.13.0                    made on request in FOLDER: pythonX.Y of the PATH or of pyenv, torch from PyPI (no CUDA: stand_ins.py)
    test_matrix.py --root trixie                         Debian's own pair, a root made by debootstrap in FOLDER (as root)
    test_matrix.py --root forky=2.15.0                   Debian's CPython with a torch from PyPI
    test_matrix.py --aarch64 2.9.0                       this Python's version for that processor, under qemu, torch from PyPI (tools/test_aarch64.sh)
    test_matrix.py --report                              runs nothing, writes the page again

A pair has a build of its own (--no-build: what is there). The rows of a pair are replaced by what was run now, and dropped where they are of another
commit; those of other pairs stay, and the page says of which commit they are.
"""
import argparse
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import interpreters

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs/versions.json", ROOT / "docs/versions.md"
TOOLS = ["numpy", "pytest", "pytest-timeout", "hypothesis", "expecttest", "rich", "meson", "ninja", "meson-python"]
PURE = ["filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools"]  # what torch needs besides CUDA's libraries
DEBIAN = ("python3,python3-torch,python3-numpy,python3-pytest,python3-pytest-timeout,python3-rich,python3-hypothesis,python3-expecttest,python3-dev,gcc,libc6-dev,meson,"
          "ninja-build,pkg-config,git")
FOREIGN = [*TOOLS[:6], *PURE, "mpmath", "markupsafe", "iniconfig", "packaging", "pluggy", "pygments", "sortedcontainers", "markdown-it-py", "mdurl"]  # ... with what these need
ASK = ("import json, platform, sys, torch; print('\\n' + json.dumps({'python': platform.python_version(), 'tag': sys.implementation.cache_tag, "
       "'torch': torch.__version__, 'machine': platform.machine()}))")

# ---- pairs -----------------------------------------------------------------------------------------------------------


class Pair:
    """An interpreter that has torch, and how it is run."""

    def __init__(self, python, root=None, torch=None):
        self.python, self.root, self.torch = python, root, torch  # torch: a folder that is looked into first
        facts = self.run([*self.interpreter(), "-c", ASK], timeout=300)
        if facts is None or facts.returncode != 0:
            sys.exit(f"{python}: no interpreter with torch: {facts and facts.stderr[-300:]}")
        self.facts = json.loads(facts.stdout.strip().splitlines()[-1])

    def name(self):
        return f"CPython {self.facts['python']}, torch {self.facts['torch']}" + (f", {self.facts['machine']}" if self.is_foreign() else "")

    def is_foreign(self):
        """Is it made for another processor, and emulated?"""
        return self.facts["machine"] != os.uname().machine

    def interpreter(self):
        return ["python3"] if self.root else [self.python]

    @functools.cached_property
    def kernels(self):
        """How many calls of doctor's trial ran compiled code; without it all of them would be right, and say nothing of kernels."""
        said = self.run([*self.interpreter(), "-m", "kintsugi", "doctor"], timeout=300, **KERNELS)
        found = said and re.search(r"(\d+) with kernels", said.stdout)
        return int(found[1]) if found else 0

    def build(self):
        return "build-matrix/" + self.facts["tag"] + (f"-{self.root.name}" if self.root else "")

    def run(self, command, timeout, **environ):
        env = {**os.environ, "PYTHONPATH": f"{ROOT}/python" + (f":{self.torch}" if self.torch else ""), "KINTSUGI_KERNELS": "0", "KINTSUGI_VERIFY": "1", "KINTSUGI_STEP_ASIDE": "0",
               "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **environ}
        env.pop("KINTSUGI_CACHE_DIR", None)
        if self.root:
            env["PATH"] = "/usr/bin:/bin"
            command = [shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin"), str(self.root), "/bin/sh", "-c", f'cd {ROOT} && exec "$@"', "sh", *command]
        with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as child:
            try:
                out, err = child.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                return None
        return subprocess.CompletedProcess(command, child.returncode, out, err)

    def make(self):
        """A root has no LLVM, so what is to run in it is built outside of it. What is for another processor was built with its interpreter."""
        if self.is_foreign():
            return subprocess.CompletedProcess([], 0)
        python = str(outside_python(self.root)) if self.root else shutil.which(self.python)
        command = ["make", "build", f"PYTHON={python}", f"BUILD={self.build()}"]
        return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


def outside_python(root):
    """A script that runs a root's interpreter without entering the root."""
    (python,) = (root / "usr/bin").glob("python3.[0-9][0-9]")
    headers = root / "usr/include" / python.name
    triplet = f"{os.uname().machine}-linux-gnu"
    if not (headers / triplet / python.name).exists():  # copying them once more would build everything again
        shutil.copytree(root / "usr/include" / triplet / python.name, headers / triplet / python.name)
    script = root.with_name(root.name + "-python")
    loader = next(path for path in [*(root / "usr/lib64").glob("ld-linux-*.so.*"), *(root / "usr/lib" / triplet).glob("ld-linux-*.so.*")])
    script.write_text(f'#!/bin/sh\nexport PYTHONHOME={root}/usr\nexec {loader} --argv0 "$0" --library-path {root}/usr/lib/{triplet} {python} "$@"\n')
    script.chmod(0o755)
    return script


def base_python(version):
    return interpreters.find(version) or sys.exit(f"no python{version} here")


def make_venv(folder, request):
    version, torch = request.split("=")
    place = folder / f"{version}-{torch}"
    if not (place / "ready").exists():
        subprocess.run([base_python(version), "-m", "venv", str(place)], check=True)
        pip = [place / "bin/python", "-m", "pip", "install", "-q"]
        subprocess.run([*pip, *PURE, *TOOLS], check=True)
        subprocess.run([*pip, "--no-deps", f"torch=={torch}"], check=True)
        (libraries,) = place.glob("lib/python*/site-packages/torch")
        subprocess.run([sys.executable, ROOT / "tools/stand_ins.py", libraries], check=True)
        (place / "ready").touch()
    return Pair(str(place / "bin/python"))


def fetch_torch(place, version, root):
    """A torch from PyPI for a root's interpreter; its pure dependencies are those of Debian's torch."""
    if not (place / "ready").exists():
        (python,) = (root / "usr/bin").glob("python3.[0-9][0-9]")
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", place, "--only-binary=:all:", "--platform=manylinux_2_28_x86_64",
                        f"--python-version={python.name.removeprefix('python')}", f"torch=={version}"], check=True)
        subprocess.run([sys.executable, ROOT / "tools/stand_ins.py", place / "torch", root], check=True)
        (place / "ready").touch()
    return place


def make_aarch64(folder, torch):
    """This interpreter's version for aarch64, and a torch from PyPI: what pip takes by itself is for this processor, so all is named. Exit status 77: they cannot be had."""
    build, place = ROOT / "build-aarch64", folder / f"aarch64-{torch}"
    if status := subprocess.run([ROOT / "tools/test_aarch64.sh", build, "extension"], env={**os.environ, "PYTHON": sys.executable}, check=False).returncode:
        sys.exit(status)
    if not (place / "ready").exists():
        if subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", place, "--only-binary=:all:", "--platform=manylinux_2_28_aarch64",
                           "--platform=manylinux2014_aarch64", f"--python-version={sys.version_info[0]}.{sys.version_info[1]}", f"torch=={torch}", *FOREIGN], check=False).returncode:
            sys.exit(77)
        (place / "ready").touch()
    return Pair(str(build / "root/usr/bin/python"), torch=place)


def make_root(folder, request):
    suite, _, torch = request.partition("=")
    place = folder / suite
    if not (place / "ready").exists():
        script = [] if os.path.exists(f"/usr/share/debootstrap/scripts/{suite}") else ["/usr/share/debootstrap/scripts/sid"]
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={DEBIAN}", suite, str(place), "https://deb.debian.org/debian", *script],
                       check=True)
        (place / "ready").touch()
    other = fetch_torch(folder / f"{suite}-{torch}", torch, place) if torch else None
    for source in (ROOT, *([other] if other else []), pathlib.Path("/proc"), pathlib.Path("/dev")):
        at = place / str(source)[1:]
        at.mkdir(parents=True, exist_ok=True)
        if not os.path.ismount(at):
            subprocess.run(["mount", "--bind", str(source), str(at)], check=True)
    return Pair("python3", place, other)


# ---- parts -----------------------------------------------------------------------------------------------------------


def count_pytest(done):
    """(right, wrong, names of the wrong ones) of a pytest run."""
    said = done.stdout.strip().splitlines()
    total = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error|errors)", said[-1] if said else "")}
    wrong = total.get("failed", 0) + total.get("error", 0) + total.get("errors", 0)
    names = [line.split("::")[-1].split(" - ")[0] for line in said if line.startswith(("FAILED", "ERROR"))]
    if not total:
        wrong, names = 1, names or [f"exit status {done.returncode}"]
    return total.get("passed", 0), wrong, names


def pytest_part(*args, **environ):
    def run(pair, timeout):
        done = pair.run([*pair.interpreter(), "-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", *args], timeout, **environ)
        return None if done is None else count_pytest(done)
    return run


def with_kernels(part):
    def run(pair, timeout):
        return part(pair, timeout) if pair.kernels else (0, 1, ["no kernels are made here"])
    return run


def programs_part(script, count, *args, **environ):
    def run(pair, timeout):
        done = pair.run([*pair.interpreter(), script, "--seed", "4000", "--count", str(count), *args], timeout, **environ)
        if done is None:
            return None
        wrong = [f"seed {n}" for n in re.findall(r"^--- seed (\d+)", done.stdout, re.MULTILINE)] if done.returncode > 0 else []
        if done.returncode != 0 and not wrong:
            return 0, 1, [f"exit status {done.returncode}"]
        return count - len(wrong), len(wrong), wrong
    return run


def watcher(pair, timeout):
    done = pair.run([*pair.interpreter(), "tests/watch/run.py", pair.build() + "-watch", "--this"], timeout)
    return None if done is None else (int(done.returncode == 0), int(done.returncode != 0), [])


def models(pair, timeout):
    done = pair.run([*pair.interpreter(), "tests/models/run_models.py", *MODELS, "--strict"], timeout)
    if done is None:
        return None
    return len(MODELS) * (done.returncode == 0), int(done.returncode != 0), []


CORPUS, KERNELS = "tests/corpus/test_corpus.py", {"KINTSUGI_KERNELS": "1"}
MODELS = ["mlp", "lstm_cell_loop", "cnn", "breaks"]  # those that need torch alone
ITERATORS = ["test_lazy_iterables", "test_sizes_in_iterators", "test_generators_over_sizes", "test_unpacking", "test_fullgraph_iteration", "test_fullgraph_generators",
             "test_closed_generators", "test_guarded_generators", "test_adopted_generators", "test_generators_that_end", "test_mappings_in_python"]
BACKENDS = ["test_backends", "test_backend_calls", "test_graphs_for_backends", "test_graphs_of_programs", "test_pieces_of_graphs"]


def files(names):
    return [f"tests/py/{name}.py" for name in names]


def turn_of(share):
    return {"KIN_SHARD": f"{1 + share // 3}/{share}"}


def parts(share, corpus=1, programs=None):
    """(name, what it runs) for 1/share of the long suites, 1/corpus of the corpus and so many random programs of a kind."""
    corpus_turn, turn = turn_of(corpus), turn_of(share)
    fuzz = programs or max(10, 2000 // share)
    return [
        ("watcher over the standard library", watcher),
        ("corpus", pytest_part(CORPUS, "-k", "behaves_as_eager or test_replays", **corpus_turn)),
        ("corpus, left at steps", pytest_part(CORPUS, "-k", "forced_exits", **corpus_turn)),
        ("rules", pytest_part("tests/rules")),
        ("oracle", pytest_part("tests/oracle", **turn, KIN_ORACLE_CHANGES="10", KIN_ORACLE_FUZZ="5", KIN_ORACLE_MODELS="mlp")),
        ("random programs", programs_part("tests/diff/fuzz_programs.py", fuzz)),
        ("random programs around iterators", programs_part("tests/diff/fuzz_iterators.py", fuzz)),
        ("random programs over sizes", programs_part("tests/diff/fuzz_programs.py", max(10, fuzz // 3), "--sizes")),
        ("iterators", pytest_part(*files(ITERATORS))),
        ("custom backends", pytest_part(*files(BACKENDS))),
        ("seeds", pytest_part("tests/seeds/test_seeds.py")),
        ("models", models),
        ("generators, exceptions, hostile versions", pytest_part("tests/py/test_record_generators.py", "tests/py/test_record_exceptions.py",
                                                                 "tests/py/test_language_versions.py", "tests/py/test_hostile_versions.py")),
        ("diagnostics", pytest_part("tests/diagnostics", **turn)),
        ("accuracy of kernels", with_kernels(pytest_part("tests/kernels/test_accuracy.py"))),
        ("training", with_kernels(pytest_part("tests/training", **turn))),
        ("corpus with kernels", with_kernels(pytest_part(CORPUS, "--engine=kintsugi_kernels", "-k", "behaves_as_eager", **corpus_turn, **KERNELS))),
        ("random tensor programs", with_kernels(programs_part("tests/kernels/fuzz_tensors.py", fuzz, **KERNELS))),
        ("random programs that train, with kernels", with_kernels(programs_part("tests/diff/fuzz_training.py", max(5, fuzz // 4), "--kernels", **KERNELS))),
    ]


def load():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def save(name, row):
    """Others may be writing their rows at the same time."""
    RESULTS.write_text(json.dumps({**load(), name: row}, indent=1, sort_keys=True) + "\n")


def run_pair(pair, args):
    print(f"== {pair.name()}", flush=True)
    if not args.no_build:
        built = pair.make()
        if built is None or built.returncode != 0:
            sys.exit(f"the build failed:\n{built and built.stdout[-2000:]}{built and built.stderr[-2000:]}")
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    row = load().get(pair.name(), {})
    if row.get("commit") != commit:
        row = {**pair.facts, "parts": {}, "commit": commit}  # nothing is said of code that is gone
    row["debian"] = pair.root is not None and pair.torch is None
    for name, run in parts(args.share, args.corpus, args.programs):
        if args.only and not any(word in name for word in args.only):
            continue
        start = time.monotonic()
        outcome = run(pair, args.limit)
        right, wrong, names = outcome if outcome is not None else (0, 0, [])
        row["parts"][name] = {"right": right, "wrong": wrong, "names": names[:20], "share": args.corpus if name.startswith("corpus") else args.share,
                              "ended": outcome is not None, "seconds": round(time.monotonic() - start)}
        print(f"   {name}: {cell(row['parts'][name])} ({row['parts'][name]['seconds']} s)", *names[:8], flush=True)
        if not args.no_page:
            save(pair.name(), row)
    return row


# ---- the page --------------------------------------------------------------------------------------------------------


def cell(part):
    if part is None:
        return "not run"
    if not part["ended"]:
        return "time was up"
    total = part["right"] + part["wrong"]
    return f"{part['right']} of {total}" if total > 1 else "ok" if part["wrong"] == 0 else "differs"


def version_key(row):
    return [[int(n) for n in re.findall(r"\d+", row[field])[:3]] for field in ("python", "torch")]


BEGIN, END = "<!-- made by tools/test_matrix.py -->\n", "<!-- end -->\n"


def shares(row, name):
    """The share of the parts whose names begin so."""
    shares = {part["share"] for part_name, part in row["parts"].items() if part_name.startswith(name)}
    return " and ".join("whole" if n == 1 else f"1/{n}" for n in sorted(shares))


def note(row):
    return " (Debian)" if row["debian"] else f" ({row['machine']})" if row.get("machine", os.uname().machine) != os.uname().machine else ""


def write_page(results):
    rows = sorted(results, key=version_key)
    names = [name for name, _ in parts(16)]
    lines = ["| | " + " | ".join(f"CPython {r['python']}<br>torch {r['torch'].split('+')[0]}{note(r)}" for r in rows) + " |",
             "|---" * (len(rows) + 1) + "|"]
    lines.append("| at commit | " + " | ".join(r.get("commit", "an older one") for r in rows) + " |")
    lines.append("| share of the corpus | " + " | ".join(shares(r, "corpus") for r in rows) + " |")
    lines.append("| share of oracle, diagnostics, training | " + " | ".join(shares(r, "oracle") for r in rows) + " |")
    for name in names:
        lines.append(f"| {name} | " + " | ".join(cell(r["parts"].get(name)) for r in rows) + " |")
    wrong = [f"- {r['python']} with {r['torch']}, {name}: " + ", ".join(f"`{n}`" for n in part["names"])
             for r in rows for name, part in sorted(r["parts"].items()) if part["names"]]
    if wrong:
        lines += ["", "What differs:", "", *wrong]
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--venv", action="append", default=[], metavar="3.12=2.13.0")
    parser.add_argument("--root", action="append", default=[], metavar="SUITE[=TORCH]")
    parser.add_argument("--aarch64", action="append", default=[], metavar="TORCH")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build-matrix", help="where venvs and roots are made")
    parser.add_argument("--share", type=int, default=16, help="one of so many cases of the oracle, of diagnostics and of training is run (1: all)")
    parser.add_argument("--corpus", type=int, default=1, help="one of so many cases of the corpus is run (1: all)")
    parser.add_argument("--programs", type=int, help="random programs of a kind (2,000 of them divided by the share)")
    parser.add_argument("--only", action="append", help="parts whose names have this word")
    parser.add_argument("--limit", type=int, default=1800, help="seconds a part may take")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--no-page", action="store_true", help="prints what is right and wrong, and writes nothing")
    args = parser.parse_args()
    if not args.report:
        args.folder = args.folder.resolve()
        args.folder.mkdir(parents=True, exist_ok=True)
        make = [*(functools.partial(Pair, p) for p in args.python), *(functools.partial(make_venv, args.folder, v) for v in args.venv),
                *(functools.partial(make_root, args.folder, s) for s in args.root), *(functools.partial(make_aarch64, args.folder, t) for t in args.aarch64)]
        rows = [run_pair(pair(), args) for pair in make or [functools.partial(Pair, sys.executable)]]
    if not args.no_page:
        rows = load().values()
        write_page(rows)
    sys.exit(any(part["wrong"] for row in rows for part in row["parts"].values()))


if __name__ == "__main__":
    main()
