"""Prints the files with given suffixes below a folder, one per line, relative to that folder.

Usage: list_sources.py FOLDER [SUFFIX ...]
The build calls this when it configures, so that a new source file needs no edit of a meson.build.
"""

import os
import sys


def sources(folder, suffixes):
    found = []
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        found += [os.path.relpath(os.path.join(path, n), folder) for n in names if n.endswith(suffixes)]
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(sources(sys.argv[1], tuple(sys.argv[2:]) or ".c")))
