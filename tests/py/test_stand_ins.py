"""tools/stand_ins.py: what stands in for CUDA's libraries answers as a machine without a GPU does, where text is asked for too."""
import pathlib
import shutil
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/stand_ins.py"

GONE = """
int kinfakeGetDeviceCount(int *n) { *n = 1; return 0; }
const char *kinfakeGetErrorString(int code) { return "all is well"; }
const char *kinfakeGetErrorName(int code) { return "fine"; }
const char *kinfakeGetStatusString(int code) { return "fine"; }
"""
USER = """
#include <string.h>
int kinfakeGetDeviceCount(int *);
const char *kinfakeGetErrorString(int), *kinfakeGetErrorName(int), *kinfakeGetStatusString(int);
int count(void) { int n = 0; return kinfakeGetDeviceCount(&n); }
int letters(void)
{
    return (int)(strlen(kinfakeGetErrorString(count())) + strlen(kinfakeGetErrorName(1)) + strlen(kinfakeGetStatusString(1)));
}
"""


def compile_library(place, name, text, *args):
    (place / f"{name}.c").write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", place / f"lib{name}.so", place / f"{name}.c", f"-Wl,-soname,lib{name}.so", *args], check=True)


@pytest.mark.skipif(not (shutil.which("cc") and shutil.which("readelf")), reason="needs a compiler and readelf")
def test_texts_of_errors_are_texts(tmp_path):
    place = tmp_path / "torch/lib"
    place.mkdir(parents=True)
    compile_library(place, "kinfake", GONE)
    compile_library(place, "user", USER, f"-L{place}", "-lkinfake", "-Wl,-rpath,$ORIGIN")
    (place / "libkinfake.so").unlink()
    done = subprocess.run([sys.executable, TOOL, tmp_path / "torch"], text=True, capture_output=True, check=True)
    assert done.stdout == "1 stand-ins: libkinfake.so\n"
    code = f"import ctypes; user = ctypes.CDLL({str(place / 'libuser.so')!r}); print(user.count(), user.letters())"
    asked = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False)
    assert (asked.returncode, asked.stdout) == (0, f"100 {3 * len('no device')}\n"), asked.stderr
