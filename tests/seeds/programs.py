"""Runs programs of the texts: each in a process of its own, with torch.compile served by Kintsugi.

Importing torch takes seconds, so one process (`serve`) imports it and forks for every program. A program that sets
environment variables which torch reads when it is imported gets a new interpreter.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import textwrap

# The package that is tested: the checkout's, or one that was installed from a wheel.
PYTHON_DIR = pathlib.Path(importlib.util.find_spec("kintsugi").origin).resolve().parents[1]
HEAD = "import torch, kintsugi\nkintsugi.install()\ntorch.manual_seed(0)\n"


def environment(**extra):
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(PYTHON_DIR)]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **extra}


class Runner:
    """run(code) -> (stdout, stderr); a failing program fails the test with its standard error."""

    def __init__(self):
        self.server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       text=True, env=environment())

    def close(self):
        self.server.stdin.close()
        self.server.wait()

    def run(self, folder, code, status=0, head=HEAD, command=(), **env):
        program = folder / "program.py"
        program.write_text(head + textwrap.dedent(code))
        if env or command:
            done = subprocess.run([sys.executable, *command, str(program)], capture_output=True, text=True, cwd=folder,
                                  env=environment(**env), timeout=120)
            got, out, err = done.returncode, done.stdout, done.stderr
        else:
            self.server.stdin.write(json.dumps([str(folder), str(program)]) + "\n")
            self.server.stdin.flush()
            got = int(self.server.stdout.readline())
            out, err = (folder / "out").read_text(), (folder / "err").read_text()
        assert got == status, err
        return out, err


def serve():
    """For each line [folder, program] of standard input, the exit status of the program."""
    import runpy

    import torch  # noqa: F401
    import torch._dynamo.utils  # noqa: F401
    import kintsugi  # noqa: F401

    for line in sys.stdin:
        folder, program = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.chdir(folder)
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.argv = [program]
            status = 1
            try:
                runpy.run_path(program, run_name="__main__")
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
