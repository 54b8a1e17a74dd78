#!/usr/bin/env bash
# The Python side of `make test`: the watcher's test, then pytest over every test folder there is. pytest comes last, so that
# its closing line is the last one. Usage: tools/run_tests.sh PYTHON BUILD
set -uo pipefail
cd "$(dirname "$0")/.."
python=$1
build=$2
status=0

"$python" tests/watch/run.py "$build-watch" || status=1

folders=()
for folder in tests/py tests/guardeval tests/corpus tests/diff tests/models tests/seeds; do
    [ -d "$folder" ] && folders+=("$folder")
done
PYTHONPATH="$PWD/python" "$python" -m pytest -q "${folders[@]}" || status=1
exit $status
