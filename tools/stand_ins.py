"""Stand-ins for libraries that an installed torch names and this machine does not have.

    stand_ins.py SITE_PACKAGES/torch [ROOT]

ROOT: the machine is that folder (debootstrap).

PyPI's torch for x86-64 is linked with several gigabytes of CUDA. Where there is no GPU nothing of it is ever called, but the loader
wants each library and each symbol. Written into torch/lib: a shared object for every missing library, with its soname, and the symbols that
torch needs with their versions, all of them functions that return 100 (CUDA's "no device"), or, where text is expected, say so.
"""
import collections
import pathlib
import re
import subprocess
import sys


def read(*command):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True).stdout


def read_needed(library):
    return set(re.findall(r"\(NEEDED\).*\[(.+?)\]", read("readelf", "-dW", library)))


def read_symbols(library):
    """(undefined: (name, version or None, weak), defined names) of the dynamic symbols."""
    undefined, defined = set(), set()
    for line in read("readelf", "--dyn-syms", "-W", library).splitlines():
        field = line.split()
        if len(field) < 8 or not field[0].endswith(":") or not field[0][:-1].isdigit():
            continue
        name, _, version = field[7].partition("@")
        if field[6] != "UND":
            defined.add(name)
        elif field[4] == "GLOBAL":
            undefined.add((name, version.strip("@") or None))
    return undefined, defined


def read_version_files(library):
    """Which library each version of a symbol is looked for in."""
    files, file = {}, None
    for line in read("readelf", "-VW", library).splitlines():
        if found := re.search(r"File: (\S+)", line):
            file = found[1]
        elif file and (found := re.search(r"Name: (\S+)\s+Flags", line)):
            files[found[1]] = file
    return files


def can_load(name, root):
    import ctypes
    if root:
        return any(pathlib.Path(root, "usr/lib").rglob(name))
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def write(place, soname, plain, versions):
    source, script = place / f"{soname}.c", place / f"{soname}.map"
    names = set(plain).union(*versions.values())
    source.write_text("".join(f'char *{name}(void) {{ return "no device"; }}\n' if re.search("Get(Error|Status)(String|Name)$", name)
                              else f"int {name}(void) {{ return 100; }}\n" for name in sorted(names)))
    nodes = "".join(f"{version} {{ global: {'; '.join(sorted(symbols))}; }};\n" for version, symbols in sorted(versions.items()))
    script.write_text(nodes)
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{soname}", *([f"-Wl,--version-script={script}"] if nodes else []),
                    "-o", place / soname, source], check=True)
    source.unlink()
    script.unlink()


def main():
    place, root = pathlib.Path(sys.argv[1]) / "lib", sys.argv[2] if len(sys.argv) > 2 else None
    libraries = sorted(place.glob("*.so*"))
    needed, wanted, defined, files = set(), set(), set(), {}
    for library in libraries:
        undefined, own = read_symbols(library)
        needed |= read_needed(library)
        wanted |= undefined
        defined |= own
        files.update(read_version_files(library))
    present = {library.name for library in libraries}
    missing = sorted(name for name in needed - present if not name.startswith("libpython") and not can_load(name, root))
    versions, plain = collections.defaultdict(lambda: collections.defaultdict(set)), set()
    for name, version in wanted:
        if version and files.get(version) in missing:
            versions[files[version]][version].add(name)
        elif not version and name not in defined and not name.startswith(("_Z", "Py", "_Py", "__")):
            plain.add(name)
    for soname in missing:
        write(place, soname, plain - set().union(*versions[soname].values()) if versions[soname] else plain, versions[soname])
    print(f"{len(missing)} stand-ins: {' '.join(missing)}")


if __name__ == "__main__":
    main()
