"""Rows of compiled functions in torch.profiler. The engine calls this for a replay while a profiler is on."""

from torch.autograd.profiler import record_function

from . import _logs


def begin(compiled, number):
    """Opens the row of entry `number`; the engine closes it with __exit__."""
    numbers = sorted(entry.number for entry in compiled.entries())
    row = record_function(f"Torch-Compiled Region: {_logs.number_frame(compiled)}/{numbers.index(number)}")
    row.__enter__()
    return row
