#!/usr/bin/env bash
# Builds src/core alone with the address and undefined-behaviour sanitizers, runs tests/c, and checks that the library
# needs nothing of Python and keeps no state of its own. Usage: PYTHON=... tools/test_c.sh BUILD
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
python=${PYTHON:-python3}
export PATH="$(dirname "$(command -v "$python")"):$PATH"
meson() { "$python" -m mesonbuild.mesonmain "$@"; }
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

tools/need_llvm.sh
mkdir -p "$build"
"$python" tools/list_sources.py src/core >"$build/sources.new"
"$python" tools/list_sources.py tests/c >>"$build/sources.new"
if [ ! -f "$build/build.ninja" ]; then
    meson setup "$build" -Dcore_only=true -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 \
        >"$build/setup.log" 2>&1 || { cat "$build/setup.log"; exit 1; }
elif ! cmp -s "$build/sources.new" "$build/sources.txt"; then
    meson setup --reconfigure "$build" >"$build/setup.log" 2>&1 || { cat "$build/setup.log"; exit 1; }
fi
mv "$build/sources.new" "$build/sources.txt"
meson compile -C "$build" --ninja-args=-k0 >"$build/compile.log" 2>&1 || { grep -vE '^(\[|cc |FAILED|INFO|ninja: Ent)' "$build/compile.log"; exit 1; }
grep -A4 'warning:' "$build/compile.log" || true
meson test -C "$build" --print-errorlogs --no-rebuild | sed '/^$/d'

if nm -u "$build/src/libkincore.a" | grep -E ' _?Py'; then
    echo "src/core uses Python (above)" >&2
    exit 1
fi

# All state belongs to callers: a plain build of each file holds no variable of its own.
mkdir -p "$build/plain"
while read -r file; do
    object="$build/plain/${file//\//_}.o"
    cc -std=c11 -D_GNU_SOURCE= -O1 -fPIC -Isrc -c "src/core/$file" -o "$object"
    if objdump -t "$object" | grep -E '^[0-9a-f]+ .{6}O (\.data|\.bss|\*COM\*)\s'; then
        echo "src/core/$file keeps state of its own (above)" >&2
        exit 1
    fi
done < <("$python" tools/list_sources.py src/core)
