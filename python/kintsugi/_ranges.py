"""Rows of compiled functions in torch.profiler. The engine asks for them while a profiler is on.

    Torch-Compiled Region: 0/0                            a call that is replayed; of one that is not, how it is done instead
        Graph 1 of f [0/0]                                the calls of a graph, compiled or one by one
            fused_add_relu  [[32, 64], [64], [32, 64]]    a kernel, or a call of PyTorch's, with the sizes of what it reads and gives
        Graph break: Data-dependent branching (f.py:12)
"""

import functools
import os

import torch

from . import _logs, fx

def name_of(compiled, number, how):
    """The row of a replay of entry `number`; of a call without one (-1) it says how the call is done."""
    if how and how != "recorded":
        return f"Torch-Compiled Region: {_logs.number_frame(compiled)} (eager: {how})"
    return f"Torch-Compiled Region: {_id_of(compiled, number)}" + (f" ({how})" if how else "")


def _id_of(compiled, number):
    numbers = sorted(entry.number for entry in compiled.entries())
    index = numbers.index(number) if number in numbers else len(numbers)
    return f"{_logs.number_frame(compiled)}/{index}"


def rows_of(compiled, entry):
    """For each step of an entry the row that it belongs to; None: none."""
    from . import _api

    return _rows_of_dump(_api.start_engine().dump(entry), f"{compiled.__name__} [{_id_of(compiled, entry.number)}]")


def _rows_of_dump(dump, name):
    names = [None, *(f"Graph {number} of {name}" for number in range(1, len(dump["graphs"]) + 1))]
    breaks = {entry["step"]: f"Graph break: {entry['type']} ({os.path.basename(entry['filename'])}:{entry['line']})" for entry in dump["breaks"]}
    rows, row = [], None
    for index, step in enumerate(dump["steps"]):
        if index in breaks:
            rows.append(breaks[index])
            row = None
            continue
        if step["graph"]:
            row = names[step["graph"]]
        rows.append(row)
    return rows


class _Sizes(torch.Tensor):
    """Sizes and a dtype without memory; making it leaves no row of its own."""

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return NotImplemented


@functools.lru_cache(maxsize=4096)
def _tensors(described):
    return [torch.Tensor._make_wrapper_subclass(_Sizes, sizes, dtype=fx.DTYPES.get(dtype, torch.float32)) for dtype, sizes in described]


def begin_kernel(name, described):
    """The open row of a kernel. described: (dtype, sizes) of each tensor."""
    from torch._C import _profiler

    row = _profiler._RecordFunctionFast(name, _tensors(described))
    row.__enter__()
    return row
