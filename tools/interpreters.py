"""Interpreters of other versions on this machine."""

import os
import pathlib
import shutil
import subprocess

VERSIONS = ("3.11", "3.12", "3.13", "3.14")  # of CPython that there is code for


def find(version):
    """The path of an interpreter of that minor version ("3.12"): among pyenv's, or on PATH as pythonX.Y; None: there is none that starts."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    for path in filter(None, [*sorted(pyenv.glob(f"{version}.*/bin/python{version}")), shutil.which(f"python{version}")]):
        answer = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True, capture_output=True, check=False)
        if answer.stdout.strip() == version:
            return str(path)
    return None
