"""`kintsugi doctor`: what was found on this machine, what is switched on, and why something is not.

The report begins every bug report. Each row is (part, state, what), where state is "on", "off" or "info"; a part that is off
says what to do about it.
"""

import os
import platform
import sys

TESTED_TORCH = ("2.6", "2.11", "2.13", "2.14")  # docs/versions.md


def rows():
    """The report as a list of (part, state, text); imports torch and runs one small compiled function."""
    found = [("kintsugi", "info", _version()), ("system", "info", f"{platform.platform()}, {os.cpu_count()} cores")]
    found.append(_python())
    try:
        import torch
    except ImportError as error:
        return [*found, ("torch", "off", f"cannot be imported ({error}); install torch 2.6 or newer")]
    found.append(_torch(torch))
    try:
        from ._engine import engine

        facts = engine._doctor()
    except Exception as error:  # whatever is wrong with the engine, the report must be written
        return [*found, ("engine", "off", f"the extension module does not load ({error}); everything runs eagerly. Build it again "
                                          f"for this interpreter")]
    found += [*_parts(facts), _cache(), _settings(), _trial(torch)]
    return found


def _version():
    import kintsugi

    return f"{kintsugi.__version__}, {os.path.dirname(kintsugi.__file__)}"


def _python():
    name = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    from ._eager import why_not

    reason = why_not()
    return ("python", "on", name) if reason is None else ("python", "off", f"{name}; {reason}")


def _torch(torch):
    state = "on" if torch.__version__.startswith(tuple(version + "." for version in TESTED_TORCH)) else "info"
    note = "" if state == "on" else f"; tested with {', '.join(TESTED_TORCH)}"
    return "torch", state, f"{torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}{note}"


def _parts(facts):
    if not facts["tensors"]:
        yield "tensors", "off", "this build of torch keeps its tensors in another way than expected: everything runs eagerly"
    target = (facts["target"] or "").splitlines()
    if target:
        yield "kernels", "on", f"compiled for {target[0]}"
    else:
        yield "kernels", "off", f"{facts['target_why'] or 'built without LLVM'}; graphs run step by step"
    if facts["tiles"]:
        yield "own products", "on", "matrix products, attention, recurrent layers and half precision in own code where it is faster"
    else:
        yield ("own products", "info", "need AVX2, which this processor lacks: matrix products, convolutions, attention, recurrent layers and half "
                                       "precision are PyTorch's; everything around them is compiled")
    if facts["write_tracking"]:
        yield "packed weights", "on", "the kernel reports writes to memory"
    else:
        yield ("packed weights", "off", f"no write tracking ({facts['write_tracking_why'] or 'not supported'}; Linux 6.7 has it): weights "
                                        "above 64 KB are used as they lie")
    yield "kept memory", *(("on", "outputs reuse large blocks") if facts["blocks"]
                           else ("off", "torch's storages have an unknown layout: outputs get fresh memory"))
    yield "recording", *(("off", "a debugger, coverage or profiling tool traces this interpreter; without it calls are recorded")
                         if facts["foreign_tool"] else ("on", "no other tool traces this interpreter"))


def _cache():
    from . import cache
    from ._config import config

    if config.cache_dir is None:
        return "kernel cache", "off", "config.cache_dir is None: kernels are compiled again in each process"
    try:
        info = cache.info()
        if os.path.isdir(info["folder"]) and not os.access(info["folder"], os.W_OK):
            return "kernel cache", "off", f"{info['folder']} cannot be written to"
        return "kernel cache", "on", f"{info['folder']}, {info['kernels']} kernels, {info['bytes'] / 1e6:.1f} MB"
    except (cache.CacheError, OSError) as error:
        return "kernel cache", "off", str(error)


def _settings():
    from ._config import config

    names = ("TORCH_COMPILE_DISABLE", "TORCH_LOGS", "TORCH_TRACE", "TORCHDYNAMO_VERBOSE")
    given = [f"{name}={os.environ[name]}" for name in sorted({*names, *(n for n in os.environ if n.startswith(("KINTSUGI_", "KIN_")))})
             if name in os.environ]
    if config.disable or os.environ.get("TORCH_COMPILE_DISABLE") == "1":
        return "settings", "off", "everything runs eagerly (config.disable or TORCH_COMPILE_DISABLE=1)"
    return "settings", "info", " ".join(given) or "no environment variables are set"


def _trial(torch):
    """One function, recorded, replayed and compared; the last word on whether all of this works together."""
    import kintsugi

    def doctor_trial(x):
        return torch.relu(x + 1) * 2

    compiled = kintsugi.compile(doctor_trial)
    x = torch.linspace(-2, 2, 1 << 12)
    try:
        right = all(torch.allclose(compiled(x), doctor_trial(x)) for _ in range(8))
        stats = kintsugi.stats(compiled)
    finally:
        compiled.reset()
    if not right:
        return "trial", "off", "a compiled function gave another result than eager: please report this"
    if not stats.get("replays"):
        reasons = ", ".join(stats.get("eager_calls", {})) or "no reason was recorded"
        return "trial", "off", f"calls ran eagerly: {reasons}"
    launched = sum(row["launches"] for row in stats.get("kernels", ()) if row.get("compiled"))
    return "trial", "on", f"{stats['replays']} of 8 calls replayed, {launched} with kernels; results equal eager's"


def report(found=None):
    """The rows as text, one a line."""
    found = rows() if found is None else found
    return "\n".join(f"{part:15} {'-' if state == 'info' else state:4} {text}" for part, state, text in found)
