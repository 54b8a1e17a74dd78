"""Where compiled code gives something else than eager: which call of a graph is the first, and the smallest program that shows it."""

import dataclasses

import torch

from .. import _api, _explain, _validate
from .._config import config
from . import program as programs
from .observe import quiet

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
        if type(arg) in (tuple, list):
            inner = "".join(self.value(item) + ", " for item in arg)
            return f"({inner})" if type(arg) is tuple else f"[{inner}]"
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
                raise programs.NoProgram("it takes a value that only the program has")
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


def locate(observed, graph, text):
    """The Difference for a graph of a function that validation found wrong."""
    filename, line = observed.place()
    found = Difference(observed.name, graph, text, filename, line)
    try:
        with quiet():
            dump, values = programs.capture(observed, observed.calls[-1], True)
            numbers = [graph] if 0 < graph <= len(dump["graphs"]) else range(1, len(dump["graphs"]) + 1)
            for number in numbers:
                nodes = dump["graphs"][number - 1]["nodes"]
                if _search(_Graph(nodes, values), found):
                    return found
        found.note = "no call of the graph alone gives something else: the difference depends on what they are compiled together with"
    except Exception as error:  # the program's own code may raise anything when it is run once more
        found.note = f"the operation was not found: {error}"
    return found


def _search(graph, found):
    """Fills in the first call that differs, and a program that shows it. False: none does."""
    nodes = graph.nodes
    if len(nodes) <= LINEAR:
        last = next((i for i in range(len(nodes)) if _differs(graph, 0, i)), None)
    else:
        low, last = 0, len(nodes) - 1
        if not _differs(graph, 0, last):
            return False
        while low < last:
            middle = (low + last) // 2
            low, last = (low, middle) if _differs(graph, 0, middle) else (middle + 1, last)
    if last is None:
        return False
    node = nodes[last]
    found.filename, found.line, found.code = node["filename"], node["line"], node["code_line"]
    found.operation = _explain._op_name(node["callable"]) if node["callable"] is not None else node["target"]
    found.script = _minify(graph, last)
    return True


def _differs(graph, first, last, given=None):
    try:
        fn, writer = graph.function(first, last, given or {})
    except programs.NoProgram:
        return ""
    return compare(fn, writer.args)


def compare(fn, args, calls=3):
    """How compiled calls of a function differ from eager ones; "": not at all. Code is used from its first launch on."""
    engine = _api.start_engine()
    before = {name: engine.options()[name] for name in ("trials", "validate", "validate_every")}
    for name in before:
        engine.set_option(name, 0)
    compiled = engine.Compiled(fn, dynamic=False)
    try:
        with config.patch(step_aside=False, async_compile=False), torch.no_grad():
            for _ in range(calls):
                state = torch.get_rng_state()
                wanted = fn(*[arg.clone() for arg in args])
                after = torch.get_rng_state()
                torch.set_rng_state(state)
                got = compiled(*[arg.clone() for arg in args])
                if not torch.equal(state, after):
                    return ""
            return _validate.compare(_flat(wanted), _flat(got), (), (), _referee(fn, args)) or ""
    finally:
        for name, value in before.items():
            engine.set_option(name, value)


def _flat(value):
    from torch.utils import _pytree

    return _pytree.tree_leaves(value)


def _referee(fn, args):
    try:
        wide = _validate.widen(args)
        return _flat(fn(*wide)) if wide is not None else None
    except Exception:
        return None


# ---- a small program ----


def _minify(graph, last):
    """The text of a script with as few calls as still differ: calls in front become inputs, from the first one on."""
    first, given = 0, {}
    results = _results(graph, last)
    while first < last:
        trial = {**given, **{node["vid"]: results[node["vid"]] for node in graph.nodes[first:first + 1] if node["vid"] in results}}
        if not _differs(graph, first + 1, last, trial):
            break
        first, given = first + 1, trial
    fn, writer = graph.function(first, last, given)
    args, kept = _simple_inputs(fn, writer.args)
    return script(writer, args, kept)


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


def _simple_inputs(fn, args):
    """Random inputs of the same kind where these differ, too; else the program's own, as numbers."""
    torch.manual_seed(0)
    made = [torch.randn(arg.shape).to(arg.dtype) if arg.is_floating_point() else torch.ones_like(arg) for arg in args]
    try:
        if compare(fn, made):
            return made, False
    except Exception:
        pass
    return args, True


def script(writer, args, kept):
    """Runs the calls compiled and eagerly; exit status 1 when they differ."""
    lines = ["import operator", "import sys", "", "import torch", "", "import kintsugi", "from kintsugi._validate import compare", "", "",
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
    lines += ["compiled = kintsugi.compile(f)", "kintsugi.config.step_aside = False", "with torch.no_grad():", "    for _ in range(8):",
              f"        wanted, got = f({arguments}), compiled({arguments})", "        found = compare([wanted], [got], (), (), None)",
              "        if found:", '            sys.exit(f"compiled code differs: {found}")']
    return "\n".join(lines) + "\n"


# ---- whole calls ----


def whole_call(observed):
    """How a compiled call differs from an eager one: outputs, arguments that are written to, gradients. "" when it does not, None: not comparable."""
    call = observed.calls[-1]
    with quiet(), call.modes():
        sides = []
        for fn in (observed.compiled.fn, observed.compiled):
            torch.manual_seed(0)
            args, kwargs = call.copy()
            value = _flat(fn(*args, **kwargs))
            inputs = [leaf for leaf in _flat((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            sides.append((value, [leaf.detach() for leaf in inputs], _gradients(value, inputs, observed)))
    (a, written, grads), (b, ours, our_grads) = sides
    if len(a) != len(b):
        return f"a call gives {len(b)} values, not {len(a)}"
    text = _validate.compare(a, b, written, ours, None)
    if text is None and grads is not None and our_grads is not None:
        text = _validate.compare(grads, our_grads, (), (), None)
        text = text and f"gradient: {text}"
    return text or ""


def _gradients(values, inputs, observed):
    """Of a sum over the results, to inputs and parameters that want them."""
    results = [value.double().sum() for value in values if isinstance(value, torch.Tensor) and value.requires_grad and value.is_floating_point()]
    fn = observed.compiled.fn
    owner = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    wanted = [leaf for leaf in inputs if leaf.requires_grad and leaf.is_leaf]
    wanted += [p for p in owner.parameters() if p.requires_grad] if isinstance(owner, torch.nn.Module) else []
    if not results or not wanted:
        return None
    found = torch.autograd.grad(sum(results), wanted, allow_unused=True)
    return [grad for grad in found if grad is not None]
