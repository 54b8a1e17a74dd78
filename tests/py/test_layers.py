"""The include directions hold, and the check that says so notices when they do not."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("check_layers", ROOT / "tools" / "check_layers.py")
check_layers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_layers)


def test_tree_keeps_its_layers():
    assert list(check_layers.problems()) == []


def test_violations_are_found():
    def find(path, text):
        return list(check_layers.problems_in(path, text))

    assert find("core/trace/x.c", '#include "core/base/vec.h"\n#include <stdlib.h>\n') == []
    assert find("core/trace/x.c", '#include "py/refs/refs.h"\n')
    assert find("core/base/x.c", '#include "core/diag/event.h"\n')
    assert find("core/trace/x.c", "#include <Python.h>\n")
    assert find("py/watch/x.c", '#include "py/recorder/record.h"\n')
    assert find("py/recorder/x.c", '#include "core/bytecode/bytecode_priv.h"\n')
    assert find("py/recorder/x.c", "#if PY_VERSION_HEX > 3\n")
    assert find("py/rules/x.c", "case KIN_OP_LOAD_FAST:\n")
    assert find("core/bytecode/x.c", "case KIN_OP_LOAD_FAST:\n") == []
    assert find("py/recorder/x.c", '#include "record.h"\n')
    assert find("py/unknown/x.c", "")


def test_folders_that_are_large_or_include_each_other_are_found():
    def find(files):
        return list(check_layers.problems_between(files))

    def include(*names):
        return "".join(f'#include "{name}"\n' for name in names)

    below = {"core/trace/a.h": include("core/base/vec.h"), "core/graph/b.c": include("core/trace/a.h")}
    assert find(below) == []
    assert "circle" in find({**below, "core/base/vec.h": include("core/graph/b.h")})[0]
    assert find({f"core/trace/{i}.c": "" for i in range(24)}) == []
    assert "divide" in find({f"core/trace/{i}.c": "" for i in range(25)})[0]
