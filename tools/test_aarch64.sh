#!/usr/bin/env bash
# src/core for aarch64: cross-compiled with clang and LLVM's libraries for that processor, its unit tests run under qemu. Debian's
# packages are fetched where they are missing (root, apt). Usage: PYTHON=... tools/test_aarch64.sh BUILD
# KIN_AARCH64_TESTS  names of tests (default all)
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"
build=$(realpath "$1")
python=${PYTHON:-python3}
meson() { "$python" -m mesonbuild.mesonmain "$@"; }
export PATH="$(dirname "$(command -v "$python")"):$PATH"

install_tools() {
    command -v clang-19 >/dev/null && command -v ld.lld-19 >/dev/null && command -v qemu-aarch64-static >/dev/null \
        && [ -d /usr/aarch64-linux-gnu/include ] && return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "tests for aarch64 need clang-19, lld-19, qemu-user-static, libc6-dev-arm64-cross, libgcc-12-dev-arm64-cross and" \
             "libstdc++-12-dev-arm64-cross: apt-get install them" >&2
        exit 1
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends clang-19 lld-19 qemu-user-static libc6-dev-arm64-cross \
        libgcc-12-dev-arm64-cross libstdc++-12-dev-arm64-cross >"$build/install.log" 2>&1 || { tail -3 "$build/install.log" >&2; exit 1; }
}

# LLVM's static libraries for aarch64 are put beside the build: the package cannot be installed next to the one for this processor.
fetch_llvm() {
    [ -d "$build/root/usr/lib/llvm-19/lib" ] && return 0
    dpkg --add-architecture arm64
    apt-get update -qq >>"$build/install.log" 2>&1 || true
    mkdir -p "$build/packages" "$build/root"
    (cd "$build/packages" && apt-get download llvm-19-dev:arm64 libzstd-dev:arm64 zlib1g-dev:arm64 >>"$build/install.log" 2>&1) \
        || { tail -3 "$build/install.log" >&2; exit 1; }
    for package in "$build"/packages/*.deb; do
        dpkg -x "$package" "$build/root"
    done
}

# What meson asks of llvm-config, for the folder above.
write_llvm_config() {
    local native
    native=$(command -v llvm-config-19 || echo /usr/lib/llvm-19/bin/llvm-config)
    cat >"$build/llvm-config" <<TEXT
#!/usr/bin/env bash
# Answers for the libraries of another processor.
root=$build/root/usr
case "\$*" in
    --version) $native --version ;;
    --libdir) echo \$root/lib/llvm-19/lib ;;
    --includedir) echo \$root/lib/llvm-19/include ;;
    --link-static*) shift 2; $native --link-static --libs "\$@" | tr ' ' '\n' ;;
esac
TEXT
    chmod +x "$build/llvm-config"
}

write_cross_file() {
    local libraries="$build/root/usr/lib/aarch64-linux-gnu"
    cat >"$build/cross.ini" <<TEXT
[binaries]
c = ['clang-19', '--target=aarch64-linux-gnu']
ar = 'llvm-ar-19'
strip = 'llvm-strip-19'
exe_wrapper = ['qemu-aarch64-static', '-L', '/usr/aarch64-linux-gnu']
[built-in options]
c_link_args = ['-fuse-ld=lld-19']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
[properties]
llvm_needs_dirs = ['$libraries']
needs_exe_wrapper = true
TEXT
}

install_tools
fetch_llvm
write_llvm_config
write_cross_file
objects=$build/objects
[ -f "$objects/build.ninja" ] || meson setup "$objects" --cross-file "$build/cross.ini" -Dllvm_config="$build/llvm-config" -Dcore_only=true -Doptimization=1 \
    >"$build/setup.log" 2>&1 || { tail -20 "$build/setup.log"; exit 1; }
meson compile -C "$objects" --ninja-args=-k0 >"$build/compile.log" 2>&1 || { grep -E 'error|undefined|FAILED' "$build/compile.log" | head -40; exit 1; }
meson test -C "$objects" --print-errorlogs --no-rebuild --timeout-multiplier 20 ${KIN_AARCH64_TESTS:-} | sed '/^$/d'
