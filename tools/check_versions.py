"""Compiles src/py, without making anything, against the headers of each other CPython on this machine: what one version names otherwise, or keeps
to itself, is found before somebody builds for it.

    check_versions.py [3.13 ...]     these versions; default: all that are here (tools/interpreters.py), this one left out
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

import interpreters
from interpreters import VERSIONS

SRC = pathlib.Path(__file__).resolve().parents[1] / "src"
FLAGS = "-std=c11 -D_GNU_SOURCE= -fsyntax-only -w -Werror=implicit-function-declaration -Werror=incompatible-pointer-types -Werror=int-conversion".split()


def include_folder(python):
    done = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"], text=True, stdout=subprocess.PIPE, check=True)
    return done.stdout.strip()


def errors_of(path, include):
    done = subprocess.run([*os.environ.get("CC", "cc").split(), *FLAGS, f"-I{SRC}", "-isystem", include, path], text=True, stderr=subprocess.PIPE, check=False)
    return [line for line in done.stderr.splitlines() if "error:" in line] if done.returncode else []


def check(version):
    python = interpreters.find(version)
    include = include_folder(python) if python else None
    if include is None or not os.path.exists(f"{include}/internal/pycore_frame.h"):
        print(f"compiled for {version}: skipped, no such interpreter with headers here")
        return []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = [line for lines in pool.map(lambda path: errors_of(path, include), sorted((SRC / "py").rglob("*.c"))) for line in lines]
    print(f"compiled for {version}: {len(found)} errors" if found else f"compiled for {version}: ok", *found, sep="\n")
    return found


if __name__ == "__main__":
    own = "{}.{}".format(*sys.version_info[:2])
    sys.exit(any([check(version) for version in sys.argv[1:] or VERSIONS if sys.argv[1:] or version != own]))
