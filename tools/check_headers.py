"""Compiles every header of src/ alone, with warnings as errors: a header includes what it needs."""

import os
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


if __name__ == "__main__":
    bad = [name for name in sources(SRC, ".h") if not compiles(name)]
    print("headers that do not compile alone: " + ", ".join(bad) if bad else "headers: ok")
    sys.exit(1 if bad else 0)
