#!/usr/bin/env bash
# Makes sure that LLVM's libraries (17 to 21; 19 where there is a choice) are there, or says how to get them. Without them everything
# but code generation is built. KIN_NO_LLVM=1: they are not wanted.
set -euo pipefail
[ -z "${KIN_NO_LLVM:-}" ] || exit 0
versions="19 20 18 17 21" # in the order of meson.build
case $(uname -m) in x86_64 | aarch64) ;; *) exit 0 ;; esac

found() {
    local version
    for version in $versions; do
        command -v "llvm-config-$version" >/dev/null || [ -x "/usr/lib/llvm-$version/bin/llvm-config" ] || [ -x "/usr/lib64/llvm$version/bin/llvm-config" ] || continue
        return 0
    done
    case $(llvm-config --version 2>/dev/null) in 17.* | 18.* | 19.* | 2[01].*) return 0 ;; esac
    return 1
}

found && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    log=$(mktemp)
    apt-get update >"$log" 2>&1 || true
    for version in $versions; do
        if DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "llvm-$version-dev" >>"$log" 2>&1; then
            DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends libzstd-dev zlib1g-dev >>"$log" 2>&1 || true
            rm -f "$log"
            exit 0
        fi
    done
    tail -3 "$log" >&2
    rm -f "$log"
fi
cat >&2 <<'TEXT'
Code generation needs LLVM 17 to 21 with its static libraries: install llvm-19-dev (Debian, Ubuntu: apt-get install llvm-19-dev;
Fedora: dnf install llvm-devel llvm-static) and build again.
Building without it; graphs will run step by step. KIN_NO_LLVM=1 silences this.
TEXT
