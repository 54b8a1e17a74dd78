"""The include directions hold, and the check that says so notices when they do not."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_layers, check_tree = load("check_layers"), load("check_tree")


def test_tree_keeps_its_layers():
    assert list(check_layers.problems()) == []


def test_violations_are_found():
    def find(path, text):
        return list(check_layers.problems_in(path, text))

    assert find("core/trace/x.c", '#include "core/base/vec.h"\n#include <stdlib.h>\n') == []
    assert find("core/trace/x.c", '#include "py/refs/refs.h"\n')
    assert find("core/base/x.c", '#include "core/diag/event.h"\n')
    assert find("core/trace/x.c", "#include <Python.h>\n")
    assert find("py/watch/x.c", '#include "py/driver/record.h"\n')
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
    header, source = "bool kin_it(int x); /* says so */\n", "bool\nkin_it(int x)\n{\n}\n"
    assert find({"core/trace/a.h": header, "core/trace/b.c": source}) == []
    assert "declares kin_it" in find({"core/trace/a.h": header, "core/graph/b.c": source})[0]


def test_functions_and_files_that_are_long_are_found():
    def function(n):
        return "int\nf(void)\n{\n" + "    g();\n" * n + "}\n"

    assert list(check_tree.problems_in("src/core/a.c", function(60) + "\n" + function(60))) == []
    assert "f has 61 lines" in list(check_tree.problems_in("src/core/a.c", function(61)))[0]
    assert list(check_tree.problems_in("src/core/a.c", "\n" * 800)) == []
    assert "801 lines" in list(check_tree.problems_in("src/core/a.c", "\n" * 801))[0]


def test_pages_name_files_that_exist():
    names = ["src/core/trace/a.c", "src/py/rules/b.h"]
    assert list(check_tree.missing_in("page", "`core/trace/a.c`, `b.h`, `rules/b.h`, `<Python.h>`", names)) == []
    assert list(check_tree.missing_in("page", "`core/rules/b.h`", names))
    assert list(check_tree.missing_in("page", "`a.h`", names))


def test_pages_name_functions_and_folders_that_exist():
    assert list(check_tree.unknown_in("page", "`kin_replay_run`, `rec_stop(r)`, `rec_*`", {"kin_replay_run", "rec_stop"})) == []
    assert "names rec_gone" in list(check_tree.unknown_in("page", "`rec_gone`", {"kin_replay_run"}))[0]
    page = "| `core/trace` | the trace |\n"
    assert list(check_tree.folders_without_row(page, ["src/core/trace/a.c", "tools/a.py", "src/meson.build"])) == []
    assert "src/py/run" in list(check_tree.folders_without_row(page, ["src/core/trace/a.c", "src/py/run/b.c"]))[0]
