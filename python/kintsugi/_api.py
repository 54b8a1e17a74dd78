"""compile() and the small functions around it."""

import functools
import logging
import sys

from ._compiled import engine_of, is_module, live_compiled
from ._start import make_compiled, start_engine

OPTIONS = ("async", "cuda_graphs", "fast_math", "freezing", "kernels", "threads", "validate", "warm")
CUDA_GRAPHS = ("reduce-overhead", "max-autotune")  # modes in which graphs on a GPU are launched as CUDA graphs, as in stock
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")


def compile(fn_or_module=None, *, fullgraph=False, dynamic=None, backend=None, mode=None, options=None, name=None,
            disable=False, recompile_limit=None):
    """Compiles a function or module; usable as a decorator with and without arguments.

    fullgraph  the first graph break raises kintsugi.Unsupported, also a torch._dynamo.exc.Unsupported. The call that
               meets it is the one that is recorded: what it did before the error stays done, nothing is replayed
    dynamic    None: sizes are fixed until they change; True: free from the start; False: always fixed
    backend    a name (see kintsugi.list_backends(); "eager" means no kernels) or a function (gm, example_inputs)
    mode       "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite". On the CPU they are the same:
               replays have no overhead that could be reduced, kernels are not chosen by trying many, and those slower than
               their steps are dropped in every mode. On a GPU the second and the third launch graphs as CUDA graphs
    options    dict; not together with mode. For this function, over kintsugi.config:
                   "kernels"   compile graphs to machine code
                   "freezing"  pack weights and compute with them ahead of calls
                   "async"     compile in the background; calls run step by step until then (config.async_compile)
                   "cuda_graphs" on a GPU: launch graphs without gradients as CUDA graphs where that is faster
                   "fast_math" results may differ from eager's by more than the order of sums: half precision is not
                               rounded between operators, products are not before they are added (config.fast_math)
                   "warm"      every call that can runs compiled code: nothing is compiled in the background, compared with eager or
                               left to it. A call that is recorded is done again by the compiled code, which gives its result,
                               unless that could be noticed: it printed, appended, wrote to its arguments or to a module. For
                               tests that compare compiled code with eager; stats(fn)["last_call"] tells how a call was done
                   "validate"  a number: so many first launches of each compiled graph are compared with its steps, which give the
                               result then; a float: that share of all launches. Code that differs is not used again, and an event
                               "differ" tells of it
                   "threads"   that our own code uses at most in a launch; operators and libraries of PyTorch use
                               PyTorch's number (config.threads)
               Names of stock's compiler settings are accepted and mean nothing here. With a function as `backend`, mode and
               options are its affair: it is called with them, as backend(gm, example_inputs, mode=..., options=...).
               "eager" and "aot_eager" ignore modes and the options of others, with a warning
    disable    True: the function runs as it is
    recompile_limit  recordings of this function before calls run eagerly, instead of kintsugi.config.recompile_limit
    """
    _check_arguments(fullgraph, dynamic, mode, options, name, disable, recompile_limit)
    from .backends import lookup_backend, with_arguments

    backend, named = lookup_backend(backend), backend
    if callable(backend):
        backend = with_arguments(backend, mode, options)
        from . import _symbols

        _symbols.prepare()
    elif backend == "eager":
        options = _leave_what_eager_has_no_use_for(named, mode, options)
    else:
        _check_mode(mode)
        _check_options(options or {})
        if mode in CUDA_GRAPHS or named == "cudagraphs" or (options or {}).get("triton.cudagraphs") is True:
            options = {"cuda_graphs": True, **(options or {})}
    kwargs = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "options": options, "disable": disable}
    if recompile_limit is not None:
        kwargs["recompile_limit"] = recompile_limit
    if fn_or_module is None:
        return functools.partial(_compile_one, kwargs=kwargs, name=name)
    return _compile_one(fn_or_module, kwargs=kwargs, name=name)


def _compile_one(fn, *, kwargs, name):
    if is_module(fn):
        from ._module import OptimizedModule

        return OptimizedModule(fn, kwargs, name)
    check_callable("compile", fn, "; compile options are keyword arguments")
    return make_compiled(fn, kwargs, name)


def check_callable(where, fn, advice=""):
    """The error of every function here that wants something to call."""
    if not callable(fn):
        raise TypeError(f"{where}({fn!r}): expected a function or a torch.nn.Module, got {type(fn).__name__}{advice}")


def _check_arguments(fullgraph, dynamic, mode, options, name, disable, recompile_limit):
    for argument, value in (("fullgraph", fullgraph), ("disable", disable)):
        if not isinstance(value, bool):
            raise TypeError(f"compile({argument}={value!r}): expected True or False")
    if not (dynamic is None or isinstance(dynamic, bool)):
        raise TypeError(f"compile(dynamic={dynamic!r}): expected None, True or False")
    if mode is not None and not isinstance(mode, str):
        raise TypeError(f"compile(mode={mode!r}): expected one of: {', '.join(MODES)}")
    if mode is not None and options is not None:
        raise RuntimeError(
            f"compile(mode={mode!r}, options={options!r}): Either mode or options can be specified, "
            "but both can't be specified at the same time; drop one of them"
        )
    if options is not None and not (isinstance(options, dict) and all(isinstance(k, str) for k in options)):
        raise TypeError(f"compile(options={options!r}): expected a dict with option names as keys, or None")
    if recompile_limit is not None and (isinstance(recompile_limit, bool) or not isinstance(recompile_limit, int) or recompile_limit < 1):
        raise TypeError(f"compile(recompile_limit={recompile_limit!r}): expected a number from 1 on, or None for "
                        "kintsugi.config.recompile_limit")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"compile(name={name!r}): expected a str, or None for the function's own name")


def _check_mode(mode):
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"compile(mode={mode!r}): Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")


def _leave_what_eager_has_no_use_for(backend, mode, options):
    """Stock's eager backends ignore whatever mode and options they are told, with a warning."""
    own = {name: value for name, value in (options or {}).items() if name in OPTIONS}
    _check_options(own)
    ignored = {name: value for name, value in (options or {}).items() if name not in OPTIONS}
    told = [f"mode={mode!r}"] * (mode not in (None, "default")) + [f"options={ignored!r}"] * bool(ignored)
    if told:
        logging.getLogger("kintsugi").warning("compile(backend=%r) ignores %s: this backend runs the recorded calls as they are", backend, " and ".join(told))
    return own or None


def _check_options(options):
    for name, value in options.items():
        if name in OPTIONS:
            if name == "threads" and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise TypeError(f"compile(options={{{name!r}: {value!r}}}): expected a number from 0 on")
            if name == "validate" and (isinstance(value, bool) or not (isinstance(value, int) and value >= 0 or isinstance(value, float) and 0 < value <= 1)):
                raise TypeError(f"compile(options={{{name!r}: {value!r}}}): expected a number of launches, or a share such as 0.01")
            if name not in ("threads", "validate") and not isinstance(value, bool):
                raise TypeError(f"compile(options={{{name!r}: {value!r}}}): expected True or False")
        elif not _is_stock_option(name):
            raise RuntimeError(f"compile(options={{{name!r}: ...}}): Unexpected optimization option {name}, "
                               f"known options are {', '.join(OPTIONS)}, and the settings of torch._inductor.config")


def _is_stock_option(name):
    """Scripts written for stock pass its settings. Its module is only loaded to tell them from mistakes."""
    try:
        from torch._inductor import config as stock

        return name == "guard_filter_fn" or name.replace("-", "_") in stock.get_config_copy()
    except Exception:
        return True


def disable(fn=None, recursive=True, *, reason=None, wrapping=True):
    """Keeps a function out of compiled code: it runs as it is, at the price of a graph break.

    `wrapping` is accepted because PyTorch's own modules pass it to the function that install() replaces.
    """
    if not isinstance(recursive, bool):
        raise TypeError(f"disable(recursive={recursive!r}): expected True or False; "
                        "arguments of the function belong to its call, not to disable()")
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"disable(reason={reason!r}): expected a str that tells readers why, or None")
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if is_module(fn):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    check_callable("disable", fn)

    @functools.wraps(fn)
    def call_disabled(*args, **kwargs):
        return fn(*args, **kwargs)

    # PyTorch's own tracer leaves alone what has these attributes, but not this frame: torch 2.6 disables functions that its torch.cond then calls.
    skip_code = getattr(sys.modules.get("torch._C._dynamo.eval_frame"), "skip_code", None)
    if skip_code is not None:
        skip_code(call_disabled.__code__)
    # The names PyTorch's own decorator uses: other tools ask for them, and so does the recorder.
    call_disabled._torchdynamo_disable = True
    call_disabled._torchdynamo_disable_msg = reason
    call_disabled._torchdynamo_orig_callable = fn
    return call_disabled


def graph_break(msg=""):
    """Ends the graph here. Does nothing in code that is not compiled."""
    if not isinstance(msg, str):
        raise TypeError(f"graph_break(msg={msg!r}): expected a str")


graph_break._kintsugi_graph_break = True


def is_compiling():
    """True while a call is being recorded."""
    from ._engine import engine

    return engine.is_recording()


def reset():
    """Drops everything recorded so far, and what was learnt of the cost of making kernels."""
    start_engine().reset()
    from . import _checkpoint, _logs
    from .backends import reset_backend

    _checkpoint.forget()
    used = [compiled.kwargs["backend"] for compiled in live_compiled()]
    for backend in {id(backend): backend for backend in used if callable(backend)}.values():
        reset_backend(backend)

    _logs.forget()


def wait_for_kernels():
    """Waits until nothing is compiled in the background any more (config.async_sizes, config.async_compile)."""
    start_engine().wait_for_kernels()


def stats(fn=None):
    """Counters of one compiled function as a dict; without `fn` a dict by name of all that are alive.

    Of each recording, `variants` has the number of its graphs, and of `subgraphs`: the pieces that were compiled, or handed to the backend.
    """
    if fn is None:
        start_engine()
        result = {}
        for compiled in live_compiled():
            name, number = compiled.__name__, 2
            while name in result:
                name, number = f"{compiled.__name__}#{number}", number + 1
            result[name] = _stats_of(compiled)
        return result
    compiled = engine_of(fn)
    if compiled is None:
        raise TypeError(f"stats({fn!r}): expected what kintsugi.compile returned, or nothing for all compiled functions")
    return _stats_of(compiled)


def _stats_of(compiled):
    from . import _kernels, _logs

    own = compiled.stats()
    failures = dict(_logs.backend_failures({compiled.__name__, own.get("name", compiled.__name__)}))
    return {**own, "kernels": _kernels.rows(start_engine(), compiled), **({"backend_failures": failures} if failures else {})}
