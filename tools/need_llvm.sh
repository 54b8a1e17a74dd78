#!/usr/bin/env bash
# Makes sure that LLVM 19's libraries are there, or says how to get them. Without them everything but code generation is built.
# KIN_NO_LLVM=1: they are not wanted.
set -euo pipefail
if [ -n "${KIN_NO_LLVM:-}" ] || [ "$(uname -m)" != x86_64 ] || command -v llvm-config-19 >/dev/null || [ -x /usr/lib/llvm-19/bin/llvm-config ]; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    log=$(mktemp)
    if { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends llvm-19-dev; } >"$log" 2>&1; then
        rm -f "$log"
        exit 0
    fi
    tail -3 "$log" >&2
    rm -f "$log"
fi
echo "Code generation needs LLVM 19: install llvm-19-dev (Debian, Ubuntu: apt-get install llvm-19-dev) and build again." >&2
echo "Building without it; graphs will run step by step. KIN_NO_LLVM=1 silences this." >&2
