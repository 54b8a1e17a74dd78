"""What the user sees while a command works: nothing of calls that are only repeated, and what is being done where that takes a while."""

import contextlib
import io
import os
import sys


@contextlib.contextmanager
def quiet():
    """Nothing that is printed is seen, whoever prints it: handlers of logging hold the stream that was there before, C code knows the descriptor only."""
    with contextlib.ExitStack() as stack:
        for number, stream in ((1, sys.stdout), (2, sys.stderr)):
            stack.callback(_point_elsewhere(number, stream))
        out = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(out))
        out.write = len
        yield


def _point_elsewhere(number, stream):
    """Sends a descriptor nowhere; gives what undoes that."""
    def flush():
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    flush()
    try:
        kept = os.dup(number)
    except OSError:  # it is closed
        return lambda: None
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)

    def undo():
        flush()
        os.dup2(kept, number)
        os.close(kept)
    return undo


@contextlib.contextmanager
def progress():
    """A function that tells what is being done, for what takes longer than a second; nothing in pipes and files."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    with contextlib.ExitStack() as stack:
        terminal = stack.enter_context(open(os.dup(sys.stderr.fileno()), "w"))  # of its own: what is repeated quietly has none meanwhile
        spinner = Spinner("dots")
        live = Live(spinner, console=Console(file=terminal), refresh_per_second=8, transient=True, redirect_stdout=False, redirect_stderr=False)

        def tell(text):
            spinner.update(text=text)
            if not live.is_started:  # until then the terminal is the program's
                stack.enter_context(live)
        yield tell
