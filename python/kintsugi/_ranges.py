"""Names of the rows of compiled functions in torch.profiler. The engine asks for them while a profiler is on."""

from . import _logs


def name_of(compiled, number, how):
    """The row of a replay of entry `number`; of a call without one (-1) it says how the call is done."""
    numbers = sorted(entry.number for entry in compiled.entries())
    index = numbers.index(number) if number in numbers else len(numbers)
    return f"Torch-Compiled Region: {_logs.number_frame(compiled)}/{index}" + (f" ({how})" if how else "")
