"""Builds the checker for every CPython 3.11-3.14 found on this machine and lets it watch the corpus.

Usage: run.py BUILD_FOLDER [--this]. Interpreters (--this: only the first): this one, python3.11 ... python3.14 on the PATH, and those of pyenv. A
version that is not found is named and skipped. Ends with status 1 when a mismatch is found anywhere.
"""

import glob
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from interpreters import VERSIONS  # noqa: E402
FLAGS = ("-std=c11 -O2 -g -shared -fPIC -fvisibility=hidden -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes "
         "-Wvla -Wno-unused-parameter -Wno-missing-field-initializers").split()
ASK = "import sys, sysconfig as s; print('%d.%d' % sys.version_info[:2], s.get_path('include'), s.get_config_var('EXT_SUFFIX'))"


def ask(python):
    """(version, include folder, suffix of extensions), or None when it is no working interpreter."""
    answer = subprocess.run([python, "-c", ASK], capture_output=True, text=True)
    return answer.stdout.split() if answer.returncode == 0 else None


def interpreters(this_only):
    """One interpreter per version that has the headers an extension needs."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    names = [sys.executable] if this_only else [sys.executable] + [shutil.which("python" + v) for v in VERSIONS]
    names += [] if this_only else [p for v in VERSIONS for p in sorted(glob.glob(f"{pyenv}/versions/{v}.*/bin/python"))]
    found = {}
    for python in filter(None, names):
        facts = ask(python)
        if facts and facts[0] in VERSIONS and facts[0] not in found and os.path.exists(facts[1] + "/internal/pycore_frame.h"):
            found[facts[0]] = (python, facts[1], facts[2])
    return found


def build(folder, include, suffix):
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, "watchcheck" + suffix)
    sources = [os.path.join(ROOT, path) for path in ("tests/watch/checker.c", "src/py/compat/kinds.c", "src/py/compat/imports.c", "src/py/compat/signals.c")]  # 3.14's tagged places of a raise
    for part in ("src/py/watch", "src/core/bytecode"):
        sources += sorted(glob.glob(os.path.join(ROOT, part, "*.c")))
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, *FLAGS, "-I" + os.path.join(ROOT, "src"), "-isystem", include, *sources, "-o", target], check=True)


def main():
    found = interpreters("--this" in sys.argv[2:])
    failed = []
    for version in VERSIONS:
        if version not in found:
            if "--this" not in sys.argv[2:]:
                print(f"watcher on {version}: skipped, no such interpreter with headers here")
            continue
        python, include, suffix = found[version]
        folder = os.path.join(os.path.abspath(sys.argv[1]), version)
        build(folder, include, suffix)
        for script in ("corpus.py", "tables.py"):
            done = subprocess.run([python, "-B", "-W", "ignore::SyntaxWarning", os.path.join(ROOT, "tests/watch", script), folder])
            if done.returncode != 0:
                failed.append(f"{script} on {version}")
    if failed:
        sys.exit("watcher test failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
