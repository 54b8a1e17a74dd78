"""Where the time of compiled graphs goes: each kernel and library call with its time, the memory it moves and the arithmetic it does, against what this machine
can do; what compiling took; which guards a line needs; what a graph looks like on both sides of a break.
"""

import functools
import math
import re
import time

import torch

from ..fx import DTYPES
from . import timing

CALLS = 6        # that are profiled
MOST_GUARDS = 300
AROUND = 8       # lines of a graph before and behind a break

_SIZES = re.compile(r"\[([\d, ]*)\]")
_REFUSED = re.compile(r"^(\w+)\[([\d, ]*)\] (\w+): (.*)$")


def _bytes(dtype):
    return DTYPES.get(dtype, torch.float32).itemsize


def _numel(text):
    total = 1
    for size in text.split(", "):
        total *= int(size or 1)
    return total


@functools.cache
def limits():
    """{"gb_per_s", "gflops"}: what a copy of large tensors and a large product reach here, with the threads that PyTorch uses."""
    with torch.no_grad():
        source, target = torch.ones(1 << 23), torch.empty(1 << 23)
        a, b, c = torch.ones(256, 256), torch.ones(256, 256), torch.empty(256, 256)
        copy, product = _best(lambda: target.copy_(source)), _best(lambda: torch.mm(a, b, out=c))
        if torch.get_num_threads() > 1:  # where other programs have the processors, threads that wait for each other reach less than one
            with timing.one_thread():
                copy, product = min(copy, _best(lambda: target.copy_(source))), min(product, _best(lambda: torch.mm(a, b, out=c)))
    return {"gb_per_s": 2 * source.nbytes / copy / 1e9, "gflops": 2 * 256 ** 3 / product / 1e9}


def _best(call, seconds=0.2, least=8):
    """Of as many as fit: other programs only ever make one slower. On one thread the processor's time counts, of which they take none."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    best, done, stop = float("inf"), 0, time.perf_counter() + seconds
    while time.perf_counter() < stop or done < least:
        start = clock()
        call()
        best, done = min(best, clock() - start), done + 1
    return best


def profile(engine, observed):
    """[{recording, counted from 1, graph, part, us, parts: [{name, extern, us, bytes, flops}], refused: [{text, us}], compile}] of the compiled graphs of a function."""
    call = observed.calls[-1]
    args, kwargs = call.copy()
    with call.modes():
        engine.set_profile(True)
        try:
            for _ in range(CALLS):
                observed.compiled(*args, **kwargs)
        finally:
            engine.set_profile(False)
    return graphs(engine, observed.compiled)


def graphs(engine, compiled):
    """The same of what was profiled; without times where nothing was."""
    found = []
    for recording, entry in enumerate(sorted(compiled.entries(), key=lambda entry: entry.number), 1):
        for subgraph in engine.kernels(entry):
            for version in subgraph["versions"]:
                if version["compiled"]:
                    found.append({"recording": recording, "graph": subgraph["graph"], "settled": version["settled"],
                                  **_parts(version["profile"], version["profile_backward"]), "refused": _refused(version["not_fused"] or ""), "compile": _compile(version)})
    return found


def _parts(profiled, backward):
    """Of a launch, and of the way back where that is part of the call."""
    whole, *rows = profiled or [None]
    whole_back, *rows_back = backward or [None]
    us = sum(one["best_ns"] for one in (whole, whole_back) if one) / 1e3
    return {"us": us if whole else None, "parts": [_part(row, False) for row in rows] + [_part(row, True) for row in rows_back]}


def _part(row, backward):
    flops = row["flops"] + _of_library(row) if row["extern"] else row["flops"]
    return {"name": row["name"], "extern": row["extern"], "backward": backward, "us": row["best_ns"] / 1e3, "bytes": row["bytes"] or None, "flops": flops or None}


def _of_library(row):
    """Floating point operations of a call that is no kernel, as far as they follow from sizes alone."""
    name, *sizes = row["name"].partition(" ")[0], *([int(size) for size in dims.split(", ") if size] for dims in _SIZES.findall(row["name"]))
    if name == "library.matmul":
        return 2 * row["elements"] * sizes[0][-1]
    if name.startswith(("library.conv", "aten.convolution")):  # each element of the result takes a filter
        return 2 * row["elements"] * math.prod(sizes[1][1:])
    if name == "library.attention":  # a product with the keys, one with the values
        return 4 * math.prod(sizes[0]) * sizes[1][-2]
    return 0


def _refused(text):
    """Fusions that were refused, each with what writing the value and reading it again costs at this machine's bandwidth: modelled, an upper bound in caches."""
    found = {}
    for line in text.splitlines():
        match = _REFUSED.match(line)
        us = 2 * _numel(match[2]) * _bytes(match[1]) / limits()["gb_per_s"] / 1e3 if match else None
        row = found.setdefault(line, {"text": line, "us": us, "times": 0})
        row["times"] += 1
    return list(found.values())


def _compile(version):
    return {"total_ms": version["total_ns"] / 1e6, "capture_ms": version["capture_ns"] / 1e6, "fuse_ms": version["fuse_ns"] / 1e6, "llvm_ms": version["llvm_ns"] / 1e6,
            "passes": [(row["name"] + (f" ({row['part']})" if row["part"] != "main" else ""), row["ns"] / 1e6) for row in version["passes"] or ()]}


# ---- guards, and graphs around a break ----


def guards(dumps):
    """[{"filename", "line", "function", "checks"}]: what is tested before a recording is used, by the line that needs it."""
    found, seen = {}, 0
    for dump in dumps:
        for fact in dump["facts"]:
            seen += 1
            if seen > MOST_GUARDS:
                break
            place = fact["filename"], fact["line"], fact["function"]
            texts = found.setdefault(place, [])
            if fact["text"] not in texts:
                texts.append(fact["text"])
    return [{"filename": file, "line": line, "function": function, "checks": checks} for (file, line, function), checks in sorted(found.items())]


def sides(dump, index):
    """(last lines of the graph before a step, first lines of the one behind it): their calls."""
    before = max((step["graph"] for step in dump["steps"][:index] if step["graph"]), default=0)
    behind = next((step["graph"] for step in dump["steps"][index + 1:] if step["graph"] > before), 0)
    return _calls(dump, before)[-AROUND:], _calls(dump, behind)[:AROUND]


def _calls(dump, number):
    if not 0 < number <= len(dump["graphs"]):
        return []
    lines = [line.strip().partition(";")[0] for line in dump["graphs"][number - 1]["code"].splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "class ", "def ", "return", "l_")) or line.startswith("return (")]
