"""What compile() returns for a module is what libraries take it for: stock's torch._dynamo.OptimizedModule (issue: Lightning, TorchRL)."""

import copy
import inspect
import pickle
import subprocess
import sys
import types

import torch

import kintsugi


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)

    def forward(self, x, scale=1.0):
        return self.lin(x) * scale

    def other(self, x):
        return self.lin(x) + 1


def test_isinstance_without_install():
    from torch._dynamo import OptimizedModule
    from torch._dynamo.eval_frame import OptimizedModule as same

    c = kintsugi.compile(Model())
    assert isinstance(c, OptimizedModule) and isinstance(c, same) and isinstance(c, torch.nn.Module)
    assert not isinstance(c, Model) and not isinstance(Model(), OptimizedModule)


def test_class_was_imported_before_install():
    code = ("import torch\nfrom torch._dynamo import OptimizedModule\nimport kintsugi\nkintsugi.install()\n"
            "c = torch.compile(torch.nn.Linear(2, 2))\nassert isinstance(c, OptimizedModule) and type(c).__module__ == 'kintsugi._module'\n"
            "assert torch._dynamo.OptimizedModule is OptimizedModule\n")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_compiling_does_not_import_the_compiler_package():
    code = ("import sys, torch, kintsugi\nc = kintsugi.compile(torch.nn.Linear(2, 2))\nc(torch.ones(1, 2)); c.forward(torch.ones(1, 2))\n"
            "isinstance(c, dict); c.state_dict()\nassert 'torch._dynamo' not in sys.modules\n")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_forward_says_whose_it_is():
    m = Model()
    c = kintsugi.compile(m)
    assert str(inspect.signature(c.forward)) == str(inspect.signature(m.__call__)) and "forward" in c.__dict__
    assert c.forward.__wrapped__ == m.__call__ and c.forward.__name__ == "_wrapped_call_impl"
    assert c._torchdynamo_orig_callable == m.forward
    x = torch.ones(1, 2)
    assert torch.equal(c.forward(x, scale=2.0), m(x, scale=2.0))


def test_forward_may_be_replaced():
    m, x = Model(), torch.ones(1, 2)
    c = kintsugi.compile(m)
    before = c.forward
    c.forward = types.MethodType(lambda self, x: before(x) + 100, c)
    assert torch.equal(c(x), m(x) + 100)
    c.forward = before
    assert torch.equal(c(x), m(x))


def test_dynamo_ctx_compiles_other_functions():
    m, x, graphs = Model(), torch.ones(1, 2), []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    c = kintsugi.compile(m, backend=backend)
    other = c.dynamo_ctx(m.other)
    assert torch.equal(other(x), m.other(x)) and len(graphs) == 1


def test_names_copies_and_pickles():
    m = Model()
    c = kintsugi.compile(m)
    assert list(c.state_dict()) == ["_orig_mod.lin.weight", "_orig_mod.lin.bias"]
    assert copy.copy(c)._orig_mod is m and copy.deepcopy(c)._orig_mod is not m
    again = pickle.loads(pickle.dumps(c))
    x = torch.ones(1, 2)
    assert type(again) is type(c) and torch.equal(again(x), m(x))


def test_a_compiled_module_inside_of_compiled_code():
    inner = kintsugi.compile(Model())
    outer = kintsugi.compile(lambda x: inner(x) + (1 if isinstance(inner, torch.nn.Module) else 2))
    x = torch.ones(1, 2)
    for _ in range(3):
        assert torch.equal(outer(x), inner._orig_mod(x) + 1)
