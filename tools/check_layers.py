"""Checks which folder includes which: the table below is the architecture of src/.

A folder may include itself, core/base, core/diag, and what its row names: a folder ("core" = everything under core) or a
single header. Also: no Python.h under src/core, and PY_VERSION_HEX only where versions are told apart.
"""

import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")

MAY_INCLUDE = {
    "core/base": [],
    "core/diag": [],
    "core/bytecode": [],
    "core/trace": [],
    "core/graph": ["core/trace"],
    "core/ir": [],
    "core/track": [],
    "core/blocks": [],
    "core/pace": [],
    "core/kernels": ["core/ir"],
    "core/rewrite": ["core/aten", "core/ir", "core/kernels"],
    "core/aten": ["core/ir"],
    "core/lower": ["core/aten", "core/ir"],
    "core/shape": ["core/aten", "core/ir"],
    "core/program": ["core/ir"],
    "core/fuse": ["core/ir", "core/program"],
    "core/codegen": ["core/fuse", "core/ir", "core/program"],
    "core/pipeline": ["core/aten", "core/ir", "core/lower", "core/rewrite", "core/fuse", "core/program", "core/codegen"],
    "py/compat": [],
    "py/refs": ["py/compat", "core/trace"],
    "py/aten": ["py/refs", "py/compat", "core/blocks", "core/graph", "core/ir"],
    "py/watch": ["py/refs", "py/compat", "core/bytecode"],
    "py/guardeval": ["py/refs", "py/aten", "py/compat", "py/replay", "core/trace"],
    "py/replay": ["py/refs", "py/aten", "py/compat", "py/guardeval", "py/watch", "py/record/codes.h",
                  "core/trace", "core/bytecode"],
    "py/capture": ["py/guardeval/guard.h", "py/refs", "py/aten", "py/compat", "py/replay", "core/aten", "core/ir", "core/shape", "core/trace"],
    "py/launch": ["py/guardeval/guard.h", "py/refs", "py/aten", "py/compat", "py/replay", "py/capture", "core"],
    "py/record": ["py/refs", "py/aten", "py/compat", "py/watch", "py/guardeval", "py/replay",
                  "core/bytecode", "core/trace", "core/graph"],
    "py/module": ["core", "py"],
}
VERSION_FOLDERS = ("py/compat", "py/watch")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


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
    if folder not in VERSION_FOLDERS and "PY_VERSION_HEX" in text:
        yield f"src/{path}: versions are told apart in {' and '.join(VERSION_FOLDERS)} only"


def problems():
    for base, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f != "gen"]
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                path = os.path.relpath(os.path.join(base, name), ROOT)
                with open(os.path.join(base, name)) as f:
                    yield from problems_in(path, f.read())


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found) if found else "layers: ok")
    sys.exit(1 if found else 0)
