"""Where compiled code gives something else than eager, fails, or is slower: which call of a graph is the first, and the smallest program that shows it."""

import ast
import contextlib
import dataclasses

import torch
from torch.utils._pytree import tree_leaves as _flat
from torch.utils._pytree import tree_map

from .. import _api, _explain, _kernels, _logs, _validate
from .._config import config
from . import program as programs
from . import show, state, timing
from .screen import quiet

LINEAR = 48  # calls up to which each is looked at; beyond that by halves


@dataclasses.dataclass
class Difference:
    """A wrong result of a compiled function."""

    function: str
    graph: int             # 0: the call as a whole
    text: str
    filename: str = ""
    line: int = 0
    code: str = ""
    operation: str = ""    # "" where it was not found
    script: str = ""       # a small program that shows it
    note: str = ""

    def as_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass
class _Graph:
    """Calls of a recording in a row, as a function that can be cut."""

    nodes: list
    inputs: dict  # vid: value

    def function(self, first, last, given):
        """(function, arguments) of the calls first..last, whose last result it returns; `given`: values of earlier calls."""
        writer = _Writer({**self.inputs, **given})
        for node in self.nodes[first:last + 1]:
            writer.add(node)
        vid = self.nodes[last]["vid"]
        if not vid:
            raise programs.NoProgram("the call gives nothing")
        return writer.finish(vid)


class _Writer:
    """Python text for calls; objects without a name that can be imported end it."""

    def __init__(self, values):
        self.values = values
        self.params, self.args, self.lines, self.made = {}, [], [], set()
        self.names = {"torch": torch}

    def add(self, node):
        args = [self.value(arg) for arg in node["args"]]
        kwargs = [f"{name}={self.value(arg)}" for name, arg in node["kwargs"].items()]
        if node["op"] == "call_method":
            text = f"{args[0]}.{node['target']}({', '.join(args[1:] + kwargs)})"
        elif node["op"] == "operator" and node["target"] in programs.INFIX and len(args) == 2:
            text = f"{args[0]} {node['target']} {args[1]}"
        else:
            text = f"{self.callable(node['callable'])}({', '.join(args + kwargs)})"
        self.lines.append(f"v{node['vid']} = {text}" if node["vid"] else text)
        self.made.add(node["vid"])

    def callable(self, fn):
        import operator

        self.names["operator"] = operator
        for name in (_explain._op_name(fn), f"operator.{getattr(fn, '__name__', '')}", f"torch._C._nn.{getattr(fn, '__name__', '')}",
                     f"torch.nn.functional.{getattr(fn, '__name__', '')}"):
            try:
                if eval(name, dict(self.names)) is fn:
                    return name
            except Exception:
                continue
        name = f"k{len(self.names)}"
        self.names[name] = fn
        return name

    def value(self, arg):
        if isinstance(arg, dict):
            if "vid" not in arg:
                return "{" + ", ".join(f"{key!r}: {self.value(item)}" for key, item in arg["dict"]) + "}"
            if arg["vid"] in self.made:
                return f"v{arg['vid']}"
            return self.given(arg["vid"])
        if isinstance(arg, (tuple, list)):
            inner = "".join(self.value(item) + ", " for item in arg)
            return f"[{inner}]" if type(arg) is list else f"({inner})"
        if type(arg) is slice:
            return f"slice({self.value(arg.start)}, {self.value(arg.stop)}, {self.value(arg.step)})"
        if isinstance(arg, torch.Tensor):
            return self.given(("constant", id(arg)), arg)
        if isinstance(arg, (torch.dtype, torch.device)) or arg is Ellipsis:
            return "..." if arg is Ellipsis else repr(arg) if isinstance(arg, torch.dtype) else f"torch.{arg!r}"
        return f"({arg!r})" if type(arg) in (int, float) and arg < 0 else repr(arg)

    def given(self, vid, value=None):
        if vid not in self.params:
            value = self.values.get(vid) if value is None else value
            if value is None:
                raise programs.NoProgram("its tensor calls take values that only the program makes, between them")
            if not isinstance(value, torch.Tensor):
                return repr(value)
            self.params[vid] = f"a{len(self.args)}"
            self.args.append(value.detach())
        return self.params[vid]

    def finish(self, vid):
        self.text = f"def f({', '.join(self.params.values())}):\n" + "".join(f"    {line}\n" for line in [*self.lines, f"return v{vid}"])
        names = dict(self.names)
        exec(compile(self.text, "<kintsugi: calls of a graph>", "exec"), names)
        return names["f"], self


def locate(observed, graph, text, ask=None):
    """The Difference for a graph of a function that validation found wrong. ask: what tells of a function and its arguments how it is wrong (compare)."""
    filename, line = observed.place()
    ask = ask or compare
    found = Difference(observed.name, graph, text, filename, line)
    try:
        with quiet():
            dump, values = programs.capture(observed, observed.calls[-1], True)
            numbers = [graph] if 0 < graph <= len(dump["graphs"]) else range(1, len(dump["graphs"]) + 1)
            for number in numbers:
                nodes = dump["graphs"][number - 1]["nodes"]
                if _search(_Graph(nodes, values), found, ask):
                    return found
        found.note = "no call of the graph alone gives something else: the difference depends on what they are compiled together with"
    except Exception as error:  # the program's own code may raise anything when it is run once more
        found.note = f"the operation was not found: {error}"
    return found


def _search(graph, found, ask):
    """Fills in the first call that differs, and a program that shows it. False: none does."""
    nodes = graph.nodes
    if len(nodes) <= LINEAR:
        last = next((i for i in range(len(nodes)) if _differs(graph, 0, i, ask)), None)
    else:
        low, last = 0, len(nodes) - 1
        if not _differs(graph, 0, last, ask):
            return False
        while low < last:
            middle = (low + last) // 2
            low, last = (low, middle) if _differs(graph, 0, middle, ask) else (middle + 1, last)
    if last is None:
        return False
    node = nodes[last]
    found.filename, found.line, found.code = node["filename"], node["line"], node["code_line"]
    found.operation = _explain._op_name(node["callable"]) if node["callable"] is not None else node["target"]
    found.script = _minify(graph, last, ask)
    return True


def _differs(graph, first, last, ask, given=None):
    try:
        fn, writer = graph.function(first, last, given or {})
    except programs.NoProgram:
        return ""
    return ask(fn, writer.args)


def compare(fn, args, calls=3):
    """How compiled calls of a function differ from eager ones; "": not at all. Code is used from its first launch on."""
    with _new_code() as engine, config.patch(step_aside=False, async_compile=False), torch.no_grad():
        compiled = engine.Compiled(fn, dynamic=False)
        for _ in range(calls):
            before = torch.get_rng_state()
            wanted = fn(*[arg.clone() for arg in args])
            after = torch.get_rng_state()
            torch.set_rng_state(before)
            got = compiled(*[arg.clone() for arg in args])
            if not torch.equal(after, torch.get_rng_state()):
                return "leaves the random number generator in another state"
        return _validate.compare(_flat(wanted), _flat(got), (), (), _referee(fn, args) if torch.equal(before, after) else None) or ""


def fails(fn, args):
    """How compiling a function fails, or a compiled call raises where an eager one does not; "": neither."""
    with _new_code() as engine, config.patch(step_aside=False, async_compile=False), torch.no_grad(), quiet():
        seen = max((event["seq"] for event in _logs.events()), default=-1)
        fn(*[arg.clone() for arg in args])
        compiled = engine.Compiled(fn, dynamic=False)
        try:
            for _ in range(3):
                compiled(*[arg.clone() for arg in args])
        except Exception as error:
            return f"a compiled call raised {type(error).__name__}: {error}"
        found = failures(engine, compiled, seen)
        return found[0][1] if found else ""


def failures(engine, compiled, seen):
    """[(graph, what failed)]: passes whose result a verifier refused since event `seen`, and those that gave up with an error."""
    numbers = {entry.number for entry in compiled.entries()}
    found = [(event.get("graph") or 0, f"the compiler failed in {event['where']}: {event['message']}") for event in _logs.events()
             if event["event"] == "bug" and event["seq"] > seen and event.get("entry", -1) in (*numbers, -1) and event.get("name", "") in (compiled.stats()["name"], "")]
    rows = _kernels.rows(engine, compiled)
    return found or [(row["graph"], f"the compiler failed in {row['reason']}") for row in rows if not row["compiled"] and row["reason"].startswith("pass ")]


SLOWER = 1.1  # times as long as eager, in each part of the measurement


def slower(fn, args, seconds=0.1):
    """How much longer compiled calls take than eager ones; "": they do not."""
    with config.patch(step_aside=False, async_compile=False), torch.no_grad(), quiet():
        compiled = _api.start_engine().Compiled(fn, dynamic=False)
        ways = {"eager": lambda: fn(*args), "compiled": lambda: compiled(*args)}
        timing.warm(ways["compiled"], (compiled,))
        times = timing.steady(ways, seconds)
    if timing.ratio(times["compiled"], times["eager"])[1] < SLOWER or any(one.disturbed for one in times.values()):
        return ""
    us = {name: one.typical * 1e6 for name, one in times.items()}
    return f"compiled calls take {show.us(us['compiled'])}, eager ones {show.us(us['eager'])} ({us['compiled'] / us['eager']:.2f}x as long)"


@contextlib.contextmanager
def _new_code():
    """Code is used from its first launch on, whatever it takes."""
    engine = _api.start_engine()
    before = {name: engine.options()[name] for name in ("trials", "validate", "validate_every")}
    for name in before:
        engine.set_option(name, 0)
    try:
        yield engine
    finally:
        for name, value in before.items():
            engine.set_option(name, value)


def _referee(fn, args):
    try:
        wide = _validate.widen(args)
        return _flat(fn(*wide)) if wide is not None else None
    except Exception:
        return None


# ---- a small program ----


def _minify(graph, last, ask):
    """The text of a script with as few calls as still differ: calls in front become inputs, from the first one on."""
    first, given = 0, {}
    results = _results(graph, last)
    while first < last:
        trial = {**given, **{node["vid"]: results[node["vid"]] for node in graph.nodes[first:first + 1] if node["vid"] in results}}
        if not _differs(graph, first + 1, last, ask, trial):
            break
        first, given = first + 1, trial
    fn, writer = graph.function(first, last, given)
    args, kept = _simple_inputs(fn, writer.args, ask)
    return script(writer, args, kept, ask)


def _results(graph, last):
    """What the calls give in eager mode."""
    found = {}
    for i in range(last + 1):
        if graph.nodes[i]["vid"]:
            try:
                fn, writer = graph.function(0, i, {})
                with torch.no_grad():
                    found[graph.nodes[i]["vid"]] = fn(*[arg.clone() for arg in writer.args])
            except Exception:
                continue
    return found


def _simple_inputs(fn, args, ask):
    """Random inputs of the same kind where these differ, too; else the program's own, as numbers."""
    torch.manual_seed(0)
    made = [torch.randn(arg.shape).to(arg.dtype) if arg.is_floating_point() else torch.ones_like(arg) for arg in args]
    try:
        if ask(fn, made):
            return made, False
    except Exception:
        pass
    return args, True


def script(writer, args, kept, ask=compare):
    """Runs the calls compiled and eagerly; exit status 1 when they differ, or when the compiler fails, or when compiled ones are slower."""
    part = "from kintsugi._validate import compare" if ask is compare else f"from kintsugi.diagnose.differ import {ask.__name__}"
    uses_operator = any(isinstance(node, ast.Name) and node.id == "operator" for node in ast.walk(ast.parse(writer.text)))
    lines = [*(["import operator"] if uses_operator else []), "import sys", "", "import torch", "", "import kintsugi", part, "", "",
             *writer.text.rstrip("\n").splitlines(), "", "", "torch.manual_seed(0)"]
    for name, arg in zip(writer.params.values(), args):
        dtype = str(arg.dtype)
        if kept and arg.numel() <= 64:
            text = f"torch.tensor({arg.tolist()}, dtype={dtype})"
        elif arg.is_floating_point():
            text = f"torch.randn({tuple(arg.shape)}).to({dtype})"
        else:
            text = f"torch.ones({tuple(arg.shape)}, dtype={dtype})"
        lines.append(f"{name} = {text}")
    arguments = ", ".join(writer.params.values())
    if ask is not compare:
        lines += [f"found = {ask.__name__}(f, [{arguments}])", "if found:", "    sys.exit(found)"]
        return "\n".join(line for line in lines if line != "import kintsugi") + "\n"
    lines += ["compiled = kintsugi.compile(f)", "kintsugi.config.step_aside = False", "with torch.no_grad():", "    for _ in range(8):",
              f"        wanted, got = f({arguments}), compiled({arguments})", "        found = compare([wanted], [got], (), (), None)",
              "        if found:", '            sys.exit(f"compiled code differs: {found}")']
    return "\n".join(lines) + "\n"


# ---- whole calls ----


def whole_call(observed):
    """How a compiled call differs from an eager one that starts from the same: outputs, arguments that are written to, gradients, tensors that its code reaches, the
    random number generator. "" when it does not."""
    call, fn = observed.calls[-1], observed.compiled.fn
    with quiet(), call.modes(), state.unchanged(fn, call.args, call.kwargs) as kept:
        eager, ours = (Side(each, call, kept) for each in (fn, observed.compiled))
        if len(eager.values) != len(ours.values):
            return f"a call gives {len(ours.values)} values, not {len(eager.values)}"
        wrong = [name for name in eager.found if _validate.difference(eager.found[name], ours.found.get(name))]
        truth = _truth(fn, call, kept) if wrong and eager.drew_nothing else {}
    for name in wrong:
        a, b = eager.found[name], ours.found.get(name)
        off = _validate.difference(a, b, truth.get(name))
        if off and not _is_rounding(a, b, truth.get(name), eager.largest_gradient):
            return f"{name} {off}"
    return "" if torch.equal(eager.drawn, ours.drawn) else "a call leaves the random number generator in another state"


class Side:
    """What a call gives and leaves. found: {what it is: value}."""

    def __init__(self, fn, call, kept, convert=lambda values: values):
        kept.restore()
        state.seed()
        before = torch.get_rng_state()
        args, kwargs = convert(call.copy())
        self.values = _flat(fn(*args, **kwargs))
        self.drawn = torch.get_rng_state()
        self.drew_nothing = torch.equal(before, self.drawn)
        inputs = [leaf for leaf in _flat((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        gradients = _gradients(self.values, {**{f"argument {number}": leaf for number, leaf in enumerate(inputs, 1)}, **dict(kept.paths.values())})
        self.largest_gradient = max((grad.abs().max().item() for grad in gradients.values() if grad.numel()), default=0.0)
        self.found = {f"output {number} of {len(self.values)}": value for number, value in enumerate(self.values, 1)}
        self.found |= {f"argument {number}, after the call,": leaf.detach() for number, leaf in enumerate(inputs, 1)}
        self.found |= {f"the gradient of {name}": grad for name, grad in gradients.items()}
        self.found |= {f"{name}, after the call,": value for name, value in kept.tensors().items()}


def _weighted(value):
    """A sum in which each element has another weight. The gradient of a plain one is zero behind a softmax or a layer norm, where rounding is all that is left of it."""
    value = value.double()
    if value.layout is not torch.strided or value.is_nested:
        return value.sum()
    weights = torch.arange(value.numel(), dtype=torch.float64, device=value.device).mul_(1.3).sin_().mul_(0.5).add_(1)
    return (value * weights.view(value.shape)).sum()


def _gradients(values, leaves):
    """Of a weighted sum over the results, to those of the leaves that want them."""
    results = [_weighted(value) for value in values if isinstance(value, torch.Tensor) and value.requires_grad and value.is_floating_point()]
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad and leaf.is_leaf}
    if not results or not wanted:
        return {}
    try:
        found = torch.autograd.grad(sum(results), list(wanted.values()), allow_unused=True)
    except RuntimeError:  # the call itself went back through its graph
        return {}
    return {name: grad for name, grad in zip(wanted, found) if grad is not None}


def _truth(fn, call, kept):
    """What the same call finds in float64; {}: it cannot be asked."""
    kept.restore()
    try:
        with kept.widened():
            return Side(fn, call, _Wide(kept), lambda values: tree_map(_wide, values)).found
    except Exception:  # the program names a dtype, say
        return {}


class _Wide:
    """A State that is in float64 now and stays so."""

    def __init__(self, kept):
        self.paths, self.tensors, self.restore = kept.paths, kept.tensors, lambda: None


def _wide(leaf):
    return leaf.detach().double().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _is_rounding(a, b, truth, scale):
    """Has eager's own value no digit that is right, as where a sum cancels to zero? Then the last digits of what was summed are all there is to compare with."""
    if not all(isinstance(value, torch.Tensor) and value.is_floating_point() for value in (a, b, truth)) or a.shape != b.shape or a.shape != truth.shape:
        return False
    a, b, truth, tolerance = a.double(), b.double(), truth.double(), _validate.TOLERANCE.get(a.dtype, 0.0)
    return bool((truth - a).abs().max() >= 0.1 * truth.abs().max()) and bool((a - b).abs().max() <= tolerance * scale)
