"""Checks which folder includes which: the table below is the architecture of src/.

A folder may include itself, core/base, core/diag, and what its row names: a folder ("core" = everything under core) or a
single header. Also: folders stay small enough to be looked through and do not include each other in circles, what a header declares is
defined in its folder, no Python.h under src/core, PY_VERSION_HEX, names of opcodes and CPython's private names only where versions are told apart.
"""

import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")

# What all folders that record need.
RECORDS = ("py/entry", "py/refs", "py/aten", "py/compat", "py/watch", "py/guardeval", "py/replay", "core/bytecode", "core/trace",
           "core/graph")
MAY_INCLUDE = {
    "core/base": [],
    "core/diag": [],
    "core/bytecode": [],
    "core/trace": ["core/bytecode/operators.def"],
    "core/graph": ["core/bytecode/canon.h", "core/trace"],
    "core/ir": [],
    "core/track": [],
    "core/blocks": [],
    "core/tier": [],
    "core/tiles": ["core/ir"],
    "core/kernels": ["core/ir", "core/tier", "core/tiles"],
    "core/rewrite": ["core/aten", "core/ir", "core/kernels", "core/tiles"],
    "core/optim": ["core/tier"],
    "core/aten": ["core/ir"],
    "core/lower": ["core/aten", "core/ir"],
    "core/shape": ["core/aten", "core/ir"],
    "core/partition": ["core/aten", "core/ir", "core/lower"],
    "core/program": ["core/ir", "core/tier"],
    "core/fuse": ["core/ir", "core/program"],
    "core/object": [],
    "core/codegen": ["core/fuse", "core/ir", "core/object", "core/program"],
    "core/pipeline": ["core/aten", "core/ir", "core/lower", "core/rewrite", "core/fuse", "core/program", "core/codegen"],
    "py/compat": ["core/bytecode/bytecode.h"],
    "py/refs": ["py/compat", "core/trace"],
    "py/aten": ["py/refs", "py/compat", "core/blocks", "core/graph", "core/ir", "core/track"],
    "py/watch": ["py/refs", "py/compat", "core/bytecode"],
    "py/entry": ["py/refs", "py/compat", "core/tier", "core/trace"],
    "py/guardeval": ["py/entry", "py/refs", "py/aten", "py/compat", "core/tier", "core/trace"],
    "py/replay": ["core/track/track.h", "py/entry", "py/refs", "py/aten", "py/compat", "py/guardeval", "py/watch",
                  "core/trace", "core/bytecode", "core/tier"],
    "py/capture": ["py/entry", "py/guardeval/guard.h", "py/refs", "py/aten", "py/compat", "py/replay", "core/aten", "core/bytecode", "core/ir", "core/program/sizes.h", "core/shape", "core/trace"],
    "py/run": ["py/refs", "py/aten", "py/compat", "py/capture", "core"],
    "py/training": ["py/refs", "py/aten", "py/compat", "py/capture", "py/run", "core"],
    "py/launch": ["py/entry", "py/guardeval/guard.h", "py/refs", "py/aten", "py/compat", "py/replay", "py/capture", "py/run", "py/training", "core"],
    "py/state": [],
    "py/cache": ["py/entry", "py/guardeval/guard.h", "py/replay", "py/state", "core/tier"],
    "py/report": ["py/entry", "py/refs", "py/aten", "py/compat", "py/guardeval", "py/replay", "py/driver/record.h", "py/recorder/options.h", "py/launch/launch.h",
                  "py/cache", "py/state", "core/bytecode/canon.h", "core/graph", "core/trace"],
    "py/backend": ["py/entry", "py/guardeval/guard.h", "py/refs", "py/aten", "py/compat", "py/replay", "py/capture", "py/launch/launch.h", "py/launch/signature.h",
                   "py/report", "py/cache", "py/state", "core/tier"],
    "py/recorder": [*RECORDS],
    "py/torchcalls": [*RECORDS, "py/recorder"],
    "py/objects": [*RECORDS, "py/recorder", "py/torchcalls"],
    "py/optim": ["py/aten", "py/compat", "core/optim"],
    "py/models": [*RECORDS, "py/recorder", "py/torchcalls", "py/objects", "py/optim"],
    "py/iterators": [*RECORDS, "py/recorder", "py/torchcalls", "py/objects", "py/models"],
    "py/rules": [*RECORDS, "py/recorder", "py/torchcalls", "py/objects", "py/models", "py/iterators"],
    "py/driver": [*RECORDS, "py/recorder", "py/torchcalls", "py/objects", "py/models", "py/iterators", "py/rules"],
    "py/module": ["core", "py"],
}
MOST_FILES = 24
# Debts, to be paid and never added to: folders that have more source files than that (and how many), and folders that include
# each other in a circle.
LARGE = {}
CIRCLES = ()
VERSION_FOLDERS = ("py/compat", "py/watch")
# Names that CPython keeps to itself and has in the headers of all versions; of any other, some version has none.
PRIVATE_EVERYWHERE = {"_PyErr_StackItem", "_PyInterpreterFrame", "_PyLong_NumBits", "_PyType_Lookup", "_Py_TPFLAGS_MATCH_SELF"}
OPCODE_FOLDERS = ("core/bytecode", *VERSION_FOLDERS)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
DECLARED = re.compile(r"^(?!static|typedef|return|#)[a-z][\w ]*[ *](\w+)\([^;{]*;", re.M)
DEFINED = re.compile(r"^(\w+)\(", re.M)


def folder_of(path):
    return "/".join(path.split("/")[:2])


def allowed(folder, name):
    rows = [folder, "core/base", *([] if folder == "core/base" else ["core/diag"]), *MAY_INCLUDE[folder]]
    return any(name == row or name.startswith(row + "/") for row in rows)


def problems_in(path, text):
    folder = folder_of(path)
    if folder not in MAY_INCLUDE:
        yield f"src/{path}: folder {folder} has no row in tools/check_layers.py"
        return
    for name in INCLUDE.findall(text):
        if name.startswith("internal/") and folder in VERSION_FOLDERS:
            continue  # CPython's own
        if not name.startswith(("core/", "py/")):
            yield f'src/{path}: include "{name}" by its path from src/'
        elif not allowed(folder, name):
            yield f"src/{path}: {folder} may not include {folder_of(name)}"
        elif name.endswith("_priv.h") and folder_of(name) != folder:
            yield f"src/{path}: {name} is private to its folder"
    if folder.startswith("core/") and re.search(r"#\s*include\s*[<\"](Python\.h|internal/)", text):
        yield f"src/{path}: src/core must not know Python"
    if folder not in OPCODE_FOLDERS and re.search(r"\bKIN_OP_[A-Z]|#\s*include\s*<(internal/pycore_)?opcode", text):
        yield f"src/{path}: names of opcodes stand in {', '.join(OPCODE_FOLDERS)} only; elsewhere core/bytecode/canon.def"
    if folder not in VERSION_FOLDERS and "PY_VERSION_HEX" in text:
        yield f"src/{path}: versions are told apart in {' and '.join(VERSION_FOLDERS)} only"
    if folder not in VERSION_FOLDERS:
        for name in sorted({*re.findall(r"\b_Py_?[A-Z]\w*", text)} - PRIVATE_EVERYWHERE):
            yield f"src/{path}: {name} is private to CPython: {' and '.join(VERSION_FOLDERS)} say what stands for it in each version"


def circles(arrows):
    """Groups of folders that reach each other; `arrows` maps a folder to the folders that it includes."""
    reach = {start: set() for start in arrows}
    for start, found in reach.items():
        todo = [start]
        while todo:
            new = arrows.get(todo.pop(), set()) - found
            found |= new
            todo += new
    groups = {frozenset([a, *(b for b in reach[a] if a in reach.get(b, ()))]) for a in reach if a in reach[a]}
    return sorted(sorted(group) for group in groups)


def strangers(files):
    """Functions that one folder declares and another one defines: calls that no include shows."""
    defined = {}
    for path, text in files.items():
        if path.endswith(".c"):
            for name in DEFINED.findall(text):
                defined.setdefault(name, set()).add(folder_of(path))
    for path, text in sorted(files.items()):
        if path.endswith(".h"):
            for name in DECLARED.findall(text):
                if name in defined and folder_of(path) not in defined[name]:
                    yield f"src/{path}: declares {name}, which {', '.join(sorted(defined[name]))} defines"


def problems_between(files):
    """`files` maps the path of each source file to its text."""
    yield from strangers(files)
    number, arrows = {}, {}
    for path, text in files.items():
        folder = folder_of(path)
        number[folder] = number.get(folder, 0) + 1
        to = {folder_of(name) for name in INCLUDE.findall(text) if name.startswith(("core/", "py/"))}
        arrows.setdefault(folder, set()).update(to - {folder})
    for folder, n in sorted(number.items()):
        if n > LARGE.get(folder, MOST_FILES):
            yield f"src/{folder}: {n} source files, more than {LARGE.get(folder, MOST_FILES)}: divide it"
        elif folder in LARGE and n <= MOST_FILES:
            yield f"src/{folder}: is small enough now; take it out of LARGE in tools/check_layers.py"
    found = circles(arrows)
    for group in found:
        if not any(set(group) <= known for known in CIRCLES):
            yield f"src: {', '.join(group)} include each other in a circle"
    for known in CIRCLES:
        if not any(set(group) <= known for group in found) and known & set(number):
            yield f"src: {', '.join(sorted(known))} are no circle any more; take it out of CIRCLES in tools/check_layers.py"


def problems():
    files = {}
    for base, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f != "gen"]
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                path = os.path.relpath(os.path.join(base, name), ROOT)
                with open(os.path.join(base, name)) as f:
                    files[path] = f.read()
    for path, text in files.items():
        yield from problems_in(path, text)
    yield from problems_between(files)


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found) if found else "layers: ok")
    sys.exit(1 if found else 0)
