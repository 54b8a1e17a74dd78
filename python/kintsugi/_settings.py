"""What PyTorch's own settings mean here: torch._dynamo.config, torch._inductor.config, torch.compiler, TORCH_LOGS.

One table; the first row whose pattern matches a name decides. docs/settings.md is made of it (`make settings`). A setting that acts is
followed by _install.py; one that is accepted and changes nothing says so once, when the program sets it to something else.
"""

import fnmatch
import logging
import sys

from . import _logs

ACTS, NONE, REFUSED = "acts", "accepted, no effect", "refused"

_OTHER_COMPILER = "a detail of stock's compiler, which does not run"
_DEVICE = "concerns devices that Kintsugi does not compile for: its kernels are for CPUs"
_DISTRIBUTED = "concerns stock's treatment of distributed programs; here collectives are ordinary calls"

# owner: [(pattern, what becomes of it, why)]
TABLE = {
    "torch._dynamo.config": [
        ("recompile_limit", ACTS, "kintsugi.config.recompile_limit"),
        ("accumulated_recompile_limit", NONE, "recordings are counted for each function, not for each code object of a process"),
        ("suppress_errors", ACTS, "kintsugi.config.suppress_errors"),
        ("verbose", ACTS, "kintsugi.config.verbose"),
        ("disable", ACTS, "kintsugi.config.disable"),
        ("error_on_nested_fx_trace", ACTS, "False: torch.fx.symbolic_trace traces compiled functions as they are, instead of raising"),
        ("error_on_recompile", ACTS, "a recompile raises RecompileError"),
        ("fail_on_recompile_limit_hit", ACTS, "the limit raises FailOnRecompileLimitHit"),
        ("ignore_logging_functions", ACTS, "calls of these functions are dropped in compiled code"),
        ("reorderable_logging_functions", ACTS, "calls of these functions run after the graph"),
        ("compiled_autograd", ACTS, "full backward hooks of modules end no graph; backward is compiled without it as well"),
        ("assume_static_by_default", ACTS, "False: functions compiled from then on have dynamic=True unless they say otherwise"),
        ("automatic_dynamic_shapes", ACTS, "False: functions compiled from then on have dynamic=False unless they say otherwise"),
        ("capture_scalar_outputs", NONE, "numbers from tensor data are always part of the graph; decisions on them always end it"),
        ("capture_dynamic_output_shape_ops", NONE, "operators whose result sizes depend on data are always part of the graph"),
        ("rewrite_assert_with_torch_assert", NONE, "an assertion about data that holds is always part of the graph"),
        ("specialize_*", NONE, "a number is a constant until it differs between calls; then it is an input"),
        ("*dynamic*", NONE, "sizes are static until they differ between calls; dynamic=True and mark_dynamic make them dynamic from the start"),
        ("force_*static*", NONE, "sizes are static until they differ between calls; mark_static keeps one static"),
        ("trace_numpy", NONE, "NumPy code runs as it is; it is no part of graphs"),
        ("numpy_default_*", NONE, "NumPy's own functions run, so their defaults are NumPy's"),
        ("use_numpy_random_stream", NONE, "NumPy's own functions run, so the stream is NumPy's"),
        ("allow_rnn", NONE, "nn.RNN, nn.GRU and nn.LSTM are always compiled"),
        ("capture_*", NONE, "always so"),
        ("trace_autograd_ops", NONE, "torch.autograd.grad in compiled code runs the engine"),
        ("*guard*", NONE, "guards are Kintsugi's own: they follow from what the recorded call read"),
        ("nested_graph_breaks", NONE, "a graph break in a called function never affects the frames above it"),
        ("inline_inbuilt_nn_modules", NONE, "always so: modules are ordinary objects"),
        ("allow_unspec_int_on_nn_module", NONE, "always so: a number on a module that changes becomes an input"),
        ("dead_code_elimination", NONE, "unused operations are dropped from kernels, and kept in graphs for custom backends"),
        ("cprofile", NONE, "profile the call itself; kintsugi.stats() has the times of recording and compiling"),
        ("repro_*", NONE, "use `python -m kintsugi minify`; `python -m kintsugi doctor` and events name what failed"),
        ("replay_record_enabled", NONE, "frames are not recorded to files; the event log holds every decision"),
        ("debug_dir_root", NONE, "texts of the passes are in explain().passes and TORCH_LOGS=+kintsugi.passes"),
        ("traceable_tensor_subclasses", NONE, "calls with tensor subclasses run as they are"),
        ("nontraceable_tensor_subclasses", NONE, "calls with tensor subclasses run as they are"),
        ("optimize_ddp*", NONE, _DISTRIBUTED),
        ("*fsdp*", NONE, _DISTRIBUTED),
        ("enable_compiler_collectives", NONE, _DISTRIBUTED),
        ("enable_p2p_compilation", NONE, _DISTRIBUTED),
        ("cudagraph_*", NONE, _DEVICE),
        ("*", NONE, _OTHER_COMPILER),
    ],
    "torch._inductor.config": [
        ("freezing", NONE, "kintsugi.config.freezing is on by default: weights are packed, and packed again when they change"),
        ("max_autotune*", NONE, "there is no search over kernel variants; kernels slower than step-by-step replay are dropped"),
        ("coordinate_descent*", NONE, "there is no search over kernel variants; kernels slower than step-by-step replay are dropped"),
        ("*autotune*", NONE, "there is no search over kernel variants; kernels slower than step-by-step replay are dropped"),
        ("fallback_random", NONE, "random numbers are always eager's"),
        ("align_random_eager", NONE, "random numbers are always eager's"),
        ("emulate_precision_casts*", NONE, "half precision is always rounded as eager does, unless kintsugi.config.fast_math is on"),
        ("use_fast_math", NONE, "the setting for it is kintsugi.config.fast_math"),
        ("*cache*", NONE, "kernels are kept in kintsugi.config.cache_dir"),
        ("compile_threads", NONE, "the setting for it is kintsugi.config.compile_threads"),
        ("cpp_wrapper*", NONE, "launches always run C code"),
        ("deterministic", NONE, "kernels always give the same result each time"),
        ("*custom*pass*", REFUSED, "a pass over stock's graphs cannot run, because there are none; a custom backend gets torch.fx graphs"),
        ("triton.cudagraphs", NONE, "for one function: mode=\"reduce-overhead\" or options={\"triton.cudagraphs\": True}"),
        ("triton.*", NONE, _DEVICE), ("cuda.*", NONE, _DEVICE), ("rocm.*", NONE, _DEVICE), ("xpu*", NONE, _DEVICE), ("*cuda*", NONE, _DEVICE),
        ("*cudagraph*", NONE, _DEVICE), ("*triton*", NONE, _DEVICE), ("tpu*", NONE, _DEVICE), ("cutlass*", NONE, _DEVICE), ("halide.*", NONE, _DEVICE),
        ("*bucket*", NONE, _DISTRIBUTED), ("*ddp*", NONE, _DISTRIBUTED), ("*comm_overlap*", NONE, _DISTRIBUTED),
        ("*collective*", NONE, _DISTRIBUTED),
        ("*", NONE, _OTHER_COMPILER),
    ],
    "torch.compiler": [
        ("compile", ACTS, "as torch.compile"),
        ("reset", ACTS, "drops all recordings"),
        ("disable", ACTS, "the function runs uncompiled: a graph break"),
        ("list_backends", ACTS, "compile accepts every name in the list"),
        ("set_stance", ACTS, "all stances"),
        ("is_compiling", ACTS, "True while a call is recorded (docs/design/is-compiling.md)"),
        ("is_dynamo_compiling", ACTS, "as is_compiling"),
        ("is_exporting", ACTS, "stock's own: Kintsugi does not serve torch.export"),
        ("allow_in_graph", ACTS, "the function is a node of the graph"),
        ("assume_constant_result", ACTS, "the function is called each time, without a graph break"),
        ("nested_compile_region", ACTS, "the function is recorded with its caller"),
        ("substitute_in_graph", NONE, "the original function runs, or is recorded as it is"),
        ("wrap_numpy", NONE, "NumPy code runs as it is"),
        ("cudagraph_mark_step_begin", NONE, _DEVICE),
        ("*_default_backend", ACTS, "stock's own setting; torch.compile without a backend means Kintsugi"),
        ("*guard*unsafe", NONE, "filters over stock's guards; Kintsugi's guards cannot be skipped"),
        ("set_enable_guard_collectives", NONE, _DISTRIBUTED),
        ("*cache_artifacts", NONE, "stock's caches; Kintsugi's kernels are files in kintsugi.config.cache_dir"),
        ("load_compiled_function", NONE, "stock's own files"),
        ("config", NONE, "settings of profile-guided optimisation and job ids of stock's compiler"),
        ("*", NONE, "a type"),
    ],
    "TORCH_LOGS": [
        ("dynamo", ACTS, "at INFO, what was traced and compiled; at DEBUG (+dynamo), the artifacts that are served, too"),
        ("dynamic", ACTS, "sizes that are marked with mark_dynamic and tested exactly"),
        ("*", NONE, "what it logs does not happen here; a warning says so once and lists what is served"),
    ],
}


def find(owner, name):
    """(what becomes of the setting, why)."""
    if owner == "TORCH_LOGS" and name in _logs.SERVED:
        return ACTS, "served (kintsugi/_logs.py)"
    target, _, name_there = _alias_of(owner, name).rpartition(".")
    if target in TABLE:
        return find(target, name_there)
    return next((status, why) for pattern, status, why in TABLE[owner] if fnmatch.fnmatchcase(name, pattern))


def _alias_of(owner, name):
    """The setting of which PyTorch makes this another name (cache_size_limit: recompile_limit); "": of none."""
    return getattr(getattr(sys.modules.get(owner), "_config", {}).get(name), "alias", None) or ""


_said = set()


def note_set(owner, name, value, default):
    """The program sets it: says once what that means where it means nothing. A setting that is refused raises when it is set."""
    if name.startswith("_") or value == default or not _is_programs():
        return
    status, why = find(owner, name)
    if status == REFUSED and value is not None:
        raise RuntimeError(f"{owner}.{name} = {value!r}: refused while torch.compile is served by Kintsugi: {why}")
    if status == NONE and (owner, name) not in _said:
        _said.add((owner, name))
        logging.getLogger("kintsugi").warning("%s.%s = %r has no effect while torch.compile is served by Kintsugi: %s", owner, name, value, why)


def _is_programs():
    """Stock's own code sets its settings for a while, too."""
    frame = sys._getframe(2)
    while frame is not None and _module_of(frame).partition(".")[0] in ("kintsugi", "contextlib") or \
            frame is not None and _module_of(frame) == "torch.utils._config_module":
        frame = frame.f_back
    return frame is None or _module_of(frame).partition(".")[0] != "torch"


def _module_of(frame):
    return frame.f_globals.get("__name__") or ""


def names(owner):
    """Every name of the owner that the installed PyTorch has."""
    import torch

    if owner == "torch.compiler":
        return sorted(name for name in torch.compiler.__all__)
    if owner == "TORCH_LOGS":
        from torch._logging._internal import log_registry

        return sorted({*log_registry.log_alias_to_log_qnames, *log_registry.artifact_names} - {"custom_format_test_artifact"})
    import importlib

    module = importlib.import_module(owner)
    return sorted(name for name in {*module.get_config_copy(), *(name for name in module._config if _alias_of(owner, name))} if not name.startswith("_") and name != "TYPE_CHECKING")
