"""Which torch calls may run twice (kintsugi/_effects.py): compared with what PyTorch's schemas and the functions themselves do."""

import operator

import pytest
import torch
import torch.nn.functional as F
from kintsugi import _effects

X, M, W = {"vid": 1}, {"vid": 2}, {"vid": 3}


def node(fn, *args, op="call_function", **kwargs):
    return {"callable": fn, "target": "torch." + fn.__name__, "op": op, "args": args, "kwargs": kwargs, "switches": False, "vid": 9}


@pytest.mark.parametrize("call", [
    node(torch.add, X, X), node(torch.Tensor.add, X, X, op="call_method"), node(torch.sort, X, -1, True), node(torch.Tensor.sort, X, 0, op="call_method"),
    node(torch.sum, X, 0, True), node(F.relu, X), node(F.relu, X, False), node(F.gelu, X), node(F.dropout, X, 0.5, True), node(F.embedding, X, W),
    node(F.batch_norm, X, M, M), node(F.batch_norm, X, None, None, W, W, True), node(F.max_pool2d, X, 2, 2, 0, 1), node(torch.unique, X, return_inverse=True),
    node(F.scaled_dot_product_attention, X, X, X, None, 0.0, True), node(F.interpolate, X, 4, antialias=True), node(torch.rand_like, X),
    node(torch.add, X, X, out=None), node(operator.add, X, X), node(torch.Tensor.__getitem__, X, 0, op="call_method"), node(torch._assert_async, X),
    node(torch.batch_norm, X, W, W, M, M, False, 0.1, 1e-5, True), node(torch.lstm, X, X, X, True, 1, 0.0, True, False, False), node(torch.Tensor.float, X, op="call_method"),
], ids=lambda call: call["callable"].__name__)
def test_only_computes(call):
    assert not _effects.changes_something(call)


@pytest.mark.parametrize("call", [
    node(torch.Tensor.add_, X, X, op="call_method"), node(torch.add, X, X, out=W), node(F.relu, X, True), node(F.relu, X, inplace=True), node(F.relu_, X),
    node(F.batch_norm, X, M, M, W, W, True), node(F.batch_norm, X, M, M, training=True), node(F.batch_norm, X, M, M, training=X), node(F.instance_norm, X, M, M),
    node(torch.batch_norm, X, W, W, M, M, True, 0.1, 1e-5, True), node(F.embedding, X, W, None, 1.0), node(torch.rand, 3, generator=W),
    node(operator.iadd, X, X), node(operator.iand, X, X), node(operator.iconcat, X, X), node(operator.setitem, X, 0, X), node(setattr, X, "a", X),
    node(torch.Tensor.__iadd__, X, X, op="call_method"), node(torch.Tensor.__setitem__, X, 0, X, op="call_method"), node(torch.Tensor.backward, X, op="call_method"),
    node(torch.Tensor.retain_grad, X, op="call_method"), node(list.append, X, X, op="call_method"), node(print, X) | {"callable": None}, node(pytest.raises, X),
], ids=lambda call: call["callable"].__name__ if call["callable"] else "unknown")
def test_changes_something(call):
    assert _effects.changes_something(call)


def test_functions_in_place_are_those_of_pythons_module():
    a = [1]
    for name in operator.__all__:
        fn = getattr(operator, name)
        if fn in _effects._IN_PLACE and name not in ("setitem", "delitem"):
            assert "Same as a " in fn.__doc__, name
    assert operator.iconcat(a, [2]) is a


def test_what_methods_of_tensors_write_agrees_with_their_schemas():
    """A name that ends in an underscore is torch's own convention, so schemas must not contradict it."""
    for name in dir(torch.Tensor):
        schemas = _effects._schemas(name) if not name.startswith("_") else ()
        if schemas and name.endswith("_"):
            assert _effects._writes_by_schema(name), name
