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
    assert find("py/watch/x.c", '#include "py/record/record.h"\n')
    assert find("py/record/x.c", '#include "core/bytecode/bytecode_priv.h"\n')
    assert find("py/record/x.c", "#if PY_VERSION_HEX > 3\n")
    assert find("py/record/x.c", '#include "record.h"\n')
    assert find("py/unknown/x.c", "")
