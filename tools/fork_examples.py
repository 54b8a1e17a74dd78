"""Runs scripts, each in a fork of this process, which has imported torch and kintsugi once (that takes longer than most of
them): fork_examples.py SCRIPT... prints a line for each that failed.
"""

import os
import runpy
import sys
import tempfile


def run_here(path, output):
    """In the child: never returns."""
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    sys.argv = [path]
    sys.path[0] = os.path.dirname(path)
    status = 1
    try:
        runpy.run_path(path, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = 0 if end.code in (None, 0) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def start(path):
    output = tempfile.TemporaryFile()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        run_here(path, output)
    return child, (path, output)


def finish(running):
    """Waits for one; what to say of it."""
    child, status = os.wait()
    path, output = running.pop(child)
    with output:
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    name = os.path.splitext(os.path.basename(path))[0]
    return [] if status == 0 else [f"{name}: {lines[-1] if lines else f'wait status {status}'}"]


def main(paths):
    import torch
    import torch._dynamo  # most ask for its exceptions

    import kintsugi  # noqa: F401

    torch.set_num_threads(1)
    running, failed = {}, []
    for path in paths:
        running.update([start(os.path.abspath(path))])
        if len(running) >= (os.cpu_count() or 1):
            failed += finish(running)
    while running:
        failed += finish(running)
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
