"""A second process that answers: a line of JSON each way. Its own prints never reach the answers."""

import json
import os
import subprocess
import sys

from .._errors import CommandError


class ChildError(CommandError):
    """The process ended, or could not do what it was asked."""


class Child:
    """Runs `code` (which calls serve()) in a process of its own."""

    def __init__(self, code, what, folder=None, drop=()):
        """what: how the process is called where it fails; folder: where it runs; drop: of the environment."""
        environment = {name: value for name, value in os.environ.items() if name not in drop}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in [_package_folder(), os.environ.get("PYTHONPATH", "")] if path)
        self.what = what
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment)

    def ask(self, task):
        try:
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise ChildError(f"{self.what} ended with status {self.process.wait()}")
        found = json.loads(answer)
        if isinstance(found, dict) and "error" in found:
            raise ChildError(found["error"] if found.get("told") else f"{self.what}: {found['error']}")
        return found

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0] is not None:
            self.process.kill()
        self.close()
        return False


def serve(answer):
    """Answers each line with answer(task); an exception of it becomes {"error": text}. What the program prints is dropped, errors of Python are not;
    a program that reads its standard input finds the end of it."""
    tasks, out = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    for line in tasks:
        try:
            text = json.dumps(answer(json.loads(line)), default=str)
        except CommandError as error:
            text = json.dumps({"error": str(error), "told": True})
        except Exception as error:
            text = json.dumps({"error": f"{type(error).__name__}: {error}"})
        print(text, file=out, flush=True)


def _package_folder():
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
