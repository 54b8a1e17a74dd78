"""Operators in graphs for custom backends as torch.ops.higher_order has them: what their functions do as graphs of their own.

A graph first has run_cond, run_scan ... (_operators.py) with functions that it makes. Here each function is recorded on examples; the graph that comes
becomes a submodule, which takes what the function's cells hold as further operands. Where something does not fit, the node stays.
"""

import inspect
import operator

import torch
import torch.fx
from torch.utils import _pytree as pytree

from . import _operators


class _Unfit(Exception):
    pass


def lower(gm, example_of):
    """example_of: a tensor like what a node gives, or None."""
    for node in list(gm.graph.nodes):
        lowering = _LOWERINGS.get(node.target) if node.op == "call_function" else None
        if lowering is None:
            continue
        try:
            bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
            bound.apply_defaults()
            lowering(_Place(gm, node, example_of), **bound.arguments)
        except Exception:  # the node computes the same as it is
            continue
    gm.graph.eliminate_dead_code()
    gm.graph.lint()
    gm.recompile()
    return gm


class _Body:
    """What a function does with `operands`, as a graph: its tensors come from them and from its cells."""

    def __init__(self, place, fn, operands):
        self.place, self.fn = place, fn
        self.examples = [place.example(v) for v in pytree.tree_leaves(operands)]
        self.made, self.lifted = {}, []
        self.record(self.function(fn), pytree.tree_map(place.example, operands))

    def function(self, node):
        """What the node makes, on examples of what the cells hold: tensors, and functions over cells of their own."""
        parts = []
        for part in node.args:
            if isinstance(part, torch.fx.Node) and _operators.makes_function(part):
                parts.append(self.function(part))
                continue
            parts.append(self.place.example(part))
            if isinstance(part, torch.fx.Node) and isinstance(parts[-1], torch.Tensor):
                self.lifted.append((part, parts[-1]))
        return node.target(*parts)

    def record(self, function, operands):
        from ._api import compile

        def backend(gm, inputs):
            if self.made:
                raise _Unfit("more than one graph")
            self.made["gm"] = gm

            def run(*args):
                self.made["args"], self.made["out"] = args, gm(*args)
                return self.made["out"]
            return run
        compiled = compile(function, backend=backend, fullgraph=True, dynamic=False)
        with torch.no_grad():
            compiled(*operands)
            result = compiled(*operands)
        if "out" not in self.made:
            raise _Unfit("no graph")
        self.leaves, self.spec = pytree.tree_flatten(result)

    def module(self, lifted):
        """A module that takes the operands and `lifted`: nodes of the outer graph."""
        graph, source, env = torch.fx.Graph(), self.made["gm"], {}
        values = self.examples + [next((v for n, v in self.lifted if n is node), None) for node in lifted]
        inputs = [graph.placeholder(f"arg{i}") for i in range(len(values))]
        for node, given in zip(source.graph.find_nodes(op="placeholder"), self.made["args"]):
            env[node] = inputs[_place_of(given, values)]
        for node in source.graph.nodes:
            if node.op not in ("placeholder", "output"):
                env[node] = graph.node_copy(node, env.__getitem__)
        outputs = [env.get(node, node) for node in pytree.tree_leaves(source.graph.output_node().args[0])]
        results = [outputs[_place_of(leaf, self.made["out"])] for leaf in self.leaves]
        graph.output(tuple(results))
        return torch.fx.GraphModule(source, graph)


def _children(spec):
    return spec.children() if hasattr(spec, "children") else spec.children_specs  # torch 2.6's has no method


def _place_of(value, values):
    for i, other in enumerate(values):
        if other is value:
            return i
    raise _Unfit("a value comes from elsewhere")


class _Place:
    def __init__(self, gm, node, example_of):
        self.gm, self.node, self.example_of = gm, node, example_of
        self.examples = {}  # values are found again by identity

    def example(self, value):
        if not isinstance(value, torch.fx.Node):
            return value
        if value not in self.examples:
            self.examples[value] = self.example_of(value)
        if self.examples[value] is None:
            raise _Unfit("an operand is no tensor")
        return self.examples[value]

    def body(self, fn, operands):
        if not (isinstance(fn, torch.fx.Node) and _operators.makes_function(fn)):
            raise _Unfit("a function that the graph does not make")
        return _Body(self, fn, operands)

    def replace(self, target, kind, bodies, arguments, spec):
        """target(*arguments(the nodes of the bodies, what they take besides)), whose results are those of the node."""
        users = list(self.node.users)
        single = spec == pytree.tree_structure(0)
        plain = type(spec.type) is type and spec.type in (tuple, list) and all(child.is_leaf() for child in _children(spec))
        if not single and not (plain and all(u.target is operator.getitem and type(u.args[1]) is int for u in users)):
            raise _Unfit("results that are not taken one by one")
        lifted = list(dict.fromkeys(node for body in bodies for node, _ in body.lifted))
        modules = [body.module(lifted) for body in bodies]
        graph = self.gm.graph
        with graph.inserting_before(self.node):
            nodes = []
            for name, module in zip(kind, modules):
                name = next(f"{name}_{i}" for i in range(10000) if not hasattr(self.gm, f"{name}_{i}"))
                self.gm.add_module(name, module)
                nodes.append(graph.get_attr(name))
            new = graph.call_function(target, arguments(nodes, tuple(lifted)))
            new.meta.update({k: v for k, v in self.node.meta.items() if k != "note"})
            if single:
                result = graph.call_function(operator.getitem, (new, 0))
                result.meta.update(self.node.meta)
        self.node.replace_all_uses_with(result if single else new)
        graph.erase_node(self.node)


def _cond(place, pred, true_fn, false_fn, operands):
    bodies = [place.body(true_fn, operands), place.body(false_fn, operands)]
    if bodies[0].spec != bodies[1].spec or not isinstance(pred, torch.fx.Node):
        raise _Unfit("branches of different kinds")
    leaves = tuple(pytree.tree_leaves(operands))
    place.replace(torch.ops.higher_order.cond, ("cond_true", "cond_false"), bodies,
                  lambda nodes, lifted: (pred, *nodes, leaves + lifted), bodies[0].spec)


def _while_loop(place, cond_fn, body_fn, carried_inputs):
    bodies = [place.body(cond_fn, carried_inputs), place.body(body_fn, carried_inputs)]
    single = bodies[0].module
    bodies[0].module = lambda lifted: _first_result(single(lifted))
    leaves = tuple(pytree.tree_leaves(carried_inputs))
    place.replace(torch.ops.higher_order.while_loop, ("cond_fn", "body_fn"), bodies, lambda nodes, lifted: (*nodes, leaves, lifted), bodies[1].spec)


def _first_result(module):
    output = module.graph.output_node()
    output.args = (output.args[0][0],)
    module.recompile()
    return module


def _scan(place, combine_fn, init, xs, dim, reverse, more):
    if dim != 0 or reverse or more:
        raise _Unfit("another dimension")
    rows = pytree.tree_map(lambda x: _Row(place.example(x)), xs)
    body = _ScanBody(place, combine_fn, init, rows)
    start, leaves = pytree.tree_leaves(init), pytree.tree_leaves(xs)
    carried, out = _children(body.spec)
    if not (carried.is_leaf() and out.is_leaf()):
        raise _Unfit("results that are not taken one by one")
    target = torch.ops.higher_order.scan
    if "dim" in inspect.signature(target.__call__).parameters:  # torch 2.6
        place.replace(target, ("scan_combine",), [body], lambda nodes, lifted: (nodes[0], start, leaves, 0, False, list(lifted)), body.spec)
    else:
        place.replace(target, ("scan_combine",), [body], lambda nodes, lifted: (nodes[0], start, leaves, lifted), body.spec)


class _Row:
    """One row of a tensor, as an operand without a node."""

    def __init__(self, tensor):
        self.value = tensor[0].clone()


class _ScanBody(_Body):
    def __init__(self, place, fn, init, rows):
        given = pytree.tree_map(place.example, init), pytree.tree_map(lambda r: r.value, rows)
        super().__init__(place, fn, given)
        self.examples = pytree.tree_leaves(given)


_LOWERINGS = {_operators.run_cond: _cond, _operators.run_while_loop: _while_loop, _operators.run_scan: _scan}
