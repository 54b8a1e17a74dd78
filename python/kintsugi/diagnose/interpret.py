"""Runs texts of the pipeline with PyTorch's own operators, one by one: a captured graph, and a tensor program as a pass leaves it.

What a text computes can so be compared with what the graph computes, without any code of ours in between (bisect).
"""

import operator
import re

import torch

from ..fx import DTYPES

_TYPE = re.compile(r"(\w+)\[([\d, ]*)\](?:\{([\d, ]*)\})?")
_DTYPE = re.compile(rf"(?<![\w.\"'])({'|'.join(DTYPES)})(?![\w\"'])")
_CALL = re.compile(r"^(?P<out>%\d+(?:, %\d+)*)? ?=? ?(?P<random>random )?(?P<op>[\w.]+)\((?P<args>.*)\)(?: : (?P<types>.*))?$")
_NODE = re.compile(r'^%(?P<out>\d+) = (?P<op>\w+)(?: "(?P<name>[^"]*)")?(?P<args>(?:,? %\d+)*)(?P<attrs>[^:]*?)(?: : (?P<type>.*))?$')


class Unknown(Exception):
    """The text has something that is not run here: its message says what."""


def _read_type(text):
    match = _TYPE.match(text)
    if match is None or match[1] not in DTYPES:
        raise Unknown(f"type {text!r}")
    return DTYPES[match[1]], [int(size) for size in match[2].split(", ") if size]


# ---- captured graphs ----


class Graph:
    """A captured graph: its inputs by dtype and sizes, its calls. libraries: what is known of calls of libraries that passes make of them, by number."""

    def __init__(self, text, libraries=None):
        self.inputs, self.calls, self.outputs = {}, [], []
        self.libraries = libraries or {}
        for line in text.splitlines():
            if line.startswith("return"):
                self.outputs = [int(number) for number in re.findall(r"%(\d+)", line)]
            elif " = input " in line:
                left, _, kind = line.partition(" : ")
                value, _, number = left.partition(" = input ")
                self.inputs[int(number)] = int(value[1:]), *_read_type(kind)
            elif line:
                match = _CALL.match(line)
                if match is None or match["random"]:
                    raise Unknown(f"call {line!r}")
                self.calls.append(match)

    def make_inputs(self, seed=0):
        """Values of the right kind: what is an index must not be large."""
        generator = torch.Generator().manual_seed(seed)
        made = {}
        for number, (_, dtype, sizes) in self.inputs.items():
            if dtype.is_floating_point:
                made[number] = torch.randn(sizes, generator=generator).to(dtype)
            elif dtype.is_complex:
                made[number] = torch.randn(sizes, generator=generator, dtype=dtype)
            else:
                made[number] = torch.randint(0, 2, sizes, generator=generator).to(dtype)
        return made

    def run(self, inputs):
        """([outputs], {number: what an input is afterwards})."""
        values = {value: inputs[number].clone() for number, (value, _, _) in self.inputs.items()}
        for call in self.calls:
            args, kwargs = self.arguments(call, values)
            result = _operator(call["op"])(*args, **kwargs)
            results = result if isinstance(result, (tuple, list)) else [result]
            values.update(zip([int(number) for number in re.findall(r"%(\d+)", call["out"] or "")], results))
        return [values[number] for number in self.outputs], {number: values[value] for number, (value, _, _) in self.inputs.items()}

    def arguments(self, call, values, operands=None):
        """(args, kwargs) of a call; operands: tensors in the place of its own, in their order."""
        text = call["args"]
        given = iter(operands) if operands is not None else None
        names = {"torch": torch, "V": lambda number: values[number] if given is None else next(given), "K": lambda *args, **kwargs: (args, kwargs)}
        text = re.sub(r"%(\d+)!?", r"V(\1)", text)
        text = re.sub(r"(?<![\w.\"'])(cpu)(?![\w\"'])", r"torch.device('cpu')", text)
        text = re.sub(_DTYPE, lambda m: str(DTYPES[m[1]]), text)
        text = re.sub(r"(?<![\w.\"'])(strided|contiguous_format|preserve_format|channels_last|channels_last_3d)(?![\w\"'])", r"torch.\1", text)
        text = re.sub(r"(?<![\w.\"'])(-?)(inf|nan)(?![\w\"'])", r"\1float('\2')", text)
        try:
            return eval(f"K({text})", names)
        except (SyntaxError, NameError) as error:
            raise Unknown(f"arguments {call['args']!r}") from error


def _operator(name):
    packet, found = name.split("."), torch.ops
    for part in packet:
        found = getattr(found, part, None)
        if found is None:
            raise Unknown(f"operator {name}")
    return found


# ---- tensor programs ----

_POINTWISE = {name: getattr(torch, name) for name in (
    "neg", "abs", "sign", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "floor", "ceil", "trunc", "round", "fmod", "pow", "atan2", "fmax", "fmin", "hypot", "copysign",
    "eq", "ne", "lt", "le", "gt", "ge", "where")}
_POINTWISE |= {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "rem": torch.remainder, "floor_div": torch.floor_divide, "max": torch.maximum, "min": torch.minimum,
               "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift, "not": operator.invert}
_REDUCTIONS = {"reduce_sum": torch.sum, "reduce_max": torch.amax, "reduce_min": torch.amin, "reduce_any": torch.any, "reduce_all": torch.all}
_SCANS = {"cumsum": torch.cumsum, "cumprod": torch.cumprod, "cummax": lambda x, dim: torch.cummax(x, dim)[0], "cummin": lambda x, dim: torch.cummin(x, dim)[0]}


def run_program(text, inputs, graph):
    """[outputs] of a tensor program; graph: the captured one, which knows the other arguments of calls of libraries."""
    values = {}
    for line in text.splitlines():
        if line.startswith("return"):
            return [values[int(number)] for number in re.findall(r"%(\d+)", line)]
        if not line:
            continue
        match = _NODE.match(line)
        if match is None:
            raise Unknown(f"line {line!r}")
        args = [values[int(number)] for number in re.findall(r"%(\d+)", match["args"])]
        attrs = {name: value.strip() for name, value in re.findall(r"(\w+)=(\[[^\]]*\]|\S+)", match["attrs"])}
        values[int(match["out"])] = _node(match, args, attrs, inputs, graph)
    raise Unknown("a text without an end")


def _node(match, args, attrs, inputs, graph):
    op = match["op"]
    if op == "extern":
        return _extern(match["name"], args, int(attrs["number"]), graph)
    if op == "result":
        results = args[0](_read_type(match["type"])[1]) if callable(args[0]) else args[0]
        return results[int(attrs["which"])] if isinstance(results, (tuple, list)) else results
    dtype, sizes = _read_type(match["type"])
    ints = {name: _ints(value) for name, value in attrs.items() if value.startswith("[")}
    if op == "input":
        return inputs[int(match["attrs"])]
    if op == "const":
        number = float(match["attrs"]) if dtype.is_floating_point else int(match["attrs"])
        return torch.full(sizes, number, dtype=dtype)
    if op == "div":
        return torch.div(*args) if dtype.is_floating_point else torch.div(*args, rounding_mode="trunc")
    if op == "cast":
        return args[0].to(dtype)
    if op in _POINTWISE:
        return _POINTWISE[op](*args)
    if op in _REDUCTIONS:
        return _REDUCTIONS[op](args[0], dim=ints["dims"], keepdim=True).to(dtype)
    if op in _SCANS:
        return _SCANS[op](args[0], int(attrs["dim"])).to(dtype)
    return _view(op, args, attrs, ints, dtype, sizes)


def _ints(text):
    return [int(part) for part in text.strip("[]").split(", ") if part]


def _view(op, args, attrs, ints, dtype, sizes):
    if op == "iota":
        dim = int(attrs["dim"])
        return torch.arange(sizes[dim], dtype=dtype).reshape([-1 if d == dim else 1 for d in range(len(sizes))]).expand(sizes)
    if op == "expand":
        return args[0].expand(sizes)
    if op == "permute":
        return args[0].permute(ints["dims"])
    if op == "reshape":
        return args[0].reshape(sizes)
    if op == "slice":
        return _slice(args[0], ints["starts"], ints["steps"], sizes)
    if op == "pad":
        made = args[1].reshape([]).expand(sizes).clone()
        _put(made, args[0], ints["low"])
        return made
    if op == "cat":
        return torch.cat(args, int(attrs["dim"]))
    if op == "index":
        return args[0][_indices(ints["map"], args[1:], sizes)].reshape(sizes)
    if op == "scatter":
        return _scatter(args, attrs["mode"], ints["map"])
    if op in ("argmax", "argmin"):
        dims = ints["dims"]
        return getattr(torch, op)(args[0], dim=dims[0], keepdim=True) if len(dims) == 1 else getattr(torch, op)(args[0]).reshape(sizes)
    if op == "reduce_prod":
        made = args[0]
        for dim in ints["dims"]:
            made = made.prod(dim, keepdim=True)
        return made.to(dtype)
    raise Unknown(f"operation {op}")


def _slice(x, starts, steps, sizes):
    for dim, (start, step, size) in enumerate(zip(starts, steps, sizes)):
        x = x.index_select(dim, torch.arange(size) * step + start)
    return x


def _put(into, x, low):
    """x[i - low] where that lies inside: low may be negative."""
    target, source = [], []
    for start, size, have in zip(low, into.shape, x.shape):
        first, last = max(0, start), min(size, start + have)
        target.append(slice(first, max(first, last)))
        source.append(slice(first - start, max(first, last) - start))
    into[tuple(target)] = x[tuple(source)]


def _indices(places, given, sizes):
    """For each dim of the source: a coordinate of the result, or what an index tensor says."""
    found = []
    for place in places:
        if place >= 0:
            found.append(torch.arange(sizes[place]).reshape([-1 if d == place else 1 for d in range(len(sizes))]).expand(sizes))
        else:
            found.append(given[-1 - place].expand(sizes))
    return tuple(found)


def _scatter(args, mode, places):
    made, values = args[0].clone(), args[1]
    where = _indices(places, args[2:], list(values.shape))
    if mode == "set":
        made[where] = values
    elif mode == "add":
        made.index_put_(where, values, accumulate=True)
    else:
        flat, size = torch.zeros(list(values.shape), dtype=torch.int64), 1
        for index, extent in zip(reversed(where), reversed(made.shape)):
            flat, size = flat + index * size, size * extent
        kind = {"mul": "prod", "max": "amax", "min": "amin"}.get(mode)
        if kind is None:
            raise Unknown(f"scatter {mode}")
        made.view(-1).scatter_reduce_(0, flat.reshape(-1), values.reshape(-1), kind)
    return made


def _extern(name, operands, number, graph):
    """A call of the captured graph, or of a library; a function of the sizes of the result where they say what is computed."""
    if name.startswith("aten.") and number < len(graph.calls) and graph.calls[number]["op"] == name:
        args, kwargs = graph.arguments(graph.calls[number], {}, operands)
        return _operator(name)(*args, **kwargs)
    if name == "library.matmul" and len(operands) == 2:
        return torch.matmul(*(operand.float() for operand in operands))  # sums are float, whatever the matrices are
    known = graph.libraries.get(number)
    call = graph.calls[known["call"]] if known is not None and known["call"] < len(graph.calls) else None
    if call is not None and name.startswith("library.attention"):
        args, kwargs = graph.arguments(call, {}, operands)
        return _operator(call["op"])(*args, **kwargs)
    if call is not None and "convolution" in call["op"]:
        return _convolution(name.removeprefix("library."), [operand.float() for operand in operands], known, graph.arguments(call, {}, [None] * len(call["args"]))[0])
    if known is not None and name == "library.recurrent":
        return lambda sizes: _recurrent(known, sizes, *operands)
    raise Unknown(f"{name}, a call of Kintsugi's own library")


def _recurrent(known, sizes, given, h, panels, *more):
    """All steps of a layer in one direction, one by one (core/kernels/recurrent.h). given: what the input gives to the gates; more: GRU's bias of n, LSTM's c."""
    weight = panels.permute(1, 0, 2).flatten(1)[:, :given.shape[2]]
    cell, bias = _CELLS[known["cell"]], more if known["cell"] == "gru" else ()
    state, results, kept = (h, *more) if known["cell"] == "lstm" else (h,), [], []
    for step in given.flip(0) if known["reverse"] else given:
        state, keeps = cell(step, state[0] @ weight, *state, *bias)
        results.append(state[0])
        kept += [torch.cat(keeps, 1)] if keeps else []
    results, kept = ((list(reversed(part)) if known["reverse"] else part) for part in (results, kept))
    behind = kept if known["keeps"] else state[1:] if known["cell"] == "lstm" else []
    return torch.cat([part.flatten() for part in (*results, *behind)]).reshape(sizes)


def _lstm(step, by_state, h, c):
    i, f, g, o = (step + by_state).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * c + i * g
    return (o * c.tanh(), c), (i, f, g, o, c)


def _gru(step, by_state, h, bias=None):
    (r, z, n), (by_r, by_z, by_n) = step.chunk(3, 1), by_state.chunk(3, 1)
    r, z = (r + by_r).sigmoid(), (z + by_z).sigmoid()
    inner = by_n if bias is None else by_n + bias
    n = (n + r * inner).tanh()
    return ((1 - z) * n + z * h,), (r, z, n, inner)


def _plain(function):
    return lambda step, by_state, *_: ((function(step + by_state),), ())


_CELLS = {"lstm": _lstm, "gru": _gru, "tanh": _plain(torch.tanh), "relu": _plain(torch.relu)}


def _convolution(name, operands, known, captured):
    """captured: the arguments of the operator, for the numbers among them; the tensors are `operands`."""
    kind, *more = name.split("+")
    if kind == "conv_backward_image":
        back, weight = operands
        return lambda sizes: torch.ops.aten.convolution_backward(back, back.new_zeros(sizes), weight, None, *captured[4:10], [True, False, False])[0]
    if kind == "conv_backward_weight":  # its channels are the last dim
        back, x = operands
        return lambda sizes: torch.ops.aten.convolution_backward(back, x, x.new_zeros([sizes[0], sizes[-1], *sizes[1:-1]]), None, *captured[4:10], [False, True, False])[1].movedim(1, -1)
    given = iter(operands)
    made = torch.ops.aten.convolution(next(given), next(given), next(given) if "bias" in more else None, *captured[3:9])
    made = made + next(given) if "add" in more else made
    return made.clamp(known["least"], known["most"]) if known["least"] != -float("inf") or known["most"] != float("inf") else made
