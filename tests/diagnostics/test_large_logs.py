"""Logs that are large, cut off or no logs: a clear message, and memory that does not grow with the file."""

import os
import subprocess
import sys

import pytest

MEGABYTES = int(os.environ.get("KIN_LOG_MB", "24"))
PREFIX = "V1120 15:24:39.233000 11822 torch/_dynamo/symbolic_convert.py:5368] [%d/0] [__graph_breaks] "
READ = """\
import resource, sys
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from kintsugi.report import read
try:
    found = read.read(sys.argv[1])
    print(len(found.findings), found.left_out, found.lines)
except read.ReportError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def _breaks(file, limit):
    written = number = 0
    while written < limit:
        lines = [f"Graph break in user code at /nowhere/m{number % 5000}.py:{number % 90 + 1}", "Graph Break Reason: Data-dependent branching", "  Explanation: " + "long " * 40,
                 " For more details about this graph break, please visit: https://example.org/gb/gb0170.html"]
        text = "".join(PREFIX % number + line + "\n" for line in lines)
        file.write(text.encode())
        written, number = written + len(text), number + 1


def _payload(file, limit):
    """A trace whose payload never ends."""
    file.write(b'V1120 15:24:39.233000 1 a.py:1] {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, "has_payload": "0"}\n')
    for _ in range(limit // 1000):
        file.write(b"\t" + b"x" * 998 + b"\n")


def _one_line(file, limit):
    for _ in range(limit // 65536):
        file.write(b"y" * 65536)


def _junk(file, limit):
    for _ in range(limit // 65536):
        file.write(os.urandom(65536))


@pytest.mark.parametrize("fill, told", [(_breaks, "2000 "), (_payload, "nothing in them"), (_one_line, "nothing in them"), (_junk, "nothing in them")])
def test_memory_is_bounded(tmp_path, fill, told):
    path = tmp_path / "large.log"
    with open(path, "wb") as file:
        fill(file, MEGABYTES << 20)
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    path.unlink()
    answer, grown = done.stdout.strip().splitlines()
    assert told in answer and int(grown) < 40, done.stdout


@pytest.mark.parametrize("cut", [10, 120, 160, 200, 300])
def test_a_trace_that_was_cut_off(tmp_path, cut):
    text = PREFIX % 0 + "Graph break in user code at /nowhere/m.py:3\n" + PREFIX % 0 + "Graph Break Reason: Data-dependent branching\n" + PREFIX % 0 + "  Explanation: ...\n"
    path = tmp_path / "cut.log"
    path.write_text(text[:cut])
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    told = "1 0 " if cut >= 160 else "0 0 1" if cut > len(PREFIX % 0) else f"{path}: 1 lines read"  # a line of PyTorch's that tells nothing
    assert done.stdout.startswith(told) and not done.stderr
