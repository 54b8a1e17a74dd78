#!/usr/bin/env bash
# Kintsugi for aarch64: cross-compiled with clang and LLVM's libraries for that processor, and run under qemu. Debian's packages are fetched where
# they are missing (root, apt). Usage: PYTHON=... tools/test_aarch64.sh BUILD [core|extension]
#
# core: the unit tests of src/core (KIN_AARCH64_TESTS: names of some). extension: it is put beside the one for this processor, and BUILD/root/usr/bin/python
# runs Debian's CPython of PYTHON's version. Neither: src/core's tests, then a share of the Python tests. Exit status 77: what it needs cannot be installed here.
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
        exit 77
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends clang-19 lld-19 qemu-user-static libc6-dev-arm64-cross \
        libgcc-12-dev-arm64-cross libstdc++-12-dev-arm64-cross >"$build/install.log" 2>&1 || { tail -3 "$build/install.log" >&2; exit 77; }
}

# Packages for aarch64 are put beside the build: they cannot be installed next to those for this processor. fetch NAME PACKAGE...
fetch() {
    local packages="$build/packages/$1"
    shift
    [ -f "$packages/ready" ] && return 0
    dpkg --add-architecture arm64
    apt-get update -qq >>"$build/install.log" 2>&1 || true
    mkdir -p "$packages" "$build/root"
    (cd "$packages" && apt-get download "${@/%/:arm64}" >>"$build/install.log" 2>&1) || { tail -3 "$build/install.log" >&2; exit 77; }
    for package in "$packages"/*.deb; do
        dpkg -x "$package" "$build/root"
    done
    touch "$packages/ready"
}

# CPython and what its modules and PyTorch load. Programs that it starts find it through the script: argv[0] is the script's path.
fetch_python() {
    fetch "python$version" "python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib" libc6 libgcc-s1 libstdc++6 libgomp1 libexpat1 zlib1g \
        libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libtinfo6 libncursesw6 libreadline8 libcrypt1
    cat >"$build/root/usr/bin/python" <<TEXT
#!/bin/sh
exec qemu-aarch64-static -L $build/root -0 "\$0" $build/root/usr/bin/python$version "\$@"
TEXT
    chmod +x "$build/root/usr/bin/python"
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

# compile FOLDER MESON_OPTION...
compile() {
    local objects="$build/$1"
    shift
    [ -f "$objects/build.ninja" ] || meson setup "$objects" --cross-file "$build/cross.ini" -Dllvm_config="$build/llvm-config" -Doptimization=1 "$@" \
        >"$build/setup.log" 2>&1 || { tail -20 "$build/setup.log"; exit 1; }
    meson compile -C "$objects" --ninja-args=-k0 >"$build/compile.log" 2>&1 || { grep -E 'error|undefined|FAILED' "$build/compile.log" | head -40; exit 1; }
}

test_core() {
    compile objects -Dcore_only=true
    meson test -C "$build/objects" --print-errorlogs --no-rebuild --timeout-multiplier 20 ${KIN_AARCH64_TESTS:-} | sed '/^$/d'
}

build_extension() {
    local so
    fetch_python
    compile extension
    so=$(echo "$build"/extension/src/_kintsugi.*.so)
    ln -sf "$so" "python/kintsugi/$(basename "$so" | sed 's/x86_64/aarch64/')"
}

version=$("$python" -c 'import sys; print("{}.{}".format(*sys.version_info[:2]))')
install_tools
fetch llvm llvm-19-dev libzstd-dev zlib1g-dev
write_llvm_config
write_cross_file
case ${2:-} in
    core) test_core ;;
    extension) build_extension ;;
    *)
        test_core
        "$python" tools/test_matrix.py --aarch64 2.9.0 --no-page --folder "$build" --share 256 --corpus 256 --programs 10 --only corpus --only rules --only random
        ;;
esac
