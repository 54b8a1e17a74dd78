"""Compiled kernels on disk: what is there, and taking it elsewhere.

    kintsugi.cache.info()           a dict: folder, kernels, bytes, limit, processors, versions
    kintsugi.cache.stats()          a dict: where the kernels of this process came from, and what was missed
    kintsugi.cache.clear()          removes them all; returns how many
    kintsugi.cache.export_to(file)  one archive for other machines with the same processor and the same Kintsugi
    kintsugi.cache.import_from(file)

Kernels are machine code: import only what you would also run. A kernel for another processor or version is harmless,
nobody will ask for it. The folder is config.cache_dir (KINTSUGI_CACHE_DIR); src/core/codegen/store.h says what is in it.
"""

import collections
import io
import os
import re
import stat
import tarfile

from ._config import config

_NAME = re.compile(r"[0-9a-f]{32}/[0-9a-f]{16}\.(kernel|txt)")
_FOLDER = re.compile(r"[0-9a-f]{32}")
_MAGIC = b"KINKERN1"
_MOST_BYTES = 1 << 28


class CacheError(RuntimeError):
    """The folder or the archive cannot be used."""


def _folder(make=False):
    path = config.cache_dir
    if path is None:
        raise CacheError("there is no cache: config.cache_dir is None")
    path = os.path.expanduser(path)
    try:
        if make:
            os.makedirs(path, 0o700, exist_ok=True)
        found = os.stat(path)
    except FileNotFoundError:
        return path
    except OSError as error:
        raise CacheError(f"{path}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise CacheError(f"{path}: not a folder")
    if found.st_uid != os.geteuid():
        raise CacheError(f"{path}: it belongs to another user")
    if found.st_mode & 0o022:
        raise CacheError(f"{path}: others may write to it")
    return path


def _files(folder):
    """(name, path, bytes) of everything kept there; files may vanish at any time."""
    try:
        structures = sorted(name for name in os.listdir(folder) if _FOLDER.fullmatch(name))
    except OSError:
        return
    for structure in structures:
        try:
            names = sorted(os.listdir(os.path.join(folder, structure)))
        except OSError:
            continue
        for name in names:
            path = os.path.join(folder, structure, name)
            try:
                found = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield f"{structure}/{name}", path, found.st_size


def _describe(path):
    """Processor and version of the kernel beside which this text lies."""
    try:
        with open(path[: -len("kernel")] + "txt", encoding="utf-8", errors="replace") as file:
            lines = [file.readline().rstrip("\n") for _ in range(3)]
    except OSError:
        return "?", "?"
    return lines[0] or "?", lines[2] or "?"


def info():
    """What is in the folder."""
    folder = _folder()
    processors, versions = collections.Counter(), collections.Counter()
    kernels = total = 0
    for name, path, size in _files(folder):
        total += size
        if name.endswith(".kernel"):
            kernels += 1
            processor, version = _describe(path)
            processors[processor] += 1
            versions[version] += 1
    return {"folder": folder, "kernels": kernels, "bytes": total, "limit": config.cache_limit_mb << 20,
            "processors": dict(processors), "versions": dict(versions)}


def stats():
    """Kernels of this process: how many, compiled, from memory and from disk, what was missed and why, times."""
    from ._api import start_engine

    return start_engine().kernel_totals()


def clear():
    """Removes all kernels; programs that run keep what they have loaded."""
    folder, removed = _folder(), 0
    for name, path, _ in _files(folder):
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CacheError(f"{path}: {error.strerror}") from None
        removed += name.endswith(".kernel")
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            if _FOLDER.fullmatch(name):
                try:
                    os.rmdir(os.path.join(folder, name))
                except OSError:
                    pass  # something was written meanwhile
    return removed


def export_to(file):
    """Writes all kernels to an archive; returns how many."""
    folder, count, temporary = _folder(), 0, f"{os.fspath(file)}.{os.getpid()}"
    try:
        with tarfile.open(temporary, "w:gz", compresslevel=6) as archive:
            for name, path, _ in _files(folder):
                if not _NAME.fullmatch(name):
                    continue
                try:
                    with open(path, "rb") as source:
                        data = source.read()
                except OSError:
                    continue
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o600
                archive.addfile(member, io.BytesIO(data))
                count += name.endswith(".kernel")
        os.replace(temporary, file)
    except OSError as error:
        raise CacheError(f"{file}: {error.strerror or error}") from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return count


def _keep(folder, name, data):
    path = os.path.join(folder, name)
    temporary = os.path.join(os.path.dirname(path), f".{os.getpid()}.import")
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def import_from(file):
    """Adds the kernels of an archive; returns how many. Each is checked when it is first used."""
    folder, count = _folder(make=True), 0
    try:
        with tarfile.open(file, "r:*") as archive:
            for member in archive:
                if not member.isreg() or not _NAME.fullmatch(member.name) or member.size > _MOST_BYTES:
                    raise CacheError(f"{file}: {member.name!r} is not a kernel")
                data = archive.extractfile(member).read()
                if member.name.endswith(".kernel") and not data.startswith(_MAGIC):
                    raise CacheError(f"{file}: {member.name!r} is not a kernel")
                _keep(folder, member.name, data)
                count += member.name.endswith(".kernel")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise CacheError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    return count
