"""The ways through a recording. Calls that went another way at some step have added theirs behind it (`alt`), so the steps of a recording are not those of one call."""


def of(dump):
    """[set of the steps that one call may take], in the order in which they were recorded."""
    steps = dump["steps"]
    leaves = {step["alt"]: index for index, step in enumerate(steps) if step.get("alt")}
    starts = [0, *sorted(leaves)]
    found = []
    for start, end in zip(starts, [*starts[1:], len(steps)]):
        own = set(range(start, end))
        if start:
            left = leaves[start]
            before = found[max(number for number, first in enumerate(starts) if first <= left)]
            own |= {index for index in before if index <= left}
        found.append(own)
    return found


def last(dump):
    """The one that was recorded last: later calls differ from the first one (state that it made is there by then) more often than from the one before."""
    return of(dump)[-1]
