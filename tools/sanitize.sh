#!/usr/bin/env bash
# The extension built with ASan and UBSan, and the Python tests under it. Leaks are not reported: CPython itself keeps
# memory at exit. Usage: PYTHON=... tools/sanitize.sh BUILD [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
place=$(mkdir -p "$build" && realpath "$build")/place
python=${PYTHON:-python3}
mkdir -p "$place/kintsugi"
PLACE="$place/kintsugi" tools/dev_build.sh "$build" -Db_sanitize=address,undefined -Db_lundef=false
find python/kintsugi -name '*.py' | while read -r file; do
    mkdir -p "$place/$(dirname "${file#python/}")"
    ln -sf "$(realpath "$file")" "$place/${file#python/}"
done
[ $# -gt 0 ] || set -- tests/py
export ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0
export UBSAN_OPTIONS=print_stacktrace=1
LD_PRELOAD="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so)" \
    PYTHONMALLOC=malloc PYTHONPATH="$place" "$python" -m pytest -q -p no:cacheprovider -o pythonpath= "$@"
