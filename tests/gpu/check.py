"""What only a machine with a GPU can check, with a share of time for each part; writes one JSON file and prints a summary.

    python tests/gpu/check.py [--parts doctor,programs,corpus,models] [--minutes 4] [--json FILE]

Needs an installed kintsugi (a wheel or the build folder on PYTHONPATH), pytest and pytest-xdist.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "-o", "pythonpath=", "-n")  # the kintsugi that is installed, not the folder's
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}  # asking for a GPU without starting CUDA, before forks
SHARDS = 14
COUNT = {"kintsugi": "3", "kintsugi_cuda_graphs": "5"}  # calls; the second of these captures


def start(*command, **more):
    return subprocess.Popen([sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, **ENVIRONMENT, **more})


def finish(process, until):
    """(exit status or None where time was up, what it printed)."""
    try:
        return process.communicate(timeout=max(1, until - time.monotonic()))[0], process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0], None


def pytest_row(said, status):
    """Its last line, and what failed."""
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+.*)$", said, re.M)
    lines = said.strip().splitlines()
    return {"status": status, "summary": lines[-1] if lines else "", "failed": failed, "said": said if failed else ""}


def doctor(until):
    said, status = finish(start("-m", "kintsugi", "doctor"), until)
    return {"status": status, "said": said}


def programs(until):
    said, status = finish(start(*PYTEST, "10", TESTS / "gpu"), until)
    return pytest_row(said, status)


def corpus(until):
    said, status = finish(start(*PYTEST, "14", "--max-worker-restart=30", TESTS / "corpus" / "test_corpus.py", "-k", "behaves_as_eager"), until)
    return pytest_row(said, status)


def models(until, engine="kintsugi", mode="both"):
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / f"{i}.json" for i in range(SHARDS)]
        running = [start(TESTS / "models" / "run_models.py", "--shard", f"{i}/{SHARDS}", "--json", path, "--limit", "60", "--engine", engine, "--mode", mode, "--count", COUNT[engine])
                   for i, path in enumerate(paths)]
        said = [finish(process, until) for process in running]
        rows = [row for path in paths if path.exists() for row in json.loads(path.read_text())["rows"]]
    good = sum(row["verdict"] == "ok" for row in rows)
    return {"ok": good, "of": len(rows), "status": [status for _, status in said],
            "not ok": [{k: row.get(k) for k in ("model", "mode", "verdict", "detail", "reasons")} for row in rows if row["verdict"] != "ok"],
            "tails": [text[-600:] for text, status in said if status is None],
            "rows": [{k: row.get(k) for k in ("model", "mode", "verdict", "graphs", "breaks", "recordings", "replays", "eager_calls", "launches", "seconds")} for row in rows]}


def models_as_cuda_graphs(until):
    return models(until, "kintsugi_cuda_graphs", "eval")


def launched(until):
    """Which of the programs are launched as CUDA graphs, and why others are not."""
    said, status = finish(start(TESTS / "gpu" / "launched.py"), until)
    return {"status": status, "said": said}


PARTS = {"doctor": doctor, "programs": programs, "launched": launched, "corpus": corpus, "models": models, "models_as_cuda_graphs": models_as_cuda_graphs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--device", default="cuda", help="cpu: to try this file where there is no GPU")
    options = parser.parse_args()
    ENVIRONMENT["KIN_DEVICE"] = options.device
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
    until, results = time.monotonic() + 60 * options.minutes, {}
    for name in options.parts.split(","):
        began = time.monotonic()
        results[name] = PARTS[name](until)
        results[name]["seconds"] = round(time.monotonic() - began, 1)
        print(name, json.dumps({k: v for k, v in results[name].items() if k not in ("rows", "said" if name not in ("doctor", "launched") else "")})[:1800], flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
