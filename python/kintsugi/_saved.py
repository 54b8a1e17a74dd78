"""Which tensors eager's nodes save, among a captured graph's inputs and results: writing to one of these before backward is an error in eager, whether or not the
compiled backward reads it."""

import torch

_names = {}  # by type of node: its attributes that hold what it saves


def _names_of(kind):
    if kind not in _names:
        attributes = dir(kind)
        raw = [name.removeprefix("_raw") for name in attributes if name.startswith("_raw_saved_")]
        _names[kind] = ["saved_tensors"] if "saved_tensors" in attributes else raw
    return _names[kind]


def _tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for one in value for t in _tensors_in(one)] if isinstance(value, (tuple, list)) else []


def _saved_by(node):
    tensors = [t for name in _names_of(type(node)) for t in _tensors_in(getattr(node, name))]
    only = getattr(node, "saved_in_eager", None)  # one of our nodes that stands for several of eager's
    return tensors if only is None else [tensors[i] for i in only]


def _in_order(first):
    """A result's nodes, each behind all that its gradients go on to."""
    order, seen, todo = [], set(), [(first, False)]
    while todo:
        node, done = todo.pop()
        if done:
            order.append(node)
        elif node is not None and node not in seen:
            seen.add(node)
            todo.append((node, True))
            todo.extend((after, False) for after, _ in node.next_functions)
    return order


def _bit(place):
    return 1 << min(place, 63)


def _owners(saved, tensors):
    """For each tensor that is saved the first of the others with the same counter of writes, or None. The counters are told apart by numbers that they hold meanwhile."""
    set_counters, before = torch._C._autograd._unsafe_set_version_counter, [t._version for t in tensors]
    set_counters(tensors, [(1 << 31) + i for i in range(len(tensors))])
    first = {}
    for t in tensors:
        first.setdefault(t._version, t)
    owners = [first.get(t._version) for t in saved]
    set_counters(tensors, before)
    return owners


def find(fakes, ninputs, outs, results, wanting):
    """[(number of an input or of a tensor among outs, bits of results, bits of wanting inputs)], for each node that saves it: it runs on the way from these results, to these
    inputs. The last bit stands for all from there on. No bits: another tensor that is saved; it may lie in an input's memory, although nobody counts that (x.data)."""
    number = {id(fake): i for i, fake in enumerate(fakes)}
    leads, runs, kept = {}, {}, []
    places = {id(fakes[w]): _bit(place) for place, w in enumerate(wanting)}
    for place, result in enumerate(results):
        for node in _in_order(fakes[result].grad_fn):
            if node not in leads:
                variable = getattr(node, "variable", None)
                leads[node] = 0 if variable is None else places.get(id(variable), 0)
                for after, _ in node.next_functions:
                    leads[node] |= leads.get(after, 0)
                kept += [(t, node) for t in _saved_by(node)]
            runs[node] = runs.get(node, 0) | _bit(place)
    known = [t for t in [*fakes[:ninputs], *(t for t in _tensors_in(outs) if number[id(t)] >= ninputs)] if not t.is_inference()]
    owners = _owners([t for t, _ in kept], known)
    found = {(number[id(owner)], runs[node], leads[node]) for owner, (_, node) in zip(owners, kept, strict=True) if owner is not None}
    apart = {number[id(t)] for owner, (t, _) in zip(owners, kept, strict=True) if owner is None and id(t) in number}
    return sorted(found | {(n, 0, 0) for n in apart})
