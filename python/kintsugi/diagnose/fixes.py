"""Fixes fitted to the user's code: the general advice of a row of breaks.def, applied to the line at hand.

A patch is a proposal. Where the code has not the shape that a rule knows there is none, and the report shows the general advice.
"""

import ast
import copy
import dataclasses
import difflib
import functools
import linecache
import logging


@dataclasses.dataclass
class Patch:
    """Lines first..last of the file are to become `lines`."""

    filename: str
    first: int
    last: int
    lines: list
    caution: str = ""

    def diff(self, context=0):
        """As a unified diff, with so many lines around it."""
        before = linecache.getlines(self.filename)
        after = before[:self.first - 1] + [line + "\n" for line in self.lines] + before[self.last:]
        return "".join(line if line.endswith("\n") else line + "\n" for line in difflib.unified_diff(before, after, self.filename, self.filename, n=context))

    def apply(self, text):
        """The text of the file with the change."""
        lines = text.splitlines(keepends=True)
        return "".join(lines[:self.first - 1]) + "".join(line + "\n" for line in self.lines) + "".join(lines[self.last:])

    def as_dict(self):
        return dataclasses.asdict(self) | {"diff": self.diff()}


def fit_into(cause):
    """Gives a break its patch, or else the advice that fits the code."""
    cause.patch = fit(cause)
    advice = "" if cause.patch else advise(cause)
    if advice:  # what the reason says in general does not fit the code then
        cause.fix, cause.hints = advice, []


def fit(cause):
    """A Patch for the user's line of a break, or None."""
    rule = _RULES.get(cause.why) if cause.kind == "break" else _OF_READS.get(cause.reads)
    filename, line, _ = cause.user
    if rule is None or (filename, line) != (cause.filename, cause.line):  # the line of a library is not the user's to change
        return None
    lines = linecache.getlines(filename)
    tree = _parse("".join(lines))
    if tree is None:
        return None
    try:
        return rule(_Place(filename, lines, copy.deepcopy(tree), line, cause.columns[0]))  # rules may change it
    except (ValueError, AttributeError, IndexError, StopIteration):
        return None


@functools.lru_cache(maxsize=8)
def _parse(text):
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    lines = [line.encode() for line in text.splitlines()]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in _WRITTEN and node.lineno == node.end_lineno <= len(lines):
            node.value = _WRITTEN[type(node.value)](node.value, lines[node.lineno - 1][node.col_offset:node.end_col_offset].decode(errors="replace"))
    return tree


def _written(kind):
    """Numbers that a patch shows as the program has them: 1e8, not 100000000.0."""
    class Written(kind):
        def __new__(cls, value, text):
            made = super().__new__(cls, value)
            made.text = text
            return made

        def __getnewargs__(self):
            return kind(self), self.text

        def __repr__(self):
            return self.text
    return Written


_WRITTEN = {kind: _written(kind) for kind in (int, float)}


class _Place:
    def __init__(self, filename, lines, tree, line, column):
        self.filename, self.lines, self.tree, self.line, self.column = filename, lines, tree, line, column

    def nodes(self, *kinds):
        """Nodes of these kinds that the line is part of, innermost first."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, kinds) and node.lineno <= self.line <= node.end_lineno]
        return sorted(found, key=lambda node: (node.end_lineno - node.lineno, node.end_col_offset - node.col_offset))

    def statement(self):
        return self.nodes(ast.stmt)[0]

    def indent(self, node):
        line = self.lines[node.lineno - 1]
        return line[:len(line) - len(line.lstrip())]

    def replace(self, node, texts, caution=""):
        indent, first, last = self.indent(node), self.lines[node.lineno - 1], self.lines[node.end_lineno - 1].rstrip("\n")
        if isinstance(node, ast.If) and first.startswith("elif", len(indent)):
            texts = ["else:", *(f"    {text}" for text in texts)]
        before, after = first.encode()[:node.col_offset].decode(), last.encode()[node.end_col_offset:].decode()
        if before.strip() or after.split("#")[0].strip():  # other statements in its lines stay
            if len(texts) > 1 or texts and texts[0].endswith(":"):
                raise ValueError("more than one statement in a line")
            return Patch(self.filename, node.lineno, node.end_lineno, [before + (texts[0] if texts else "pass") + after], caution)
        return Patch(self.filename, node.lineno, node.end_lineno, [indent + text for text in texts], caution)

    def replace_expression(self, old, new, caution=""):
        """The statement that holds expression `old`, with `new` in its place; the rest stays as it is written."""
        if old.lineno != old.end_lineno:
            raise ValueError("an expression over several lines")
        line = self.lines[old.lineno - 1].rstrip("\n").encode()
        text = (line[:old.col_offset] + new.encode() + line[old.end_col_offset:]).decode()
        return Patch(self.filename, old.lineno, old.lineno, [text], caution)


_BOTH = "both sides are computed; their results need the same dtype and sizes that fit each other"


def _branch(place):
    """if c: x = f(x) [else: x = g(x)]; return f if c else g; a if c else b."""
    test = next((node for node in place.nodes(ast.If, ast.IfExp) if node.test.lineno <= place.line <= node.test.end_lineno), None)
    if isinstance(test, ast.IfExp):
        _refuse_called(place, test)
        if _is_number(test.body) and _is_number(test.orelse):
            _refuse_python(place, test)
        return place.replace_expression(test, _where(test.test, test.body, test.orelse), _caution(test.body, test.orelse))
    if test is None:
        raise ValueError("no if")
    if isinstance(test.test, ast.Name):
        made = [node for node in ast.walk(place.tree) if isinstance(node, ast.Assign) and node.end_lineno < test.lineno
                and any(isinstance(target, ast.Name) and target.id == test.test.id for target in node.targets)]
        test.test.is_bool = bool(made) and _is_bool(max(made, key=lambda node: node.lineno).value)
    message = _raises(test)
    if message is not None:
        _refuse_caught(place, test)
        wrong = _torch_call("logical_not", _tensor_test(test.test))
        return place.replace(test, [f"torch._assert_async({ast.unparse(wrong)}, {message})"], "a RuntimeError is raised in place of the program's own error")
    first, test.test = _split_python(test)
    then, other = _results(test.body), _results(test.orelse)
    if "return" in then:
        if not test.orelse:
            rest = _next_statement(place.tree, test)
            if not isinstance(rest, ast.Return):
                raise ValueError("what follows is no return")
            _refuse_numbers(then["return"], rest.value)
            made = place.replace(test, [f"return {_where(test.test, then['return'], rest.value)}"], _caution(then["return"], rest.value))
            made.last = rest.end_lineno
            return made
        if list(then) == list(other) == ["return"]:
            _refuse_numbers(then["return"], other["return"])
            return place.replace(test, [f"return {_where(test.test, then['return'], other['return'])}"], _caution(then["return"], other["return"]))
        raise ValueError("some ways return")
    names = list(dict.fromkeys([*then, *other]))
    _refuse_unbound(place, test, set(then) ^ set(other))
    _refuse_python(place, None, {name for name in names if all(_is_number(side[name]) if name in side else _was_number(place, name) for side in (then, other))})
    keep = {name: ast.Name(name, ast.Load()) for name in names}
    test_text, lines = test.test, []
    if len(names) > 1:  # the decision is computed once, on the values before it
        lines.append(f"chosen = {ast.unparse(_tensor_test(test.test))}")
        test_text = ast.Name("chosen", ast.Load())
        test_text.is_bool = True
        if any(_reads(value, set(names) - {name}) for part in (then, other) for name, value in part.items()):
            raise ValueError("the results use each other")
    lines += [f"{name} = {_where(test_text, then.get(name, keep[name]), other.get(name, keep[name]))}" for name in names]
    if first is not None:
        lines = [f"if {ast.unparse(first)}:", *(f"    {line}" for line in lines)]
    return place.replace(test, lines, _caution(*then.values(), *other.values()))


# Where the result of a call is all there is to it: functions of these modules, and methods that tensors have.
_PURE_MODULES = ("torch", "F", "functional", "nn.functional", "torch.nn.functional", "math")
_BUILTIN = ("abs", "min", "max", "sum", "float", "int", "len", "round")
_DRAWS = ("rand", "dropout", "bernoulli", "multinomial", "normal", "gumbel", "poisson", "exponential")
_SPOILS = ("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow", "norm", "acos", "asin", "atanh", "reciprocal")


def _caution(*sides):
    """What has to be known about computing both sides of a decision. Where one of them does more than compute, there is no fix."""
    import torch

    calls = [node for side in sides for node in ast.walk(side) if isinstance(node, ast.Call)]
    unknown = []
    for call in calls:
        owner, _, name = _name_of(call).rpartition(".")
        if name.endswith("_") or any(word in name for word in _DRAWS):
            raise ValueError("a side does more than compute")
        if owner not in _PURE_MODULES and not (owner and hasattr(torch.Tensor, name)) and not (not owner and name in _BUILTIN):
            unknown.append(_name_of(call))
    if any(isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for side in sides for node in ast.walk(side)):
        raise ValueError("a side does more than compute")
    found = _BOTH + ("; the number becomes a tensor" if all(map(_is_number, sides)) else "")
    if unknown:
        found += f"; `{unknown[0]}` is then called every time, and must do nothing but compute"
    divides = any(isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Pow)) and not isinstance(node.right, ast.Constant) for side in sides for node in ast.walk(side))
    if divides or any(_name_of(call).rpartition(".")[2] in _SPOILS for call in calls):
        found += "; an infinity or NaN of the side that is not taken makes gradients NaN"
    return found


def _refuse_caught(place, statement):
    """What is raised here may be caught by the program; another error would not be."""
    if any(statement in ast.walk(inner) for block in place.nodes(ast.Try) if block.handlers for inner in block.body):
        raise ValueError("the error may be caught")


def _refuse_unbound(place, statement, names):
    """What only one side makes has to exist before."""
    function = next(iter(place.nodes(ast.FunctionDef, ast.AsyncFunctionDef)), None)
    if function is None:
        return
    bound = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
    bound |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.lineno < statement.lineno}
    if names - bound:
        raise ValueError("a name that one side makes")


def _split_python(test):
    """(what Python decides by itself, the rest) of `z is not None and t > 0`; (None, the whole test) otherwise."""
    plain = isinstance(test, ast.If) and not test.orelse and isinstance(test.test, ast.BoolOp) and isinstance(test.test.op, ast.And) and "return" not in _results(test.body)
    if not plain or not _is_python(test.test.values[0]) and not any(isinstance(value, _FLAGS) for value in test.test.values):
        return None, test.test
    values = sorted(test.test.values, key=lambda value: not isinstance(value, _FLAGS))  # looking at a name has no effect: these come first
    count = next((i for i, value in enumerate(values) if not _is_python(value)), len(values))
    first, rest = values[:count], values[count:]
    if not rest:
        raise ValueError("no tensor decides")
    return (first[0] if count == 1 else ast.BoolOp(ast.And(), first)), (rest[0] if len(rest) == 1 else ast.BoolOp(ast.And(), rest))


_FLAGS = (ast.Name, ast.Attribute, ast.Constant)


def _is_python(value):
    """Is this a question about objects, which Python answers without a tensor's data?"""
    if isinstance(value, ast.Compare):
        return any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in value.ops)
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        return _is_python(value.operand)
    if isinstance(value, _FLAGS):
        return True  # a flag; a tensor would be asked here as before
    return isinstance(value, ast.Call) and _name_of(value) in ("isinstance", "hasattr", "callable", "issubclass")


def _refuse_called(place, choice):
    """`fn = a if c else b` where fn is called later chooses a function, not a tensor."""
    statement = place.statement()
    names = {target.id for target in getattr(statement, "targets", ()) if isinstance(target, ast.Name)}
    called = {node.func.id for node in ast.walk(place.tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    parents = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and node.func is choice]
    if parents or names & called and statement.value is choice:
        raise ValueError("a function is chosen")


def _refuse_numbers(a, b):
    """A number that is returned would become a tensor."""
    if _is_number(a) and _is_number(b):
        raise ValueError("both sides are numbers")


def _is_number(value):
    return isinstance(value.operand if isinstance(value, ast.UnaryOp) else value, ast.Constant)


def _was_number(place, name):
    """Does the function give the variable a number somewhere?"""
    function = next(iter(place.nodes(ast.FunctionDef, ast.AsyncFunctionDef)), place.tree)
    return any(isinstance(node, ast.Assign) and _is_number(node.value) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets) for node in ast.walk(function))


def _refuse_object(value):
    """torch.where takes tensors and numbers."""
    if isinstance(value, (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Lambda, ast.JoinedStr, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)) or \
            isinstance(value, ast.Constant) and not isinstance(value.value, (int, float, complex)):
        raise ValueError("a side is no tensor")
    if isinstance(value, ast.Attribute) and ast.unparse(value).startswith(("torch.", "F.", "nn.", "math.", "np.")):
        raise ValueError("a side is a function")


def _raises(test):
    """The message of `if c: raise Error("message")`; None: the body is something else."""
    body = test.body[0] if isinstance(test, ast.If) and len(test.body) == 1 and not test.orelse else None
    if not isinstance(body, ast.Raise) or body.exc is None:
        return None
    args = body.exc.args if isinstance(body.exc, ast.Call) else []
    return ast.unparse(args[0]) if len(args) == 1 and isinstance(args[0], ast.Constant) and isinstance(args[0].value, str) else repr(ast.unparse(body.exc))


def advise(cause):
    """What to do about a decision that no patch fits; "": the general advice of its row."""
    filename, line, _ = cause.user
    if cause.why == "GENERATOR_ESCAPES" and any(f"{name}(" in cause.code for name in ("list", "tuple")):  # the general advice is to make a list of it
        return "make the list in the function itself: a comprehension, or a loop that appends"
    tree = _parse("".join(linecache.getlines(filename))) if cause.why in ("DATA_DEPENDENT_BRANCH", "TENSOR_ITEM", "TENSOR_TO_NUMBER") and (filename, line) == (cause.filename, cause.line) else None
    if tree is None:
        return ""
    place = _Place(filename, [], tree, line, cause.columns[0])
    found = next((node for node in place.nodes(ast.If, ast.IfExp, ast.While) if node.test.lineno <= line <= node.test.end_lineno), None)
    if isinstance(found, ast.While):
        return "run a fixed number of steps and mask what is finished, or use `torch._higher_order_ops.while_loop`"
    if isinstance(found, ast.IfExp):
        return "choose between tensors, not between objects: compute both and take one with `torch.where`"
    if found is not None and not found.orelse and all(_tells(statement) for statement in found.body):
        return ("nothing in this branch computes: return the value it decides on, and decide outside of the compiled function; or ask in some calls only: "
                "`if step % 100 == 0 and ...`")
    last = found.body[-1] if found is not None else None
    loops = any(any(found is inner for inner in ast.walk(loop)) for loop in place.nodes(ast.For, ast.While)) if found is not None else False
    if isinstance(last, (ast.Break, ast.Continue)) or loops and isinstance(last, ast.Return):
        return ("compile what the loop does in one step, and leave the loop to Python; or go on for the full number of steps and leave finished items as they are: "
                "`done = done | c; x = torch.where(done, x, step(x))`")
    if cause.why in ("TENSOR_ITEM", "TENSOR_TO_NUMBER") and _chooses(place):
        return "make a tensor of the values to choose from, and index it with the tensor: `torch.tensor([1.0, 2.0])[i]`, without the conversion to a number"
    return ""


def _tells(statement):
    """Does it print, log or warn, and no more?"""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    logs = isinstance(call.func, ast.Attribute) and all(hasattr(one, call.func.attr) for one in (logging, logging.Logger))
    return logs or _name_of(call) in ("print", "warnings.warn")


def _chooses(place):
    """Does the number choose an item of a container: `table[int(t)]`?"""
    return any(isinstance(node, ast.Subscript) and any(_name_of(call) in ("int", "bool") or _name_of(call).endswith(".item") for call in ast.walk(node.slice)
                                                       if isinstance(call, ast.Call)) for node in ast.walk(place.statement()))


def advise_effect(name):
    """What to do about a call that is repeated in every call because of what it does."""
    module, _, function = name.rpartition(".")
    if module == "numpy" and function in _SAME_IN_TORCH:
        return f"`torch.{function}` does the same as a part of the graph"
    if module == "ndarray" and function in _SAME_IN_TORCH:
        return f"`{function}` of the tensor itself does the same as a part of the graph"
    if module == "ndarray" or module.partition(".")[0] == "numpy":
        return "do it with tensors, as a part of the graph, where torch has such a function; else call it outside of the compiled function"
    return "call it less often, or outside of the compiled function"


def _where(test, a, b):
    _refuse_object(a)
    _refuse_object(b)
    return f"torch.where({ast.unparse(_tensor_test(test))}, {ast.unparse(a)}, {ast.unparse(b)})"


def _tensor_test(test):
    """`t.item() > 0` decides on the tensor itself; `and`, `or` and `not` would ask tensors for their truth, so functions of torch stand for them."""
    test = copy.deepcopy(test)

    class Items(ast.NodeTransformer):
        def visit_BoolOp(self, node):
            self.generic_visit(node)
            if any(_is_python(value) or isinstance(value, ast.Call) and isinstance(value.func, ast.Name) for value in node.values):
                raise ValueError("Python decides a part of it")
            if all(_is_bool(value) for value in node.values):  # where one of them is Python's own bool, logical_and would refuse it
                return functools.reduce(lambda a, b: ast.BinOp(a, ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr(), b), node.values)
            name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
            return functools.reduce(lambda a, b: _torch_call(name, a, b), node.values)

        def visit_Compare(self, node):
            """0 < t < 9 asks the first answer for its truth."""
            self.generic_visit(node)
            parts = [node.left, *node.comparators]
            pairs = [ast.Compare(parts[i], [op], [parts[i + 1]]) for i, op in enumerate(node.ops)]
            return functools.reduce(lambda a, b: ast.BinOp(a, ast.BitAnd(), b), pairs)

        def visit_UnaryOp(self, node):
            self.generic_visit(node)
            return _torch_call("logical_not", node.operand) if isinstance(node.op, ast.Not) else node

        def visit_Call(self, node):
            self.generic_visit(node)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
                return node.func.value
            if isinstance(node.func, ast.Name) and node.func.id in ("bool", "float", "int") and len(node.args) == 1:
                return _as_tensor(node)
            return _of_math(node) or node

    found = Items().visit(test)
    return found if _is_bool(found) else ast.Compare(found, [ast.NotEq()], [ast.Constant(0)])


_BOOLS = ("any", "all", "eq", "ne", "lt", "le", "gt", "ge", "less", "greater", "equal", "not_equal", "less_equal", "greater_equal", "bool")


def _is_bool(value):
    """Is it a tensor of bools, as torch.where wants, whatever the rest is?"""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.BitAnd, ast.BitOr)):
        return _is_bool(value.left) and _is_bool(value.right)
    name = _name_of(value).rpartition(".")[2] if isinstance(value, ast.Call) else ""
    return getattr(value, "is_bool", False) or isinstance(value, ast.Compare) or name in _BOOLS or name.startswith(("is", "logical_"))


def _as_tensor(call):
    """float(t), int(t), bool(t) as a tensor of such a number."""
    inner = call.args[0]
    if call.func.id == "float":
        return inner
    return ast.Call(ast.Attribute(inner, {"int": "long", "bool": "bool"}[call.func.id], ast.Load()), [], [])


def _torch_call(name, *args):
    return ast.Call(ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load()), list(args), [])


def _results(body):
    """{name: expression} of a body that only assigns names, or {"return": expression}."""
    found = {}
    for statement in body:
        if isinstance(statement, ast.Pass):
            continue
        if isinstance(statement, ast.Return) and len(body) == 1 and statement.value is not None:
            return {"return": statement.value}
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, statement.value
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            name, value = statement.target.id, ast.BinOp(ast.Name(statement.target.id, ast.Load()), statement.op, statement.value)
        else:
            raise ValueError("more than assignments")
        found[name] = _substitute(value, found)
    return found


def _substitute(value, known):
    class Names(ast.NodeTransformer):
        def visit_Name(self, node):
            return copy.deepcopy(known[node.id]) if node.id in known else node

    return Names().visit(copy.deepcopy(value))


def _reads(value, names):
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(value))


def _next_statement(tree, wanted):
    for node in ast.walk(tree):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list) and wanted in body:
                after = body[body.index(wanted) + 1:]
                return after[0] if after else None
    return None


def _calls(place, wanted):
    """Calls at the line whose function is called so; the one at the column of the break first."""
    found = [node for node in place.nodes(ast.Call) if node.lineno == place.line and wanted(node)]
    found.sort(key=lambda node: node.col_offset != place.column)
    if not found:
        raise ValueError("no such call")
    return found[0]


def _method(name):
    return lambda node: isinstance(node.func, ast.Attribute) and node.func.attr == name and not node.args


def _name_of(node):
    return ast.unparse(node.func)


def _decided(place):
    """The decision on a number that was made of a tensor some lines before: both lines change, what stands between them stays."""
    test = next(node for node in place.nodes(ast.If) if node.test.lineno <= place.line <= node.test.end_lineno)
    names = {node.id for node in ast.walk(test.test) if isinstance(node, ast.Name)}
    makers = [node for node in ast.walk(place.tree) if isinstance(node, ast.Assign) and node.end_lineno < test.lineno and len(node.targets) == 1
              and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names and node.lineno == node.end_lineno]
    made = max(makers, key=lambda node: node.lineno)
    if isinstance(made.value, ast.Call) and _name_of(made.value) in ("float", "int") and len(made.value.args) == 1:
        tensor = _as_tensor(made.value)
    elif isinstance(made.value, ast.Call) and _method("item")(made.value):
        tensor = made.value.func.value
    else:
        raise ValueError("made in another way")
    _refuse_python(place, made.value, {made.targets[0].id})
    decision = _branch(place)
    between = [line.rstrip("\n") for line in place.lines[made.lineno:decision.first - 1]]
    first = place.replace_expression(made.value, ast.unparse(tensor)).lines
    return Patch(place.filename, made.lineno, decision.last, [*first, *between, *decision.lines], _BOTH)


def _decides(place, call):
    """Is the call a part of what a statement or an expression decides on?"""
    return any(part is call for node in place.nodes(ast.If, ast.While, ast.IfExp) for part in ast.walk(node.test))


_CONVERSIONS = "float", "int", "bool"
_STAYS = "the value stays a tensor: what decides on it later needs torch.where"


def _item(place):
    if isinstance(place.statement(), ast.If) and ".item()" not in ast.unparse(place.statement().test):
        return _decided(place)
    call = _calls(place, _method("item"))
    if _decides(place, call):
        return _branch(place)
    outer, made = next((node for node in place.nodes(ast.Call) if _name_of(node) in _CONVERSIONS and node.args == [call]), None), call.func.value
    if outer is not None:  # float(t) would read the tensor again
        made = _as_tensor(ast.Call(outer.func, [made], []))
    _refuse_python(place, outer or call)
    return place.replace_expression(outer or call, ast.unparse(made), _STAYS)


def _number(place):
    if isinstance(place.statement(), ast.If) and not any(_name_of(node) in _CONVERSIONS for node in ast.walk(place.statement().test)
                                                         if isinstance(node, ast.Call)):
        return _decided(place)
    call = _calls(place, lambda node: _name_of(node) in _CONVERSIONS and len(node.args) == 1)
    if _decides(place, call):
        return _branch(place)
    _refuse_python(place, call)
    return place.replace_expression(call, ast.unparse(_as_tensor(call)), _STAYS)


_NUMBERS_ONLY = ("range", "zeros", "ones", "empty", "full", "arange", "linspace", "eye", "view", "reshape", "expand", "repeat", "split", "chunk", "str", "print", "format", "repr", "append",
                 "extend", "round", "isinstance", "log", "info", "debug", "warning", "write", "narrow", "randn", "rand", "randint", "new_zeros", "new_full", "unflatten", "tile", "bool", "int")


def _refuse_python(place, call, names=()):
    """Does the number leave the function, or go where Python needs one? Then a tensor in its place is another program. names: variables that hold it."""
    statement = place.statement()
    if call is not None and getattr(statement, "value", None) is call:
        names = {target.id for target in getattr(statement, "targets", ()) if isinstance(target, ast.Name)}

    def is_it(node):
        if isinstance(node, ast.Subscript):  # an item of the list that it is
            return is_it(node.value)
        return node is call or isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load)
    for node in ast.walk(next(iter(place.nodes(ast.FunctionDef, ast.AsyncFunctionDef)), place.tree)):
        if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
            parts = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else node.value.values if isinstance(node.value, ast.Dict) else [node.value]
        elif isinstance(node, ast.Assign) and any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            parts = [node.value]
        elif isinstance(node, (ast.Slice, ast.FormattedValue)) or isinstance(node, ast.Call) and _name_of(node).rpartition(".")[2] in _NUMBERS_ONLY and node is not call:
            parts = [inner for part in ast.iter_child_nodes(node) for inner in ast.walk(part)]
        elif isinstance(node, ast.Subscript):
            parts = ast.walk(node.slice)  # a key that is computed of it, too
        elif isinstance(node, ast.Dict):
            parts = node.values
        else:
            continue
        if any(is_it(part) for part in parts):
            raise ValueError("a number of Python's is needed")


_ITERATE = ("list", "tuple", "enumerate", "zip", "reversed", "map", "iter")
_OF_LISTS = {"sorted": "torch.sort({}).values.unbind()", "sum": "{}.sum()", "min": "{}.min()", "max": "{}.max()"}


def _tolist(place):
    """sum(t.tolist()) is t.sum(); elsewhere the list holds tensors."""
    call = _calls(place, _method("tolist"))
    outer = next((node for node in place.nodes(ast.Call) if node.args == [call] and not node.keywords and _name_of(node) in _OF_LISTS), None)
    if outer is not None:
        return place.replace_expression(outer, _OF_LISTS[_name_of(outer)].format(ast.unparse(call.func.value)), "for a tensor of one dimension; the values stay tensors")
    if any(call in node.args and _name_of(node) not in _ITERATE for node in place.nodes(ast.Call)) or \
            any(call in (node.left, *node.comparators) for node in place.nodes(ast.Compare)):
        raise ValueError("tensors are not found by their values there")
    _refuse_python(place, call)
    return place.replace_expression(call, f"{ast.unparse(call.func.value)}.unbind()", "the items stay tensors")


def _equal(place):
    call = _calls(place, lambda node: _name_of(node).endswith(("torch.equal", "torch.allclose")) and len(node.args) >= 2)
    a, b = (ast.unparse(arg) for arg in call.args[:2])
    equal = _name_of(call).endswith("equal")
    made = f"({a} == {b}).all()" if equal else f"torch.isclose({', '.join([a, b, *map(ast.unparse, call.args[2:]), *map(ast.unparse, call.keywords)])}).all()"
    return _in_place_of(place, call, made, "for tensors of the same sizes; the answer is a tensor: decide on it with torch.where")


def _in_place_of(place, call, made, caution):
    """The tensor expression `made` in place of a call that gives Python a bool. A decision would ask a tensor for its truth, so it changes as well."""
    decision = next((node for node in place.nodes(ast.If, ast.IfExp) if any(part is call for part in ast.walk(node.test))), None)
    if decision is None:
        return place.replace_expression(call, made, caution)
    tensor = ast.parse(made, mode="eval").body
    _replace_node(decision.test, call, tensor) if decision.test is not call else setattr(decision, "test", ast.copy_location(tensor, call))
    ast.fix_missing_locations(decision.test)
    return _branch(place)


def _generator(place):
    """any(t > 1 for t in x.unbind()) is (x > 1).any(), for items that are numbers."""
    call = _calls(place, lambda node: _name_of(node) in ("any", "all") and len(node.args) == 1 and isinstance(node.args[0], (ast.GeneratorExp, ast.ListComp)))
    item, (loop, *more) = call.args[0].elt, call.args[0].generators
    if more or loop.ifs or not isinstance(loop.target, ast.Name) or not isinstance(item, ast.Compare):
        raise ValueError("more than a comparison of each item")
    rows = loop.iter
    if isinstance(rows, ast.Call) and isinstance(rows.func, ast.Attribute) and rows.func.attr in ("unbind", "tolist") and not rows.args:
        rows = rows.func.value
    made = ast.unparse(_tensor_test(_substitute(item, {loop.target.id: rows})))
    return _in_place_of(place, call, f"({made}).{_name_of(call)}()", "for a tensor of one dimension; the answer is a tensor: decide on it with torch.where")


def _math(place):
    """math.isnan(t) is torch.isnan(t)."""
    call = _calls(place, lambda node: _of_math(node) is not None)
    if _decides(place, call):
        return _branch(place)
    return place.replace_expression(call, ast.unparse(_of_math(call)), "the answer is a tensor: decide on it with torch.where")


def _of_math(call):
    """The call of torch that is the same for tensors as this one of math; None: there is none."""
    import torch

    module, _, name = _name_of(call).rpartition(".")
    if module != "math" or len(call.args) != 1 or call.keywords or not hasattr(torch, name):
        return None
    return _torch_call(name, call.args[0])


def _replace_node(tree, old, new):
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if value is old:
                setattr(node, field, new)
            elif isinstance(value, list) and any(item is old for item in value):
                setattr(node, field, [new if item is old else item for item in value])


def _assert(place):
    statement = next(node for node in place.nodes(ast.Assert))
    _refuse_caught(place, statement)
    if statement.msg is not None and not isinstance(statement.msg, ast.Constant):
        raise ValueError("its message is computed")
    text = ast.unparse(_tensor_test(statement.test)) + (f", {ast.unparse(statement.msg)}" if statement.msg else ', "assertion failed"')
    return place.replace(statement, [f"torch._assert_async({text})"], "a RuntimeError is raised in place of an AssertionError")


def _deepcopy(place):
    call = _calls(place, lambda node: _name_of(node).endswith("deepcopy") and len(node.args) == 1)
    if not isinstance(call.args[0], (ast.Name, ast.Attribute, ast.Subscript)):
        raise ValueError("not a tensor alone")
    return place.replace_expression(call, f"{(given := ast.unparse(call.args[0]))}.detach().clone().requires_grad_({given}.requires_grad)", "for a tensor; modules are copied outside of the function")


def _remove_call(place):
    statement = place.statement()
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call) or not _name_of(statement.value).endswith("graph_break"):
        raise ValueError("its value is used, or the line has more statements")
    alone = any(getattr(node, field, None) == [statement] for node in ast.walk(place.tree) for field in ("body", "orelse", "finalbody"))
    return place.replace(statement, ["pass"] if alone else [])


def _set_data(place):
    statement = place.statement()
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "set_" and len(call.args) == 1 and not call.keywords:
        return place.replace(statement, ["with torch.no_grad():", f"    {ast.unparse(call.func.value)}.copy_({ast.unparse(call.args[0])})"],
                             "the memory stays the same, so sizes and dtype have to")
    raise ValueError("no call of set_ with a tensor alone")


# Functions that give the same in both. (Not std and var, which divide by another number, and not median, split and gradient.)
_SAME_IN_TORCH = frozenset("""abs add arccos arcsin arctan argmax argmin argsort ceil clip concatenate cos cosh cumprod cumsum deg2rad diff divide dot einsum exp expm1 flip fliplr
flipud floor fmax fmin hypot isfinite isinf isnan isclose kron log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul maximum mean minimum multiply
nan_to_num negative outer power prod quantile rad2deg ravel reciprocal remainder roll round sign sin sinh sort sqrt square stack subtract sum tan tanh trace transpose tril triu trunc
vstack hstack where""".split())


def _numpy_function(place):
    """np.sort(t.numpy()) is torch.sort(t)."""
    import torch

    for call in place.nodes(ast.Call):
        module, _, name = _name_of(call).rpartition(".")
        if module in ("np", "numpy") and name in _SAME_IN_TORCH and hasattr(torch, name) and call.args:
            args = [ast.unparse(arg.func.value) if isinstance(arg, ast.Call) and isinstance(arg.func, ast.Attribute) and arg.func.attr == "numpy"
                    else ast.unparse(arg) for arg in call.args]
            args += [f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords]
            return place.replace_expression(call, f"torch.{name}({', '.join(args)})" + (".values" if name == "sort" else ""), "the result is a tensor, no array")
    raise ValueError("no function of NumPy")


_RULES = {
    "DATA_DEPENDENT_BRANCH": _branch, "DATA_DEPENDENT_BOOL_METHOD": _branch, "DATA_DEPENDENT_ASSERT": _assert, "TENSOR_ITEM": _item,
    "TENSOR_TO_NUMBER": _number, "TENSOR_TOLIST": _tolist, "DATA_DEPENDENT_OP": _equal, "TENSOR_DEEPCOPY": _deepcopy,
    "EXPLICIT_BREAK": _remove_call, "SET_DATA": _set_data, "TENSOR_NUMPY": _numpy_function, "OPAQUE_CALL": _math,
    "GENERATOR_ESCAPES": _generator,
}
_OF_READS = {"item": _item, "float": _number, "int": _number, "bool": _number}  # by what makes a number of a tensor
