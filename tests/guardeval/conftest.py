"""Builds the probe extension (probe.c and the files under test) once per session with the system's C compiler."""

import importlib.util
import pathlib
import shutil
import subprocess
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [
    "tests/guardeval/probe.c",
    "src/core/base/table.c",
    "src/core/trace/trace.c",
    "src/py/entry/entry.c",
    "src/py/refs/refs.c",
    "src/core/ir/tables.c",
    "src/py/aten/content.c",
    "src/py/aten/make.c",
    "src/py/aten/meta.c",
    "src/py/aten/tensor.c",
    "src/py/aten/modes.c",
    "src/py/aten/sizes.c",
    "src/py/aten/threads.c",
    "src/py/compat/heap.c",
    "src/py/compat/imports.c",
    "src/py/compat/signals.c",
    "src/py/compat/kinds.c",
    "src/py/report/guard_text.c",
    "src/py/report/guard_source.c",
]
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wvla", "-Wno-unused-parameter", "-Werror"]


@pytest.fixture(scope="session")
def probe(tmp_path_factory):
    """The module kinprobe."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "these tests need a C compiler"
    sources = [ROOT / s for s in SOURCES] + sorted((ROOT / "src/py/guardeval").glob("*.c"))
    sources += [s for s in sorted((ROOT / "src/core/trace").glob("*.c")) if s.name != "trace.c"]
    target = tmp_path_factory.mktemp("probe") / ("kinprobe" + sysconfig.get_config_var("EXT_SUFFIX"))
    include = sysconfig.get_path("include")
    command = [compiler, "-std=c11", "-O2", "-g", "-fPIC", "-shared", "-fno-strict-aliasing", "-D_GNU_SOURCE"]
    command += WARNINGS + [f"-I{ROOT / 'src'}", "-isystem", include, "-o", str(target)]
    subprocess.run(command + [str(s) for s in sources] + ["-ldl"], check=True)
    spec = importlib.util.spec_from_file_location("kinprobe", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def torch(probe):
    module = pytest.importorskip("torch")
    probe.aten_init(module)
    return module
