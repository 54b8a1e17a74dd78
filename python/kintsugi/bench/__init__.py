"""`kintsugi bench`: eager, Kintsugi and stock torch.compile on real models, side by side.

For each row three processes, one after the other, each with a time limit: the first calls of stock, and of Kintsugi, with
empty disk caches ("cold"), then one in which the three take turns; its first calls, with the disk caches of the two
before, are the "warm" ones. Stock compiles its C++ headers once for a machine and keeps them elsewhere: that is timed once, in a
process of its own, and the cold processes find them there. Rows that are another size of a model have the third
process only, with empty caches.

What goes wrong becomes part of the row. Results are written after each row, so that a run can be resumed.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time

from . import models, report

VERSION = 2  # of the results


class _Run:
    """Where processes find their caches, and how long they may take."""

    def __init__(self, scratch, threads, seconds, timeout, preload=None):
        self.scratch, self.threads, self.seconds, self.timeout, self.preload = scratch, threads, seconds, timeout, preload

    def job(self, job, cache, *, headers="headers", timeout=None):
        """The worker's answer, or {"error": text}."""
        timeout = timeout or self.timeout
        temporary = os.path.join(self.scratch, headers)
        os.makedirs(temporary, exist_ok=True)
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": os.path.join(self.scratch, cache, "stock"),
                                    "KINTSUGI_CACHE_DIR": os.path.join(self.scratch, cache, "kintsugi"),
                                    "TMPDIR": temporary,  # stock's headers lie there
                                    "KINTSUGI_KERNELS": os.environ.get("KINTSUGI_KERNELS", "1"),
                                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        if self.preload:
            environment["LD_PRELOAD"] = " ".join(filter(None, [self.preload, os.environ.get("LD_PRELOAD")]))
        command = [sys.executable, "-m", "kintsugi.bench.worker", json.dumps(job | {"threads": self.threads})]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
        except subprocess.TimeoutExpired:
            return {"error": f"took more than {timeout:.0f} s"}
        lines = done.stdout.strip().splitlines()
        if done.returncode == 0 and lines:
            return json.loads(lines[-1])
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:300]}


def _mkl_library(folder):
    """MKL asks itself whether the processor is Intel's, and takes slow code if it is not. With this library loaded first it is."""
    source, library = os.path.join(folder, "mkl.c"), os.path.join(folder, "mkl.so")
    with open(source, "w") as file:
        file.write("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    done = subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", library, source], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"--mkl-fast-path needs a C compiler: {done.stderr.strip()[:200]}")
    return library


def _measure(run, entry, engines, first):
    cache = f"cache-{entry.name}"
    row, errors, calls = {"about": entry.about}, {}, {}
    for engine in reversed(engines if first and not entry.again else []):
        done = run.job({"task": "first", "model": entry.name, "engine": engine}, cache)
        if "error" in done:
            errors[f"{engine} first"] = done["error"]
        else:
            calls[f"{engine} cold"] = done
    steady = {"task": "steady", "model": entry.name, "engines": engines, "seconds": run.seconds}
    done = run.job(steady, cache)
    if "error" in done and len(engines) > 1:
        errors["steady"] = f"{done['error']} (measured again without stock)"
        done = run.job(steady | {"engines": engines[:1]}, cache)
    shutil.rmtree(os.path.join(run.scratch, cache), ignore_errors=True)
    if "error" in done:
        return row | done | {"errors": errors}
    kind = "warm" if calls else "cold"
    calls |= {f"{engine} {kind}": value for engine, value in done.pop("first").items()}
    row["alone"] = kind == "warm"
    return row | done | {"first": calls, "errors": errors | done["errors"]}


def _resumed(path, machine):
    """Rows of an earlier run on this machine that need not be measured again."""
    try:
        with open(path) as file:
            before = json.load(file)
    except (OSError, ValueError):
        return {}
    same = before.get("version") == VERSION and all((before["machine"].get(key) or False) == machine[key]
                                                    for key in ("cpu", "threads", "torch", "python", "mkl_fast_path"))
    return {name: row for name, row in before["models"].items() if "error" not in row} if same else {}


def run(names=(), *, stock=True, first=True, seconds=3.0, threads=None, timeout=240, minutes=None, path=None, resume=False,
        mkl_fast_path=False, progress=print):
    """Measures the named models (all: no names) and returns {"machine": ..., "models": {name: row}}. Times are seconds.

    mkl_fast_path: for eager and all engines alike, MKL takes the code that it keeps for Intel's processors.
    timeout: of one process. minutes: rows for which there is no time any more are left out, and say so. path: a file in which
    all is kept after each row; with resume, rows that it has are not measured again. Raises KeyError for a name that does not exist.
    """
    import torch

    entries = models.find(list(names))
    threads = threads or torch.get_num_threads()
    engines = ["kintsugi", *(["stock"] if stock else [])]
    machine = {"cpu": _cpu(), "cpus": os.cpu_count(), "threads": threads, "torch": torch.__version__,
               "python": platform.python_version(), "load": os.getloadavg()[0], "mkl_fast_path": mkl_fast_path}
    results = {"version": VERSION, "machine": machine, "seconds": seconds, "models": {}}
    known = _resumed(path, machine) if path and resume else {}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        work = _Run(scratch, threads, seconds, timeout, _mkl_library(scratch) if mkl_fast_path else None)
        if stock:
            machine["stock_headers"] = work.job({"task": "headers"}, "headers-cache").get("seconds")
        for entry in entries:
            passed = time.monotonic() - start
            if entry.name in known:
                row = known[entry.name]
            elif minutes is not None and passed > minutes * 60:
                row = {"about": entry.about, "error": "not measured, the time was over"}
            else:
                progress(f"{passed:5.0f} s  {entry.name}: {entry.about}")
                row = _measure(work, entry, engines, first)
                row["took"] = time.monotonic() - start - passed
            results["models"][entry.name] = row
            _write(path, results)
    results["took"] = time.monotonic() - start
    _write(path, results)
    return results


def _write(path, results):
    """As a whole or not at all."""
    if path:
        with open(f"{path}.part", "w") as file:
            file.write(json.dumps(results, indent=1) + "\n")
        os.replace(f"{path}.part", path)


def _cpu():
    try:
        with open("/proc/cpuinfo") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def _measured(options):
    """What the command is to report: an earlier run's file, or a new run."""
    if options.report:
        with open(options.report) as file:
            return json.load(file)
    names = [*options.models, *(name for part in options.rows for name in part.split(",") if name)]
    seconds = options.seconds if options.seconds is not None else 0.5 if options.quick else 3.0
    return run(names, stock=not options.no_stock, first=not (options.no_first or options.quick), seconds=seconds,
               threads=options.threads, timeout=options.timeout, minutes=options.minutes, path=options.json,
               resume=options.resume, mkl_fast_path=options.mkl_fast_path, progress=lambda text: print(text, file=sys.stderr, flush=True))


def _profile(options):
    import torch

    names = [*options.models, *(name for part in options.rows for name in part.split(",") if name)]
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        work = _Run(scratch, options.threads or torch.get_num_threads(), 0, options.timeout)
        for entry in models.find(names):
            done = work.job({"task": "profile", "model": entry.name}, "cache")
            print(f"{entry.name}: {done['error']}" if "error" in done else report.profile(entry.name, done), flush=True)
            failed = failed or "error" in done
    return 1 if failed else 0


def main(options):
    """The command; options as python/kintsugi/cli.py parses them."""
    try:
        if options.profile:
            return _profile(options)
        results = _measured(options)
    except (KeyError, OSError, ValueError) as error:
        sys.stderr.write(f"kintsugi: bench: {error.args[0] if isinstance(error, KeyError) else error}\n")
        return 2
    print(report.table(results))
    if options.svg:
        with open(options.svg, "w") as file:
            file.write(report.picture(results, "speed"))
    if options.docs:
        report.write_docs(results, options.docs, options.second)
    return 0
