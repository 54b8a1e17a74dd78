"""PyTorch's own operator database through the default backend: what eager accepts has to come out the same.

    op_suite.py [--ops NAME,...] [--dtypes float32,...] [--samples N] [--shard I/N] [--json FILE] [--table FILE] [--verbose]
    op_suite.py --grad ...
    op_suite.py --table FILE --read JSON ...

Each sample of each operator (contiguous, non-contiguous, zero-size, 0-dim, with NaN and infinities where the database
has none) is called in eager and compiled, three times: the recording, the call that compiles kernels, one that uses them.
Results are compared within the tolerances that torch.testing.assert_close has for their dtype; what has random
or uninitialised results is only required not to crash. Operators run in a child process, so that a crash is a finding.
With --grad inputs want gradients, and these are compared too (op_grad.py). Prints a report: per operator how its samples ran (native kernels, library calls, step by step), and the differences.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = ["float32", "bfloat16", "int64", "bool"]
GRAD_DTYPES = ["float32", "bfloat16", "float64"]
# Results that differ from call to call, or are not defined.
UNDEFINED = ("empty", "new_empty", "empty_like", "new_empty_strided", "empty_strided", "empty_permuted", "rand", "randn", "bernoulli",
             "multinomial", "normal", "uniform", "exponential", "geometric", "cauchy", "log_normal", "dropout", "rrelu",
             "random", "svd_lowrank", "pca_lowrank", "gumbel")


# Eager's vectorised gelu gives NaN for infinity and the scalar one infinity; eager's eigenvalues of NaN crash; its
# polynomials of NaN are memory that nobody has written.
NO_SPECIAL_VALUES = ("gelu", "linalg.eig", "_polynomial_")


def database():
    """{name: OpInfo}, names with their entry."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}


# -- in the child ----------------------------------------------------------------------------------------------------


def tensors_of(value):
    import torch
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def special_values(torch, tensor):
    """A copy with NaN, infinities and zeros of both signs in it."""
    made = tensor.clone()
    flat = made.view(-1)
    for i, value in enumerate((float("nan"), float("inf"), float("-inf"), 0.0, -0.0)):
        if i < flat.numel():
            flat[(i * 7) % flat.numel()] = value
    return made


def spread_out(torch, tensor):
    """The same values at twice the strides."""
    if tensor.dim() == 0 or tensor.numel() < 2:
        return tensor
    room = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] * 2, dtype=tensor.dtype)
    view = room[..., ::2]
    view.copy_(tensor)
    return view


def samples_of(torch, op, dtype, count, grad=False):
    """(label, input, args, kwargs); at most `count` from the database, evenly, and changed copies of the first."""
    made = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
    step = max(1, -(-len(made) // count))
    for i in range(0, len(made), step):
        yield f"{i}", made[i].input, made[i].args, made[i].kwargs
    for i, sample in enumerate(made[:2] if made else []):
        if isinstance(sample.input, torch.Tensor) and sample.input.layout is torch.strided:
            yield f"{i} non-contiguous", spread_out(torch, sample.input.detach()).requires_grad_(sample.input.requires_grad), sample.args, sample.kwargs
            if dtype.is_floating_point and not grad and not any(part in op.name for part in NO_SPECIAL_VALUES):
                yield f"{i} special values", special_values(torch, sample.input.contiguous()), sample.args, sample.kwargs


def copies(value, name):
    """The text of an expression that copies every tensor in `name`, which is built as `value` is."""
    import torch

    # A second call, so that there is a graph to compile even where the operator is one call.
    if isinstance(value, torch.Tensor):
        return f"{name}.clone()"
    if isinstance(value, (tuple, list)):
        return "(" + "".join(copies(part, f"{name}[{i}]") + ", " for i, part in enumerate(value)) + ")"
    return name


def spelled(value, names, tensors):
    """The text of an expression for a sample's argument: tensors become parameters, other things constants of `names`."""
    import torch

    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return f"t{len(tensors) - 1}"
    if type(value) in (tuple, list):
        inside = "".join(spelled(part, names, tensors) + ", " for part in value)
        return f"({inside})" if type(value) is tuple else f"[{inside}]"
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    name = f"c{len(names)}"
    names[name] = value
    return name


def make_function(op, input, args, kwargs, result):
    """(the operator and copies of what it gives as a function of tensors, without a loop; the tensors).
    `result` is an example."""
    names, tensors = {"op": op.op}, []
    words = [spelled(value, names, tensors) for value in (input, *args)]
    words += [f"{key}={spelled(value, names, tensors)}" for key, value in kwargs.items()]
    parameters = ", ".join(f"t{i}" for i in range(len(tensors)))
    exec(f"def call({parameters}):\n    r = op({', '.join(words)})\n    return {copies(result, 'r')}\n", names)
    return names["call"], tensors


def kernel_state(compiled):
    """What became of its graphs: "native", "library" (some extern calls), "steps" (not compiled), "none" (no graph)."""
    from kintsugi import _kintsugi
    from kintsugi._api import engine_of

    made = [version for entry in engine_of(compiled).entries() for subgraph in _kintsugi.kernels(entry)
            for version in subgraph["versions"]]
    if not made:
        return "none", ""
    reasons = sorted({version["reason"] for version in made if not version["compiled"]})
    if reasons:
        return "steps", reasons[0]
    return ("library" if any(version.get("extern") for version in made) else "native"), ""


def same(torch, wanted, got):
    """None, or what is different."""
    if len(wanted) != len(got):
        return f"{len(got)} tensors instead of {len(wanted)}"
    for a, b in zip(wanted, got):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}"
        if a.layout is torch.strided and a.numel() and a.stride() != b.stride():
            return f"strides {b.stride()} instead of {a.stride()}"
        try:
            torch.testing.assert_close(b, a, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())[:200]
        except Exception:
            continue  # a kind of tensor that assert_close does not compare
    return None


def fresh(value):
    import torch
    from torch.utils import _pytree

    def copy(t):
        if t.layout is not torch.strided:
            return t.clone()
        room = t.untyped_storage().clone()
        return torch.empty(0, dtype=t.dtype).set_(room, t.storage_offset(), t.size(), t.stride())
    return _pytree.tree_map_only(torch.Tensor, copy, value)


def check_sample(op, name, input, args, kwargs):
    """(state, reason, difference or None); None when eager refuses the sample."""
    import kintsugi
    import torch

    undefined = any(part in name for part in UNDEFINED)
    try:
        torch.manual_seed(3)
        again = fresh((input, args, kwargs))
        result = op(again[0], *again[1], **again[2])
        fn, tensors = make_function(op, input, args, kwargs, result)
        torch.manual_seed(3)
        wanted = tensors_of(fn(*fresh(tensors)))
    except Exception:
        return None
    kintsugi.reset()
    compiled = kintsugi.compile(fn)
    for turn in range(3):
        torch.manual_seed(3)
        try:
            got = tensors_of(compiled(*fresh(tensors)))
        except Exception as error:
            return "raised", "", f"call {turn}: {type(error).__name__}: {str(error)[:150]}"
        wrong = None if undefined else same(torch, wanted, got)
        if wrong is not None:
            return (*kernel_state(compiled), f"call {turn}: {wrong}")
    return (*kernel_state(compiled), None)


def check_gradients(op, name, input, args, kwargs):
    """As check_sample."""
    import op_grad
    import torch

    tensors = []
    try:
        torch.manual_seed(3)
        again = fresh((input, args, kwargs))
        with torch.no_grad():
            fn, tensors = make_function(op, input, args, kwargs, op(*[again[0], *again[1]], **again[2]))
    except Exception:
        return None
    checked = op_grad.check(fn, tensors, [t.requires_grad for t in tensors], any(part in name for part in UNDEFINED), same)
    return None if checked is None else (*kernel_state(checked[1]), checked[0])


def child(names, dtypes, count, grad):
    """Checks these operators, a JSON line for each (the line before an operator says that it begins)."""
    import torch

    table = database()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with torch.set_grad_enabled(grad):
        for name in names:
            print(json.dumps({"begin": name}), flush=True)
            op, result = table[name], {"op": name, "states": {}, "reasons": {}, "differences": [], "samples": 0}
            for dtype in dtypes:
                if getattr(torch, dtype) not in (op.supported_backward_dtypes("cpu") if grad else op.dtypes) or (grad and not op.supports_autograd):
                    continue
                try:
                    samples = list(samples_of(torch, op, getattr(torch, dtype), count, grad))
                except Exception:
                    continue
                for label, *call in samples:
                    checked = (check_gradients if grad else check_sample)(op, name, *call)
                    if checked is None:
                        continue
                    state, reason, wrong = checked
                    result["samples"] += 1
                    result["states"][state] = result["states"].get(state, 0) + 1
                    if reason:
                        result["reasons"][reason] = result["reasons"].get(reason, 0) + 1
                    if wrong:
                        result["differences"].append(f"{dtype} sample {label}: {wrong}")
            print(json.dumps(result), flush=True)


# -- in the parent ---------------------------------------------------------------------------------------------------


def run_children(names, dtypes, count, grad=False, timeout=1200):
    """Results by operator; an operator at which a child died is a difference, and the next child goes on behind it."""
    results = {}
    left = list(names)
    while left:
        job = json.dumps([left, dtypes, count, grad])
        try:
            done = subprocess.run([sys.executable, __file__, "--child"], input=job, capture_output=True, text=True,
                                  timeout=timeout, check=False, env=os.environ | {"KINTSUGI_KERNELS": "1"})
            output, status = done.stdout, f"exit status {done.returncode}"
        except subprocess.TimeoutExpired as error:
            output, status = (error.stdout or b"").decode(), f"more than {timeout} s"
        running = None
        for line in output.splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            running = entry.get("begin", running)
            if "op" in entry:
                results[entry["op"]] = entry
                running = None
        done_names = set(results)
        if running is None and not done_names.issuperset(left):
            running = next(name for name in left if name not in done_names)
        if running is not None:
            results[running] = {"op": running, "states": {}, "reasons": {}, "samples": 0,
                                "differences": [f"the process ended: {status}"]}
        left = [name for name in left if name not in results]
    return results


def summary(results):
    """Numbers over all operators."""
    states = {}
    for result in results.values():
        for state, n in result["states"].items():
            states[state] = states.get(state, 0) + n
    kinds = {}
    for result in results.values():
        kind = max(result["states"], key=result["states"].get) if result["states"] else "no sample"
        kinds[kind] = kinds.get(kind, 0) + 1
    return {"operators": len(results), "samples": sum(r["samples"] for r in results.values()), "by sample": states,
            "by operator": kinds, "different": sum(bool(r["differences"]) for r in results.values())}


KINDS = {"native": "kernels", "library": "kernels and PyTorch's", "steps": "step by step", "none": "no graph"}
TABLE_HEAD = """# Operators

Made by `make op-table`. Each operator of PyTorch's database (`torch.testing._internal`) runs in a graph with copies
of its results, compiled and compared with eager. The numbers are samples, over {dtypes}, contiguous and not, with zero-size and
0-dim tensors, NaN and infinities.

* **kernels**: the whole graph runs in our own kernels.
* **and PyTorch's**: the graph is compiled, and calls PyTorch's kernel for the operator, or a library.
* **step by step**: the graph is not compiled.
* **no graph**: no two calls can be compiled together (the operator needs data, draws random numbers in place, or changes
  its arguments), so it runs as in eager.

{summary}

| operator | kernels | and PyTorch's | step by step | no graph | why not |
|---|---|---|---|---|---|
"""


def table(results, dtypes):
    """The report as Markdown."""
    found = summary(results)
    by = found["by operator"]
    text = TABLE_HEAD.format(dtypes=dtypes, summary=f"{found['operators']} operators, {found['samples']} samples. Most samples of an "
                             f"operator: {by.get('native', 0)} kernels, {by.get('library', 0)} PyTorch's kernels within a compiled "
                             f"graph, {by.get('steps', 0)} step by step, {by.get('none', 0)} no graph, {by.get('no sample', 0)} "
                             "without samples of these dtypes.")
    for name, result in sorted(results.items()):
        if result["states"]:
            counts = " | ".join(str(result["states"].get(kind, "")) for kind in KINDS)
            why = "; ".join(sorted({reason.split("%")[-1].split(": ", 1)[-1].strip() for reason in result["reasons"]}))
            text += f"| {name} | {counts} | {why[:80]} |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ops", help="names, with commas between them; all by default")
    parser.add_argument("--dtypes")
    parser.add_argument("--grad", action="store_true", help="with gradients")
    parser.add_argument("--samples", type=int, default=1000, help="at most so many of the database's samples each")
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th operator, from I")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--table", metavar="FILE", help="write the report as Markdown")
    parser.add_argument("--read", metavar="JSON", nargs="+", help="results of runs before, instead of a run")
    parser.add_argument("--verbose", action="store_true", help="print a line for every operator")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.dtypes = options.dtypes or ",".join(GRAD_DTYPES if options.grad else DTYPES)
    if options.child:
        sys.path.insert(0, str(ROOT / "python"))
        return child(*json.load(sys.stdin))
    if options.read:
        results = {}
        for path in options.read:
            results |= json.loads(pathlib.Path(path).read_text())
        pathlib.Path(options.table).write_text(table(results, options.dtypes.replace(",", ", ")))
        return 0
    names = sorted(database())
    if options.ops:
        wanted = options.ops.split(",")
        unknown = [name for name in wanted if name not in names]
        if unknown:
            parser.error(f"--ops: there is no operator {unknown[0]!r}")
        names = wanted
    first, every = map(int, options.shard.split("/"))
    results = run_children(names[first::every], options.dtypes.split(","), options.samples, options.grad)
    for name, result in sorted(results.items()):
        if options.verbose:
            print(f"{name}: {result['states']} {result['reasons'] or ''}")
        for wrong in result["differences"]:
            print(f"DIFFERENT {name}: {wrong}")
    print(json.dumps(summary(results)))
    if options.table:
        pathlib.Path(options.table).write_text(table(results, options.dtypes.replace(",", ", ")))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    return 1 if any(result["differences"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
