"""Runs an action in a forked child, so that a crash or a hang of the engine is a finding, not the end of the tests."""
import functools
import os
import pickle
import select
import signal
import sys
import time

LIMIT_SECONDS = 30
# Children do not survive a device that their parent has used.
WANTED = os.environ.get("KIN_ISOLATE", "1" if os.environ.get("KIN_DEVICE", "cpu") == "cpu" else "0") != "0"


class Died(Exception):
    """The child crashed, hung, or raised; the text says which."""


def in_child(action, seconds=LIMIT_SECONDS):
    """The (picklable) result of action() in a forked child; raises Died where there is none."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            message = (True, action())
        except BaseException as e:   # noqa: BLE001
            message = (False, f"the harness raised {type(e).__name__}: {e}")
        with os.fdopen(writer, "wb") as f:
            pickle.dump(message, f)
        os._exit(0)
    os.close(writer)
    data, hung = read_all(reader, pid, seconds)
    status = os.waitpid(pid, 0)[1]
    if hung:
        raise Died(f"hang: nothing after {seconds} s")
    if os.WIFSIGNALED(status):
        raise Died(f"crash: signal {signal.Signals(os.WTERMSIG(status)).name}")
    if not data:
        raise Died(f"crash: exit status {os.WEXITSTATUS(status)}")
    good, result = pickle.loads(data)
    if not good:
        raise Died(result)
    return result


@functools.lru_cache(maxsize=None)
def gradients_after_fork():
    """Some builds of torch (Debian's 2.14) refuse gradients in a child of a process that has computed some. Tried in a child: this process stays as it is."""
    import torch

    def compute():
        return torch.ones(2, requires_grad=True).sum().backward() is None

    def compute_and_fork():
        compute()
        return in_child(compute)

    try:
        return in_child(compute_and_fork)
    except Died:
        return False


def read_all(reader, pid, seconds):
    """What the child writes until it closes its end; kills it when the time is over."""
    data, deadline = b"", time.monotonic() + seconds
    with os.fdopen(reader, "rb", buffering=0) as f:
        while time.monotonic() < deadline:
            if select.select([f], [], [], 0.5)[0]:
                chunk = f.read(65536)
                if not chunk:
                    return data, False
                data += chunk
    os.kill(pid, signal.SIGKILL)
    return data, True
