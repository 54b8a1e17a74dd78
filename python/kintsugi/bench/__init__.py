"""`kintsugi bench`: eager, Kintsugi and stock torch.compile on real models, side by side.

Steady state: one process a model, the three take turns. First calls: fresh processes, with caches that are empty
("cold"), with stock's headers compiled before ("headers"), and with the disk caches of the cold run ("warm"). What the
first four calls take beyond eager ones is counted, since Kintsugi compiles kernels in the second.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile

from . import models, report


def _run_job(job, cache, timeout):
    """The worker's answer, or {"error": text}."""
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "stock"),
                                "KINTSUGI_CACHE_DIR": os.path.join(cache, "kintsugi"),
                                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run([sys.executable, "-m", "kintsugi.bench.worker", json.dumps(job)], capture_output=True,
                              text=True, timeout=timeout, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {timeout} s"}
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def _first_calls(name, engines, threads, timeout):
    first = {}
    for engine in engines:
        with tempfile.TemporaryDirectory() as cache:
            for kind, warm in (("cold", False), ("warm", False)):
                first[f"{engine} {kind}"] = _run_job({"task": "first", "model": name, "engine": engine, "warm": warm,
                                                      "threads": threads}, cache, timeout)
        if engine == "stock":
            with tempfile.TemporaryDirectory() as cache:
                first["stock headers"] = _run_job({"task": "first", "model": name, "engine": engine, "warm": True,
                                                   "threads": threads}, cache, timeout)
    return {key: value for key, value in first.items() if "error" not in value}


def run(names=(), *, stock=True, first=True, seconds=5.0, threads=None, timeout=900, progress=print):
    """Measures the named models (all: no names) and returns {"machine": ..., "models": {name: row}}. Times are seconds.

    Raises KeyError for a name that does not exist.
    """
    import torch

    threads = threads or torch.get_num_threads()
    engines = ["kintsugi", *(["stock"] if stock else [])]
    results = {"machine": {"cpu": _cpu(), "threads": threads, "torch": torch.__version__,
                           "python": platform.python_version()}, "models": {}}
    for entry in models.find(list(names)):
        progress(f"{entry.name}: {entry.about}")
        with tempfile.TemporaryDirectory() as cache:
            row = _run_job({"task": "steady", "model": entry.name, "engines": engines, "seconds": seconds,
                            "threads": threads}, cache, timeout)
        if first and "error" not in row:
            row["first"] = _first_calls(entry.name, engines, threads, timeout)
        results["models"][entry.name] = row
    return results


def _cpu():
    try:
        with open("/proc/cpuinfo") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def main(options):
    """The command; options as python/kintsugi/cli.py parses them."""
    try:
        results = run(options.models, stock=not options.no_stock, first=not options.no_first, seconds=options.seconds,
                      threads=options.threads, progress=lambda text: print(text, file=sys.stderr))
    except KeyError as error:
        sys.stderr.write(f"kintsugi: {error.args[0]}\n")
        return 2
    print(report.table(results))
    for path, text in ((options.json, json.dumps(results, indent=1) + "\n"), (options.svg, report.svg(results))):
        if path:
            with open(path, "w") as file:
                file.write(text)
    return 0
