"""Random programs as source text: tensors mixed with ordinary Python, and a schedule of changes between calls.

A program is a tree of statements (so that the shrinker can drop parts) that renders to a topic file as in
tests/corpus: `f` is the compiled function, `arguments(i)` makes the arguments of call i, `mutate(i)` runs before it.
Expressions are typed, so most programs do not raise; those that do are compared like all others.

No decision hangs on the last digit of a float, so that programs do the same with kernels, which sum in another order: what a
float is compared with, truncated or rounded to is a bit (MARGIN) away from the round numbers that come out of these
programs, and no function is asked where it jumps.
"""
import dataclasses
import random
import re


@dataclasses.dataclass
class Stmt:
    """A simple statement (text) or a compound one (blocks: header -> statements)."""
    text: str = ""
    blocks: list = dataclasses.field(default_factory=list)

    def render(self, indent, out):
        pad = "    " * indent
        if self.text:
            out.append(pad + self.text)
        for header, body in self.blocks:
            out.append(pad + header)
            render_block(body, indent + 1, out)


def render_block(body, indent, out):
    start = len(out)
    for stmt in body:
        stmt.render(indent, out)
    if len(out) == start:
        out.append("    " * indent + "pass")


@dataclasses.dataclass
class Program:
    seed: int
    top: list        # Stmt: globals, classes, helpers
    body: list       # Stmt: body of f
    changes: list    # (call, text)
    rows: list       # per call: the argument tuple as text
    sizes: list = ()  # per call: the length of all tensors; (): 4 everywhere

    def source(self):
        text = self.source_of_four()
        return with_sizes(text, self.sizes) if self.sizes else text

    def source_of_four(self):
        out = HEAD.splitlines()
        for stmt in self.top:
            stmt.render(0, out)
        out += ["", "", "def arguments(i, s):", f"    return [{', '.join(self.rows)}][i]", "", "",
                "def mutate(i, s):", "    global " + ", ".join(GLOBALS)]
        for call, text in self.changes:
            out += [f"    if i == {call}:", f"        {text}"]
        out += ["", "", f"@case(args=arguments, mutate=mutate, calls={len(self.rows)})",
                "def f(x, y, n, w, flag, items, table, obj):", "    global " + ", ".join(GLOBALS)]
        render_block(self.body, 1, out)
        return "\n".join(out) + "\n"


# What a program with tensors of four elements says, and what it says with a length that is another one in each call: read from an argument, or from N.
ANY_SIZE = ((r"torch\.(ones|rand)\(4\)", r"torch.\1({n})"), (r"torch\.full\(\(4,\)", "torch.full(({n},)"), (r"\.view\(2, 2\)", ".view(2, -1)"),
            (r"\.reshape\(4\)", ".reshape(-1)"), (r"\[torch\.tensor\(\[3, 1, 0, 2\]\)\]", "[torch.arange({n} - 1, -1, -1)]"), (r"\bT\(([^()]*), 4\)", r"T(\1, N)"))
LENGTHS = (4, 6, 2, 8, 1, 0, 10, 3, 16, 40)


def with_sizes(text, sizes):
    """The source with other sizes: N, tensors of the module and arguments have sizes[i] elements in call i."""
    head, f = text.split("\n@case(", 1)
    for pattern, other in ANY_SIZE:
        head = re.sub(pattern, other.replace("{n}", "N"), head)
        f = re.sub(pattern, other.replace("{n}", "x.shape[0]"), f)
    head = head.replace("\nG0 = 2\n", f"\nSIZES = {list(sizes)}\nN = SIZES[0]\nG0 = 2\n", 1)
    changed = f"    global N, {', '.join(GLOBALS)}\n    if N != SIZES[i]:\n        N = SIZES[i]\n        GT, OBJ.t = T(50, N), T(61, N)"
    head = head.replace("def mutate(i, s):\n    global " + ", ".join(GLOBALS), "def mutate(i, s):\n" + changed, 1)
    return head + "\n@case(" + f


HEAD = '''"""Made by fuzz_generate.py."""
import functools
import warnings

import torch

from kincorpus.case import T, case

G0 = 2
G1 = 0.5
GF = True
GS = "a"
GT = T(50, 4)
GL = [1, 2, 3]
GD = {"a": 1, "b": 2}
LOG = []


class Error(Exception):
    pass


class Scope:
    swallow = False

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        LOG.append("enter " + self.name)
        return self

    def __exit__(self, kind, value, tb):
        LOG.append("exit " + self.name)
        return kind is Error and self.swallow


class Obj:
    factor = 2
    made = 0

    def __init__(self, k):
        self.k = k
        self.t = T(60 + k, 4)
        self.items = []
        self.info = {"n": k}
        Obj.made += 1

    @property
    def double(self):
        return self.k * 2

    def scale(self, t, by=1):
        return t * (self.factor + by)

    def bump(self, d=1):
        self.k = (self.k + d) % 50
        return self.k


def walk(n):
    for v in range(n):
        yield v * 2


OBJ = Obj(1)
'''

MARGIN = 0.0137

GLOBALS = ("G0", "G1", "GF", "GS", "GT", "GL", "GD", "helper0", "helper1")
TENSOR, INT, FLOAT, BOOL, STR, LIST, DICT, TENSORS = "tensor int float bool str list dict tensors".split()


class Maker:
    """Typed expressions and statements over a growing environment."""

    def __init__(self, rng, sizes=False):
        self.r = rng
        self.sizes = sizes       # tensors have another length in most calls
        self.counter = 0
        self.helpers = []        # (name, parameter types, result type)
        self.in_loop = False
        self.top_level = True    # of f: closures, returns of every kind are allowed

    # -- names ---------------------------------------------------------------------------------------------------
    def fresh(self):
        self.counter += 1
        return f"v{self.counter}"

    def name(self, env, kind):
        return self.r.choice(env[kind])

    def pick(self, *options):
        return self.r.choice(options)()

    # -- expressions ---------------------------------------------------------------------------------------------
    def expr(self, env, kind, depth=2):
        if depth <= 0 or self.r.random() < 0.25:
            return self.leaf(env, kind)
        return getattr(self, "expr_" + kind)(env, depth - 1)

    def leaf(self, env, kind):
        if env[kind] and self.r.random() < 0.8:
            return self.name(env, kind)
        return {TENSOR: lambda: self.r.choice(["GT", "x", "torch.ones(4)"] if "x" in env[TENSOR] else ["GT"]),
                INT: lambda: str(self.r.randint(-3, 7)), FLOAT: lambda: repr(self.r.choice([0.5, -1.25, 2.0, 0.1])),
                BOOL: lambda: self.r.choice(["True", "False"]), STR: lambda: repr(self.r.choice("abc")),
                LIST: lambda: f"[{self.r.randint(0, 3)}, {self.r.randint(0, 9)}]",
                DICT: lambda: "{'a': 3, 'c': 4}", TENSORS: lambda: "[GT, GT * 2]"}[kind]()

    def expr_tensor(self, env, d):
        e = lambda kind=TENSOR: self.expr(env, kind, d)   # noqa: E731
        r = self.r
        return self.pick(
            lambda: f"({e()} {r.choice('+-*')} {e()})", lambda: f"({e()} {r.choice('+-*')} {e(INT)})",
            lambda: f"({e(FLOAT)} {r.choice('+-*')} {e()})",
            lambda: f"{e()}.{r.choice(['clamp(-40, 40).sin()', 'tanh()', 'neg()', 'relu()', 'abs()', 'clone()', 'flip(0)', 'detach()'])}",
            lambda: r.choice([f"torch.{f}({{}}, {{}})" for f in ("maximum", "minimum", "add")]
                             + ["torch.atan2({}, 0.5 + {}.abs())"]).format(e(), e()),
            lambda: f"torch.where({e()} > {MARGIN} + {e(INT)}, {e()}, {e()})", lambda: f"torch.full((4,), float({e(INT)}))",
            lambda: f"({e()} if {e(BOOL)} else {e()})", lambda: f"torch.stack({e(TENSORS)}).sum(0)",
            lambda: f"sum({e(TENSORS)})", lambda: f"functools.reduce(torch.add, {e(TENSORS)})",
            lambda: f"{e()}.view(2, 2).t().reshape(4)", lambda: f"({e()} / (1 + {e()}.abs()))", lambda: "torch.rand(4)",
            lambda: f"{e()}[torch.tensor([3, 1, 0, 2])]", lambda: f"torch.nn.functional.softmax({e()}, 0)",
            lambda: self.call(env, TENSOR, d) or e(), lambda: self.attribute(env, TENSOR, d),
            lambda: f"(lambda t, k={e(INT)}: t * k)({e()})")

    def expr_int(self, env, d):
        e = lambda kind=INT: self.expr(env, kind, d)   # noqa: E731
        r = self.r
        return self.pick(
            lambda: f"({e()} {r.choice('+-')} {e()})", lambda: f"({e()} * {e()} % 31)", lambda: f"({e()} // 2)",
            lambda: f"len({e(LIST)})", lambda: f"sum({e(LIST)})", lambda: f"{e(DICT)}.get({e(STR)}, {e()})",
            lambda: f"({e()} if {e(BOOL)} else {e()})", lambda: f"int({e(BOOL)})", lambda: f"len({e(STR)})",
            lambda: f"{e(TENSOR)}.{r.choice(['dim()', 'shape[0]', 'numel()'])}", lambda: f"min({e()}, {e()})",
            lambda: f"int({e(TENSOR)}.sum().clamp(-9, 9).nan_to_num().item() + {MARGIN})", lambda: f"max({e(LIST)}, default={e()})",
            lambda: f"sum(q for q in {e(LIST)} if q > {e()})", lambda: f"sum(walk({e()} % 4))",
            lambda: f"sorted({e(LIST)} + [1], key=lambda q: -q)[0]", lambda: f"(({e()}) % 5)",
            lambda: self.call(env, INT, d) or e(), lambda: self.attribute(env, INT, d))

    def expr_float(self, env, d):
        e = lambda kind=FLOAT: self.expr(env, kind, d)   # noqa: E731
        return self.pick(
            lambda: f"({e()} {self.r.choice('+-*')} {e()})", lambda: f"({e(INT)} / 4)", lambda: f"abs({e()})",
            lambda: f"{e(TENSOR)}.mean().item()", lambda: f"round({e()} + {MARGIN / 10}, 2)", lambda: f"float({e(INT)})")

    def expr_bool(self, env, d):
        e = lambda kind=BOOL: self.expr(env, kind, d)   # noqa: E731
        op = self.r.choice(["<", "<=", "==", "!=", ">", ">="])
        return self.pick(
            lambda: f"({e(INT)} {op} {e(INT)})", lambda: f"(not {e()})",
            lambda: f"({e()} {self.r.choice(['and', 'or'])} {e()})", lambda: f"bool({e(LIST)})",
            lambda: f"({e(STR)} in {e(DICT)})", lambda: f"({e(INT)} in {e(LIST)})", lambda: f"({e(STR)} == {e(STR)})",
            lambda: f"bool({e(TENSOR)}.sum() > {MARGIN} + {e(INT)})", lambda: f"(0 <= {e(INT)} < 3)",
            lambda: f"isinstance({e(INT)}, int)", lambda: f"any(q > 1 for q in {e(LIST)})",
            lambda: f"hasattr(obj, {self.r.choice(['late', 'k'])!r})" if self.top_level else e(INT) + " > 1")

    def expr_str(self, env, d):
        e = lambda kind=STR: self.expr(env, kind, d)   # noqa: E731
        return self.pick(lambda: f"({e()} + {e()})[:6]", lambda: f"f'{{{self.leaf(env, INT)}}}'", lambda: f"str({e(BOOL)})",
                         lambda: f"next(iter({e(DICT)}), 'none')", lambda: f"{e()}.upper()")

    def expr_list(self, env, d):
        e = lambda kind=LIST: self.expr(env, kind, d)   # noqa: E731
        return self.pick(lambda: f"[q + {e(INT)} for q in {e()}]", lambda: f"({e()} + {e()})[:8]", lambda: f"{e()}[::-1]",
                         lambda: f"list({e(DICT)}.values())", lambda: f"[*{e()}, {e(INT)}][:8]", lambda: f"sorted({e()})",
                         lambda: f"list(walk({e(INT)} % 4))", lambda: f"list(range({e(INT)} % 4))")

    def expr_dict(self, env, d):
        e = lambda kind=DICT: self.expr(env, kind, d)   # noqa: E731
        return self.pick(lambda: f"{{**{e()}, {e(STR)}: {e(INT)}}}", lambda: f"{{q: {e(INT)} for q in {e()}}}",
                         lambda: f"dict(sorted({e()}.items()))", lambda: f"({e()} | {e()})")

    def expr_tensors(self, env, d):
        e = lambda kind=TENSOR: self.expr(env, kind, d)   # noqa: E731
        return self.pick(lambda: f"[{e()}, {e()}]", lambda: f"[t * {e(INT)} for t in {e(TENSORS)}]",
                         lambda: f"list({e()}.view(2, 2).repeat(1, 2).unbind(0))", lambda: f"([{e()}] * 2)")

    def call(self, env, kind, d):
        fits = [h for h in self.helpers + env["closures"] if h[2] == kind]
        if not fits:
            return None
        name, params, _ = self.r.choice(fits)
        return f"{name}({', '.join(self.expr(env, p, d) for p in params)})"

    def attribute(self, env, kind, d):
        owner = self.r.choice(["OBJ", "obj"]) if self.top_level else "OBJ"
        if kind == TENSOR:
            return self.r.choice([f"{owner}.t", f"{owner}.scale({self.expr(env, TENSOR, d)})", "GT",
                                  f"{owner}.scale({self.expr(env, TENSOR, d)}, by={self.expr(env, INT, d)})"])
        return self.r.choice([f"{owner}.k", f"{owner}.double", f"{owner}.factor", f"{owner}.info['n']", "G0", "Obj.made",
                              f"{owner}.bump()", f"getattr({owner}, 'late', {self.expr(env, INT, d)})"])

    # -- statements ----------------------------------------------------------------------------------------------
    def block(self, env, budget, depth):
        """Statements; names made inside are not used outside (the caller passes a copy of env)."""
        return [self.stmt(env, depth) for _ in range(budget)]

    def stmt(self, env, depth):
        simple = [self.assign] * 6 + [self.reassign] * 3 + [self.effect] * 5 + [self.in_place] * 2
        nested = [self.branch] * 4 + [self.loop] * 3 + [self.guarded] * 3 + [self.scoped] * 2 + [self.matching]
        if self.top_level:
            nested += [self.closure] * 2
        rare = [self.leave]
        return self.r.choice(simple + (nested if depth > 0 else []) + rare)(env, depth)

    def assign(self, env, depth):
        kind = self.r.choices([TENSOR, INT, FLOAT, BOOL, STR, LIST, DICT, TENSORS], [8, 4, 2, 2, 1, 2, 2, 2])[0]
        text, name = self.expr(env, kind, 3), self.fresh()
        env[kind].append(name)
        return Stmt(f"{name} = {text}")

    def reassign(self, env, depth):
        kind = self.r.choice([TENSOR, TENSOR, INT, FLOAT, BOOL])
        local = [v for v in env[kind] if v.startswith("v")]
        if not local:
            return self.assign(env, depth)
        name = self.r.choice(local)
        if kind == INT and self.r.random() < 0.5:
            return Stmt(f"{name} += {self.expr(env, INT, 1)}")
        return Stmt(f"{name} = {self.expr(env, kind, 2)}")

    def in_place(self, env, depth):
        t = self.name(env, TENSOR) if env[TENSOR] else "GT"
        e = self.expr(env, TENSOR, 1)
        return Stmt(self.r.choice([
            f"{t}.data.add_({e}.detach().clamp(-2, 2))", f"{t}.detach().mul_(0.5)", f"{t}.detach()[1] = {self.expr(env, INT, 1)}",
            f"{t}.detach()[{t}.detach() > 2 + {MARGIN}] = 0", f"{t}.detach()[:2].sub_(1)", "GT.copy_(GT.cos())"]))

    def effect(self, env, depth):
        e = lambda kind: self.expr(env, kind, 2)   # noqa: E731
        obj = "obj" if self.top_level else "OBJ"
        options = [
            f"print('p', {e(INT)}, {e(STR)})", f"print(f'{{{self.leaf(env, FLOAT)}:.6f}} {{{self.leaf(env, BOOL)}}}')",
            f"print({e(TENSOR)}.sum().item())", f"LOG.append({e(INT)})", f"LOG.append({e(TENSOR)})", "del LOG[:-4]",
            f"GL.append({e(INT)})", "GL[:] = GL[-5:]", f"GD[{e(STR)}] = {e(INT)}", "GD.pop('a', None)",
            f"{obj}.k = {e(INT)}", f"{obj}.t = {e(TENSOR)}.detach()", f"{obj}.items.append({e(INT)})",
            f"{obj}.info['n'] = {e(INT)}", f"{obj}.late = {e(INT)}", f"OBJ.bump({e(INT)})", f"Obj.factor = {e(INT)} % 7",
            f"warnings.warn('w' + {e(STR)})", f"assert {e(INT)} != 3, {e(STR)}"]
        if self.top_level:
            options += [f"items.append({e(INT)})", f"table[{e(STR)}] = {e(INT)}", "table.pop('a', None)", "items.reverse()",
                        f"G0 = {e(INT)} % 11", f"G1 = {e(FLOAT)}", f"GS = {e(STR)}", f"GF = {e(BOOL)}",
                        f"obj.items.extend(items[:2]); obj.info.update(table)", f"table.setdefault({e(STR)}, {e(INT)})"]
        return Stmt(self.r.choice(options))

    def condition(self, env):
        if self.r.random() < 0.25:
            return f"{self.expr(env, TENSOR, 1)}.sum() > {MARGIN} + {self.r.choice(['0', '1', '-1'])}"
        return self.expr(env, BOOL, 2)

    def branch(self, env, depth):
        out = Stmt()
        out.blocks.append((f"if {self.condition(env)}:", self.block(copy_env(env), self.r.randint(1, 3), depth - 1)))
        if self.r.random() < 0.3:
            out.blocks.append((f"elif {self.condition(env)}:", self.block(copy_env(env), self.r.randint(1, 2), depth - 1)))
        if self.r.random() < 0.6:
            out.blocks.append(("else:", self.block(copy_env(env), self.r.randint(1, 2), depth - 1)))
        return out

    def loop(self, env, depth):
        inner, name = copy_env(env), self.fresh()
        options = [
            (INT, f"for {name} in range({self.expr(env, INT, 1)} % 4):"), (INT, f"for {name} in {self.expr(env, LIST, 1)}[:4]:"),
            (TENSOR, f"for {name} in {self.expr(env, TENSORS, 1)}[:3]:"), (STR, f"for {name} in list({self.expr(env, DICT, 1)})[:4]:"),
            (INT, f"for {name}, _ in enumerate({self.expr(env, LIST, 1)}[:3], start=1):"), (INT, f"for {name} in walk(3):"),
            (INT, "while")]
        if self.sizes:  # as many rounds as a tensor is long
            t = self.name(env, TENSOR)
            options += [(INT, f"for {name} in range(len({t})):"), (INT, f"for {name} in range({t}.shape[0] - 1, 0, -2):"), (INT, f"for {name}, _ in enumerate({t}):"),
                        (INT, f"for {name} in reversed(range({t}.numel())):"), (TENSOR, f"for {name} in {t}.split(1):"), (INT, f"while {t}.shape[0]")]
        kind, header = self.r.choice(options)
        before, self.in_loop = self.in_loop, True
        if header.startswith("while"):
            name = "c" + name   # not a name that assignments may pick: the loop has to end
            inner[INT].append(name)
            body = self.block(inner, self.r.randint(1, 2), depth - 1)
            bound = header[6:] or str(self.r.randint(1, 3))
            out = Stmt(f"{name} = 0", [(f"while {name} < {bound}:", [Stmt(f"{name} += 1")] + body)])
        else:
            inner[kind].append(name)
            out = Stmt(blocks=[(header, self.block(inner, self.r.randint(1, 3), depth - 1))])
        self.in_loop = before
        if self.r.random() < 0.2:
            out.blocks.append(("else:", self.block(copy_env(env), 1, depth - 1)))
        return out

    def guarded(self, env, depth):
        body = self.block(copy_env(env), self.r.randint(1, 2), depth - 1)
        trouble = self.r.choice([f"raise Error({self.expr(env, INT, 1)})", "raise KeyError('k')", "[][0]", "{}['gone']",
                                 "x.view(3, 3)", "int('no')", "raise Error('from') from ValueError(1)"])
        if not self.top_level and trouble.startswith("x."):
            trouble = "GT.view(3, 3)"
        body.append(Stmt(blocks=[(f"if {self.condition(env)}:", [Stmt(trouble)])]))
        caught = self.r.choice(["(Error, LookupError)", "Exception", "Error", "(RuntimeError, ValueError, LookupError)"])
        name, inner = self.fresh(), copy_env(env)
        handler = [Stmt(f"print('caught', type({name}).__name__, len({name}.args))")]
        handler += self.block(inner, self.r.randint(0, 1), depth - 1)
        out = Stmt(blocks=[("try:", body), (f"except {caught} as {name}:", handler)])
        if self.r.random() < 0.3:
            out.blocks.append(("else:", self.block(copy_env(env), 1, depth - 1)))
        if self.r.random() < 0.3:
            before, self.in_loop = self.in_loop, False
            out.blocks.append(("finally:", [self.effect(env, 0)]))
            self.in_loop = before
        return out

    def scoped(self, env, depth):
        header = self.r.choice(["with torch.no_grad():", "with Scope('s'):", "with Scope('t') as sc:",
                                "with Scope('u'), torch.enable_grad():"])
        return Stmt(blocks=[(header, self.block(env, self.r.randint(1, 2), depth - 1))])   # env: names stay assigned

    def matching(self, env, depth):
        out = Stmt(blocks=[(f"match {self.expr(env, INT, 1)}:", [])])
        for pattern in ("0", "1 | 2", f"q{depth} if q{depth} > 4", "_"):
            body = self.block(copy_env(env), 1, depth - 1)
            out.blocks[0][1].append(Stmt(blocks=[(f"case {pattern}:", body)]))
        return out

    def closure(self, env, depth):
        name, kind = self.fresh(), self.r.choice([TENSOR, INT])
        local = [v for v in env[INT] if v.startswith("v")]
        body, inner = [], copy_env(env)
        inner["closures"] = []
        param = self.fresh()
        inner[kind].append(param)
        if local and self.r.random() < 0.6:
            cell = self.r.choice(local)
            if cell not in env["loops"]:
                body += [Stmt(f"nonlocal {cell}"), Stmt(f"{cell} = ({cell} + {self.r.randint(1, 3)}) % 23")]
        body.append(Stmt(f"return {self.expr(inner, kind, 2)}"))
        env["closures"].append((name, (kind,), kind))
        return Stmt(blocks=[(f"def {name}({param}):", body)])

    def leave(self, env, depth):
        options = [f"return {self.expr(env, TENSOR, 1)}", f"return {self.expr(env, INT, 1)}, {self.expr(env, STR, 1)}"]
        if self.in_loop:
            options += ["break", "continue"] * 3
        elif self.r.random() < 0.5:
            return self.assign(env, depth)
        if not self.top_level:
            options = [o for o in options if not o.startswith("return")] or ["pass"]
        if self.top_level and self.r.random() < 0.15:
            options = [f"raise Error({self.expr(env, INT, 1)})"]
        return Stmt(blocks=[(f"if {self.condition(env)}:", [Stmt(self.r.choice(options))])])


def copy_env(env):
    return {k: list(v) for k, v in env.items()}


def empty_env():
    env = {k: [] for k in (TENSOR, INT, FLOAT, BOOL, STR, LIST, DICT, TENSORS, "closures", "loops")}
    env[INT], env[FLOAT], env[BOOL], env[STR] = ["G0"], ["G1"], ["GF"], ["GS"]
    env[LIST], env[DICT], env[TENSOR] = ["GL"], ["GD"], ["GT"]
    return env


def make_helper(maker, index):
    """A function with a default argument; its result type is its first parameter's."""
    kind, env = maker.r.choice([TENSOR, INT]), empty_env()
    env[kind].append("a")
    env[INT].append("k")
    maker.top_level = False
    body = maker.block(env, maker.r.randint(1, 4), 1) + [Stmt(f"return {maker.expr(env, kind, 2)}")]
    maker.top_level = True
    maker.helpers.append((f"helper{index}", (kind,), kind))
    return Stmt(blocks=[(f"def helper{index}(a, k={maker.r.randint(0, 3)}):", body)]), kind


def make_changes(r, calls, kinds):
    """What happens between calls: most programs change something once or twice."""
    options = [
        "G0 = {n}", "G1 = {n} / 2", "GF = not GF", "GS = 'c'", "GT = T({n}, 4)", "GT.mul_(-1)", "GL.append({n})",
        "GL[0] = {n}", "GD['b'] = {n}", "GD['a'] = GD.pop('a', {n})", "GD.clear()", "Obj.factor = {n}", "OBJ.k = {n}",
        "OBJ.t = T({n}, 4)", "OBJ.late = {n}", "Scope.swallow = not Scope.swallow", "helper0.__defaults__ = ({n},)",
        "torch.manual_seed({n})", "Obj.double = property(lambda self: {n})", "Obj.scale = lambda self, t, by=1: t - by",
        "torch.set_grad_enabled(False)", "GT = GT.double()", "OBJ.factor = {n}", "GL = [{n}]", "GD = {{'z': {n}}}",
        f"helper{r.randint(0, 1)} = lambda a, k=2: a + k"]
    return [(r.randint(1, calls - 1), r.choice(options).format(n=r.randint(0, 9))) for _ in range(r.randint(0, 3))]


def make_row(r, i, previous):
    """Arguments of one call; often only tensor data differs from the call before."""
    n, w, flag, items, table = previous
    if i == 0 or r.random() < 0.25:
        what = r.randrange(5)
        n = r.randint(0, 4) if what == 0 or i == 0 else n
        w = r.choice([0.5, -1.5, 2.0]) if what == 1 or i == 0 else w
        flag = r.random() < 0.5 if what == 2 or i == 0 else flag
        items = [r.randint(0, 5) for _ in range(r.randint(1, 3))] if what == 3 or i == 0 else items
        table = {k: r.randint(0, 5) for k in r.sample("abc", 2)} if what == 4 or i == 0 else table
    text = f"(T({i}, 4), T({i + 20}, 4), {n}, {w}, {flag}, {items}, {table}, Obj({n}))"
    return text, (n, w, flag, items, table)


def generate(seed, sizes=False):
    """The program of a seed; the same on every machine. sizes: tensors have another length in most calls, and there are more of them."""
    r = random.Random(seed)
    maker = Maker(r, sizes)
    top, kinds = [], []
    for index in range(2):
        helper, kind = make_helper(maker, index)
        top += [helper, Stmt("")]
        kinds.append(kind)
    env = empty_env()
    for kind, names in ((TENSOR, ["x", "y"]), (INT, ["n"]), (FLOAT, ["w"]), (BOOL, ["flag"]), (LIST, ["items"]),
                        (DICT, ["table"])):
        env[kind] = names + env[kind]
    body = maker.block(env, r.randint(4, 10), 2)
    results = [maker.name(env, TENSOR), maker.expr(env, r.choice([INT, TENSOR, LIST, DICT, STR, TENSORS]), 2)]
    body.append(Stmt("return " + ", ".join(results)))
    calls, rows, previous = r.randint(5, 7), [], (0, 0, 0, 0, 0)
    for i in range(calls):
        text, previous = make_row(r, i, previous)
        rows.append(text)
    program = Program(seed, top, body, make_changes(r, calls, kinds), rows)
    if sizes:
        program.rows = rows + rows[::-1]
        program.sizes = [r.choice(LENGTHS) for _ in program.rows]
    return program
