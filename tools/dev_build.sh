#!/usr/bin/env bash
# Fast developer build: configures BUILD when needed, compiles, and puts the extension where PYTHONPATH=python finds
# it. Usage: PYTHON=... tools/dev_build.sh BUILD [meson options]; PLACE=folder puts the extension elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
place=${PLACE:-python/kintsugi}
python=${PYTHON:-python3}
export PATH="$(dirname "$(command -v "$python")"):$PATH"
meson() { "$python" -m mesonbuild.mesonmain "$@"; }

tools/need_llvm.sh
mkdir -p "$build"
"$python" tools/list_sources.py src >"$build/sources.new"
"$python" tools/list_sources.py python .py >>"$build/sources.new"
if [ ! -f "$build/build.ninja" ]; then
    meson setup "$build" "$@" >"$build/setup.log" 2>&1 || { cat "$build/setup.log"; exit 1; }
elif ! cmp -s "$build/sources.new" "$build/sources.txt"; then
    meson setup --reconfigure "$build" >"$build/setup.log" 2>&1 || { cat "$build/setup.log"; exit 1; }
fi
mv "$build/sources.new" "$build/sources.txt"

meson compile -C "$build" --ninja-args=-k0 >"$build/compile.log" 2>&1 || { grep -vE '^(\[|cc |FAILED|INFO|ninja: Ent)' "$build/compile.log"; exit 1; }
grep -A4 'warning:' "$build/compile.log" || true
mkdir -p "$place"
for so in "$build"/src/_kintsugi.*.so; do
    ln -sf "$(realpath "$so")" "$place/$(basename "$so")"
done
