"""torch.export of what was compiled gives the same program before and after calls, as stock's compiled objects do, strict or not."""

import pytest
import torch

import kintsugi


class WithFunction(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.tail = torch.nn.Linear(4, 4), torch.compile(lambda v: v.sin() + 1)

    def forward(self, x):
        return self.tail(self.linear(x)) * 2


class WithModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.compile(torch.nn.Linear(4, 4))

    def forward(self, x):
        return self.linear(x).relu()


@pytest.fixture
def installed():
    kintsugi.install()
    yield
    kintsugi.uninstall()
    kintsugi.reset()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("make", [WithFunction, WithModule, lambda: torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))],
                         ids=["function", "submodule", "whole"])
def test_the_same_program_before_and_after_calls(installed, make, strict):
    model, x = make(), torch.randn(2, 4)
    first = torch.export.export(model, (x,), strict=strict)
    for _ in range(3):
        expected = model(x)
    second = torch.export.export(model, (x,), strict=strict)
    assert first.graph_module.code == second.graph_module.code and "linear" in first.graph_module.code
    torch.testing.assert_close(second.module()(x), expected)


def test_stock_is_as_it_was_after_uninstall(installed):
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    patched = UserDefinedObjectVariable.call_function
    kintsugi.uninstall()
    assert UserDefinedObjectVariable.call_function is not patched
    kintsugi.install()


def test_a_module_whose_forward_is_a_generator_runs_eagerly_and_says_so():
    class Rows(torch.nn.Module):
        def forward(self, x):
            for i in range(2):
                yield x + i

    compiled = kintsugi.compile(Rows())
    for _ in range(2):
        assert [t.tolist() for t in compiled(torch.ones(1))] == [[1.0], [2.0]]
    stats = kintsugi.stats(compiled)
    assert stats["breaks"] == 1 and stats["recordings"] == 0 and stats["eager_calls"] == {"a generator function": 2}
    explained = kintsugi.explain(Rows())(torch.ones(1))
    assert explained.graph_break_count == 1 and explained.break_reasons[0].user_stack[0].name == "Rows.forward"
    with pytest.raises(Exception, match="generator"):
        kintsugi.compile(Rows(), fullgraph=True)(torch.ones(1))
