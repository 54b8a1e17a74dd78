"""What every example asserts: compiled gives what eager gives, and the break is reported where the comment says so."""

import torch

import kintsugi

MARK = "# <- break"


def marked_lines(filename):
    with open(filename) as source:
        return {number for number, line in enumerate(source, 1) if MARK in line}


def check(name, f, make_args, fixed=None, count=1, fullgraph=True, strict=False):
    """Calls f(*make_args()) compiled, three times, and asks explain() for the row `name`: `count` times, each at a line
    that is marked. `fixed` computes the same and has no break. With `fullgraph` the first break is an error."""
    kintsugi.config.strict_breaks = strict
    expected, compiled = f(*make_args()), kintsugi.compile(f)
    for _ in range(3):
        torch.testing.assert_close(compiled(*make_args()), expected)  # kernels round otherwise
    found = kintsugi.explain(f)(*make_args())
    reasons = [reason for reason in found.break_reasons if reason.entry["why"] == name]
    assert len(reasons) == count, found
    filename = f.__code__.co_filename
    for reason in reasons:
        lines = [frame.lineno for frame in reason.user_stack if frame.filename == filename]
        assert lines[-1] in marked_lines(filename), reason.user_stack
    if fullgraph:
        check_fullgraph(found.break_reasons[0].entry["why"], f, make_args)
    if fixed is not None:
        torch.testing.assert_close(kintsugi.compile(fixed)(*make_args()), expected)
        assert kintsugi.explain(fixed)(*make_args()).graph_break_count == 0
    print(f"{name}: ok")


def check_fullgraph(name, f, make_args):
    try:
        kintsugi.compile(f, fullgraph=True)(*make_args())
    except kintsugi.Unsupported as error:
        assert error.why == name, error
    else:
        raise AssertionError("fullgraph=True met no break")


def check_event(name, kind, f):
    """Some event of that kind names the row, with the place of `f` where it has one."""
    found = [event for event in kintsugi.events() if event["event"] == kind and event.get("why") == name]
    assert found, kintsugi.events()
    for event in found:
        assert event.get("line", f.__code__.co_firstlineno) == f.__code__.co_firstlineno, event
    print(f"{name}: ok")
