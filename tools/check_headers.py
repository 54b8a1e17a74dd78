"""Compiles every header of src/ alone, with warnings as errors: a header includes what it needs. No two of them give different types one name."""

import os
import re
import subprocess
import sys
import sysconfig

from list_sources import sources

SRC = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
FLAGS = "-std=c11 -D_GNU_SOURCE= -fsyntax-only -Wall -Wextra -Werror -Wno-unused-function -Wno-unused-parameter -Wstrict-prototypes".split()


def compiles(name):
    python = ["-isystem", sysconfig.get_path("include")] if name.startswith("py/") else []
    command = [*os.environ.get("CC", "cc").split(), *FLAGS, *python, "-I" + SRC, "-xc", "-"]
    return subprocess.run(command, input=f'#include "{name}"\n', text=True).returncode == 0


def defined_twice(names):
    first = {}
    for name in names:
        with open(os.path.join(SRC, name)) as f:
            for kind in re.findall(r"^\} (\w+);", f.read(), re.M):
                if first.setdefault(kind, name) != name:
                    yield f"{name} gives another type the name {kind} of {first[kind]}: rename it"


if __name__ == "__main__":
    headers = list(sources(SRC, ".h"))
    bad = [name for name in headers if not compiles(name)]
    found = ["headers that do not compile alone: " + ", ".join(bad)] if bad else []
    found += defined_twice(headers)
    print("\n".join(found) or "headers: ok")
    sys.exit(1 if found else 0)
